package replica

import (
	"context"
	"testing"
	"time"

	"varve/broker/commitlog"
	"varve/metastore"
	"varve/protocol"
)

// set changes a topic's config and shows it to a node that follows meta.
func set(b *book, meta *stillMeta, id protocol.UUID, key, value string) {
	b.configs(id, key, value)
	meta.show(b.s.Image())
}

// TestOffAndOn: a topic that leaves the tier reads from its first local offset on, and the tier is told; so when it comes again.
func TestOffAndOn(t *testing.T) {
	n, b, id, meta := tieredNode(t)
	n.awaitState("a", 0, StateLeader)
	for range 4 {
		n.mustProduce("a", "v")
	}
	n.settle("a", id, 4)
	n.mustProduce("a", "v")
	n.mustProduce("a", "v")
	meta.setTier(id, metastore.TierState{End: 4, Settled: 4, Count: 1, Epochs: []metastore.EpochStart{{Epoch: 0}}})
	if got := records(t, n.fetch(fetchReq("a", 1))); len(got) == 0 || got[0].off != 1 && got[0].off != 0 {
		t.Fatalf("cold: %+v", got)
	}
	was := n.tier.leads(id, 0)
	set(b, meta, id, "remote.storage.enable", "false")
	await(t, "the tier to be told", func() bool { now := n.tier.leads(id, 0); return now != nil && now != was && now.TierConfig().Left })
	if r := n.fetch(fetchReq("a", 1)); r.Err != protocol.OffsetOutOfRange {
		t.Fatalf("%+v", r)
	}
	if d, _ := n.m.Describe("a", 0); d.LogStart != 4 {
		t.Fatalf("%+v", d)
	}
	if got := records(t, n.fetch(fetchReq("a", 4))); len(got) == 0 || got[0].off != 4 {
		t.Fatalf("local: %+v", got)
	}
	if off := n.mustProduce("a", "w"); off != 6 {
		t.Fatalf("goes on at %d", off)
	}
	set(b, meta, id, "remote.storage.enable", "true")
	await(t, "the tier again", func() bool { now := n.tier.leads(id, 0); return now != nil && !now.TierConfig().Left })
	if d, _ := n.m.Describe("a", 0); !d.Tiered || d.LogStart != 4 || d.LeaderEpoch != 0 {
		t.Fatalf("%+v", d)
	}
}

// TestOffWithoutTier: a broker whose tier was switched off serves a topic with data there once that is given up.
func TestOffWithoutTier(t *testing.T) {
	b := newBook(t)
	meta := &stillMeta{img: b.s.Image()}
	id := b.topic("a", 1, []int32{self}, "remote.storage.enable", "true", "max.message.bytes", "300")
	meta.show(b.s.Image())
	n := startNode(t, nodeOptions{meta: meta, control: &bookControl{b: b, meta: meta}, sets: []string{"remote.log.storage.system.enable=false"}})
	defer n.stop()
	n.awaitState("a", 0, StateLeader)
	for range 3 {
		n.mustProduce("a", "v")
	}
	if r := n.produce("a", 0, AcksAll, batchOf(string(make([]byte, 400)))); r.Err != protocol.MessageTooLarge {
		t.Fatalf("its other configs are not followed: %+v", r)
	}
	l, _ := n.logs.Get("a", 0)
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	n.mustProduce("a", "v")
	if _, err := l.FreeBelow(3); err != nil {
		t.Fatal(err)
	}
	meta.setTier(id, metastore.TierState{End: 3, Settled: 3, Count: 1, Epochs: []metastore.EpochStart{{Epoch: 0}}})
	b.lead(id, 0, self)
	meta.show(b.s.Image())
	n.awaitState("a", 0, StateOffline)
	set(b, meta, id, "remote.storage.enable", "false")
	n.awaitState("a", 0, StateLeader)
	n.m.hosted.Load().names["a"].partitions[0].tidy(time.Now(), false)
	if d, _ := n.m.Describe("a", 0); d.LogStart != 3 || d.End != 4 {
		t.Fatalf("%+v", d)
	}
	if st, _ := meta.Tier(id, 0); st.LogStart != 3 {
		t.Fatalf("%+v", st)
	}
}

