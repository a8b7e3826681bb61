package replica

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"varve/metastore"
	"varve/protocol"
	"varve/protocol/record"
	"varve/tiering"
	"varve/tiering/objstore"
)

func TestFetchErrors(t *testing.T) {
	n, b := newNode(t, nodeOptions{})
	id := b.topic("a", 1, []int32{self, 2})
	b.topic("elsewhere", 1, []int32{2})
	b.topic("followed", 1, []int32{2, self})
	n.awaitState("a", 0, StateLeader)
	n.awaitState("followed", 0, StateFollower)
	b.lead(id, 0, self)
	n.awaitEpoch("a", 0, 1)
	n.produce("a", 0, AcksLeader, batchOf("1", "2", "3"))
	for _, c := range []struct {
		name    string
		topic   string
		id      protocol.UUID
		epoch   int32
		off     int64
		replica int32
		want    protocol.ErrorCode
	}{
		{"no topic", "none", protocol.UUID{}, -1, 0, -1, protocol.UnknownTopicOrPartition},
		{"no id", "", protocol.NewUUID(), -1, 0, -1, protocol.UnknownTopicID},
		{"id and name differ", "followed", id, -1, 0, -1, protocol.InconsistentTopicID},
		{"not here", "elsewhere", protocol.UUID{}, -1, 0, -1, protocol.NotLeaderOrFollower},
		{"follower", "followed", protocol.UUID{}, -1, 0, -1, protocol.NotLeaderOrFollower},
		{"old epoch before leadership", "followed", protocol.UUID{}, 5, 0, -1, protocol.UnknownLeaderEpoch},
		{"old epoch", "a", protocol.UUID{}, 0, 0, -1, protocol.FencedLeaderEpoch},
		{"new epoch", "a", protocol.UUID{}, 2, 0, -1, protocol.UnknownLeaderEpoch},
		{"epoch before offset", "a", protocol.UUID{}, 2, 99, -1, protocol.UnknownLeaderEpoch},
		{"right epoch", "a", protocol.UUID{}, 1, 0, -1, protocol.None},
		{"above the watermark, below the end", "a", protocol.UUID{}, 1, 2, -1, protocol.None},
		{"at the end", "a", protocol.UUID{}, 1, 3, -1, protocol.None},
		{"above the end", "a", protocol.UUID{}, 1, 4, -1, protocol.OffsetOutOfRange},
		{"below zero", "a", protocol.UUID{}, 1, -1, -1, protocol.OffsetOutOfRange},
		{"replica", "a", protocol.UUID{}, 1, 0, 2, protocol.None},
		{"no replica of it", "a", protocol.UUID{}, 1, 0, 3, protocol.UnknownLeaderEpoch},
		{"no replica of it, no epoch", "a", protocol.UUID{}, -1, 0, 3, protocol.NotLeaderOrFollower},
	} {
		req := fetchReq(c.topic, c.off)
		req.ReplicaID = c.replica
		req.Partitions[0].TopicID, req.Partitions[0].CurrentLeaderEpoch = c.id, c.epoch
		r := n.fetch(req)
		if r.Err != c.want {
			t.Errorf("%s: %v, want %v", c.name, r.Err, c.want)
		}
		if c.replica < 0 && len(r.Spans) > 0 {
			t.Errorf("%s: a consumer sees unreplicated records", c.name)
		}
		protocol.ReleaseSpans(r.Spans)
	}
}

