package group

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/config"
	"varve/broker/replica"
	"varve/metastore"
	"varve/metastore/controller"
	"varve/metastore/metapb"
	"varve/protocol"
	"varve/protocol/event"
	"varve/protocol/record"
)

const self = 1

// memLog is the offsets topic in memory. Its partitions are led at the epochs that the metadata names.
type memLog struct {
	meta *metastore.Store

	mu      sync.Mutex
	batches map[int32][]record.Batch
	hold    bool // appends are written and not answered
	held    []func()
	fail    protocol.ErrorCode // of appends
	readErr error
	async   bool
	wg      sync.WaitGroup
}

func (l *memLog) leads(id protocol.UUID, partition, epoch int32) error {
	p, ok := l.meta.Image().Partition(id, partition)
	switch {
	case !ok:
		return protocol.UnknownTopicID
	case p.Leader != self:
		return protocol.NotLeaderOrFollower
	case p.LeaderEpoch != epoch:
		return protocol.FencedLeaderEpoch
	}
	return nil
}

func (l *memLog) AppendCoordinator(w replica.CoordinatorAppend, done func(replica.AppendResult)) {
	l.mu.Lock()
	code := protocol.CodeOf(l.leads(w.TopicID, w.Partition, w.LeaderEpoch))
	if code == protocol.None {
		code = l.fail
	}
	if code == protocol.None {
		b := record.Batch(slices.Clone(w.Batch))
		l.batches[w.Partition] = append(l.batches[w.Partition], b)
	}
	answer := func() { done(replica.AppendResult{Err: code}) }
	switch {
	case l.hold:
		l.held = append(l.held, answer)
	case l.async:
		l.wg.Go(answer)
	}
	now := !l.hold && !l.async
	l.mu.Unlock()
	if now {
		answer()
	}
}

func (l *memLog) ReadCoordinator(id protocol.UUID, partition, epoch int32, offset int64, _ int) (replica.CoordinatorRead, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.leads(id, partition, epoch); err != nil {
		return replica.CoordinatorRead{}, err
	}
	if l.readErr != nil {
		return replica.CoordinatorRead{}, l.readErr
	}
	all := l.batches[partition]
	out := replica.CoordinatorRead{Next: offset, End: int64(len(all))}
	if offset < out.End { // a batch is an offset here
		out.Records, out.Next = all[offset], offset+1
	}
	return out, nil
}

// release answers the appends that were held, the last one first if backwards.
func (l *memLog) release(backwards bool) {
	l.mu.Lock()
	held := l.held
	l.held, l.hold = nil, false
	l.mu.Unlock()
	if backwards {
		slices.Reverse(held)
	}
	for _, answer := range held {
		answer()
	}
}

func (l *memLog) set(change func(l *memLog)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// rig is a Coordinator on a real metastore and a memLog.
type rig struct {
	t      testing.TB
	meta   *metastore.Store
	log    *memLog
	c      *Coordinator
	events event.Recorder
	stop   func()
}

func newRig(t testing.TB, sets ...string) *rig {
	t.Helper()
	meta, err := metastore.Open(t.Context(), metastore.Options{Dir: t.TempDir(), NodeID: self, NoJournal: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = meta.Close(context.Background()) })
	id := protocol.NewUUID()
	r := &rig{t: t, meta: meta, log: &memLog{meta: meta, batches: map[int32][]record.Batch{}}}
	r.propose(&metapb.Command{Body: &metapb.Command_RegisterBroker{RegisterBroker: &metapb.RegisterBroker{
		Broker: &metapb.Broker{Id: self, Incarnation: id[:], Dirs: [][]byte{id[:]}}, ExpectEpoch: -1,
	}}})
	r.start(sets...)
	return r
}

// start runs another Coordinator on what is there.
func (r *rig) start(sets ...string) {
	r.t.Helper()
	cfg, _, err := config.Load(config.LoadOptions{Data: r.t.TempDir(), Sets: append([]string{
		"node.id=1", "offsets.topic.num.partitions=3", "group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=100"}, sets...)})
	if err != nil {
		r.t.Fatal(err)
	}
	r.c = New(Options{NodeID: self, Config: cfg, Replicas: r.log, Meta: r.meta, CreateTopic: r.create, Events: r.events.Emit})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	c := r.c
	wg.Go(func() {
		if err := c.Run(ctx); err != nil {
			r.t.Error(err)
		}
	})
	r.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		r.log.wg.Wait()
	})
	r.t.Cleanup(r.stop)
}

func (r *rig) propose(c *metapb.Command) {
	r.t.Helper()
	if _, err := r.meta.Propose(r.t.Context(), c); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) create(_ context.Context, t controller.CreateTopic) error {
	return r.topic(t.Name, int(t.Partitions))
}

