package replica

import (
	"context"
	"testing"
	"time"

	"varve/broker/commitlog"
	"varve/metastore"
	"varve/protocol"
	"varve/tiering"
)

func offsetQuery(topic string, ts int64) OffsetQuery {
	return OffsetQuery{Topic: topic, CurrentLeaderEpoch: NoEpoch, ReplicaID: ConsumerID, Timestamp: ts}
}

// datedNode has records 0..9 of topic "a" with the given times, two in a batch; those below 6 are in the tier only.
func datedNode(t *testing.T, times [10]int64) (*node, *book, protocol.UUID) {
	t.Helper()
	b := newBook(t)
	meta := &stillMeta{img: b.s.Image()}
	n := startNode(t, nodeOptions{meta: meta, control: &bookControl{b: b, meta: meta}, tier: newMemTier()})
	t.Cleanup(n.stop)
	id := b.topic("a", 1, []int32{self}, "remote.storage.enable", "true")
	meta.show(b.s.Image())
	n.awaitState("a", 0, StateLeader)
	for i, ms := range times {
		if i == 6 {
			n.settle("a", id, 6)
			meta.setTier(id, metastore.TierState{End: 6, Epochs: []metastore.EpochStart{{Epoch: 0}}})
		}
		if r := n.produce("a", 0, AcksAll, batchAt(ms, "v")); r.Err != 0 {
			t.Fatal(r)
		}
	}
	return n, b, id
}

func TestListOffset(t *testing.T) {
	n, _, _ := datedNode(t, [10]int64{10, 20, 30, 40, 50, 60, 70, 80, 90, 100})
	l, _ := n.logs.Get("a", 0)
	check := func(ts int64, want OffsetResult) {
		t.Helper()
		got, err := n.m.ListOffset(context.Background(), offsetQuery("a", ts))
		if err != nil || got != want {
			t.Errorf("timestamp %d: %+v %v, want %+v", ts, got, err, want)
		}
	}
	check(TimestampLatest, OffsetResult{-1, 10, 0})
	check(TimestampEarliest, OffsetResult{-1, 0, 0})
	check(TimestampMax, OffsetResult{100, 9, 0})
	check(TimestampEarliestLocal, OffsetResult{-1, 6, 0})
	check(TimestampLatestTiered, OffsetResult{-1, 5, 0})
	check(TimestampEarliestPendingUpload, OffsetResult{-1, 6, 0})
	check(0, OffsetResult{10, 0, 0})
	check(35, OffsetResult{40, 3, 0})
	check(60, OffsetResult{60, 5, 0})
	check(61, OffsetResult{70, 6, 0})
	check(101, noOffset)
	if err := l.SetLogStart(8); err != nil {
		t.Fatal(err)
	}
	check(TimestampEarliest, OffsetResult{-1, 8, 0})
	check(TimestampEarliestLocal, OffsetResult{-1, 8, 0})
	check(TimestampEarliestPendingUpload, OffsetResult{-1, 8, 0})
	check(0, OffsetResult{90, 8, 0})
	for _, ts := range []int64{-7, -100} {
		if _, err := n.m.ListOffset(context.Background(), offsetQuery("a", ts)); protocol.CodeOf(err) != protocol.InvalidRequest {
			t.Errorf("timestamp %d: %v", ts, err)
		}
	}
}

func TestListOffsetOutOfOrder(t *testing.T) {
	n, _, _ := datedNode(t, [10]int64{50, 10, 20, 90, 30, 40, 60, 20, 95, 70})
	for _, c := range []struct{ ts, at, off int64 }{
		{5, 50, 0}, {20, 50, 0}, {51, 90, 3}, {90, 90, 3}, {91, 95, 8}, {TimestampMax, 95, 8},
	} {
		got, err := n.m.ListOffset(context.Background(), offsetQuery("a", c.ts))
		if err != nil || got.Timestamp != c.at || got.Offset != c.off {
			t.Errorf("timestamp %d: %+v %v", c.ts, got, err)
		}
	}
	n, _, _ = datedNode(t, [10]int64{50, 99, 20, 90, 30, 40, 60, 20, 99, 70})
	if got, err := n.m.ListOffset(context.Background(), offsetQuery("a", TimestampMax)); err != nil || got.Offset != 1 {
		t.Errorf("equal maxima: %+v %v", got, err)
	}
}