func TestFetchSizes(t *testing.T) {
	n, b := newNode(t, nodeOptions{})
	b.topic("a", 3, []int32{self})
	size := 0
	for i := range int32(3) {
		n.awaitState("a", i, StateLeader)
		if i > 0 {
			for range 3 {
				batch := batchOf("0123456789")
				size = batch.Size()
				n.produce("a", i, AcksAll, batch)
			}
		}
	}
	for _, c := range []struct {
		name      string
		max, part int
		want      [3]int // batches
	}{
		{"all", 1 << 20, 1 << 20, [3]int{0, 3, 3}},
		{"partition limit", 1 << 20, 2*size + 1, [3]int{0, 2, 2}},
		{"request limit", 4 * size, 1 << 20, [3]int{0, 3, 1}},
		{"the first non-empty partition gets a batch", 0, 1, [3]int{0, 1, 0}},
		{"and the others none that does not fit", 2 * size, size - 1, [3]int{0, 1, 0}},
	} {
		req := fetchReq("a", 0)
		req.MaxBytes = c.max
		req.Partitions = append(req.Partitions, req.Partitions[0], req.Partitions[0])
		for i := range req.Partitions {
			req.Partitions[i].Partition, req.Partitions[i].MaxBytes = int32(i), int32(c.part)
		}
		for i, r := range n.m.Fetch(context.Background(), req) {
			if got := len(records(t, r)); got != c.want[i] || r.Err != 0 {
				t.Errorf("%s: partition %d: %d batches, %v; want %d", c.name, i, got, r.Err, c.want[i])
			}
		}
	}
}

func TestFetchWaits(t *testing.T) {
	_, o, _ := prepared(t, []int32{self})
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, o)
		defer n.stop()
		start := time.Now()
		req := fetchReq("a", 0)
		req.MaxWait = 5 * time.Second
		if r := n.fetch(req); r.Err != 0 || len(r.Spans) != 0 || time.Since(start) != 5*time.Second {
			t.Fatalf("%+v after %v", r, time.Since(start))
		}
		size := batchOf("v").Size()
		req.MinBytes = 3 * size
		got := make(chan FetchResult, 1)
		go func() { got <- n.fetch(req) }()
		for i := range 3 {
			synctest.Wait()
			if len(got) != 0 {
				t.Fatalf("answered with %d batches", i)
			}
			if d := n.m.Stats().DelayedFetches; d != 1 {
				t.Fatalf("%d fetches wait", d)
			}
			time.Sleep(time.Second)
			n.mustProduce("a", "v")
		}
		if kvs := records(t, <-got); len(kvs) != 3 {
			t.Fatalf("got %v", kvs)
		}
		p := n.m.hosted.Load().names["a"].partitions[0]
		if p.fetches.count.Load() != 0 || n.m.Stats().DelayedFetches != 0 {
			t.Fatal("a watcher was left behind")
		}
		ctx, cancel := context.WithCancel(context.Background())
		start = time.Now()
		go func() { got <- n.m.Fetch(ctx, fetchWaiting("a", 3))[0] }()
		synctest.Wait()
		cancel()
		if r := <-got; r.Err != 0 || time.Since(start) != 0 {
			t.Fatalf("%+v", r)
		}
	})
}

// TestFetchKeepsItsOnlyBatch: a fetch that has one batch above its limits and waits for more still has it in the end.
func TestFetchKeepsItsOnlyBatch(t *testing.T) {
	_, o, _ := prepared(t, []int32{self})
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, o)
		defer n.stop()
		n.mustProduce("a", "1")
		req := fetchWaiting("a", 0)
		req.MinBytes, req.Partitions[0].MaxBytes = 1000, 1
		got := make(chan FetchResult, 1)
		go func() { got <- n.fetch(req) }()
		synctest.Wait()
		n.mustProduce("a", "2")
		if kvs := records(t, <-got); len(kvs) != 1 {
			t.Fatalf("got %v", kvs)
		}
	})
}

func fetchWaiting(topic string, off int64) *FetchRequest {
	req := fetchReq(topic, off)
	req.MaxWait = time.Minute
	return req
}

func TestFetchEndsAtOnceWithAnError(t *testing.T) {
	_, o, _ := prepared(t, []int32{self})
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, o)
		defer n.stop()
		start := time.Now()
		req := fetchWaiting("a", 0)
		req.Partitions = append(req.Partitions, fetchReq("none", 0).Partitions...)
		r := n.m.Fetch(context.Background(), req)
		if r[0].Err != 0 || r[1].Err != protocol.UnknownTopicOrPartition || time.Since(start) != 0 {
			t.Fatalf("%+v after %v", r, time.Since(start))
		}
	})
}

