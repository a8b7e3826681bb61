package replica

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"varve/broker/commitlog"
	"varve/metastore"
	"varve/protocol"
)

func TestNothingIsServedBeforeItsFolderIsAssigned(t *testing.T) {
	b := newBook(t)
	control := &bookControl{b: b}
	control.fail.Store(3)
	b.topic("a", 1, []int32{self})
	n := startNode(t, nodeOptions{meta: b.s, control: control})
	defer n.stop()
	d := n.awaitState("a", 0, StateElecting)
	now := &AppendRequest{Acks: AcksAll, Partitions: []AppendPartition{{Topic: "a", Records: batchOf("v")}}}
	n.m.Append(now, func(r []AppendResult) {
		if r[0].Err != protocol.NotLeaderOrFollower || d.Problem == "" {
			t.Errorf("%+v, %+v", r, d)
		}
	})
	// A request that has time waits for the folder to be assigned, and is served by then, not before.
	if r := n.produce("a", 0, AcksAll, batchOf("v")); r.Err != protocol.None {
		t.Fatalf("%+v", r)
	}
	if p, _ := n.m.Describe("a", 0); p.State != StateLeader || control.assigns.Load() != 1 {
		t.Fatalf("served as %+v after %d assignments", p, control.assigns.Load())
	}
	part, _ := b.s.Image().Topic("a")
	if dir, _ := part.Partitions[0].DirOf(self); dir != n.logs.DirectoryID() {
		t.Fatalf("assigned to %s", dir)
	}
	if n.events.Count("controller_refused") != 3 || control.assigns.Load() != 1 {
		t.Fatalf("%d refusals, %d assignments", n.events.Count("controller_refused"), control.assigns.Load())
	}
}

func TestNewTopicsAreAssignedBeforeReady(t *testing.T) {
	b := newBook(t)
	for i := range 20 {
		b.topic(fmt.Sprintf("t%d", i), 3, []int32{self})
	}
	control := &bookControl{b: b}
	n := startNode(t, nodeOptions{meta: b.s, control: control})
	defer n.stop()
	if control.assigns.Load() == 0 {
		t.Fatal("ready, but nothing assigned")
	}
	for topic := range b.s.Image().Topics() {
		for _, p := range topic.Partitions {
			if dir, _ := p.DirOf(self); dir != n.logs.DirectoryID() {
				t.Fatalf("%s-%d is not assigned", topic.Name, p.Index)
			}
		}
	}
}

func TestRestartKeepsTheWatermark(t *testing.T) {
	b := newBook(t)
	control := &bookControl{b: b}
	o := nodeOptions{fs: commitlog.NewMemFS(), meta: b.s, control: control}
	n := startNode(t, o)
	id := b.topic("a", 1, []int32{self, 2})
	n.awaitState("a", 0, StateLeader)
	n.produce("a", 0, AcksLeader, batchOf("1", "2", "3"))
	n.follow(2, 2)
	n.stop()
	n = startNode(t, o)
	defer n.stop()
	d := n.awaitState("a", 0, StateLeader)
	// The epoch is the same, its start is not: offsets above the watermark are not given out until it is reached.
	if d.HighWatermark != 2 || d.End != 3 {
		t.Fatalf("%+v", d)
	}
	if _, err := n.m.ListOffset(context.Background(), offsetQuery("a", TimestampLatest)); protocol.CodeOf(err) != protocol.OffsetNotAvailable {
		t.Fatalf("%v", err)
	}
	b.change(id, 0, func(p *metastore.Partition) { p.ISR = []int32{self} })
	await(t, "the watermark", func() bool { d, _ := n.m.Describe("a", 0); return d.HighWatermark == 3 })
	if len(n.m.LostRanges()) != 0 {
		t.Fatalf("%+v", n.m.LostRanges())
	}
}

