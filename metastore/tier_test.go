package metastore

import (
	"fmt"
	"testing"

	"varve/metastore/metapb"
	"varve/protocol"
)

// tierStore is a store with a topic whose leader is broker 1.
func tierStore(t *testing.T) *Store {
	s := openTest(t, Options{Dir: t.TempDir(), NodeID: 1})
	propose(t, s, createTopicCmd("t", 2))
	return s
}

func finishOne(t *testing.T, s *Store, seg *RemoteSegment) {
	t.Helper()
	ctx := testContext(t)
	if err := s.SegmentStart(ctx, *seg, 1); err != nil {
		t.Fatal(err)
	}
	if st, err := s.SegmentFinish(ctx, *seg); err != nil || st != SegFinished {
		t.Fatalf("%v, %v", st, err)
	}
}

func TestSegmentsByOffset(t *testing.T) {
	s := tierStore(t)
	for i := range int64(10) {
		finishOne(t, s, segment("t", fmt.Sprintf("s%d", i), i*10, i*10+10, 0))
	}
	for off := int64(-1); off < 120; off++ {
		seg, ok, err := s.SegmentAt(uid("t"), 0, off)
		if err != nil || ok != (off >= 0 && off < 100) || ok && (seg.Base > off || seg.Next <= off || seg.Location != "dir:///tier") {
			t.Fatalf("offset %d: %+v %v %v", off, seg, ok, err)
		}
	}
	for _, c := range []struct{ off, first, count int64 }{{0, 0, 10}, {15, 10, 9}, {99, 90, 1}, {100, -1, 0}} {
		first, count := int64(-1), int64(0)
		err := s.SegmentsFrom(uid("t"), 0, c.off, func(seg RemoteSegment) bool {
			if count++; first < 0 {
				first = seg.Base
			}
			return true
		})
		if err != nil || first != c.first || count != c.count {
			t.Fatalf("from %d: first %d count %d, %v", c.off, first, count, err)
		}
	}
	if _, ok, _ := s.SegmentAt(uid("t"), 1, 5); ok {
		t.Fatal("found in the other partition")
	}
	if tier, err := s.Tier(uid("t"), 0); err != nil || tier.End != 100 || tier.Count != 10 || tier.Bytes != 10000 {
		t.Fatalf("%+v %v", tier, err)
	}
	if _, err := s.Tier(uid("t"), 2); protocol.CodeOf(err) != protocol.UnknownTopicID {
		t.Fatal(err)
	}
}

// TestDeleteLargeTopic: more rows than one command may move go to DELETE_STARTED in steps that the leader works off by itself, also after
// a restart in the middle, and nothing of the topic is readable meanwhile.
func TestDeleteLargeTopic(t *testing.T) {
	o := Options{Dir: t.TempDir(), NodeID: 1}
	s := openTest(t, o)
	propose(t, s, createTopicCmd("t", 1))
	const rows = 2*sweepRowsInline + 300
	ctx := testContext(t)
	for i := range int64(rows) {
		if i%2 == 0 {
			finishOne(t, s, segment("t", fmt.Sprintf("s%d", i), i/2, i/2+1, 0))
		} else if err := s.SegmentStart(ctx, *segment("t", fmt.Sprintf("s%d", i), i/2, i/2+1, 0), 1); err != nil {
			t.Fatal(err)
		}
	}
	s.setLead(false)
	r := propose(t, s, deleteTopicCmd("t"))
	if !r.More {
		t.Fatal("all rows were moved at once")
	}
	if _, ok, err := s.SegmentAt(uid("t"), 0, 1); ok || err != nil {
		t.Fatal("a deleted topic is readable", err)
	}
	closeTest(t, s)
	s = openTest(t, o)
	waitFor(t, func() bool { return s.Image().tombstones.Len() == 0 })
	var all []RemoteSegment
	var at Cursor
	for {
		page, next, err := s.PendingSegments(at, 700)
		if err != nil {
			t.Fatal(err)
		}
		if all, at = append(all, page...), next; len(page) < 700 {
			break
		}
	}
	for _, seg := range all {
		if seg.State != SegDeleteStarted || seg.DeleteIndex < r.Index {
			t.Fatalf("%+v", seg)
		}
	}
	if len(all) != rows {
		t.Fatalf("%d rows pending, want %d", len(all), rows)
	}
	if of, err := s.PendingOf(uid("t"), 0); err != nil || len(of) != rows {
		t.Fatalf("%d rows of the partition, %v", len(of), err)
	}
}