func TestReadCommitted(t *testing.T) {
	n, b := newNode(t, nodeOptions{})
	b.topic("a", 1, []int32{self})
	n.awaitState("a", 0, StateLeader)
	txn := func(pid int64, seq int32, v string) record.Batch {
		return batchWith(record.Options{Transactional: true, Producer: &record.Producer{ID: pid, BaseSequence: seq}}, time.Now().UnixMilli(), v)
	}
	p := n.m.hosted.Load().names["a"].partitions[0]
	n.mustProduce("a", "plain")
	n.produce("a", 0, AcksAll, txn(1, 0, "aborted"))
	n.produce("a", 0, AcksAll, txn(2, 0, "open"))
	req := fetchReq("a", 0)
	req.ReadCommitted = true
	r := n.fetch(req)
	if r.LastStable != 1 || r.HighWatermark != 3 || r.Aborted == nil || len(records(t, r)) != 1 {
		t.Fatalf("%+v", r)
	}
	end := func(pid int64, commit bool) {
		m := record.EndTxnMarker{TimestampMs: time.Now().UnixMilli(), ProducerID: pid, Commit: commit}
		before := p.hw.Load()
		if _, err := p.role.Load().log.AppendAsLeader(m.Batch(), p.role.Load().leaderEpoch, 1); err != nil {
			t.Fatal(err)
		}
		p.advance(p.role.Load())
		p.settle(true, before)
	}
	waiting := make(chan FetchResult, 1)
	go func() {
		q := fetchWaiting("a", 1)
		q.ReadCommitted = true
		waiting <- n.fetch(q)
	}()
	end(1, false)
	if r = <-waiting; r.LastStable != 2 || len(r.Aborted) != 1 || r.Aborted[0].ProducerID != 1 {
		t.Fatalf("%+v", r)
	}
	records(t, r)
	end(2, true)
	r = n.fetch(req)
	if got := records(t, r); r.LastStable != 5 || len(got) != 3 || len(r.Aborted) != 1 {
		t.Fatalf("%+v %v", r, got)
	}
}

func TestFollowersAreToldOfDivergence(t *testing.T) {
	n, b := newNode(t, nodeOptions{})
	id := b.topic("a", 1, []int32{self, 2})
	n.awaitState("a", 0, StateLeader)
	n.produce("a", 0, AcksLeader, batchOf("1", "2"))
	for range 3 {
		b.lead(id, 0, self)
	}
	n.awaitEpoch("a", 0, 3)
	n.produce("a", 0, AcksLeader, batchOf("3"))
	for _, c := range []struct {
		name  string
		epoch int32
		off   int64
		want  *EpochEnd
		err   protocol.ErrorCode
	}{
		{"same", 3, 3, nil, 0},
		{"same, behind", 0, 1, nil, 0},
		{"epoch ends earlier", 0, 3, &EpochEnd{0, 2}, 0},
		{"epoch unknown between", 2, 2, &EpochEnd{0, 2}, 0},
		{"epoch above all", 9, 2, nil, protocol.OffsetOutOfRange},
	} {
		req := fetchReq("a", c.off)
		req.ReplicaID = 2
		req.Partitions[0].LastFetchedEpoch = c.epoch
		r := n.fetch(req)
		if r.Err != c.err || (r.Diverging == nil) != (c.want == nil) || c.want != nil && *r.Diverging != *c.want {
			t.Errorf("%s: %v %+v, want %v %+v", c.name, r.Err, r.Diverging, c.err, c.want)
		}
		protocol.ReleaseSpans(r.Spans)
	}
}

// coldNode is a led, tiered partition "a" whose offsets 0 to 5 (three batches) are in the tier only, 6 to 9 local.
func coldNode(t *testing.T, tier *memTier) (*node, *book, protocol.UUID) {
	n, b := newNode(t, nodeOptions{tier: tier, sets: []string{"varve.topic.remote.storage.enable=false"}})
	id := b.topic("a", 1, []int32{self}, "remote.storage.enable", "true")
	n.awaitState("a", 0, StateLeader)
	for i := range 3 {
		n.mustProduce("a", string(rune('a'+2*i)), string(rune('b'+2*i)))
	}
	n.settle("a", id, 6)
	n.mustProduce("a", "g", "h", "i", "j")
	return n, b, id
}