func TestDeletedTopic(t *testing.T) {
	b, o, id := prepared(t, []int32{self, 2})
	meta := o.meta.(*stillMeta)
	b.deleteTopic(id)
	gone := b.s.Image()
	again := b.topic("a", 2, []int32{self})
	remade := b.s.Image()
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, o)
		defer n.stop()
		done := n.produceAsync("a", 0, AcksAll, time.Minute, batchOf("old"))
		fetched := make(chan FetchResult, 1)
		go func() { fetched <- n.fetch(fetchWaiting("a", 0)) }()
		synctest.Wait()
		meta.show(gone)
		if r := <-done; r.Err != protocol.UnknownTopicOrPartition {
			t.Fatalf("%+v", r)
		}
		if r := <-fetched; r.Err != protocol.UnknownTopicOrPartition {
			t.Fatalf("%+v", r)
		}
		synctest.Wait()
		if _, ok := n.logs.Get("a", 0); ok {
			t.Fatal("the log is still there")
		}
		meta.show(remade)
		synctest.Wait()
		// Nobody assigns the folder here; what matters is whose log it is.
		l, ok := n.logs.Get("a", 0)
		if !ok || l.TopicID() != again || l.End() != 0 {
			t.Fatal("the new topic has the old log")
		}
		req := fetchReq("", 0)
		req.Partitions[0].TopicID = id
		if r := n.fetch(req); r.Err != protocol.UnknownTopicID {
			t.Fatalf("%+v", r)
		}
	})
}

func TestTopicIsMadeAgainWhileRunning(t *testing.T) {
	tier := newMemTier()
	n, b := newNode(t, nodeOptions{tier: tier})
	for i := range 5 {
		id := b.topic("a", 1, []int32{self}, "remote.storage.enable", "true")
		await(t, "the new topic", func() bool {
			d, ok := n.m.Describe("a", 0)
			return ok && d.TopicID == id && d.State == StateLeader
		})
		if off := n.mustProduce("a", "v"); off != 0 {
			t.Fatalf("round %d begins at offset %d", i, off)
		}
		if tier.leads(id, 0) == nil {
			t.Fatal("the tier does not settle it")
		}
		b.deleteTopic(id)
		await(t, "the tier to let go", func() bool { return tier.leads(id, 0) == nil })
	}
	if s := n.events.Count("partition_failed"); s != 0 {
		t.Fatalf("%d failures", s)
	}
}

func TestStraysAreRemoved(t *testing.T) {
	b := newBook(t)
	control := &bookControl{b: b}
	o := nodeOptions{fs: commitlog.NewMemFS(), meta: b.s, control: control}
	n := startNode(t, o)
	id := b.topic("a", 1, []int32{self})
	kept := b.topic("b", 1, []int32{self})
	n.awaitState("a", 0, StateLeader)
	n.awaitState("b", 0, StateLeader)
	n.mustProduce("b", "v")
	n.stop()
	b.deleteTopic(id)
	n = startNode(t, o)
	defer n.stop()
	if _, ok := n.logs.Get("a", 0); ok || n.events.Count("replica_removed") != 1 {
		t.Fatal("the stray is there")
	}
	if d := n.awaitState("b", 0, StateLeader); d.TopicID != kept || d.End != 1 {
		t.Fatalf("%+v", d)
	}
}

// erase removes a partition's folder from a stopped node.
func erase(t *testing.T, fs *commitlog.MemFS, folder string) {
	t.Helper()
	if err := fs.RemoveAll(filepath.Join("/logs", folder)); err != nil {
		t.Fatal(err)
	}
}