// TestErasedAfterLeaving: offsets that settled before a topic left the tier are not given to other records, tiered again or not.
func TestErasedAfterLeaving(t *testing.T) {
	for _, tiered := range []string{"false", "true"} {
		b := newBook(t)
		meta := &stillMeta{img: b.s.Image()}
		id := b.topic("a", 1, []int32{self}, "remote.storage.enable", tiered)
		meta.setTier(id, metastore.TierState{LogStart: 4, End: 4, Settled: 9})
		meta.show(b.s.Image())
		n := startNode(t, nodeOptions{meta: meta, control: &bookControl{b: b, meta: meta}, tier: newMemTier()})
		n.awaitState("a", 0, StateLeader)
		if off := n.mustProduce("a", "v"); off != 9 {
			t.Fatalf("tiered=%s: goes on at %d", tiered, off)
		}
		if d, _ := n.m.Describe("a", 0); d.LogStart != 9 {
			t.Fatalf("%+v", d)
		}
		n.stop()
	}
}

// TestDeletedRecordsStayDeleted: what was deleted while the topic was local does not come back when it is tiered and the leader
// starts anew before the tier has heard of the log start.
func TestDeletedRecordsStayDeleted(t *testing.T) {
	b := newBook(t)
	meta := &stillMeta{img: b.s.Image()}
	id := b.topic("a", 1, []int32{self}, "remote.storage.enable", "false")
	meta.show(b.s.Image())
	n := startNode(t, nodeOptions{meta: meta, control: &bookControl{b: b, meta: meta}, tier: newMemTier()})
	defer n.stop()
	n.awaitState("a", 0, StateLeader)
	for range 6 {
		n.mustProduce("a", "v")
	}
	if at, err := n.m.DeleteRecords(context.Background(), "a", 0, 4); err != nil || at != 4 {
		t.Fatal(at, err)
	}
	set(b, meta, id, "remote.storage.enable", "true")
	await(t, "the tier", func() bool { led := n.tier.leads(id, 0); return led != nil && !led.TierConfig().Left })
	b.lead(id, 0, self)
	meta.show(b.s.Image())
	n.awaitEpoch("a", 0, 1)
	if d, _ := n.m.Describe("a", 0); d.LogStart != 4 {
		t.Fatalf("%+v", d)
	}
}

// TestTakeLogStart: which of two log starts counts.
func TestTakeLogStart(t *testing.T) {
	for _, c := range []struct {
		name          string
		log, local    int64 // of a log that ends at 10
		meta, tierEnd int64
		want          int64
	}{
		{"same", 3, 0, 3, 5, 3},
		{"the metastore's is higher", 3, 0, 4, 5, 4},
		{"its checkpoint was lost", 4, 4, 1, 5, 1},
		{"what lies below is not in the tier", 4, 4, 1, 3, 4},
		{"deleted while it was local", 3, 0, 0, 0, 3},
	} {
		fs := commitlog.NewMemFS()
		m, err := commitlog.OpenManager(commitlog.ManagerOptions{FS: fs, Dir: "/l", NodeID: self, ClusterID: "c"})
		if err != nil {
			t.Fatal(err)
		}
		l, err := m.Create("a", protocol.NewUUID(), 0, commitlog.DefaultConfig())
		if err == nil && c.local > 0 {
			err = l.StartFromTier(c.local, c.log, []commitlog.EpochStart{{}}, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		for l.End() < 10 {
			if _, err := l.AppendAsLeader(batchOf("v"), 0, commitlog.OriginClient); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.SetLogStart(c.log); err != nil {
			t.Fatal(err)
		}
		err = takeLogStart(l, metastore.TierState{LogStart: c.meta, End: c.tierEnd})
		if err != nil || l.LogStart() != c.want {
			t.Errorf("%s: %d, want %d: %v", c.name, l.LogStart(), c.want, err)
		}
		if err := m.Close(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
	}
}
