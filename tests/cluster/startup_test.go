package cluster

import (
	"debug/elf"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"varve/tests/node"
	"varve/tests/s3server"
)

// refused starts a node that must end before it is ready, with a code and words that name what is wrong and what to do.
func refused(t *testing.T, o node.Options, code int, words ...string) {
	t.Helper()
	o.Binary = node.Binary(t)
	n, err := node.Start(t.Context(), o)
	if err == nil {
		n.Kill()
		t.Fatal("the node started")
	}
	var exit *node.ExitError
	if !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit.Code != code {
		t.Fatalf("exit code %d, want %d; stderr:\n%s", exit.Code, code, exit.Stderr)
	}
	for _, w := range words {
		if !strings.Contains(exit.Stderr, w) {
			t.Fatalf("stderr does not say %q:\n%s", w, exit.Stderr)
		}
	}
	if strings.Contains(exit.Stderr, "goroutine ") {
		t.Fatalf("a panic is no message:\n%s", exit.Stderr)
	}
}

func withSets(data string, sets ...string) node.Options {
	o := node.Options{Data: data, Args: append([]string{}, localPorts...)}
	for _, s := range sets {
		o.Args = append(o.Args, "--set", s)
	}
	return o
}

// TestStartRefused: each wrong configuration ends with exit code 2 and a line that names the fix.
func TestStartRefused(t *testing.T) {
	for name, c := range map[string]struct {
		set   string
		words []string
	}{
		"misspelt key":        {"log.segmnt.bytes=1048576", []string{"log.segmnt.bytes", "log.segment.bytes"}},
		"not a number":        {"log.segment.bytes=big", []string{"log.segment.bytes", "big"}},
		"out of range":        {"log.segment.bytes=3", []string{"log.segment.bytes", "3"}},
		"open listener":       {"listeners=PLAINTEXT://0.0.0.0:0", []string{"varve.insecure.listeners"}},
		"unknown protocol":    {"listeners=FOO://127.0.0.1:0", []string{"FOO"}},
		"tls is not there":    {"listeners=SSL://127.0.0.1:0", []string{"SSL"}},
		"two log dirs":        {"log.dirs=/a,/b", []string{"log.dirs"}},
		"bad tier url":        {"varve.tier.url=ftp://x/y", []string{"varve.tier.url", "s3://"}},
		"credentials in url":  {"varve.tier.url=s3://key:secret@bucket/p", []string{"varve.tier.url", "AWS_ACCESS_KEY_ID"}},
		"no listener at all":  {"listeners=", []string{"listeners"}},
		"retention nonsense":  {"log.retention.ms=-7", []string{"log.retention.ms"}},
		"unknown varve key":   {"varve.tier.ulr=dir:///x", []string{"varve.tier.url"}},
		"several voters":      {"controller.quorum.voters=1@127.0.0.1:9093,2@127.0.0.1:9094", []string{"controller.quorum.voters", "one node"}},
		"set without a value": {"log.segment.bytes", []string{"key=value"}},
	} {
		t.Run(name, func(t *testing.T) { refused(t, withSets(t.TempDir(), c.set), 2, c.words...) })
	}
	t.Run("environment", func(t *testing.T) {
		o := withSets(t.TempDir())
		o.Env = []string{"VARVE_LOG_SEGMENT_BYTE=5"}
		refused(t, o, 2, "VARVE_LOG_SEGMENT_BYTE", "VARVE_LOG_SEGMENT_BYTES")
	})
	t.Run("file", func(t *testing.T) {
		o := withSets(t.TempDir())
		o.Args = append(o.Args, "--config", filepath.Join(o.Data, "none.properties"))
		refused(t, o, 2, "none.properties")
	})
}

func TestStartPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr := l.Addr().String()
	refused(t, withSets(t.TempDir(), "listeners=PLAINTEXT://"+addr), 1, addr, "listeners")
	refused(t, withSets(t.TempDir(), "varve.http.listen="+addr), 1, addr, "varve.http.listen")
}