func TestColdFetch(t *testing.T) {
	n, b, id := coldNode(t, newMemTier())
	if n.tier.leads(id, 0) == nil {
		t.Fatal("the tier does not know the partition")
	}
	var got []kv
	for off := int64(0); off < 10; {
		req := fetchReq("a", off)
		req.Partitions[0].MaxBytes = 1
		r := n.fetch(req)
		kvs := records(t, r)
		if r.Err != 0 || r.LogStart != 0 || r.HighWatermark != 10 || len(kvs) == 0 {
			t.Fatalf("at %d: %+v", off, r)
		}
		got = append(got, kvs...)
		off = kvs[len(kvs)-1].off + 1
	}
	for i, r := range got {
		if r != (kv{int64(i), string(rune('a' + i))}) {
			t.Fatalf("record %d is %v", i, r)
		}
	}
	req := fetchReq("a", 0)
	req.ReplicaID = self // a leader does not follow itself
	if r := n.fetch(req); r.Err != protocol.NotLeaderOrFollower {
		t.Fatalf("%+v", r)
	}
	b.change(id, 0, func(p *metastore.Partition) { p.Replicas, p.Dirs = []int32{self, 2}, append(p.Dirs, protocol.UUID{}) })
	req.ReplicaID = 2
	await(t, "the second replica is told to begin at the local start", func() bool { return n.fetch(req).Err == protocol.OffsetMovedToTieredStorage })
}

// TestReadyColdFetch: what the tier has ready needs no worker, and so no end of those that have theirs.
func TestReadyColdFetch(t *testing.T) {
	n, _, _ := coldNode(t, newMemTier())
	n.tier.setBefore(func(ctx context.Context, _ tiering.ReadRequest) error { <-ctx.Done(); return ctx.Err() })
	var busy sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	defer busy.Wait()
	defer cancel()
	for range cap(n.m.cold.slots) {
		busy.Go(func() { n.m.cold.run(ctx, &n.m.wg, func() { <-ctx.Done() }) })
	}
	await(t, "all workers have something to do", func() bool { return len(n.m.cold.slots) == cap(n.m.cold.slots) })
	if r := n.fetch(fetchWaiting("a", 0)); len(r.Spans) != 0 {
		t.Fatalf("read without a worker: %+v", r)
	}
	n.tier.mu.Lock()
	n.tier.ready = true
	n.tier.mu.Unlock()
	if kvs := records(t, n.fetch(fetchWaiting("a", 0))); len(kvs) == 0 || kvs[0] != (kv{0, "a"}) {
		t.Fatalf("%v", kvs)
	}
}

func TestColdFetchErrors(t *testing.T) {
	n, _, _ := coldNode(t, newMemTier())
	l, _ := n.logs.Get("a", 0)
	for _, c := range []struct {
		name  string
		err   error
		start int64 // log start by the time of the answer
		want  protocol.ErrorCode
		waits bool
	}{
		{"store busy", &objstore.RetryableError{Err: errors.New("503")}, 0, protocol.None, true},
		{"no metadata", protocol.OffsetOutOfRange, 0, protocol.ReplicaNotAvailable, false},
		{"corrupt", &protocol.CorruptionError{Where: "object", What: "crc"}, 0, protocol.UnknownServerError, false},
		{"missing object", protocol.KafkaStorageError, 0, protocol.UnknownServerError, false},
		{"log start moved", protocol.OffsetOutOfRange, 2, protocol.OffsetOutOfRange, false},
	} {
		n.tier.setBefore(func(context.Context, tiering.ReadRequest) error {
			if c.start > 0 {
				if err := l.SetLogStart(c.start); err != nil {
					t.Error(err)
				}
			}
			return c.err
		})
		begin := time.Now()
		r := n.fetch(fetchWaiting("a", 0))
		if r.Err != c.want || len(r.Spans) != 0 {
			t.Errorf("%s: %+v", c.name, r)
		}
		if waited := time.Since(begin) >= n.m.remoteMaxWait(); waited != c.waits {
			t.Errorf("%s: answered after %v", c.name, time.Since(begin))
		}
	}
	if got := n.events.Count("tier_read_failed"); got != 3 {
		t.Errorf("%d events", got)
	}
}

