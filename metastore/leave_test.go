package metastore

import (
	"fmt"
	"testing"

	"varve/metastore/metapb"
	"varve/protocol"
)

// setTiered says in a topic's own configs whether it is tiered.
func setTiered(t *testing.T, s *Store, topic, value string) {
	t.Helper()
	id := uid(topic)
	have, ok := s.Image().TopicByID(id)
	if !ok {
		t.Fatalf("no topic %s", topic)
	}
	propose(t, s, &metapb.Command{Body: &metapb.Command_AlterTopicConfigs{AlterTopicConfigs: &metapb.AlterTopicConfigs{
		TopicId: id[:], ExpectVersion: have.ConfigVersion, Changes: []*metapb.ConfigChange{{Key: "remote.storage.enable", Value: &value}},
	}}})
}

// TestLeaveTier: segments with readable offsets go only once the topic says that it has left, from the end on; the tier's
// end falls with them, what once settled is remembered, and nothing new comes in.
func TestLeaveTier(t *testing.T) {
	s := tierStore(t)
	ctx := testContext(t)
	topic := uid("t")
	ids := map[int64]protocol.UUID{}
	for i := range int64(6) {
		seg := segment("t", fmt.Sprintf("s%d", i), i*10, i*10+10, 0)
		finishOne(t, s, seg)
		ids[i] = seg.ID
	}
	del := func(which ...int64) error {
		var list []protocol.UUID
		for _, i := range which {
			list = append(list, ids[i])
		}
		return s.SegmentsDelete(ctx, topic, 0, 0, list)
	}
	state := func(want TierState) {
		t.Helper()
		got, err := s.Tier(topic, 0)
		if err != nil || got.LogStart != want.LogStart || got.End != want.End || got.Settled != want.Settled || got.Count != want.Count || got.Bytes != want.Count*1000 {
			t.Fatalf("%+v %v, want %+v", got, err, want)
		}
	}
	refused := func(err error) {
		t.Helper()
		if protocol.CodeOf(err) != protocol.InvalidRequest {
			t.Fatalf("got %v", err)
		}
	}
	refused(del(5)) // still tiered
	started := segment("t", "s6", 60, 70, 0)
	if err := s.SegmentStart(ctx, *started, 1); err != nil {
		t.Fatal(err)
	}
	setTiered(t, s, "t", "false")
	refused(s.SegmentStart(ctx, *segment("t", "s7", 60, 70, 0), 1))
	if st, err := s.SegmentFinish(ctx, *started); err != nil || st != SegDeleteStarted {
		t.Fatalf("%v, %v", st, err)
	}
	refused(del(4))    // 5 would be behind a gap
	refused(del(3, 5)) // so would 4
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.AdvanceLogStart(ctx, topic, 0, 0, 25))
	must(del(0, 1)) // wholly below log start
	state(TierState{LogStart: 25, End: 60, Settled: 60, Count: 4})
	must(del(4, 5))
	state(TierState{LogStart: 25, End: 40, Settled: 60, Count: 2})
	setTiered(t, s, "t", "true") // back again in the midst of it
	refused(del(3))
	again := segment("t", "s8", 40, 50, 0)
	finishOne(t, s, again)
	state(TierState{LogStart: 25, End: 50, Settled: 60, Count: 3})
	setTiered(t, s, "t", "false")
	ids[4] = again.ID
	must(del(2, 3, 4))
	state(TierState{LogStart: 25, End: 25, Settled: 60})
	if tier, _ := s.Tier(topic, 0); len(tier.Epochs) != 0 {
		t.Fatalf("epochs of nothing: %v", tier.Epochs)
	}
	setTiered(t, s, "t", "true")
	finishOne(t, s, segment("t", "s9", 25, 35, 0))
	state(TierState{LogStart: 25, End: 35, Settled: 60, Count: 1})
}
