package replica

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"varve/broker/commitlog"
	"varve/protocol"
	"varve/tiering"
	"varve/tiering/objstore"
)

// realTier runs a tiering.Manager over a store in memory.
func realTier(t *testing.T, b *book, store objstore.Store) (*tiering.Manager, func()) {
	t.Helper()
	m, err := tiering.New(tiering.Options{
		Store: store, Location: "mem://", Meta: b.s, ClusterID: b.s.ClusterID(), BrokerID: self,
		TaskIntervalMs: 20, JournalIntervalMs: 100,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := m.Run(ctx); err != nil {
			t.Errorf("tier: %v", err)
		}
	})
	return m, func() { cancel(); wg.Wait() }
}

// readAll reads a partition from an offset to the end, as a consumer does.
func (n *node) readAll(topic string, off int64) map[int64]string {
	n.t.Helper()
	out := map[int64]string{}
	end := time.Now().Add(20 * time.Second)
	for {
		req := fetchReq(topic, off)
		req.MaxWait = 100 * time.Millisecond
		r := n.fetch(req)
		if r.Err != protocol.None {
			n.t.Fatalf("fetch at %d: %v", off, r.Err)
		}
		for _, kv := range records(n.t, r) {
			if kv.off >= off {
				if kv.off != off && len(out) > 0 {
					n.t.Fatalf("offset %d after %d", kv.off, off-1)
				}
				out[kv.off], off = kv.value, kv.off+1
			}
		}
		if off >= r.HighWatermark {
			return out
		}
		if time.Now().After(end) {
			n.t.Fatalf("stuck at offset %d of %d", off, r.HighWatermark)
		}
	}
}

// TestProduceSettleFreeReadBack: segments settle in a real tier, the local copies go, and all comes back from offset 0;
// then again after the folder was erased, from the tier's end on.
func TestProduceSettleFreeReadBack(t *testing.T) {
	b := newBook(t)
	store := objstore.NewMem(time.Now)
	tier, stopTier := realTier(t, b, store)
	o := nodeOptions{fs: commitlog.NewMemFS(), meta: b.s, control: &bookControl{b: b}, tier: tier}
	n := startNode(t, o)
	id := b.topic("a", 1, []int32{self}, "remote.storage.enable", "true", "internal.segment.bytes", "2000", "local.retention.bytes", "3000")
	n.awaitState("a", 0, StateLeader)
	want := map[int64]string{}
	for i := range 200 {
		v := fmt.Sprintf("value %04d", i)
		want[n.mustProduce("a", v)] = v
	}
	await(t, "local copies to go", func() bool { d, _ := n.m.Describe("a", 0); return d.LocalBytes <= 5000 && d.TierEnd > 150 })
	check := func(n *node, below int64) {
		t.Helper()
		got := n.readAll("a", 0)
		for off, v := range want {
			if off < below && got[off] != v {
				t.Fatalf("offset %d is %q, want %q", off, got[off], v)
			}
		}
	}
	check(n, 200)
	d, _ := n.m.Describe("a", 0)
	for ts, off := range map[int64]int64{TimestampEarliest: 0, TimestampEarliestLocal: d.LocalStart, TimestampLatest: 200, 0: 0} {
		if r, err := n.m.ListOffset(context.Background(), offsetQuery("a", ts)); err != nil || r.Offset != off {
			t.Errorf("timestamp %d: %+v %v, want %d", ts, r, err, off)
		}
	}
	n.stop()
	stopTier()

	erase(t, o.fs, "a-0")
	tier, stopTier = realTier(t, b, store)
	defer stopTier()
	o.tier = tier
	n = startNode(t, o)
	defer n.stop()
	b.lead(id, 0, self)
	d = n.awaitState("a", 0, StateLeader)
	st, err := b.s.Tier(id, 0)
	if err != nil || d.End != st.End || d.LocalStart != st.End || d.LogStart != 0 || d.HighWatermark != st.End {
		t.Fatalf("%+v, the tier ends at %d", d, st.End)
	}
	if len(d.Lost) != 1 || d.Lost[0].From != st.End || d.Lost[0].To != 200 {
		t.Fatalf("lost %+v, the tier ends at %d", d.Lost, st.End)
	}
	check(n, st.End)
	if off := n.mustProduce("a", "new"); off != st.End {
		t.Fatalf("goes on at %d", off)
	}
	want = map[int64]string{st.End: "new"}
	check(n, st.End+1)
}

// TestStormOverTheTier: the storm of TestStorm on partitions that settle while they are written and read.
func TestStormOverTheTier(t *testing.T) {
	b := newBook(t)
	tier, stopTier := realTier(t, b, objstore.NewMem(time.Now))
	defer stopTier()
	n := startNode(t, nodeOptions{meta: b.s, control: &bookControl{b: b}, tier: tier})
	defer n.stop()
	id := b.topic("a", 2, []int32{self}, "remote.storage.enable", "true", "internal.segment.bytes", "100000", "local.retention.bytes", "100000")
	for i := range int32(2) {
		n.awaitState("a", i, StateLeader)
	}
	s := newStorm(t, n, "a", 2)
	var producers sync.WaitGroup
	producers.Go(func() { s.produce(1) })
	for i := range int32(2) {
		s.wg.Go(func() { s.consume(i, i == 0) })
	}
	s.trouble(100*time.Millisecond, func() { b.lead(id, 0, self) })
	producers.Wait()
	s.wg.Wait()
	for i := range int32(2) {
		d, _ := n.m.Describe("a", i)
		if d.LocalStart == 0 {
			t.Errorf("partition %d: nothing was freed: %+v", i, d)
		}
		s.consume(i, false) // all again, most of it from the tier
	}
	if n.events.Count("partition_failed")+n.events.Count("tier_read_failed") > 0 {
		t.Error("there were failures")
	}
}