// TestHotAndColdTogether: what is local does not wait for a store that hangs, and comes along with one that does not.
func TestHotAndColdTogether(t *testing.T) {
	n, b, _ := coldNode(t, newMemTier())
	b.topic("hot", 1, []int32{self})
	n.awaitState("hot", 0, StateLeader)
	n.mustProduce("hot", "h")
	req := fetchWaiting("a", 0)
	req.Partitions = append(req.Partitions, fetchReq("hot", 0).Partitions...)
	r := n.m.Fetch(context.Background(), req)
	if len(records(t, r[0])) != 6 || len(records(t, r[1])) != 1 {
		t.Fatalf("%+v", r)
	}
	n.tier.setBefore(func(ctx context.Context, _ tiering.ReadRequest) error {
		<-ctx.Done()
		return ctx.Err()
	})
	begin := time.Now()
	r = n.m.Fetch(context.Background(), req)
	if len(records(t, r[1])) != 1 || r[0].Err != 0 || len(r[0].Spans) != 0 || r[0].HighWatermark != 10 {
		t.Fatalf("%+v", r)
	}
	if took := time.Since(begin); took > n.m.remoteMaxWait()/2 {
		t.Fatalf("the hot partition waited %v", took)
	}
	// Alone, the cold one comes back empty at its bound, without an error.
	begin = time.Now()
	if r := n.fetch(fetchWaiting("a", 0)); r.Err != 0 || len(r.Spans) != 0 || time.Since(begin) < n.m.remoteMaxWait() {
		t.Fatalf("%+v after %v", r, time.Since(begin))
	}
	// A hot partition without records wakes the fetch when some come.
	go func() {
		time.Sleep(20 * time.Millisecond)
		n.m.Append(&AppendRequest{Acks: AcksAll, Partitions: []AppendPartition{{Topic: "hot", Records: batchOf("i")}}}, func([]AppendResult) {})
	}()
	begin = time.Now()
	req.Partitions[1].Offset = 1
	r = n.m.Fetch(context.Background(), req)
	if len(records(t, r[1])) != 1 || time.Since(begin) > n.m.remoteMaxWait()/2 {
		t.Fatalf("%+v after %v", r, time.Since(begin))
	}
}

func TestColdPartitionsAreReadTogether(t *testing.T) {
	tier := newMemTier()
	n, b, _ := coldNode(t, tier)
	id := b.topic("b", 1, []int32{self}, "remote.storage.enable", "true")
	n.awaitState("b", 0, StateLeader)
	for _, v := range []string{"x", "y"} {
		if r := n.produce("b", 0, AcksAll, batchOf(v)); r.Err != 0 {
			t.Fatal(r)
		}
	}
	n.settle("b", id, 2)
	both := make(chan struct{}, 2)
	tier.setBefore(func(ctx context.Context, r tiering.ReadRequest) error {
		both <- struct{}{}
		for len(both) < 2 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		return ctx.Err()
	})
	req := fetchWaiting("a", 2)
	req.Partitions = append(req.Partitions, fetchReq("b", 0).Partitions...)
	r := n.m.Fetch(context.Background(), req)
	if len(records(t, r[0])) != 4 || len(records(t, r[1])) != 2 {
		t.Fatalf("%+v", r)
	}
	if ts := n.m.Stats().Topics; ts[0].BytesOut == 0 || ts[1].BytesOut == 0 {
		t.Fatalf("%+v", ts)
	}
	b.change(id, 0, func(p *metastore.Partition) { p.LeaderEpoch++ })
	await(t, "a new lead", func() bool { l := tier.leads(id, 0); return l != nil && l.LeaderEpoch() == 1 })
}
