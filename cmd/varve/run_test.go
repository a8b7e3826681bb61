package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// shell runs one command line as main would, without any of this process's environment.
func shell(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, nil, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// ok runs a command that must succeed and returns what it printed.
func ok(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := shell(t, args...)
	if code != exitOK {
		t.Fatalf("varve %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// golden compares with a file of testdata, or writes it when VARVE_TEST_REWRITE is set.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("VARVE_TEST_REWRITE") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s", path, got)
	}
}

// node is a server that runs in this process.
type node struct {
	kafka, http, tier, data string
	logs                    *bytes.Buffer // to be read after stop
	stop                    func() int
}

// start runs `varve server` on free ports. It is stopped at the end of the test.
func start(t *testing.T, data string, sets ...string) *node {
	t.Helper()
	args := []string{"server", "--data", data, "--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "varve.http.listen=127.0.0.1:0"}
	for _, s := range sets {
		args = append(args, "--set", s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	n := &node{data: data, logs: &bytes.Buffer{}}
	code := make(chan int, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		code <- run(ctx, args, nil, strings.NewReader(""), w, n.logs)
		_ = w.Close()
	})
	n.stop = sync.OnceValue(func() int { cancel(); wg.Wait(); return <-code })
	t.Cleanup(func() { n.stop() })
	line := make([]byte, 4096)
	size, err := r.Read(line)
	m := regexp.MustCompile(`^varve ready kafka=(\S+) http=(\S+) tier=(\S+)\n$`).FindStringSubmatch(string(line[:size]))
	if err != nil || m == nil {
		t.Fatalf("ready line %q, %v, exit %d\n%s", line[:size], err, n.stop(), n.logs)
	}
	n.kafka, n.http, n.tier = m[1], m[2], m[3]
	return n
}

func TestCommandWords(t *testing.T) {
	for _, tc := range []struct {
		args string
		code int
		want string // in stdout when code is 0, else in stderr
	}{
		{"", 2, "Usage: varve COMMAND"},
		{"help", 0, "varve topic create hello"},
		{"--help", 0, "Usage: varve COMMAND"},
		{"help topic create", 0, "Usage: varve topic create NAME"},
		{"topic help list", 0, "Usage: varve topic list"},
		{"help tpoic", 2, "did you mean topic?"},
		{"servr", 2, "did you mean server?"},
		{"qqqqqqqqqqq", 2, "commands: server, topic, produce, consume, group, cluster, tier, dump, demo, config, completion, version"},
		{"topic", 2, "Usage: varve topic COMMAND"},
		{"topic desribe", 2, "did you mean describe?"},
		{"topic create", 2, "something is missing: NAME"},
		{"topic create a b", 2, `"b" is too much`},
		{"topic create a --partition 3", 2, "did you mean --partitions?"},
		{"topic create a --partitions x", 2, "invalid value"},
		{"topic create a --partitions 0", 2, "at least 1"},
		{"topic create a --config x", 2, "not of the form KEY=VALUE"},
		{"topic list --format xml", 2, "--format is text or json"},
		{"topic create --help", 0, "--replication-factor N"},
		{"version --format json", 0, `"go": "go1.`},
		{"--version", 0, "varve "},
		{"server --set nonsense", 2, "not of the form key=value"},
		{"server --set num.partitons=1", 2, "did you mean num.partitions?"},
		{"server --config none.properties", 2, "none.properties"},
		{"server extra", 2, `"extra" is too much`},
		{"tier ls nonsense", 2, "tier ls"},
		{"tier ls dir:///varve/does/not/exist", 3, "name the folder of the tier"},
		{"tier status --http 127.0.0.1:1", 1, "start one with `varve server`"},
		{"topic list --bootstrap-server 127.0.0.1:1", 1, "start one with `varve server`"},
		{"dump", 2, "something is missing: FILE"},
		{"demo --source /varve/does/not/exist", 1, "--source"},
		{"config --set num.partitions=7", 0, "num.partitions  7      --set"},
		{"config --all --format json", 0, `"key": "varve.tier.url"`},
		{"config --markdown", 0, "| `varve.tier.url` |"},
		{"config --set num.partitions=x", 2, "allowed: a whole number"},
	} {
		code, out, errs := shell(t, strings.Fields(tc.args)...)
		text := errs
		if tc.code == 0 {
			text = out
		}
		if code != tc.code || !strings.Contains(text, tc.want) {
			t.Errorf("varve %s: exit %d, want %d and %q; got:\n%s%s", tc.args, code, tc.code, tc.want, out, errs)
		}
	}
}

// TestHelpOfEveryCommand: each has a sentence, examples that begin with the command's words, and help that ends with 0.
func TestHelpOfEveryCommand(t *testing.T) {
	for _, words := range []string{"server", "topic create", "topic list", "topic describe", "topic alter", "topic delete", "produce", "consume", "group list", "group describe", "group reset", "group delete", "cluster info", "completion", "tier status", "tier ls", "tier inspect", "tier cat", "tier verify", "tier cost", "tier import", "dump", "demo", "config", "version"} {
		out := ok(t, append(strings.Fields(words), "--help")...)
		if !strings.HasPrefix(out, "Usage: varve "+words+" ") || !strings.Contains(out, "Examples:\n  ") || !strings.Contains(out, "varve "+words) {
			t.Errorf("%s: %s", words, out)
		}
	}
}

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 8 << 20: "8.0 MiB", 3 << 40: "3.0 TiB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234"} {
		if got := count(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

// TestTopicsOfARunningNode goes through the life of a topic with the tools alone.
func TestTopicsOfARunningNode(t *testing.T) {
	n := start(t, t.TempDir())
	at := []string{"--bootstrap-server", n.kafka}
	tool := func(args ...string) (int, string, string) { return shell(t, append(args, at...)...) }
	if code, out, errs := tool("topic", "create", "hello", "--partitions", "3", "--config", "retention.ms=-1"); code != 0 || !strings.Contains(out, "created topic hello: 3 partitions, 1 replicas each") {
		t.Fatal(code, out, errs)
	}
	if code, _, errs := tool("topic", "create", "hello"); code != 1 || !strings.Contains(errs, "TOPIC_ALREADY_EXISTS") {
		t.Error(code, errs)
	}
	if code, out, errs := tool("topic", "create", "hello", "--if-not-exists"); code != 0 || !strings.Contains(out, "is there already") {
		t.Error(code, out, errs)
	}
	if code, _, errs := tool("topic", "create", "other", "--config", "retention.mss=1"); code != 1 || !strings.Contains(errs, "did you mean retention.ms?") {
		t.Error(code, errs)
	}
	if code, out, errs := tool("topic", "list"); code != 0 || out != "TOPIC  PARTITIONS  REPLICAS\nhello           3         1\n" {
		t.Errorf("%d %q %s", code, out, errs)
	}
	if code, out, errs := tool("topic", "list", "--format", "json"); code != 0 || !strings.Contains(out, `"partitions": 3`) {
		t.Error(code, out, errs)
	}
	if code, out, errs := tool("topic", "describe", "hello"); code != 0 || !strings.Contains(out, "retention.ms=-1") || !regexp.MustCompile(`(?m)^ +2 +1 +\d+ +1 +1 +0 +- +0 +0$`).MatchString(out) {
		t.Error(code, out, errs)
	}
	if code, out, errs := tool("topic", "describe", "hello", "nothing", "--format", "json"); code != 1 || !strings.Contains(errs, "nothing: UNKNOWN_TOPIC_OR_PARTITION") || !strings.Contains(out, `"tierEnd": -1`) {
		t.Error(code, out, errs)
	}
	if out := ok(t, "tier", "status", "--http", n.http); !strings.HasPrefix(out, n.tier) && !strings.Contains(out, "hello") {
		t.Error(out)
	}
	if code, out, errs := tool("topic", "delete", "hello", "nothing", "--if-exists"); code != 0 || !strings.Contains(out, "deleted topic hello") || !strings.Contains(out, "topic nothing is not there") {
		t.Error(code, out, errs)
	}
	for _, tc := range []struct{ args, want string }{
		{"create more --if-not-exists", `"created": true`}, {"create more --if-not-exists", `"created": false`}, {"delete more", `"deleted": true`}, {"delete more --if-exists", `"deleted": false`},
	} {
		if code, out, errs := tool(append(strings.Fields("topic "+tc.args), "--format", "json")...); code != 0 || !strings.Contains(out, tc.want) {
			t.Error(tc.args, code, out, errs)
		}
	}
	if code := n.stop(); code != exitOK {
		t.Errorf("drained with exit %d\n%s", code, n.logs)
	}
}

// TestServerRefuses: what is wrong at start is told with its exit code.
func TestServerRefuses(t *testing.T) {
	n := start(t, t.TempDir())
	other := t.TempDir()
	for _, tc := range []struct {
		code int
		want string
		args []string
	}{
		{1, "stop what uses the port", []string{"--data", other, "--set", "listeners=PLAINTEXT://" + n.kafka, "--set", "varve.http.listen="}},
		{1, n.http, []string{"--data", other, "--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "varve.http.listen=" + n.http}},
		{2, "varve.tier.url", []string{"--data", other, "--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "varve.http.listen=", "--set", "varve.tier.url=ftp://x"}},
		{1, "process", []string{"--data", n.data, "--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "varve.http.listen="}},
	} {
		if code, _, errs := shell(t, append([]string{"server"}, tc.args...)...); code != tc.code || !strings.Contains(errs, tc.want) {
			t.Errorf("%v: exit %d, want %d and %q:\n%s", tc.args, code, tc.code, tc.want, errs)
		}
	}
	if code := n.stop(); code != exitOK {
		t.Fatal(code)
	}
	if code, _, errs := shell(t, "server", "--data", n.data, "--set", "node.id=9", "--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "varve.http.listen="); code != exitForeign {
		t.Errorf("exit %d for another node's data:\n%s", code, errs)
	}
}

// TestDemoOfASmallFolder runs the whole demonstration on a few files.
func TestDemoOfASmallFolder(t *testing.T) {
	source := t.TempDir()
	long := strings.Repeat("x", 3<<20/2)
	for name, text := range map[string]string{"a.txt": "one\ntwo\n", "empty": "", "no-newline": "x\ny", "long": long + "\n" + long, "binary": "\x00\n\xff\r\n\n\n"} {
		if err := os.WriteFile(filepath.Join(source, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	work := filepath.Join(t.TempDir(), "work")
	began := time.Now()
	out := ok(t, "demo", "--source", source, "--dir", work)
	if !strings.Contains(out, "all 5 files came back byte for byte") {
		t.Error(out)
	}
	if _, err := os.Stat(filepath.Join(work, "log", demoTopic+"-0")); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
}
