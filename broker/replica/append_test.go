package replica

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"varve/metastore"
	"varve/protocol"
	"varve/protocol/record"
)

func TestAppendIsReadBack(t *testing.T) {
	n, b := newNode(t, nodeOptions{})
	b.topic("a", 2, []int32{self})
	n.awaitState("a", 0, StateLeader)
	n.awaitState("a", 1, StateLeader)
	for i, acks := range []int16{AcksAll, AcksLeader, AcksNone} {
		r := n.produce("a", 0, acks, batchOf("x", "y"))
		if r.Err != protocol.None || r.BaseOffset != int64(2*i) || r.LogAppendTime != -1 || r.LogStart != 0 {
			t.Fatalf("acks %d: %+v", acks, r)
		}
	}
	res := n.fetch(fetchReq("a", 3))
	if res.HighWatermark != 6 || res.LastStable != 6 || res.LogStart != 0 || res.Aborted != nil {
		t.Fatalf("%+v", res)
	}
	got := records(t, res)
	// A fetch into the middle of a batch gets the whole batch.
	if len(got) != 4 || got[0] != (kv{2, "x"}) || got[3] != (kv{5, "y"}) {
		t.Fatalf("got %v", got)
	}
	s := n.m.Stats()
	if len(s.Topics) != 1 || s.Leaders != 2 || s.Partitions != 2 || s.Offline != 0 {
		t.Fatalf("%+v", s)
	}
	ts := s.Topics[0]
	if ts.MessagesIn != 6 || ts.ProduceRequests != 3 || ts.FetchRequests != 1 || ts.BytesIn == 0 || ts.BytesOut != ts.BytesIn*2/3 || ts.LocalBytes != ts.BytesIn {
		t.Fatalf("%+v", ts)
	}
}

func TestAppendErrors(t *testing.T) {
	n, b := newNode(t, nodeOptions{})
	id := b.topic("a", 1, []int32{self})
	b.topic("elsewhere", 1, []int32{2})
	b.topic("__consumer_offsets", 1, []int32{self})
	followed := b.topic("followed", 1, []int32{2, self})
	b.topic("min", 1, []int32{self, 2, 3}, "min.insync.replicas", "2")
	n.awaitState("a", 0, StateLeader)
	n.awaitState("__consumer_offsets", 0, StateLeader)
	n.awaitState("followed", 0, StateFollower)
	minID, _ := b.s.Image().Topic("min")
	b.change(minID.ID, 0, func(p *metastore.Partition) { p.ISR = []int32{self} })
	await(t, "a small in-sync set", func() bool {
		d, _ := n.m.Describe("min", 0)
		return d.State == StateLeader && len(d.ISR) == 1
	})
	good := func() []byte { return batchOf("v") }
	bad := good()
	bad[len(bad)-1] ^= 1
	for _, c := range []struct {
		name string
		acks int16
		p    AppendPartition
		want protocol.ErrorCode
	}{
		{"acks before all", 2, AppendPartition{Topic: "none"}, protocol.InvalidRequiredAcks},
		{"acks below all", -2, AppendPartition{Topic: "a", Records: good()}, protocol.InvalidRequiredAcks},
		{"no topic", -1, AppendPartition{Topic: "none", Records: good()}, protocol.UnknownTopicOrPartition},
		{"no partition", -1, AppendPartition{Topic: "a", Partition: 1, Records: good()}, protocol.UnknownTopicOrPartition},
		{"negative partition", -1, AppendPartition{Topic: "a", Partition: -1, Records: good()}, protocol.UnknownTopicOrPartition},
		{"no id", -1, AppendPartition{TopicID: protocol.NewUUID(), Records: good()}, protocol.UnknownTopicID},
		{"id and name differ", -1, AppendPartition{Topic: "b", TopicID: id, Records: good()}, protocol.InconsistentTopicID},
		{"id alone", -1, AppendPartition{TopicID: id, Records: good()}, protocol.None},
		{"no replica here", -1, AppendPartition{Topic: "elsewhere", Records: good()}, protocol.NotLeaderOrFollower},
		{"follower", 1, AppendPartition{Topic: "followed", Records: good()}, protocol.NotLeaderOrFollower},
		{"internal", -1, AppendPartition{Topic: "__consumer_offsets", Records: good()}, protocol.InvalidTopicException},
		{"too few in sync", -1, AppendPartition{Topic: "min", Records: good()}, protocol.NotEnoughReplicas},
		{"too few in sync, one asked", 1, AppendPartition{Topic: "min", Records: good()}, protocol.None},
		{"nothing", -1, AppendPartition{Topic: "a"}, protocol.InvalidRecord},
		{"two batches", -1, AppendPartition{Topic: "a", Records: append(good(), good()...)}, protocol.InvalidRecord},
		{"torn", -1, AppendPartition{Topic: "a", Records: good()[:30]}, protocol.InvalidRecord},
		{"flipped bit", -1, AppendPartition{Topic: "a", Records: bad}, protocol.CorruptMessage},
		{"too large", -1, AppendPartition{Topic: "a", Records: batchOf(string(make([]byte, 2<<20)))}, protocol.MessageTooLarge},
	} {
		var got AppendResult
		n.m.Append(&AppendRequest{Acks: c.acks, Partitions: []AppendPartition{c.p}}, func(r []AppendResult) { got = r[0] })
		if got.Err != c.want {
			t.Errorf("%s: %v %q, want %v", c.name, got.Err, got.Message, c.want)
		}
		if got.Err == protocol.NotLeaderOrFollower && (got.Leader != 2 || got.LeaderEpoch != 0) {
			t.Errorf("%s: told to ask %d at epoch %d", c.name, got.Leader, got.LeaderEpoch)
		}
		if got.Err != protocol.None && got.BaseOffset != -1 {
			t.Errorf("%s: base offset %d", c.name, got.BaseOffset)
		}
	}
	_ = followed
	internal := &AppendRequest{Acks: AcksAll, InternalTopics: true, Partitions: []AppendPartition{{Topic: "__consumer_offsets", Records: good()}}}
	n.m.Append(internal, func(r []AppendResult) {
		if r[0].Err != protocol.None {
			t.Errorf("internal append: %v", r[0].Err)
		}
	})
}

