package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// feed is shell with something to read.
func feed(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, nil, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// tools runs commands against one node.
type tools struct {
	t  *testing.T
	at []string
}

func (n *node) tools(t *testing.T) tools { return tools{t, []string{"--bootstrap-server", n.kafka}} }

// want runs a command that must end with code and returns both outputs together.
func (s tools) want(code int, stdin string, args ...string) string {
	s.t.Helper()
	got, out, errs := feed(s.t, stdin, append(args, s.at...)...)
	if got != code {
		s.t.Fatalf("varve %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, code, out, errs)
	}
	return out + errs
}

func (s tools) produce(stdin string, args ...string) string {
	s.t.Helper()
	return s.want(exitOK, stdin, append([]string{"produce"}, args...)...)
}

// read returns what consume prints from the beginning to the end.
func (s tools) read(args ...string) string {
	s.t.Helper()
	return s.want(exitOK, "", append([]string{"consume", "--until-end"}, args...)...)
}

func TestProduceAndConsumeFormats(t *testing.T) {
	s := start(t, t.TempDir()).tools(t)
	for _, topic := range []string{"lines", "copy", "objects", "pictures"} {
		s.want(exitOK, "", "topic", "create", topic)
	}
	if out := s.produce("one\r\ntwo\n\nfour", "lines"); out != "produced 4 records, 10 B, to lines: partition 0 offsets 0 to 3\n" {
		t.Errorf("%q", out)
	}
	if out := s.read("lines", "--from-beginning"); out != "one\ntwo\n\nfour\n" {
		t.Errorf("%q", out)
	}
	s.produce("k:v:w\nNULL:gone\nk:NULL\n", "--topic", "lines", "--key-separator", ":", "--null-marker", "NULL", "--header", "a=b=c", "--header", "d=", "--timestamp", "2026-01-31T13:00:00Z", "--compression-codec", "zstd", "--acks", "1")
	if out := s.read("lines", "--offset", "4", "--print", "partition,offset,timestamp,headers,key,value", "--separator", "|"); out != ""+
		"0|4|2026-01-31T13:00:00.000Z|a=b=c,d=|k|v:w\n"+
		"0|5|2026-01-31T13:00:00.000Z|a=b=c,d=|null|gone\n"+
		"0|6|2026-01-31T13:00:00.000Z|a=b=c,d=|k|null\n" {
		t.Errorf("%s", out)
	}
	s.produce("00ff 6b\n"+"- 76\n", "lines", "--format", "hex", "--key-separator", " ", "--null-marker", "-")
	if out := s.read("lines", "--offset", "-2", "--format", "hex", "--key-separator", `\t`); out != "00ff\t6b\nnull\t76\n" {
		t.Errorf("%q", out)
	}
	input := `{"topic":"objects","partition":0,"offset":0,"timestamp":1767225600000,"key":"k<&>\u0000","value":"häß"}` + "\n" +
		`{"topic":"objects","partition":0,"offset":1,"timestamp":1767225600000,"key":null,"value":null,"headers":[{"key":"h","value":"x"},{"key":"n","value":null},{"key":"b","valueBase64":"/w=="}]}` + "\n" +
		`{"topic":"objects","partition":0,"offset":2,"timestamp":1767225600000,"keyBase64":"/wA=","valueBase64":"gA=="}` + "\n"
	s.produce(input, "objects", "--format", "json")
	if out := s.read("objects", "--from-beginning", "--format", "json"); out != input {
		t.Errorf("not what was written:\n%s", out)
	}
	s.produce(s.read("objects", "--from-beginning", "--format", "json"), "copy", "--format", "json")
	if out := s.read("copy", "--from-beginning", "--format", "json"); out != strings.ReplaceAll(input, "objects", "copy") {
		t.Errorf("the copy differs:\n%s", out)
	}
	s.produce(`{"value":{"n": [1, true]}}`+"\n"+`{"value":7,"timestamp":"2026-01-01T00:00:00Z"}`, "objects", "--format", "json", "--key", "k")
	if out := s.read("objects", "--offset", "3", "--print", "key,value"); out != "k\t{\"n\":[1,true]}\nk\t7\n" {
		t.Errorf("%q", out)
	}
	picture := string([]byte{0, '\n', 0xff, '\r', '\n'})
	file := filepath.Join(t.TempDir(), "picture")
	if err := os.WriteFile(file, []byte(picture), 0o600); err != nil {
		t.Fatal(err)
	}
	s.produce("", "pictures", "--format", "raw", "--file", file, "--key", "cat")
	if out := s.read("pictures", "--from-beginning", "--format", "raw"); out != picture {
		t.Errorf("%q", out)
	}
	if out := s.read("pictures", "--from-beginning", "--format", "base64"); out != base64.StdEncoding.EncodeToString([]byte(picture))+"\n" {
		t.Errorf("%q", out)
	}
	if out := s.produce("not read", "pictures", "--key", "cat", "--tombstone", "--report", "json"); !strings.Contains(out, `"firstOffset": 1`) {
		t.Error(out)
	}
	if out := s.read("pictures", "--offset", "1", "--key-separator", "="); out != "cat=null\n" {
		t.Errorf("%q", out)
	}
}

func TestProduceToPartitionsAndRefusals(t *testing.T) {
	s := start(t, t.TempDir()).tools(t)
	s.want(exitOK, "", "topic", "create", "three", "--partitions", "3")
	s.produce("a\nb\n", "three", "--partition", "2")
	s.produce(`{"value":"c","partition":1}`, "three", "--format", "json")
	s.produce("k\tv\nk\tw\n", "three", "--key-separator", `\t`) // murmur2 of "k" leads to one partition
	if out := s.read("three", "--partition", "2,1", "--from-beginning", "--print", "partition,value", "--separator", " "); !strings.Contains(out, "2 a\n2 b\n") || !strings.Contains(out, "1 c\n") {
		t.Errorf("%q", out)
	}
	if out := s.read("three", "--from-beginning"); len(out) != len("a\nb\nc\nv\nw\n") {
		t.Errorf("%q", out)
	}
	for _, tc := range []struct {
		code  int
		stdin string
		args  string
		want  string
	}{
		{2, "", "produce", "something is missing: the topic"},
		{2, "", "produce three --topic three", "named twice"},
		{2, "", "produce three --format xml", "--format is one of text, json"},
		{2, "", "produce three --acks 2", "--acks is all, 1 or 0"},
		{2, "", "produce three --compression brotli", "--compression-codec is one of"},
		{2, "", "produce three --tombstone", "--tombstone needs the --key"},
		{2, "", "produce three --header x", "not of the form KEY=VALUE"},
		{2, "", "produce three --timestamp yesterday", "is no time"},
		{2, "", "produce three --format raw --key-separator :", "is for lines"},
		{1, "", "produce none", "`varve topic create none` makes it"},
		{1, "", "produce three --partition 3", "there are 0 to 2"},
		{1, "", "produce three --file /varve/does/not/exist", "/varve/does/not/exist"},
		{1, "a:b\nc\n", "produce three --key-separator :", `line 2: there is no ":"`},
		{1, "zz\n", "produce three --format hex", "line 1: value"},
		{1, "{}\n", "produce three --format json", `a tombstone is written as "value":null`},
		{1, `{"value":"x","vlaue":1}`, "produce three --format json", "vlaue"},
		{1, `{"value":"x","partition":9}`, "produce three --format json", "partition 9"},
		{1, strings.Repeat("x", 9000), "produce three --max-message-bytes 1000", "raise --max-message-bytes"},
		{1, strings.Repeat("x", 2<<20), "produce three --max-message-bytes 10000000", "varve topic alter three --config max.message.bytes=N"},
		{2, "", "consume", "something is missing: the topic"},
		{2, "", "consume three --offset first", "--offset is a number"},
		{2, "", "consume three --offset 1 --from-beginning", "exclude each other"},
		{2, "", "consume three --group g --offset 1", "varve group reset"},
		{2, "", "consume three --group g --until-end", "--timeout-ms 5000"},
		{2, "", "consume three --print vlaue", "the fields are topic"},
		{2, "", "consume three --partition x", "is no number of a partition"},
		{1, "", "consume none", "`varve topic create none` makes it"},
		{1, "", "consume three --partition 7", "there are 0 to 2"},
		{1, "", "consume three --partition 2 --offset 99", "begin"},
		{1, "", "consume three --count 3 --timeout-ms 50", "0 of 3 records came"},
		{1, "", "consume three --bootstrap-server 127.0.0.1:1", "start one with `varve server`"},
	} {
		args := strings.Fields(tc.args)
		if !strings.Contains(tc.args, "--bootstrap-server") {
			args = append(args, s.at...)
		}
		if code, out, errs := feed(t, tc.stdin, args...); code != tc.code || !strings.Contains(errs, tc.want) {
			t.Errorf("varve %s: exit %d, want %d and %q; got:\n%s%s", tc.args, code, tc.code, tc.want, out, errs)
		}
	}
	if out := s.produce("x\n", "made", "--create"); !strings.Contains(out, "produced 1 records") {
		t.Error(out)
	}
}

// buffer can be read while it is written to.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// TestConsumeFollows: without an end it shows what comes, by time and count it ends, and Ctrl-C is no failure.
func TestConsumeFollows(t *testing.T) {
	s := start(t, t.TempDir()).tools(t)
	s.want(exitOK, "", "topic", "create", "live", "--partitions", "2")
	s.produce("old\n", "live", "--timestamp", "2026-01-01", "--partition", "0")
	s.produce("young\n", "live", "--timestamp", "2026-02-01", "--partition", "1")
	if out := s.read("live", "--from-time", "2026-01-15"); out != "young\n" {
		t.Errorf("%q", out)
	}
	if out := s.read("live", "--from-beginning", "--isolation-level", "read_committed"); len(out) != len("old\nyoung\n") {
		t.Errorf("%q", out)
	}
	if out := s.want(exitOK, "", "consume", "--topic", "live", "--offset", "earliest", "--max-messages", "2"); len(out) != len("old\nyoung\n") {
		t.Errorf("%q", out)
	}
	if out := s.want(exitOK, "", "consume", "live", "--from-beginning", "--timeout-ms", "700"); len(out) != len("old\nyoung\n") {
		t.Errorf("%q", out)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append([]string{"consume", "live"}, s.at...), nil, strings.NewReader(""), &out, &errs)
	}()
	eventually(t, "what is written later is not shown", func() bool {
		s.produce("new\n", "live")
		return strings.HasPrefix(out.String(), "new\n")
	})
	cancel()
	if got := <-code; got != exitOK || strings.Contains(out.String(), "old") {
		t.Errorf("exit %d\n%s%s", got, out.String(), errs.String())
	}
}

func TestTimesPeopleWrite(t *testing.T) {
	now := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	for text, want := range map[string]string{
		"0": "1970-01-01T00:00:00Z", "1767225600000": "2026-01-01T00:00:00Z", "2026-01-31": "2026-01-31T00:00:00Z", "2026-01-31T13:00": "2026-01-31T13:00:00Z",
		"2026-01-31T13:00:00.5": "2026-01-31T13:00:00.5Z", "2026-01-31T13:00:00+02:00": "2026-01-31T11:00:00Z", "1h": "2026-02-03T03:05:06Z", "-90m": "2026-02-03T02:35:06Z",
		"7d": "2026-01-27T04:05:06Z", "PT1H30M": "2026-02-03T02:35:06Z", "P1DT1S": "2026-02-02T04:05:05Z",
	} {
		at, err := parseTime(text, now)
		if got := at.UTC().Format(time.RFC3339Nano); err != nil || got != want {
			t.Errorf("%s: %s %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "yesterday", "-5", "P", "PT", "P1Y", "99999999999999d", "PT99999999999999999H", "2026-13-01"} {
		if at, err := parseTime(text, now); err == nil {
			t.Errorf("%q is %s", text, at)
		}
	}
}

// FuzzJSONRecords: what consume writes, produce reads back as it was.
func FuzzJSONRecords(f *testing.F) {
	f.Add([]byte("k"), []byte("v"), "h", []byte("x"))
	f.Add([]byte(nil), []byte{0xff}, "\x00<", []byte{})
	f.Fuzz(func(t *testing.T, key, value []byte, name string, header []byte) {
		name = strings.ToValidUTF8(name, "?")
		r := &kgo.Record{Topic: "t", Partition: 3, Timestamp: time.UnixMilli(5), Key: key, Value: value, Headers: []kgo.RecordHeader{{Key: name, Value: header}}}
		line := recordCodec{format: formatJSON}.encode(nil, r)
		got, err := recordCodec{format: formatJSON}.decode(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		same := func(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
		if !same(got.key, key) || !same(got.value, value) || got.partition != 3 || got.timestamp.UnixMilli() != 5 || got.headers[0].Key != name || !same(got.headers[0].Value, header) {
			t.Errorf("%s became %+v", line, got)
		}
	})
}
