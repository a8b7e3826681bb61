package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"varve/tests/node"
	"varve/tests/s3server"
)

// lost is a cluster that is to be lost, on a store that outlives it.
type lost struct {
	t     *testing.T
	url   string
	env   []string
	loads []*load
	dir   string // of a dir store, for a look at it without varve
}

// quickTier makes everything settle, and be journaled, within a second or two.
var quickTier = []string{"remote.log.manager.task.interval.ms=200", "varve.tier.journal.interval.ms=100", "varve.tier.snapshot.interval.ms=1000",
	"varve.tier.delete.deadline.ms=200", "varve.tier.upload.max.lag.ms=1000", "log.retention.check.interval.ms=300"}

func newLost(t *testing.T) *lost {
	dir := filepath.Join(t.TempDir(), "tier")
	return &lost{t: t, url: "dir://" + dir, dir: dir}
}

func (l *lost) node(data string, sets ...string) node.Options {
	o := withSets(data, append(append([]string{"varve.tier.url=" + l.url}, quickTier...), sets...)...)
	o.Env = l.env
	return o
}

// fill makes three topics with configs, and two groups, one of which has read all and one half of each.
func (l *lost) fill(n *node.Node, bytes int64) {
	l.t.Helper()
	for i, partitions := range []int32{1, 2, 3} {
		s := &load{topic: fmt.Sprintf("topic-%d", i), partitions: partitions, seed: uint64(20 + i)}
		createTopic(l.t, n, s.topic, partitions, map[string]string{"segment.bytes": "1048576", "retention.ms": fmt.Sprint(1_000_000_000 + i)})
		s.produce(l.t, n, bytes)
		l.loads = append(l.loads, s)
	}
	adm := kadm.NewClient(client(l.t, n))
	for group, share := range map[string]int64{"all": 1, "half": 2} {
		var at kadm.Offsets
		for _, s := range l.loads {
			for p := range s.partitions {
				at.AddOffset(s.topic, p, s.sums[p].records/share, -1)
			}
		}
		if _, err := adm.CommitOffsets(l.t.Context(), group, at); err != nil {
			l.t.Fatal(err)
		}
	}
}

// settled waits until everything is in the tier, and a snapshot and the journal are too.
func (l *lost) settled(n *node.Node) {
	l.t.Helper()
	eventually(l.t, time.Minute, func() string {
		var st struct {
			Partitions []struct {
				Topic     string
				Partition int32
				TierEnd   int64
			}
		}
		tool(l.t, l.env, &st, "tier", "status", "--http", n.HTTP, "--format", "json")
		if len(st.Partitions) < 6 {
			return fmt.Sprintf("%d partitions are led", len(st.Partitions))
		}
		for _, p := range st.Partitions {
			for _, s := range l.loads {
				if s.topic == p.Topic && p.TierEnd < s.sums[p.Partition].records {
					return fmt.Sprintf("%s-%d is in the tier up to %d of %d", p.Topic, p.Partition, p.TierEnd, s.sums[p.Partition].records)
				}
			}
		}
		return ""
	})
	time.Sleep(300 * time.Millisecond) // three journal intervals
}