func TestProducerIDs(t *testing.T) {
	s := tierStore(t)
	inc := uid("inc")
	r := propose(t, s, &metapb.Command{Body: &metapb.Command_RegisterBroker{RegisterBroker: &metapb.RegisterBroker{
		Broker: &metapb.Broker{Id: 1, Incarnation: inc[:]}, ExpectEpoch: -1,
	}}})
	ctx := testContext(t)
	for want := int64(0); want < 3*ProducerIDBlock; want += ProducerIDBlock {
		if first, count, err := s.ProducerIDs(ctx, r.Epoch); err != nil || first != want || count != ProducerIDBlock {
			t.Fatalf("%d %d %v", first, count, err)
		}
	}
	if _, _, err := s.ProducerIDs(ctx, r.Epoch+1); protocol.CodeOf(err) != protocol.StaleBrokerEpoch {
		t.Fatal(err)
	}
}

func TestTierCalls(t *testing.T) {
	s := tierStore(t)
	ctx := testContext(t)
	for i := range int64(3) {
		finishOne(t, s, segment("t", fmt.Sprintf("s%d", i), i*10, i*10+10, 0))
	}
	merged := segment("t", "m", 0, 20, 0)
	merged.Generation = 1
	if err := s.SegmentStart(ctx, *merged, 1); err != nil {
		t.Fatal(err)
	}
	if st, err := s.SegmentReplace(ctx, []protocol.UUID{uid("s0"), uid("s1")}, *merged); err != nil || st != SegFinished {
		t.Fatalf("%v %v", st, err)
	}
	if err := s.SegmentsDelete(ctx, uid("t"), 0, 0, []protocol.UUID{uid("m")}); protocol.CodeOf(err) != protocol.InvalidRequest {
		t.Fatal(err)
	}
	if err := s.AdvanceLogStart(ctx, uid("t"), 0, 0, 20); err != nil {
		t.Fatal(err)
	}
	if err := s.SegmentsDelete(ctx, uid("t"), 0, 0, []protocol.UUID{uid("m")}); err != nil {
		t.Fatal(err)
	}
	if err := s.SegmentsGone(ctx, uid("m"), uid("s0"), uid("s1")); err != nil {
		t.Fatal(err)
	}
	late := segment("t", "late", 30, 40, 0)
	if err := s.SegmentStart(ctx, *late, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.SegmentsGone(ctx, uid("late")); protocol.CodeOf(err) != protocol.InvalidRequest {
		t.Fatal(err)
	}
	if segs, err := s.PendingOf(uid("t"), 0); err != nil || len(segs) != 1 || segs[0].State != SegStarted {
		t.Fatalf("%v %v", segs, err)
	}
}

// TestLineageAfterAGap: starts rise, whatever an unclean election left below log start; else no log could begin from it.
func TestLineageAfterAGap(t *testing.T) {
	tier := &TierState{LogStart: 1200, End: 1000, Epochs: []EpochStart{{Epoch: 3, Start: 900}}}
	seg := &RemoteSegment{Base: 1200, Next: 1300, LeaderEpoch: 6, Epochs: []EpochStart{{Epoch: 5, Start: 700}, {Epoch: 6, Start: 1250}}}
	got := joinLineage(tier, seg)
	if len(got) != 2 || got[0] != seg.Epochs[0] || got[1] != seg.Epochs[1] {
		t.Fatal(got)
	}
	seg = &RemoteSegment{Base: 1000, Next: 1300, LeaderEpoch: 6, Epochs: []EpochStart{{Epoch: 3, Start: 900}, {Epoch: 6, Start: 1250}}}
	if got = joinLineage(tier, seg); len(got) != 2 || got[0] != tier.Epochs[0] || got[1] != seg.Epochs[1] {
		t.Fatal(got)
	}
}