func TestErasedReplica(t *testing.T) {
	for _, tiered := range []bool{false, true} {
		t.Run(fmt.Sprintf("tiered=%v", tiered), func(t *testing.T) {
			b := newBook(t)
			meta := &stillMeta{img: b.s.Image()}
			control := &bookControl{b: b, meta: meta}
			tier := newMemTier()
			o := nodeOptions{fs: commitlog.NewMemFS(), meta: meta, control: control, tier: tier}
			id := b.topic("a", 1, []int32{self}, "remote.storage.enable", fmt.Sprint(tiered))
			meta.show(b.s.Image())
			n := startNode(t, o)
			n.awaitState("a", 0, StateLeader)
			n.mustProduce("a", "1", "2", "3", "4", "5")
			n.stop()
			erase(t, o.fs, "a-0")
			from := int64(0)
			if tiered {
				from = 2
				meta.setTier(id, metastore.TierState{End: from, Epochs: []metastore.EpochStart{{Epoch: 0}}})
				tier.tail = func(context.Context) (int64, []commitlog.EpochStart, []byte, error) {
					return from, []commitlog.EpochStart{{Epoch: 0}}, nil, nil
				}
			}
			n = startNode(t, o)
			defer n.stop()
			if control.losts.Load() != 1 || n.events.Count("replica_erased") != 1 {
				t.Fatal("the controller was not told before ready")
			}
			n.awaitState("a", 0, StateFollower)
			if s := n.m.Stats(); s.Offline != 1 {
				t.Fatalf("%+v", s)
			}
			b.lead(id, 0, self) // registration and unfencing, or an accepted loss
			meta.show(b.s.Image())
			d := n.awaitState("a", 0, StateLeader)
			if d.End != from || d.HighWatermark != from || len(d.Lost) != 1 || d.Lost[0].From != from || d.Lost[0].To != 5 {
				t.Fatalf("%+v", d)
			}
			if off := n.mustProduce("a", "new"); off != from {
				t.Fatalf("goes on at %d", off)
			}
			if n.events.Count("offsets_lost") != 1 || len(n.m.LostRanges()) != 1 {
				t.Fatalf("%+v", n.m.LostRanges())
			}
		})
	}
}

// TestElectionAgainstTheTier: which local logs continue what has settled, and where the others start.
func TestElectionAgainstTheTier(t *testing.T) {
	type epochs = []metastore.EpochStart
	for _, c := range []struct {
		name     string
		tier     metastore.TierState
		local    []int // records appended at epochs 0, 1, ...
		start    int64 // log start afterwards
		end      int64
		fromTier bool
	}{
		{"nothing settled", metastore.TierState{}, []int{3, 2}, 0, 5, false},
		{"settled less", metastore.TierState{End: 4, Epochs: epochs{{Epoch: 0}, {Epoch: 1, Start: 3}}}, []int{3, 2}, 0, 5, false},
		{"settled all", metastore.TierState{End: 5, Epochs: epochs{{Epoch: 0}, {Epoch: 1, Start: 3}}}, []int{3, 2}, 0, 5, false},
		{"settled more", metastore.TierState{End: 9, Epochs: epochs{{Epoch: 0}, {Epoch: 1, Start: 3}}}, []int{3, 2}, 0, 9, true},
		{"another epoch inside", metastore.TierState{End: 5, Epochs: epochs{{Epoch: 0}, {Epoch: 2, Start: 4}}}, []int{3, 2}, 0, 5, true},
		{"epoch begins earlier", metastore.TierState{End: 4, Epochs: epochs{{Epoch: 0}, {Epoch: 1, Start: 2}}}, []int{3, 2}, 0, 4, true},
		{"differs above the tier only", metastore.TierState{End: 3, Epochs: epochs{{Epoch: 0}}}, []int{3, 2}, 0, 5, false},
		{"log start moved", metastore.TierState{LogStart: 2, End: 4, Epochs: epochs{{Epoch: 0}, {Epoch: 1, Start: 3}}}, []int{3, 2}, 2, 5, false},
		{"log start above the log", metastore.TierState{LogStart: 8, End: 8, Epochs: epochs{{Epoch: 1, Start: 3}}}, []int{3, 2}, 8, 8, true},
		{"differs below log start only", metastore.TierState{LogStart: 3, End: 4, Epochs: epochs{{Epoch: 1, Start: 2}}}, []int{3, 2}, 3, 5, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, b, id, meta := tieredNode(t)
			tier := n.tier
			for e, records := range c.local {
				if e > 0 {
					b.lead(id, 0, self)
					meta.show(b.s.Image())
				}
				n.awaitEpoch("a", 0, int32(e))
				for range records {
					n.mustProduce("a", "v")
				}
			}
			meta.setTier(id, c.tier)
			asked := 0
			tier.setTail(func(context.Context) (int64, []commitlog.EpochStart, []byte, error) {
				if asked++; asked == 1 {
					return 0, nil, nil, errors.New("store is away")
				}
				// At the second time the tier's end is that before a segment settled.
				return c.tier.End - int64(max(3-asked, 0)), tierLineage(c.tier), nil, nil
			})
			b.lead(id, 0, self)
			meta.show(b.s.Image())
			n.awaitEpoch("a", 0, int32(len(c.local)))
			d, _ := n.m.Describe("a", 0)
			if d.LogStart != c.start || d.End != c.end || d.HighWatermark != c.end {
				t.Fatalf("%+v, want start %d end %d", d, c.start, c.end)
			}
			if waited := n.events.Count("election_waits") > 0; waited != c.fromTier {
				t.Fatalf("waited for the tier: %v", waited)
			}
			if lost := c.end < 5; lost != (len(d.Lost) == 1 && d.Lost[0].From == c.end && d.Lost[0].To == 5) {
				t.Fatalf("lost %+v", d.Lost)
			}
			if off := n.mustProduce("a", "next"); off != c.end {
				t.Fatalf("goes on at %d", off)
			}
			l, _ := n.logs.Get("a", 0)
			if e := l.EpochAt(c.end); e != int32(len(c.local)) {
				t.Fatalf("epoch %d at the new record", e)
			}
			await(t, "the tier to hear of it", func() bool {
				led := tier.leads(id, 0)
				return led != nil && led.LeaderEpoch() == int32(len(c.local)) && led.LastStable() == c.end+1
			})
		})
	}
}