// tool runs varve and reads its JSON.
func tool(t *testing.T, env []string, into any, args ...string) {
	t.Helper()
	if out, err := tryTool(t, env, into, args...); err != nil {
		t.Fatalf("varve %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func tryTool(t *testing.T, env []string, into any, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), node.Binary(t), args...)
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	raw, err := cmd.Output()
	if err == nil && into != nil {
		err = json.Unmarshal(raw, into)
	}
	return stderr.String(), err
}

// restored is what the tests read of the report.
type restored struct {
	Source                    string
	RecoveryPoint             string
	Segments                  int64
	GroupOffsets              int
	OffsetsClamped            int
	MissingObjects            int
	ToDelete, UnlistedObjects int64
	Topics                    []struct {
		Name, ID   string
		Partitions []struct {
			Partition     int32
			LogStart, End int64
		}
	}
	Lost, Findings []string
}

func (l *lost) restore(n *node.Node, args ...string) (r restored) {
	l.t.Helper()
	tool(l.t, l.env, &r, append([]string{"tier", "restore", "--from", l.url, "--http", n.HTTP, "--format", "json"}, args...)...)
	return r
}

// topics are ids and configs by name.
func (l *lost) topics(n *node.Node) map[string]string {
	l.t.Helper()
	adm := kadm.NewClient(client(l.t, n))
	all, err := adm.ListTopics(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	out := map[string]string{}
	for name, topic := range all {
		confs, err := adm.DescribeTopicConfigs(l.t.Context(), name)
		if err != nil {
			l.t.Fatal(err)
		}
		own := map[string]string{}
		for _, c := range confs[0].Configs {
			if c.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
				own[c.Key] = c.MaybeValue()
			}
		}
		out[name] = fmt.Sprintf("%s %d %v", topic.ID, len(topic.Partitions), own)
	}
	return out
}

func (l *lost) groups(n *node.Node) map[string]int64 {
	l.t.Helper()
	adm := kadm.NewClient(client(l.t, n))
	out := map[string]int64{}
	for _, group := range []string{"all", "half"} {
		at, err := adm.FetchOffsets(l.t.Context(), group)
		if err != nil {
			l.t.Fatal(err)
		}
		at.Each(func(o kadm.OffsetResponse) { out[fmt.Sprintf("%s %s-%d", group, o.Topic, o.Partition)] = o.At })
	}
	return out
}

// whole compares everything: records at their offsets, topics, groups; and goes on where they were.
func (l *lost) whole(n *node.Node, topics map[string]string, groups map[string]int64) {
	l.t.Helper()
	for _, s := range l.loads {
		s.verify(l.t, n)
	}
	if got := l.topics(n); !maps.Equal(got, topics) {
		l.t.Fatalf("topics\n%v\nwere\n%v", got, topics)
	}
	if groups != nil {
		if got := l.groups(n); !maps.Equal(got, groups) {
			l.t.Fatalf("groups\n%v\nwere\n%v", got, groups)
		}
		l.continues(n)
	}
	for _, s := range l.loads {
		s.produce(l.t, n, 100<<10)
		s.verify(l.t, n)
	}
}

// continues reads as a member of the group that was halfway: it gets the other half, and nothing else.
func (l *lost) continues(n *node.Node) {
	l.t.Helper()
	s := l.loads[2]
	c := client(l.t, n, kgo.ConsumerGroup("half"), kgo.ConsumeTopics(s.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	want, got := int64(0), int64(0)
	for p := range s.partitions {
		want += s.sums[p].records - s.sums[p].records/2
	}
	deadline := time.Now().Add(time.Minute)
	for got < want && time.Now().Before(deadline) {
		fetches := c.PollRecords(l.t.Context(), 10_000)
		fetches.EachRecord(func(r *kgo.Record) {
			if got++; r.Offset < s.sums[r.Partition].records/2 {
				l.t.Fatalf("%s-%d: offset %d was read again", r.Topic, r.Partition, r.Offset)
			}
		})
	}
	if got != want {
		l.t.Fatalf("the group read %d records of %d", got, want)
	}
	c.Close()
}

// listed compares a walk through the store's own folder with the segments that the brokers' metadata counts.
func (l *lost) listed(n *node.Node) {
	l.t.Helper()
	if out, err := tryTool(l.t, l.env, nil, "tier", "verify", "--level", "index", "--http", n.HTTP, "--format", "json"); err != nil {
		l.t.Fatalf("verify: %v\n%s", err, out)
	}
	if l.dir == "" {
		return
	}
	var st struct{ Total struct{ Segments int } }
	eventually(l.t, 20*time.Second, func() string {
		tool(l.t, l.env, &st, "tier", "status", "--http", n.HTTP, "--format", "json")
		if got := len(l.objects()); got != st.Total.Segments {
			return fmt.Sprintf("the folder holds %d segments, the metadata %d", got, st.Total.Segments)
		}
		return ""
	})
}

func (l *lost) objects() (names []string) {
	l.t.Helper()
	err := filepath.WalkDir(l.dir, func(name string, _ os.DirEntry, err error) error {
		if strings.Contains(filepath.Base(name), ".seg") {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return names
}

// TestRestoreEverything loses a node with its disks, once stopped in order and once killed, and brings everything back: from a folder, and
// from an S3 server through both SDKs. The old node, coming back, does not start, and deletes nothing.
func TestRestoreEverything(t *testing.T) {
	t.Run("dir, killed", func(t *testing.T) { restoreEverything(t, newLost(t), false) })
	t.Run("minio, stopped", func(t *testing.T) {
		s := s3server.Start(t)
		restoreEverything(t, &lost{t: t, url: s.MinioURL, env: s.Env()}, true)
	})
	t.Run("s3", func(t *testing.T) {
		s := s3server.Start(t)
		restoreEverything(t, &lost{t: t, url: s.URL, env: s.Env()}, false)
	})
}

func restoreEverything(t *testing.T, l *lost, inOrder bool) {
	l.t = t
	old := t.TempDir()
	n := node.StartT(t, l.node(old))
	l.fill(n, 1<<20)
	l.settled(n)
	topics, groups := l.topics(n), l.groups(n)
	delete(topics, "__consumer_offsets")
	if inOrder {
		if code, err := n.Terminate(t.Context()); err != nil || code != 0 {
			t.Fatalf("exit %d: %v", code, err)
		}
	} else {
		eventually(t, time.Minute, func() string { // a snapshot with the commits is in the bucket
			var now restored
			if tool(t, l.env, &now, "tier", "restore", "--from", l.url, "--dry-run", "--format", "json"); now.GroupOffsets != 12 {
				return fmt.Sprintf("%d group offsets in the bucket", now.GroupOffsets)
			}
			return ""
		})
		n.Kill()
	}
	var dry restored
	tool(t, l.env, &dry, "tier", "restore", "--from", l.url, "--dry-run", "--format", "json")
	n = node.StartT(t, l.node(t.TempDir()))
	r := l.restore(n)
	if r.Segments != dry.Segments || r.RecoveryPoint != dry.RecoveryPoint || len(r.Findings) > 0 || r.MissingObjects > 0 || r.OffsetsClamped > 0 || r.GroupOffsets != 12 {
		t.Fatalf("report %+v, dry run said %+v", r, dry)
	}
	got := l.topics(n)
	delete(got, "__consumer_offsets")
	if !maps.Equal(got, topics) {
		t.Fatalf("topics %v, were %v", got, topics)
	}
	topics = l.topics(n)
	l.whole(n, topics, groups)
	before := l.objects0()
	refused(t, l.node(old), 4, "owner", "restore")
	if after := l.objects0(); before > after {
		t.Fatalf("%d segments were there, %d are", before, after)
	}
	var out struct{ Topics []string }
	tool(t, l.env, &out, "tier", "release", "--http", n.HTTP, "--format", "json")
	if len(out.Topics) != 3 {
		t.Fatalf("released %v", out.Topics)
	}
	l.listed(n)
}

// objects0 counts segments where they can be counted without varve.
func (l *lost) objects0() int {
	if l.dir == "" {
		return 0
	}
	return len(l.objects())
}