// TestStartForeign: a data folder that is not this node's, or newer than this binary, is left alone with exit code 4.
func TestStartForeign(t *testing.T) {
	data := t.TempDir()
	n := node.StartT(t, withSets(data))
	createTopic(t, n, "mine", 1, nil)
	if code, err := n.Terminate(t.Context()); err != nil || code != 0 {
		t.Fatalf("drain: exit %d %v\n%s", code, err, n.Stderr())
	}
	refused(t, withSets(data, "node.id=77"), 4, "77")
	meta := filepath.Join(data, "log", "meta.properties")
	raw, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(pattern, with string) {
		t.Helper()
		out := regexp.MustCompile(pattern).ReplaceAllString(string(raw), with)
		if out == string(raw) {
			t.Fatalf("%s is not in %s:\n%s", pattern, meta, raw)
		}
		if err := os.WriteFile(meta, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	edit(`(?m)^cluster\.id=.*$`, "cluster.id=AAAAAAAAAAAAAAAAAAAAAA")
	refused(t, withSets(data), 4, "AAAAAAAAAAAAAAAAAAAAAA")
	edit(`(?m)^version=.*$`, "version=99")
	refused(t, withSets(data), 4, "99")
	if err := os.WriteFile(meta, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	other := node.StartT(t, withSets(data))
	refused(t, withSets(data), 1, "another process")
	createTopic(t, other, "again", 1, nil)
}

// TestStartStore: a store that says no ends the first start with exit code 3; one that is not there yet does not.
func TestStartStore(t *testing.T) {
	s := s3server.Start(t)
	creds := []string{"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey}
	urls := map[string]string{
		"s3":    "s3://%s/p?endpoint=%s&region=us-east-1&path-style=true",
		"minio": "minio://%s/p?endpoint=%s",
	}
	for scheme, url := range urls {
		t.Run(scheme+" missing bucket", func(t *testing.T) {
			o := withSets(t.TempDir(), "varve.tier.url="+fmt.Sprintf(url, "not-there", s.Endpoint))
			o.Env = creds
			refused(t, o, 3, "not-there", "bucket")
		})
		t.Run(scheme+" forbidden", func(t *testing.T) {
			o := withSets(t.TempDir(), "varve.tier.url="+fmt.Sprintf(url, s.Bucket, s.Endpoint))
			o.Env = []string{"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=wrong-wrong-wrong"}
			refused(t, o, 3, "AWS_SECRET_ACCESS_KEY")
		})
		t.Run(scheme+" unreachable", func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			gone := "http://" + l.Addr().String()
			_ = l.Close()
			o := withSets(t.TempDir(), "varve.tier.url="+fmt.Sprintf(url, s.Bucket, gone))
			o.Env = creds
			n := node.StartT(t, o)
			createTopic(t, n, "hot", 1, nil)
			l2 := &load{topic: "hot", partitions: 1, seed: 3}
			l2.produce(t, n, 1<<20)
			l2.verify(t, n)
			if !strings.Contains(n.Stderr(), "level=WARN") {
				t.Fatalf("no warning:\n%s", n.Stderr())
			}
		})
	}
}

// TestStartQuickAndSmall: an empty folder serves within half a second; the binary is static and idles under 100 MB.
func TestStartQuickAndSmall(t *testing.T) {
	bin, err := elf.Open(node.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	defer bin.Close()
	for _, p := range bin.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Fatalf("the binary asks for a dynamic loader: %v", p.Type)
		}
	}
	best := time.Hour
	for range 5 { // the bound is the program's, not that of a machine busy with other tests
		n := node.StartT(t, withSets(t.TempDir()))
		best = min(best, n.Ready)
		rss, err := n.RSSBytes()
		if err != nil || rss > 100<<20 {
			t.Fatalf("resident %d bytes, %v", rss, err)
		}
		n.Kill()
		if best < 500*time.Millisecond {
			return
		}
	}
	t.Fatalf("the quickest of five starts took %s", best)
}