func TestNoTierIsConfiguredAnyMore(t *testing.T) {
	b := newBook(t)
	meta := &stillMeta{img: b.s.Image()}
	id := b.topic("a", 1, []int32{self}, "remote.storage.enable", "true")
	meta.show(b.s.Image())
	n := startNode(t, nodeOptions{meta: meta, control: &bookControl{b: b, meta: meta}})
	defer n.stop()
	n.awaitState("a", 0, StateLeader)
	n.mustProduce("a", "v")
	meta.setTier(id, metastore.TierState{End: 1, Epochs: []metastore.EpochStart{{Epoch: 0}}})
	b.lead(id, 0, self)
	meta.show(b.s.Image())
	d := n.awaitState("a", 0, StateOffline)
	if d.Problem == "" || d.End != 1 {
		t.Fatalf("%+v", d)
	}
	if r := n.produce("a", 0, AcksAll, batchOf("w")); r.Err != protocol.KafkaStorageError || r.Message != d.Problem {
		t.Fatalf("%+v", r)
	}
}

// tieredNode leads a tiered partition "a" at epoch 0, over an Image and a tier that the test moves.
func tieredNode(t *testing.T) (*node, *book, protocol.UUID, *stillMeta) {
	b := newBook(t)
	meta := &stillMeta{img: b.s.Image()}
	id := b.topic("a", 1, []int32{self}, "remote.storage.enable", "true")
	meta.show(b.s.Image())
	n := startNode(t, nodeOptions{meta: meta, control: &bookControl{b: b, meta: meta}, tier: newMemTier()})
	t.Cleanup(n.stop)
	return n, b, id, meta
}

// TestElectionIsCalledOff: a partition that waits for the tier and loses its leadership starts nothing any more.
func TestElectionIsCalledOff(t *testing.T) {
	b := newBook(t)
	meta := &stillMeta{img: b.s.Image()}
	tier := newMemTier()
	id := b.topic("a", 1, []int32{self, 2}, "remote.storage.enable", "true")
	meta.setTier(id, metastore.TierState{End: 7, Epochs: []metastore.EpochStart{{Epoch: 0}}})
	meta.show(b.s.Image())
	answer := make(chan struct{})
	tier.tail = func(ctx context.Context) (int64, []commitlog.EpochStart, []byte, error) {
		select {
		case <-answer:
		case <-ctx.Done():
		}
		return 7, []commitlog.EpochStart{{Epoch: 0}}, nil, nil
	}
	n := startNode(t, nodeOptions{meta: meta, control: &bookControl{b: b, meta: meta}, tier: tier})
	defer n.stop()
	n.awaitState("a", 0, StateElecting)
	b.lead(id, 0, 2)
	meta.show(b.s.Image())
	n.awaitState("a", 0, StateFollower)
	close(answer)
	time.Sleep(20 * time.Millisecond)
	if d, _ := n.m.Describe("a", 0); d.State != StateFollower || d.End != 0 {
		t.Fatalf("%+v", d)
	}
	b.lead(id, 0, self)
	meta.show(b.s.Image())
	if d := n.awaitState("a", 0, StateLeader); d.End != 7 || d.LeaderEpoch != 2 {
		t.Fatalf("%+v", d)
	}
}