func TestListOffsetUntiered(t *testing.T) {
	n, b := newNode(t, nodeOptions{})
	b.topic("a", 1, []int32{self})
	n.awaitState("a", 0, StateLeader)
	for _, ts := range []int64{TimestampMax, 0} {
		if got, err := n.m.ListOffset(context.Background(), offsetQuery("a", ts)); err != nil || got != noOffset {
			t.Errorf("empty log, timestamp %d: %+v %v", ts, got, err)
		}
	}
	n.mustProduce("a", "v")
	for ts, want := range map[int64]int64{TimestampLatest: 1, TimestampEarliest: 0, TimestampEarliestLocal: 0, TimestampLatestTiered: -1, TimestampEarliestPendingUpload: -1, TimestampMax: 0} {
		if got, err := n.m.ListOffset(context.Background(), offsetQuery("a", ts)); err != nil || got.Offset != want {
			t.Errorf("timestamp %d: %+v %v, want %d", ts, got, err, want)
		}
	}
}

func TestListOffsetSeesWhatConsumersSee(t *testing.T) {
	n, b := newNode(t, nodeOptions{})
	id := b.topic("a", 1, []int32{self, 2})
	b.topic("followed", 1, []int32{2, self})
	n.awaitState("a", 0, StateLeader)
	n.awaitState("followed", 0, StateFollower)
	n.produce("a", 0, AcksLeader, batchAt(10, "1", "2", "3"))
	n.follow(2, 0)
	ask := func(q OffsetQuery) (int64, protocol.ErrorCode) {
		r, err := n.m.ListOffset(context.Background(), q)
		return r.Offset, protocol.CodeOf(err)
	}
	check := func(what string, q OffsetQuery, want int64, code protocol.ErrorCode) {
		t.Helper()
		if off, err := ask(q); off != want || err != code {
			t.Errorf("%s: %d %v, want %d %v", what, off, err, want, code)
		}
	}
	check("unreplicated", offsetQuery("a", 10), -1, 0)
	check("latest", offsetQuery("a", TimestampLatest), 0, 0)
	q := offsetQuery("a", TimestampLatest)
	q.ReplicaID = 2
	check("a replica's latest", q, 3, 0)
	b.lead(id, 0, self)
	n.awaitEpoch("a", 0, 1)
	for _, ts := range []int64{TimestampLatest, 10, TimestampMax, 99} {
		check("high watermark below the epoch's start", offsetQuery("a", ts), -1, protocol.OffsetNotAvailable)
	}
	check("earliest all the same", offsetQuery("a", TimestampEarliest), 0, 0)
	n.follow(2, 3)
	check("reached", offsetQuery("a", TimestampLatest), 3, 0)
	q = offsetQuery("a", TimestampLatest)
	q.CurrentLeaderEpoch = 0
	check("fenced", q, -1, protocol.FencedLeaderEpoch)
	q.CurrentLeaderEpoch = 2
	check("unknown epoch", q, -1, protocol.UnknownLeaderEpoch)
	check("follower", offsetQuery("followed", TimestampLatest), -1, protocol.NotLeaderOrFollower)
	check("no topic", offsetQuery("none", TimestampLatest), -1, protocol.UnknownTopicOrPartition)
}