func TestRequestWithGoodAndBadPartitions(t *testing.T) {
	n, b := newNode(t, nodeOptions{})
	b.topic("a", 2, []int32{self})
	n.awaitState("a", 1, StateLeader)
	n.awaitState("a", 0, StateLeader)
	calls := 0
	n.m.Append(&AppendRequest{Acks: AcksAll, Partitions: []AppendPartition{
		{Topic: "a", Partition: 0, Records: batchOf("1")},
		{Topic: "a", Partition: 7, Records: batchOf("2")},
		{Topic: "a", Partition: 1, Records: batchOf("3")},
	}}, func(r []AppendResult) {
		calls++
		if r[0].Err != 0 || r[1].Err != protocol.UnknownTopicOrPartition || r[2].Err != 0 {
			t.Errorf("%+v", r)
		}
	})
	if calls != 1 {
		t.Fatalf("done called %d times", calls)
	}
}

func TestDuplicatesKeepTheirOffset(t *testing.T) {
	n, b := newNode(t, nodeOptions{})
	b.topic("a", 1, []int32{self})
	n.awaitState("a", 0, StateLeader)
	seq := func(s int32) record.Batch {
		return batchWith(record.Options{Producer: &record.Producer{ID: 7, Epoch: 0, BaseSequence: s}}, time.Now().UnixMilli(), "v", "w")
	}
	for i, c := range []struct {
		seq  int32
		base int64
		err  protocol.ErrorCode
	}{{0, 0, 0}, {2, 2, 0}, {0, 0, 0}, {2, 2, 0}, {6, -1, protocol.OutOfOrderSequenceNumber}, {4, 4, 0}, {0, 0, 0}} {
		r := n.produce("a", 0, AcksAll, seq(c.seq))
		if r.Err != c.err || r.BaseOffset != c.base {
			t.Fatalf("step %d: %+v, want %+v", i, r, c)
		}
	}
	if got := n.m.Stats().Topics[0].MessagesIn; got != 6 {
		t.Fatalf("%d messages in", got)
	}
}

// prepared is a log directory and an Image in which the replicas of one topic are assigned to it, for tests inside
// synctest, where a metastore cannot run.
func prepared(t *testing.T, replicas []int32, configs ...string) (*book, nodeOptions, protocol.UUID) {
	t.Helper()
	b := newBook(t)
	control := &bookControl{b: b}
	n := startNode(t, nodeOptions{meta: b.s, control: control})
	id := b.topic("a", 1, replicas, configs...)
	n.awaitState("a", 0, StateLeader)
	n.stop()
	return b, nodeOptions{fs: n.fs, meta: &stillMeta{img: b.s.Image()}, control: quietControl{}}, id
}