func (r *rig) topic(name string, partitions int) error {
	id, zero := protocol.NewUUID(), protocol.UUID{}
	c := &metapb.CreateTopic{TopicId: id[:], Name: name, ImageIndex: r.meta.Image().Index()}
	for range partitions {
		c.Partitions = append(c.Partitions, &metapb.Partition{Replicas: []int32{self, 2}, Isr: []int32{self, 2}, Leader: self, Dirs: [][]byte{zero[:], zero[:]}})
	}
	_, err := r.meta.Propose(context.Background(), &metapb.Command{Body: &metapb.Command_CreateTopic{CreateTopic: c}})
	return err
}

func (r *rig) deleteTopic(name string) {
	t, _ := r.meta.Image().Topic(name)
	r.propose(&metapb.Command{Body: &metapb.Command_DeleteTopic{DeleteTopic: &metapb.DeleteTopic{TopicId: t.ID[:]}}})
}

// elect gives the partition of a group to a broker.
func (r *rig) elect(group string, leader int32) {
	r.t.Helper()
	t, _ := r.meta.Image().Topic(OffsetsTopic)
	old := t.Partitions[partitionOf(group, len(t.Partitions))]
	p := *old
	p.Leader, p.LeaderEpoch = leader, old.LeaderEpoch+1
	r.propose(&metapb.Command{Body: &metapb.Command_ChangePartitions{ChangePartitions: &metapb.ChangePartitions{
		Changes: []*metapb.PartitionChange{{
			TopicId: t.ID[:], Partition: old.Index, ExpectPartitionEpoch: old.PartitionEpoch, ExpectLeaderEpoch: old.LeaderEpoch, State: metastore.PartitionState(&p),
		}},
	}}})
}

const patience = 10 * time.Second

// later is an answer that may take its time.
type later[R any] struct {
	t  testing.TB
	ch chan R
}

func soon[R any](t testing.TB, ask func(done func(R))) later[R] {
	ch := make(chan R, 2) // a second answer is kept to be found
	ask(func(r R) { ch <- r })
	return later[R]{t, ch}
}

func (l later[R]) get() R {
	l.t.Helper()
	select {
	case r := <-l.ch:
		return r
	case <-time.After(patience):
		l.t.Fatal("no answer")
		panic("unreachable")
	}
}

func (l later[R]) waits() bool {
	select {
	case r := <-l.ch:
		l.ch <- r
		return false
	case <-time.After(20 * time.Millisecond):
		return true
	}
}

var me = Client{ID: "c", Host: "/h"}

func joinOf(group, member string) *kmsg.JoinGroupRequest {
	return &kmsg.JoinGroupRequest{Version: 3, Group: group, MemberID: member, ProtocolType: "consumer", SessionTimeoutMillis: 10_000, RebalanceTimeoutMillis: 10_000,
		Protocols: []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: subscriptionOf([]string{"t"})}}}
}

func (r *rig) join(group, member string) later[*kmsg.JoinGroupResponse] {
	return soon(r.t, func(done func(*kmsg.JoinGroupResponse)) { r.c.Join(me, joinOf(group, member), done) })
}

func (r *rig) sync(group, member string, generation int32) later[*kmsg.SyncGroupResponse] {
	req := &kmsg.SyncGroupRequest{Group: group, MemberID: member, Generation: generation,
		GroupAssignment: []kmsg.SyncGroupRequestGroupAssignment{{MemberID: member, MemberAssignment: []byte("all")}}}
	return soon(r.t, func(done func(*kmsg.SyncGroupResponse)) { r.c.Sync(me, req, done) })
}

func (r *rig) heartbeat(group, member string, generation int32) protocol.ErrorCode {
	req := &kmsg.HeartbeatRequest{Group: group, MemberID: member, Generation: generation}
	return protocol.ErrorCode(soon(r.t, func(done func(*kmsg.HeartbeatResponse)) { r.c.Heartbeat(me, req, done) }).get().ErrorCode)
}

func commitOf(group, member string, generation int32, at int64) *kmsg.OffsetCommitRequest {
	return &kmsg.OffsetCommitRequest{Version: 9, Group: group, MemberID: member, Generation: generation, RetentionTimeMillis: -1,
		Topics: []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: at, LeaderEpoch: -1}}}}}
}

func (r *rig) commit(group string, at int64) later[*kmsg.OffsetCommitResponse] {
	return soon(r.t, func(done func(*kmsg.OffsetCommitResponse)) { r.c.Commit(me, commitOf(group, "", -1, at), done) })
}

func codeOf(resp *kmsg.OffsetCommitResponse) protocol.ErrorCode {
	return protocol.ErrorCode(resp.Topics[0].Partitions[0].ErrorCode)
}

// fetch returns the offset of t-0, and the code.
func (r *rig) fetch(group string) (int64, protocol.ErrorCode) {
	f := &FetchOffsets{Group: kmsg.OffsetFetchRequestGroup{Group: group, Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", Partitions: []int32{0}}}}}
	got := soon(r.t, func(done func(*kmsg.OffsetFetchResponseGroup)) { r.c.Fetch(me, f, done) }).get()
	if got.ErrorCode != 0 {
		return -1, protocol.ErrorCode(got.ErrorCode)
	}
	return got.Topics[0].Partitions[0].Offset, protocol.None
}

// await repeats a condition until it holds.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("never: " + what)
		}
	}
}
