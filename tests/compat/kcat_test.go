//go:build external

package compat

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"varve/tests/node"
)

func kcat(t *testing.T, n *node.Node, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "kcat", append([]string{"-b", n.Kafka}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kcat %v: %v\n%s", args, err, stderr.String())
	}
	return string(out)
}

// TestKcat: librdkafka as Debian ships it: each codec, keys, headers, tombstones, idempotence, a large record, and a read
// by time.
func TestKcat(t *testing.T) {
	n := start(t)
	if md := kcat(t, n, "", "-L"); !strings.Contains(md, "1 brokers") {
		t.Fatalf("metadata: %s", md)
	}
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			topic := "kcat-" + codec
			var in strings.Builder
			for i := range 3000 {
				fmt.Fprintf(&in, "k%d:value %d %s\n", i, i, strings.Repeat("x", i%100))
			}
			kcat(t, n, in.String(), "-P", "-t", topic, "-p", "0", "-K:", "-z", codec, "-H", "origin=kcat",
				"-X", "enable.idempotence=true", "-X", "acks=all")
			out := kcat(t, n, "", "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%k:%s\n")
			if out != in.String() {
				t.Fatalf("read %d bytes, wrote %d", len(out), in.Len())
			}
			if head := kcat(t, n, "", "-C", "-t", topic, "-p", "0", "-o", "1500", "-c", "1", "-q", "-f", "%o %h"); head != "1500 origin=kcat" {
				t.Fatalf("headers: %q", head)
			}
			stamp := kcat(t, n, "", "-C", "-t", topic, "-p", "0", "-o", "0", "-c", "1", "-q", "-f", "%T")
			if at := kcat(t, n, "", "-C", "-t", topic, "-p", "0", "-o", "s@"+stamp, "-c", "1", "-q", "-f", "%o"); at != "0" {
				t.Fatalf("by time %s: offset %s", stamp, at)
			}
		})
	}
}

func TestKcatTombstoneAndLarge(t *testing.T) {
	n := start(t)
	kcat(t, n, "gone:\n", "-P", "-t", "tomb", "-p", "0", "-K:", "-Z")
	if out := kcat(t, n, "", "-C", "-t", "tomb", "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%k %S"); out != "gone -1" {
		t.Fatalf("tombstone: %q", out)
	}
	big := filepath.Join(t.TempDir(), "big")
	want := bytes.Repeat([]byte("0123456789abcdef"), 900<<10/16)
	if err := os.WriteFile(big, want, 0o600); err != nil {
		t.Fatal(err)
	}
	kcat(t, n, "", "-P", "-t", "large", "-p", "0", big)
	if out := kcat(t, n, "", "-C", "-t", "large", "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%s"); out != string(want) {
		t.Fatalf("large record: %d bytes, want %d", len(out), len(want))
	}
}

// TestKcatGroup: two librdkafka consumers share a topic, leave, and a third one finds that all is committed.
func TestKcatGroup(t *testing.T) {
	n := node.StartT(t, node.Options{Data: t.TempDir(), Args: []string{"--set", "listeners=PLAINTEXT://127.0.0.1:0",
		"--set", "varve.http.listen=", "--set", "num.partitions=4", "--set", "group.initial.rebalance.delay.ms=500"}})
	var in strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&in, "k%d:v%d\n", i, i)
	}
	kcat(t, n, in.String(), "-P", "-t", "shared", "-K:")
	for _, strategy := range []string{"range", "cooperative-sticky"} {
		args := []string{"-X", "partition.assignment.strategy=" + strategy, "-X", "session.timeout.ms=6000", "-X", "auto.offset.reset=earliest", "-e", "-q", "-f", "%s\n", "-G", "g-" + strategy, "shared"}
		outs := make([]string, 2)
		var both sync.WaitGroup
		for i := range outs {
			both.Go(func() { outs[i] = kcat(t, n, "", args...) })
		}
		both.Wait()
		seen := map[string]bool{}
		for _, line := range strings.Fields(outs[0] + outs[1]) {
			seen[line] = true
		}
		if len(seen) != 2000 {
			t.Errorf("%s: %d of 2000 records consumed", strategy, len(seen))
		}
		if again := kcat(t, n, "", args...); again != "" {
			t.Errorf("%s: consumed again after a commit: %d bytes", strategy, len(again))
		}
	}
}
