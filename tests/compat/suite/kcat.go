package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

func kcatClient() Client {
	cases := []Case{
		{Name: "metadata", Run: kcatMetadata},
		{Name: "idempotent", Run: kcatRoundTrip("none", "-X", "enable.idempotence=true")},
		{Name: "acks-0", Run: kcatRoundTrip("none", "-X", "acks=0")},
		{Name: "acks-1", Run: kcatRoundTrip("none", "-X", "acks=1")},
		{Name: "acks-all", Run: kcatRoundTrip("none", "-X", "acks=all")},
		{Name: "tombstone", Run: kcatTombstone},
		{Name: "big", Run: kcatBig},
		{Name: "by-time", Run: kcatByTime},
		{Name: "from-middle", Run: kcatMiddle},
		{Name: "group-resume", Run: kcatGroup},
	}
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		cases = append(cases, Case{Name: "codec-" + codec, Run: kcatRoundTrip(codec)})
	}
	return Client{Name: "kcat", Registry: registryDebian, Install: installKcat, Version: kcatVersion, Cases: cases}
}

var kcatSays = regexp.MustCompile(`(?s)Version (\S+).*librdkafka ([0-9.]+)`)

func kcatVersion() string {
	out, _ := exec.Command("kcat", "-V").CombinedOutput()
	if m := kcatSays.FindSubmatch(out); m != nil {
		return fmt.Sprintf("%s on librdkafka %s", m[1], m[2])
	}
	return ""
}

func kcat(ctx context.Context, e *Env, stdin string, args ...string) (string, error) {
	return run(exec.CommandContext(ctx, "kcat", append([]string{"-b", e.Broker.Addr}, args...)...), e, stdin)
}

// kcatLines are records whose keys and values differ in length.
func kcatLines(count int) string {
	var in strings.Builder
	for i := range count {
		fmt.Fprintf(&in, "k%d:value %d %s\n", i, i, strings.Repeat("x", i%100))
	}
	return in.String()
}

func kcatMetadata(ctx context.Context, e *Env) error {
	out, err := kcat(ctx, e, "", "-L")
	return errors.Join(err, contains("metadata", out, "1 brokers", e.Broker.Addr))
}

func kcatRoundTrip(codec string, more ...string) func(context.Context, *Env) error {
	return func(ctx context.Context, e *Env) error {
		in := kcatLines(3000)
		write := append([]string{"-P", "-t", e.Name, "-p", "0", "-K:", "-z", codec, "-H", "origin=kcat"}, more...)
		if _, err := kcat(ctx, e, in, write...); err != nil {
			return err
		}
		out, err := kcat(ctx, e, "", "-C", "-t", e.Name, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%k:%s\n")
		return errors.Join(err, want("read back", out, in))
	}
}

func kcatTombstone(ctx context.Context, e *Env) error {
	if _, err := kcat(ctx, e, "gone:\n", "-P", "-t", e.Name, "-p", "0", "-K:", "-Z"); err != nil {
		return err
	}
	out, err := kcat(ctx, e, "", "-C", "-t", e.Name, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%k %S")
	return errors.Join(err, want("tombstone", out, "gone -1"))
}

func kcatBig(ctx context.Context, e *Env) error {
	file, text := filepath.Join(e.Dir, "big"), strings.Repeat("0123456789abcdef", 900<<10/16)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	if _, err := kcat(ctx, e, "", "-P", "-t", e.Name, "-p", "0", file); err != nil {
		return err
	}
	out, err := kcat(ctx, e, "", "-C", "-t", e.Name, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%s")
	return errors.Join(err, want("large record", out, text))
}

func kcatByTime(ctx context.Context, e *Env) error {
	if _, err := kcat(ctx, e, kcatLines(100), "-P", "-t", e.Name, "-p", "0", "-K:"); err != nil {
		return err
	}
	stamp, err := kcat(ctx, e, "", "-C", "-t", e.Name, "-p", "0", "-o", "0", "-c", "1", "-q", "-f", "%T")
	if err != nil {
		return err
	}
	at, err := kcat(ctx, e, "", "-C", "-t", e.Name, "-p", "0", "-o", "s@"+stamp, "-c", "1", "-q", "-f", "%o")
	return errors.Join(err, want("by time", at, "0"))
}

func kcatMiddle(ctx context.Context, e *Env) error {
	if _, err := kcat(ctx, e, kcatLines(3000), "-P", "-t", e.Name, "-p", "0", "-K:", "-H", "origin=kcat"); err != nil {
		return err
	}
	head, err := kcat(ctx, e, "", "-C", "-t", e.Name, "-p", "0", "-o", "1500", "-c", "1", "-q", "-f", "%o %k %h")
	if err := errors.Join(err, want("middle", head, "1500 k1500 origin=kcat")); err != nil {
		return err
	}
	last, err := kcat(ctx, e, "", "-C", "-t", e.Name, "-p", "0", "-o", "-1", "-c", "1", "-q", "-f", "%o")
	return errors.Join(err, want("one before the end", last, "2999"))
}

// kcatGroup reads half as a member of a group, leaves, and gets the rest as the next member.
func kcatGroup(ctx context.Context, e *Env) error {
	if _, err := kcat(ctx, e, kcatLines(1000), "-P", "-t", e.Name, "-p", "0", "-K:"); err != nil {
		return err
	}
	read := func(count string) (string, error) {
		return kcat(ctx, e, "", "-G", e.Name, "-X", "auto.offset.reset=earliest", "-c", count, "-q", "-f", "%k:%s\n", e.Name)
	}
	first, err := read("400")
	if err != nil {
		return err
	}
	rest, err := read("600")
	return errors.Join(err, want("both halves", first+rest, kcatLines(1000)))
}