// follow fetches as another broker.
func (n *node) follow(id int32, off int64) FetchResult {
	req := fetchReq("a", off)
	req.ReplicaID = id
	r := n.fetch(req)
	protocol.ReleaseSpans(r.Spans)
	return r
}

func TestAllInSyncReplicasCount(t *testing.T) {
	_, o, _ := prepared(t, []int32{self, 2, 3})
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, o)
		defer n.stop()
		done := n.produceAsync("a", 0, AcksAll, time.Minute, batchOf("1", "2"))
		if r := n.produce("a", 0, AcksLeader, batchOf("3")); r.Err != 0 || r.BaseOffset != 2 {
			t.Fatalf("acks=1: %+v", r)
		}
		third := n.produceAsync("a", 0, AcksAll, time.Minute, batchOf("4"))
		if r := n.fetch(fetchReq("a", 0)); r.HighWatermark != 0 || len(r.Spans) != 0 || r.Err != 0 {
			t.Fatalf("before replication: %+v", r)
		}
		n.follow(2, 4)
		n.follow(3, 1)
		synctest.Wait()
		if len(done) != 0 {
			t.Fatal("answered below the high watermark")
		}
		if hw := n.fetch(fetchReq("a", 4)).HighWatermark; hw != 1 {
			t.Fatalf("high watermark %d", hw)
		}
		n.follow(3, 3)
		if r := <-done; r.Err != 0 || r.BaseOffset != 0 {
			t.Fatalf("%+v", r)
		}
		if len(third) != 0 {
			t.Fatal("the later one was answered too")
		}
		n.follow(3, 4)
		if r := <-third; r.Err != 0 || r.BaseOffset != 3 {
			t.Fatalf("%+v", r)
		}
		if s := n.m.Stats(); s.DelayedProduces != 0 {
			t.Fatalf("%+v", s)
		}
	})
}

func TestDelayedProduceTimesOut(t *testing.T) {
	_, o, _ := prepared(t, []int32{self, 2})
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, o)
		defer n.stop()
		start := time.Now()
		slow := n.produceAsync("a", 0, AcksAll, 3*time.Second, batchOf("1"))
		fast := n.produceAsync("a", 0, AcksAll, time.Second, batchOf("2"))
		now := n.produceAsync("a", 0, AcksAll, 0, batchOf("3"))
		for i, c := range []<-chan AppendResult{now, fast, slow} {
			r := <-c
			if r.Err != protocol.RequestTimedOut || r.BaseOffset != int64(2-i) {
				t.Fatalf("%d: %+v", i, r)
			}
			if took := time.Since(start); took != []time.Duration{0, time.Second, 3 * time.Second}[i] {
				t.Fatalf("%d took %v", i, took)
			}
		}
		p := n.m.hosted.Load().names["a"].partitions[0]
		if len(p.byHW.entries) != 0 || p.waiting.Load() != 0 {
			t.Fatal("entries were left behind")
		}
	})
}

func TestInSyncSetShrinks(t *testing.T) {
	b, o, id := prepared(t, []int32{self, 2, 3}, "min.insync.replicas", "2")
	meta := o.meta.(*stillMeta)
	shrink := func(ids ...int32) *metastore.Image {
		b.change(id, 0, func(p *metastore.Partition) { p.ISR = ids })
		return b.s.Image()
	}
	two, one, back := shrink(self, 2), shrink(self), shrink(self, 2)
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, o)
		defer n.stop()
		done := n.produceAsync("a", 0, AcksAll, time.Minute, batchOf("1"))
		n.follow(2, 1)
		synctest.Wait()
		if len(done) != 0 {
			t.Fatal("broker 3 is in sync and has nothing")
		}
		meta.show(two)
		if r := <-done; r.Err != 0 {
			t.Fatalf("%+v", r)
		}
		done = n.produceAsync("a", 0, AcksAll, time.Minute, batchOf("2"))
		meta.show(one)
		synctest.Wait()
		// Below min.insync.replicas the high watermark stands still (KIP-966).
		if hw := n.fetch(fetchReq("a", 1)).HighWatermark; hw != 1 || len(done) != 0 {
			t.Fatalf("high watermark %d", hw)
		}
		if r := n.produce("a", 0, AcksAll, batchOf("3")); r.Err != protocol.NotEnoughReplicas {
			t.Fatalf("%+v", r)
		}
		if s := n.m.Stats(); s.UnderMinISR != 1 || s.UnderReplicated != 1 {
			t.Fatalf("%+v", s)
		}
		meta.show(back)
		synctest.Wait()
		n.follow(2, 2)
		if r := <-done; r.Err != 0 {
			t.Fatalf("%+v", r)
		}
	})
}