func TestConfigsAreFollowed(t *testing.T) {
	tier := newMemTier()
	n, b := newNode(t, nodeOptions{tier: tier})
	id := b.topic("a", 1, []int32{self}, "remote.storage.enable", "false")
	n.awaitState("a", 0, StateLeader)
	if led := tier.leads(id, 0); led == nil || !led.TierConfig().Left {
		t.Fatal("the tier does not know that it is to let go of whatever it has")
	}
	b.configs(id, "max.message.bytes", "100")
	await(t, "max.message.bytes", func() bool {
		return n.produce("a", 0, AcksAll, batchOf(string(make([]byte, 200)))).Err == protocol.MessageTooLarge
	})
	b.configs(id, "remote.storage.enable", "true")
	await(t, "the tier", func() bool { led := tier.leads(id, 0); return led != nil && !led.TierConfig().Left })
	b.configs(id, "local.retention.ms", "1234")
	led := tier.leads(id, 0)
	await(t, "local retention", func() bool { return led.TierConfig().LocalRetentionMs == 1234 })
	if d, _ := n.m.Describe("a", 0); !d.Tiered || d.TierEnd != 0 || d.LeaderEpoch != 0 {
		t.Fatalf("%+v", d)
	}
}

func TestPartitionsAreAdded(t *testing.T) {
	n, b := newNode(t, nodeOptions{})
	id := b.topic("a", 1, []int32{self})
	n.awaitState("a", 0, StateLeader)
	n.mustProduce("a", "v")
	b.addPartition(id)
	n.awaitState("a", 1, StateLeader)
	if d, _ := n.m.Describe("a", 0); d.End != 1 {
		t.Fatalf("%+v", d)
	}
	if all := n.m.DescribeAll(); len(all) != 2 || all[1].Partition != 1 {
		t.Fatalf("%+v", all)
	}
}

// TestPowerCutsDuringElection cuts the power before each write of a start whose partition was erased and goes on at the
// tier's end, then starts again on what the disk kept.
func TestPowerCutsDuringElection(t *testing.T) {
	const maxWrites = 500
	b := newBook(t)
	for at := 1; at < maxWrites; at++ {
		meta := &stillMeta{img: b.s.Image()}
		control := &bookControl{b: b, meta: meta}
		tier := newMemTier()
		id := b.topic("a", 1, []int32{self}, "remote.storage.enable", "true")
		meta.show(b.s.Image())
		meta.setTier(id, metastore.TierState{LogStart: 3, End: 7, Epochs: []metastore.EpochStart{{Epoch: 0}}})
		tier.tail = func(context.Context) (int64, []commitlog.EpochStart, []byte, error) {
			return 7, []commitlog.EpochStart{{Epoch: 0}}, nil, nil
		}
		cut := &powerCut{at: at}
		o := nodeOptions{fs: commitlog.NewMemFS(), meta: meta, control: control, tier: tier}
		startNode(t, o).stop() // makes the folder's own files and settles who it is
		erase(t, o.fs, "a-0")
		o.power, o.mayFail = cut, true
		n, err := openNode(t, o)
		if err == nil {
			b.lead(id, 0, self)
			meta.show(b.s.Image())
			await(t, "the election or the cut", func() bool {
				d, _ := n.m.Describe("a", 0)
				return d.State == StateLeader || cut.happened()
			})
			n.cancel()
			<-n.ended
			_ = n.logs.Close(context.Background(), 1) // fails after the cut
		}
		if !cut.happened() {
			t.Logf("%d writes", at)
			return
		}
		o.fs, o.power, o.mayFail = cut.left, nil, false
		n = startNode(t, o)
		b.lead(id, 0, self)
		meta.show(b.s.Image())
		d := n.awaitState("a", 0, StateLeader)
		if d.End != 7 || d.LogStart != 3 || d.HighWatermark != 7 {
			t.Fatalf("cut before write %d: %+v", at, d)
		}
		if off := n.mustProduce("a", "v"); off != 7 {
			t.Fatalf("cut before write %d: goes on at %d", at, off)
		}
		n.stop()
		b.deleteTopic(id)
	}
	t.Fatal("the writes do not end")
}
