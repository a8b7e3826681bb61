package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// quick is what makes a group's first rebalance not wait for members that do not come.
const quick = "group.initial.rebalance.delay.ms=0"

// lag is what group describe says of one group, in JSON.
func (s tools) lag(group string) describedGroup {
	s.t.Helper()
	var groups []describedGroup
	if err := json.Unmarshal([]byte(s.want(exitOK, "", "group", "describe", group, "--format", "json")), &groups); err != nil || len(groups) != 1 {
		s.t.Fatal(groups, err)
	}
	return groups[0]
}

// committed are the offsets of topic t by partition; -1 is none.
func (g describedGroup) committed() (out []int64) {
	for _, o := range g.Offsets {
		if o.Committed == nil {
			out = append(out, -1)
			continue
		}
		out = append(out, *o.Committed)
	}
	return out
}

func same(a []int64, b ...int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// TestGroupReadsWhatItPrinted: a group goes on where it stopped, which is behind the last record that was printed.
func TestGroupReadsWhatItPrinted(t *testing.T) {
	s := start(t, t.TempDir(), quick).tools(t)
	s.want(exitOK, "", "topic", "create", "t", "--partitions", "2")
	s.produce("1\n2\n3\n4\n5\n", "t", "--partition", "0")
	read := []string{"consume", "t", "--group", "g", "--from-beginning"}
	if out := s.want(exitOK, "", append(read, "--count", "2")...); out != "1\n2\n" {
		t.Errorf("%q", out)
	}
	if g := s.lag("g"); g.State != "Empty" || len(g.Members) != 0 || g.Lag != 3 || !same(g.committed(), 2, -1) {
		t.Errorf("%+v", g)
	}
	if out := s.want(exitOK, "", append(read, "--timeout-ms", "1500")...); out != "3\n4\n5\n" {
		t.Errorf("%q", out)
	}
	if out := s.want(exitOK, "", "group", "list"); !strings.HasPrefix(strings.Split(out, "\n")[1], "g      Empty") {
		t.Error(out)
	}
	if out := s.want(exitOK, "", "group", "list", "--state", "Stable", "--format", "json"); out != "[]\n" {
		t.Error(out)
	}
}

// TestGroupIsLeftOnCtrlC: two members share the partitions; when one is told to end the other has all of them at once, long
// before a session would have ended.
func TestGroupIsLeftOnCtrlC(t *testing.T) {
	s := start(t, t.TempDir(), quick).tools(t)
	s.want(exitOK, "", "topic", "create", "t", "--partitions", "2")
	type member struct {
		stop      context.CancelFunc
		code      chan int
		out, errs buffer
	}
	join := func() *member {
		ctx, cancel := context.WithCancel(context.Background())
		m := &member{stop: cancel, code: make(chan int, 1)}
		go func() {
			m.code <- run(ctx, append([]string{"consume", "t", "--group", "g", "--from-beginning"}, s.at...), nil, strings.NewReader(""), &m.out, &m.errs)
		}()
		t.Cleanup(cancel)
		return m
	}
	members := func(n int) func() bool {
		return func() bool {
			_, out, _ := shell(t, append([]string{"group", "describe", "g", "--format", "json"}, s.at...)...)
			var groups []describedGroup
			if json.Unmarshal([]byte(out), &groups) != nil || len(groups) != 1 || groups[0].State != "Stable" || len(groups[0].Members) != n {
				return false
			}
			for _, m := range groups[0].Members {
				if len(m.Assigned["t"]) != 2/n {
					return false
				}
			}
			return true
		}
	}
	first, second := join(), join()
	eventually(t, "two members do not share the partitions", members(2))
	s.produce("a\nb\n", "t", "--partition", "0")
	s.produce("c\n", "t", "--partition", "1")
	eventually(t, "not all was printed", func() bool { return len(first.out.String()+second.out.String()) == len("a\nb\nc\n") })
	out := s.want(exitRuntime, "", "group", "reset", "g", "--topic", "t", "--to-earliest", "--execute")
	if !strings.Contains(out, "Stable with 2 members: stop its consumers first") {
		t.Error(out)
	}
	if out := s.want(exitRuntime, "", "group", "delete", "g"); !strings.Contains(out, "group g has members") {
		t.Error(out)
	}
	if out := s.want(exitOK, "", "group", "describe", "g", "--members"); !strings.Contains(out, " t:0\n") || !strings.Contains(out, " t:1\n") {
		t.Error(out)
	}
	first.stop()
	if code := <-first.code; code != exitOK {
		t.Errorf("exit %d: %s", code, first.errs.String())
	}
	eventually(t, "the member that was left does not have all partitions", members(1))
	second.stop()
	if code := <-second.code; code != exitOK {
		t.Errorf("exit %d: %s", code, second.errs.String())
	}
	if g := s.lag("g"); g.State != "Empty" || !same(g.committed(), 2, 1) || g.Lag != 0 {
		t.Errorf("%+v", g)
	}
}

// TestGroupReset moves offsets in every way, and only with --execute.
func TestGroupReset(t *testing.T) {
	s := start(t, t.TempDir(), quick).tools(t)
	s.want(exitOK, "", "topic", "create", "t", "--partitions", "2")
	for _, day := range []string{"2026-01-01", "2026-01-02", "2026-01-03"} {
		s.produce(strings.Repeat("x\n", 10), "t", "--partition", "0", "--timestamp", day)
		s.produce(strings.Repeat("x\n", 5), "t", "--partition", "1", "--timestamp", day)
	}
	file := filepath.Join(t.TempDir(), "offsets.csv")
	if err := os.WriteFile(file, []byte("t,1,4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args string
		want []int64
	}{
		{"--topic t --to-earliest --execute", []int64{0, 0}}, // the group comes into being
		{"--topic t --to-latest", []int64{0, 0}},
		{"--topic t --to-latest --dry-run", []int64{0, 0}},
		{"--topic t --to-latest --export", []int64{0, 0}},
		{"--topic t --to-latest --execute", []int64{30, 15}},
		{"--all-topics --shift-by -12 --execute", []int64{18, 3}},
		{"--topic t:0 --to-offset 99 --execute", []int64{30, 3}},
		{"--all-topics --to-datetime 2026-01-02T00:00:00 --execute", []int64{10, 5}},
		{"--all-topics --to-time 2030-01-01 --execute", []int64{30, 15}},
		{"--all-topics --by-duration P90000D --execute", []int64{0, 0}},
		{"--from-file " + file + " --execute", []int64{0, 4}},
		{"--topic t:1,0 --to-current --execute", []int64{0, 4}},
	} {
		s.want(exitOK, "", append([]string{"group", "reset", "g"}, strings.Fields(tc.args)...)...)
		if g := s.lag("g"); !same(g.committed(), tc.want...) {
			t.Errorf("%s: %v, want %v", tc.args, g.committed(), tc.want)
		}
	}
	if out := s.want(exitOK, "", "group", "reset", "g", "--all-topics", "--to-current", "--export"); out != "t,0,0\nt,1,4\n" {
		t.Errorf("%q", out)
	}
	if out := s.want(exitOK, "t,0,7\n", "group", "reset", "g", "--from-file", "-", "--format", "json"); !strings.Contains(out, `"executed": false`) || !strings.Contains(out, `"to": 7`) {
		t.Error(out)
	}
	for args, want := range map[string]string{
		"g --topic none --to-earliest":   "there is no topic none",
		"g --topic t:7 --to-earliest":    "t-7",
		"new --all-topics --to-earliest": "has committed no offset: name topics",
		"new --topic t --shift-by 1":     "no committed offset to shift",
	} {
		code, _, errs := shell(t, append(append([]string{"group", "reset"}, strings.Fields(args)...), s.at...)...)
		if code == exitOK || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d, want %q: %s", args, code, want, errs)
		}
	}
	if out := s.want(exitOK, "", "group", "delete", "g"); out != "deleted group g\n" {
		t.Error(out)
	}
	if out := s.want(exitRuntime, "", "group", "describe", "g"); !strings.Contains(out, "there is no group g") {
		t.Error(out)
	}
	if out := s.want(exitOK, "", "group", "delete", "g", "--if-exists"); out != "group g is not there\n" {
		t.Error(out)
	}
}

func TestTopicAlterAndClusterInfo(t *testing.T) {
	s := start(t, t.TempDir()).tools(t)
	s.want(exitOK, "", "topic", "create", "t", "--config", "retention.ms=5000")
	if out := s.want(exitOK, "", "topic", "alter", "t", "--partitions", "3", "--config", "retention.ms=6000", "--dry-run"); !strings.Contains(out, "would set retention.ms=6000") {
		t.Error(out)
	}
	if out := s.want(exitOK, "", "topic", "describe", "t"); !strings.Contains(out, "partitions 1") || !strings.Contains(out, "retention.ms=5000") {
		t.Error(out)
	}
	if out := s.want(exitRuntime, "", "topic", "alter", "t", "--partitions", "3", "--config", "retention.mss=1"); !strings.Contains(out, "did you mean retention.ms?") {
		t.Error(out)
	}
	if out := s.want(exitRuntime, "", "topic", "alter", "t", "--partitions", "1"); !strings.Contains(out, "can only grow") {
		t.Error(out)
	}
	if out := s.want(exitRuntime, "", "topic", "alter", "none", "--partitions", "2"); !strings.Contains(out, "there is no topic none") {
		t.Error(out)
	}
	if out := s.want(exitOK, "", "topic", "alter", "t", "--partitions", "3", "--config", "max.message.bytes=2000", "--delete-config", "retention.ms", "--format", "json"); !strings.Contains(out, `"partitions": 3`) {
		t.Error(out)
	}
	if out := s.want(exitOK, "", "topic", "describe", "t"); !strings.Contains(out, "partitions 3") || strings.Contains(out, "retention.ms") || !strings.Contains(out, "max.message.bytes=2000") {
		t.Error(out)
	}
	if out := s.want(exitRuntime, strings.Repeat("x", 3000), "produce", "t"); !strings.Contains(out, "max.message.bytes") {
		t.Error(out)
	}
	if out := s.want(exitOK, "", "cluster", "info"); !strings.Contains(out, "topics 1  partitions 3\n") || !strings.Contains(out, s.at[1]) {
		t.Error(out)
	}
	var info clusterState
	if err := json.Unmarshal([]byte(s.want(exitOK, "", "cluster", "info", "--format", "json")), &info); err != nil || info.ID == "" || len(info.Brokers) != 1 || info.Brokers[0].Partitions != 3 {
		t.Errorf("%+v %v", info, err)
	}
}