func TestLeadershipEndsUnderWaiters(t *testing.T) {
	b, o, id := prepared(t, []int32{self, 2})
	meta := o.meta.(*stillMeta)
	b.lead(id, 0, 2)
	moved := b.s.Image()
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, o)
		defer n.stop()
		done := n.produceAsync("a", 0, AcksAll, time.Minute, batchOf("1"))
		req := fetchReq("a", 0)
		req.MaxWait = time.Minute
		fetched := make(chan FetchResult, 1)
		go func() { fetched <- n.fetch(req) }()
		synctest.Wait()
		meta.show(moved)
		if r := <-done; r.Err != protocol.NotLeaderOrFollower {
			t.Fatalf("%+v", r)
		}
		r := <-fetched
		if r.Err != protocol.NotLeaderOrFollower || r.Leader != 2 || r.LeaderEpoch != 1 {
			t.Fatalf("%+v", r)
		}
	})
}

func TestRunEndsWithWaiters(t *testing.T) {
	_, o, _ := prepared(t, []int32{self, 2})
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, o)
		done := n.produceAsync("a", 0, AcksAll, time.Minute, batchOf("1"))
		req := fetchReq("a", 0)
		req.MaxWait = time.Minute
		fetched := make(chan FetchResult, 1)
		go func() { fetched <- n.fetch(req) }()
		synctest.Wait()
		n.halt()
		if r := <-done; r.Err != protocol.NotLeaderOrFollower {
			t.Fatalf("%+v", r)
		}
		if r := <-fetched; r.Err != 0 || len(r.Spans) != 0 {
			t.Fatalf("%+v", r)
		}
		late := n.produceAsync("a", 0, AcksAll, time.Minute, batchOf("2"))
		if r := <-late; r.Err != protocol.RequestTimedOut {
			t.Fatalf("%+v", r)
		}
		if err := n.logs.Close(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
	})
}

func TestFlushEachMessageHoldsTheAnswer(t *testing.T) {
	n, b := newNode(t, nodeOptions{})
	b.topic("a", 1, []int32{self}, "flush.messages", "1")
	n.awaitState("a", 0, StateLeader)
	l, _ := n.logs.Get("a", 0)
	for i, acks := range []int16{AcksAll, AcksLeader, AcksAll} {
		r := n.produce("a", 0, acks, batchOf("v"))
		if r.Err != 0 || r.BaseOffset != int64(i) || l.DurableEnd() <= r.BaseOffset {
			t.Fatalf("acks %d: %+v, durable end %d", acks, r, l.DurableEnd())
		}
	}
	if hw := n.fetch(fetchReq("a", 0)); hw.HighWatermark != 3 {
		t.Fatalf("%+v", hw)
	} else {
		records(t, hw)
	}
}

// TestFollowersFetchAnswersTheNewestFirst: what one fetch of a follower answers, over all its partitions, is answered newest
// first, so that the replies of one connection leave in one write.
func TestFollowersFetchAnswersTheNewestFirst(t *testing.T) {
	_, o, _ := prepared(t, []int32{self, 2})
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, o)
		defer n.stop()
		var order []int
		for i := range 5 {
			n.m.Append(&AppendRequest{Acks: AcksAll, Timeout: time.Minute, Partitions: []AppendPartition{{Topic: "a", Records: batchOf("x")}}},
				func(r []AppendResult) {
					if r[0].Err != 0 || r[0].BaseOffset != int64(i) {
						t.Errorf("request %d: %+v", i, r[0])
					}
					order = append(order, i)
				})
		}
		n.follow(2, 3)
		if !slices.Equal(order, []int{2, 1, 0}) {
			t.Fatalf("answered in order %v", order)
		}
		n.follow(2, 5)
		if !slices.Equal(order, []int{2, 1, 0, 4, 3}) {
			t.Fatalf("answered in order %v", order)
		}
	})
}
