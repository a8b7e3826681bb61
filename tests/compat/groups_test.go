package compat

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"varve/tests/node"
)

// rejoining is a node that can be killed and started again under the same address.
type rejoining struct {
	t    *testing.T
	data string
	addr string
	n    *node.Node
}

func startGroups(t *testing.T) *rejoining {
	r := &rejoining{t: t, data: t.TempDir(), addr: "127.0.0.1:0"}
	r.start()
	return r
}

func (r *rejoining) start() {
	r.n = node.StartT(r.t, node.Options{Data: r.data, Args: []string{
		"--set", "listeners=PLAINTEXT://" + r.addr, "--set", "varve.http.listen=", "--set", "offsets.topic.num.partitions=5",
		"--set", "group.initial.rebalance.delay.ms=0", "--set", "group.min.session.timeout.ms=1000"}})
	r.addr = r.n.Kafka
}

func (r *rejoining) killAndStart() {
	r.n.Kill()
	r.start()
}

const (
	groupTopic      = "etl"
	groupPartitions = 6
	groupRecords    = 6000
)

// tally counts what the members of a group consumed.
type tally struct {
	mu   sync.Mutex
	seen map[string]int
}

func (s *tally) add(r *kgo.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[string(r.Value)]++
}

func (s *tally) distinct() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

// consume is one member: it polls slowly, and commits what it has, until ctx ends.
func (r *rejoining) consume(ctx context.Context, group string, s *tally, opts ...kgo.Opt) {
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(r.addr), kgo.AlwaysRetryEOF(), kgo.ConsumerGroup(group), kgo.ConsumeTopics(groupTopic), kgo.SessionTimeout(4 * time.Second),
		kgo.HeartbeatInterval(200 * time.Millisecond), kgo.RebalanceTimeout(4 * time.Second), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
	}, opts...)...)
	if err != nil {
		r.t.Error(err)
		return
	}
	defer c.CloseAllowingRebalance()
	for ctx.Err() == nil {
		got := c.PollRecords(ctx, 100)
		got.EachRecord(s.add)
		if got.NumRecords() > 0 {
			_ = c.CommitUncommittedOffsets(ctx) // a restart in the midst of it: the records come again
			time.Sleep(10 * time.Millisecond)
		}
		c.AllowRebalance()
	}
}

func (r *rejoining) produce(admin *kgo.Client) {
	if _, err := kadm.NewClient(admin).CreateTopic(r.t.Context(), groupPartitions, 1, nil, groupTopic); err != nil {
		r.t.Fatal(err)
	}
	var all []*kgo.Record
	for i := range groupRecords {
		all = append(all, &kgo.Record{Topic: groupTopic, Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d", i)})
	}
	if err := admin.ProduceSync(r.t.Context(), all...).FirstErr(); err != nil {
		r.t.Fatal(err)
	}
}

// TestConsumerGroups: groups of three members, one of which leaves and one of which comes late, with eager, cooperative and
// static members, while the broker is killed and started again: every record is consumed, what was committed stays
// committed, and in the end all is.
func TestConsumerGroups(t *testing.T) {
	r := startGroups(t)
	admin := client(t, r.n)
	r.produce(admin)
	kinds := map[string][]kgo.Opt{
		"eager":       {kgo.Balancers(kgo.RangeBalancer())},
		"cooperative": {kgo.Balancers(kgo.CooperativeStickyBalancer())},
		"static":      {kgo.Balancers(kgo.CooperativeStickyBalancer())},
	}
	tallies := map[string]*tally{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var members sync.WaitGroup
	for kind, opts := range kinds {
		s := &tally{seen: map[string]int{}}
		tallies[kind] = s
		for i := range 3 {
			mine, stop := context.WithCancel(ctx)
			opts := opts
			if kind == "static" {
				opts = append([]kgo.Opt{kgo.InstanceID(fmt.Sprint("member-", i))}, opts...)
			}
			members.Go(func() {
				time.Sleep(time.Duration(i) * 150 * time.Millisecond)
				r.consume(mine, kind, s, opts...)
			})
			if i == 1 {
				time.AfterFunc(time.Second, stop)
			}
			t.Cleanup(stop)
		}
	}
	time.Sleep(600 * time.Millisecond)
	r.killAndStart()
	adm := kadm.NewClient(admin)
	for kind, s := range tallies {
		wait(t, kind+" has consumed all", func() bool { return s.distinct() == groupRecords })
		wait(t, kind+" has committed all", func() bool { return committed(t, adm, kind) == groupRecords })
	}
	checkMembers(t, adm)
	cancel()
	members.Wait()
	r.checkAfterwards(adm)
}

func checkMembers(t *testing.T, adm *kadm.Client) {
	t.Helper()
	described, err := adm.DescribeGroups(t.Context(), "eager", "static")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range described.Sorted() {
		if g.State != "Stable" || g.ProtocolType != "consumer" || len(g.Members) == 0 || g.Members[0].ClientHost != "/127.0.0.1" {
			t.Errorf("%s: %+v", g.Group, g)
		}
	}
	if deleted, err := adm.DeleteGroups(t.Context(), "eager"); err != nil || !errors.Is(deleted["eager"].Err, kerr.NonEmptyGroup) {
		t.Errorf("a group with members was deleted: %v %v", deleted, err)
	}
}

// checkAfterwards looks at groups that nobody is in any more; static members stay until their session ends.
func (r *rejoining) checkAfterwards(adm *kadm.Client) {
	ctx, t := r.t.Context(), r.t
	r.killAndStart()
	for _, kind := range []string{"eager", "cooperative", "static"} {
		if got := committed(t, adm, kind); got != groupRecords {
			t.Errorf("%s: %d committed after a restart", kind, got)
		}
	}
	wait(t, "the group is empty", func() bool {
		d, err := adm.DescribeGroups(ctx, "eager")
		return err == nil && d["eager"].State == "Empty"
	})
	if _, err := adm.DeleteOffsets(ctx, "eager", kadm.TopicsSet{groupTopic: {0: {}}}); err != nil {
		t.Error(err)
	}
	if deleted, err := adm.DeleteGroups(ctx, "cooperative"); err != nil || deleted["cooperative"].Err != nil {
		t.Errorf("%v %v", deleted, err)
	}
	listed, err := adm.ListGroups(ctx)
	if _, there := listed["cooperative"]; err != nil || there || len(listed) != 2 {
		t.Errorf("%v %v", listed.Groups(), err)
	}
	if got := committed(t, adm, "eager"); got <= 0 || got >= groupRecords {
		t.Errorf("%d committed without a partition", got)
	}
	if _, err := adm.DeleteTopics(ctx, groupTopic); err != nil {
		t.Fatal(err)
	}
	wait(t, "offsets go with their topic", func() bool { return committed(t, adm, "eager") == 0 })
}

func committed(t *testing.T, adm *kadm.Client, group string) (sum int64) {
	offsets, err := adm.FetchOffsets(t.Context(), group)
	if err != nil {
		return -1 // the broker is down
	}
	offsets.Each(func(o kadm.OffsetResponse) { sum += o.At })
	return sum
}

func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(40 * time.Second); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("never: " + what)
		}
	}
}