func TestOffsetForEpoch(t *testing.T) {
	n, b := newNode(t, nodeOptions{})
	id := b.topic("a", 1, []int32{self})
	n.awaitState("a", 0, StateLeader)
	n.mustProduce("a", "1", "2")
	for range 3 {
		b.lead(id, 0, self)
	}
	n.awaitEpoch("a", 0, 3)
	n.mustProduce("a", "3")
	for _, c := range []struct {
		epoch int32
		want  EpochEnd
	}{{0, EpochEnd{0, 2}}, {2, EpochEnd{0, 2}}, {3, EpochEnd{3, 3}}, {4, EpochEnd{-1, -1}}, {-1, EpochEnd{-1, -1}}} {
		got, err := n.m.OffsetForEpoch(EpochQuery{Topic: "a", CurrentLeaderEpoch: NoEpoch, Epoch: c.epoch})
		if err != nil || got != c.want {
			t.Errorf("epoch %d: %+v %v, want %+v", c.epoch, got, err, c.want)
		}
	}
	if _, err := n.m.OffsetForEpoch(EpochQuery{Topic: "a", CurrentLeaderEpoch: 1, Epoch: 0}); protocol.CodeOf(err) != protocol.FencedLeaderEpoch {
		t.Error(err)
	}
}

func TestEndInTheTiersLineage(t *testing.T) {
	tier := []commitlog.EpochStart{{Epoch: 1, Start: 10}, {Epoch: 3, Start: 20}, {Epoch: 7, Start: 40}}
	next := commitlog.EpochStart{Epoch: 5, Start: 30}
	for epoch, want := range map[int32]EpochEnd{0: {0, 10}, 1: {1, 20}, 2: {1, 20}, 3: {3, 30}, 4: {3, 30}} {
		if got := endIn(tier, epoch, next); got != want {
			t.Errorf("epoch %d: %+v, want %+v", epoch, got, want)
		}
	}
	if got := endIn(nil, 2, next); got != (EpochEnd{2, 30}) {
		t.Errorf("no lineage: %+v", got)
	}
}

func TestListOffsetIsBoundedInTime(t *testing.T) {
	n, _, _ := datedNode(t, [10]int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	n.tier.setBefore(func(ctx context.Context, _ tiering.ReadRequest) error {
		<-ctx.Done()
		return ctx.Err()
	})
	n.setConfig("remote.list.offsets.request.timeout.ms", "20")
	if _, err := n.m.ListOffset(context.Background(), offsetQuery("a", 5)); protocol.CodeOf(err) != protocol.RequestTimedOut {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	n.setConfig("remote.list.offsets.request.timeout.ms", "3600000")
	if _, err := n.m.ListOffset(ctx, offsetQuery("a", TimestampMax)); protocol.CodeOf(err) != protocol.RequestTimedOut {
		t.Error(err)
	}
}

func TestDiverges(t *testing.T) {
	type l = []commitlog.EpochStart
	for _, c := range []struct {
		a, b     l
		from, to int64
		at       int64
		differs  bool
	}{
		{l{}, l{}, 0, 10, 0, false},
		{l{{Epoch: 0}}, l{{Epoch: 0}}, 0, 10, 0, false},
		{l{{Epoch: 0}, {Epoch: 1, Start: 5}}, l{{Epoch: 0}, {Epoch: 1, Start: 6}}, 0, 10, 5, true},
		{l{{Epoch: 0}, {Epoch: 1, Start: 5}}, l{{Epoch: 0}, {Epoch: 1, Start: 6}}, 0, 5, 0, false},
		{l{{Epoch: 0}, {Epoch: 1, Start: 5}}, l{{Epoch: 0}, {Epoch: 1, Start: 6}}, 6, 10, 0, false},
		{l{{Epoch: 1, Start: 5}}, l{{Epoch: 0}, {Epoch: 1, Start: 5}}, 0, 10, 0, false},
		{l{{Epoch: 0}, {Epoch: 2, Start: 5}}, l{{Epoch: 0}, {Epoch: 1, Start: 7}}, 0, 10, 5, true},
	} {
		if at, differs := diverges(c.a, c.b, c.from, c.to); at != c.at || differs != c.differs {
			t.Errorf("%v %v [%d, %d): %d %v", c.a, c.b, c.from, c.to, at, differs)
		}
	}
}
