package main

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func at(n int64) *int64 { return &n }

func TestPlanOfAReset(t *testing.T) {
	p := topicPartition{"t", 3}
	for _, tc := range []struct {
		target    resetTarget
		committed *int64
		atTime    int64
		want      int64
		note      string
	}{
		{resetTarget{kind: "to-earliest"}, nil, -1, 10, ""},
		{resetTarget{kind: "to-latest"}, at(11), -1, 20, ""},
		{resetTarget{kind: "to-current"}, at(11), -1, 11, ""},
		{resetTarget{kind: "to-current"}, at(5), -1, 5, ""}, // to save it as it is
		{resetTarget{kind: "to-current"}, nil, -1, 20, ""},
		{resetTarget{kind: "to-offset", offset: 12}, nil, -1, 12, ""},
		{resetTarget{kind: "to-offset", offset: 9}, nil, -1, 10, "9 is before the first record"},
		{resetTarget{kind: "to-offset", offset: 21}, nil, -1, 20, "21 is after the end"},
		{resetTarget{kind: "shift-by", offset: -2}, at(15), -1, 13, ""},
		{resetTarget{kind: "shift-by", offset: -9}, at(15), -1, 10, "6 is before the first record"},
		{resetTarget{kind: "shift-by", offset: math.MaxInt64}, at(15), -1, 20, ""},
		{resetTarget{kind: "shift-by", offset: math.MinInt64}, at(15), -1, 10, "-9223372036854775793 is before the first record"},
		{resetTarget{kind: "to-datetime"}, nil, 14, 14, ""},
		{resetTarget{kind: "to-datetime"}, nil, -1, 20, "no record is that young: the end"},
		{resetTarget{kind: "from-file", file: map[topicPartition]int64{p: 17}}, nil, -1, 17, ""},
	} {
		row, err := planReset(tc.target, p, resetState{committed: tc.committed, start: 10, end: 20, atTime: tc.atTime})
		if err != nil || row.To != tc.want || row.Note != tc.note || row.From != tc.committed {
			t.Errorf("%+v: %+v %v, want %d %q", tc.target, row, err, tc.want, tc.note)
		}
	}
	if _, err := planReset(resetTarget{kind: "shift-by", offset: 1}, p, resetState{start: 10, end: 20}); err == nil || !strings.Contains(err.Error(), "no committed offset to shift") {
		t.Error(err)
	}
}

func TestOffsetsFromAFile(t *testing.T) {
	got, err := readOffsets(strings.NewReader("# made by hand\nt,0,5\n\"u\",1, 7\n"))
	if err != nil || len(got) != 2 || got[topicPartition{"t", 0}] != 5 || got[topicPartition{"u", 1}] != 7 {
		t.Error(got, err)
	}
	for _, text := range []string{"", "t,0\n", "t,0,1,2\n", "t,x,1\n", "t,0,-1\n", "t,99999999999,1\n"} {
		if got, err := readOffsets(strings.NewReader(text)); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestGroupCommandLines(t *testing.T) {
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"group reset", 2, "something is missing: NAME"},
		{"group reset g --topic t", 2, "say where to, once"},
		{"group reset g --topic t --to-earliest --to-latest", 2, "say where to, once"},
		{"group reset g --to-earliest", 2, "say for what"},
		{"group reset g --to-earliest --all-topics --topic t", 2, "say for what"},
		{"group reset g --topic t:x --to-earliest", 2, "not of the form T or T:P"},
		{"group reset g --topic t --to-offset -1", 2, "not negative"},
		{"group reset g --topic t --to-offset x", 2, "invalid value"},
		{"group reset g --topic t --to-datetime yesterday", 2, "is no time"},
		{"group reset g --topic t --by-duration yesterday", 2, "is no duration"},
		{"group reset g --from-file /varve/does/not/exist", 2, "/varve/does/not/exist"},
		{"group reset g --from-file - --topic t", 2, "there is no line in it"},
		{"group reset g --topic t --to-latest --execute --dry-run", 2, "exclude each other"},
		{"group list --format xml", 2, "--format is text or json"},
		{"group describe g --bootstrap-server 127.0.0.1:1", 1, "start one with `varve server`"},
		{"topic alter t", 2, "nothing is to change"},
		{"topic alter t --config x", 2, "not of the form KEY=VALUE"},
		{"topic alter t --config a=1 --delete-config a", 2, "not set at the same time"},
		{"topic alter t --partitions -3", 2, "--partitions is at least 1"},
	} {
		if code, out, errs := shell(t, strings.Fields(tc.args)...); code != tc.code || !strings.Contains(errs, tc.want) {
			t.Errorf("varve %s: exit %d, want %d and %q; got:\n%s%s", tc.args, code, tc.code, tc.want, out, errs)
		}
	}
}

// TestGroupForPeople prints a group with everything that can be missing.
func TestGroupForPeople(t *testing.T) {
	member := &kadm.DescribedGroupMember{MemberID: "m-1", ClientID: "app", ClientHost: "/127.0.0.1"}
	end := func(n int64) kadm.ListedOffset { return kadm.ListedOffset{Offset: n} }
	l := kadm.DescribedGroupLag{
		Group: "readers", State: "Stable", Protocol: "range", Coordinator: kadm.BrokerDetail{NodeID: 1}, Members: []kadm.DescribedGroupMember{*member},
		Lag: kadm.GroupLag{"t": {
			0: {Member: member, Topic: "t", Partition: 0, Commit: kadm.Offset{At: 5}, End: end(12), Lag: 7},
			1: {Topic: "t", Partition: 1, Commit: kadm.Offset{At: -1}, End: end(3), Lag: 3},
			2: {Topic: "t", Partition: 2, Commit: kadm.Offset{At: 4}, End: kadm.ListedOffset{Err: kerr.LeaderNotAvailable}, Lag: -1, Err: kerr.LeaderNotAvailable},
		}},
	}
	var out bytes.Buffer
	c := &call{stdout: &out}
	g := describeGroup(l)
	c.printGroup(g, false)
	c.printGroup(g, true)
	c.printJSON(g)
	golden(t, "group.txt", out.String())
}

func TestDurationsPeopleWrite(t *testing.T) {
	for text, want := range map[string]time.Duration{"90m": 90 * time.Minute, "7d": 168 * time.Hour, "P7D": 168 * time.Hour, "P1DT2H3M4S": 26*time.Hour + 3*time.Minute + 4*time.Second} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%s: %s %v", text, got, err)
		}
	}
}
