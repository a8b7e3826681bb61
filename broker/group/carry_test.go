package group

import (
	"context"
	"slices"
	"testing"

	"varve/metastore/metapb"
	"varve/protocol"
)

// offsetsOf gathers what all partitions hold; missing counts the partitions that do not answer.
func (r *rig) offsetsOf() (out []*metapb.GroupOffset, missing int) {
	for p := range r.c.Partitions() {
		some, ok := r.c.Offsets(r.t.Context(), p)
		if !ok {
			missing++
		}
		out = append(out, some...)
	}
	return out, missing
}

// TestOffsetsLeaveAndComeBack: what is committed can be read as a whole, also after Release, and another coordinator takes
// it in, whatever its groups do; a topic that is being restored keeps its offsets through a load.
func TestOffsetsLeaveAndComeBack(t *testing.T) {
	r := newRig(t)
	if n := r.c.Partitions(); n != 0 {
		t.Fatalf("%d partitions before there are groups", n)
	}
	if err := r.topic("t", 1); err != nil {
		t.Fatal(err)
	}
	groups := []string{"a", "b", "c", "d"}
	for i, g := range groups {
		if _, err := r.c.Locate(t.Context(), g); err != protocol.None {
			t.Fatal(err)
		}
		if got := codeOf(r.commit(g, int64(10+i)).get()); got != protocol.None {
			t.Fatal(got)
		}
	}
	got, missing := r.offsetsOf()
	slices.SortFunc(got, func(a, b *metapb.GroupOffset) int { return int(a.Offset - b.Offset) })
	if len(got) != 4 || missing != 0 || got[2].Group != "c" || got[2].Offset != 12 || got[2].Topic != "t" {
		t.Fatalf("%v, %d missing", got, missing)
	}
	for most, want := range []int{0, 1, 2, 3, 4, 4} {
		if some := r.c.Committed(t.Context(), most); len(some) != want || want == 4 && !slices.Contains(some, Committed{"c", "t", 0, 12}) {
			t.Fatalf("at most %d: %v", most, some)
		}
	}
	r.c.Release()
	if after, missing := r.offsetsOf(); len(after) != 4 || missing != 0 {
		t.Fatalf("after Release: %d, %d missing", len(after), missing)
	}

	other := newRig(t)
	id := protocol.NewUUID()
	hidden := protocol.NewUUID()
	for _, c := range []*metapb.RestoreCommand{
		{Body: &metapb.RestoreCommand_Begin{Begin: &metapb.RestoreBegin{Row: &metapb.RestoreRow{Id: id[:], Source: "old"}}}},
		{Body: &metapb.RestoreCommand_Advance{Advance: &metapb.RestoreAdvance{Next: metapb.RestorePhase_RESTORE_IMPORT}}},
		{Body: &metapb.RestoreCommand_Topic{Topic: &metapb.RestoreTopic{TopicId: hidden[:], Row: &metapb.RestoringTopicRow{Name: "t", LeaderEpochs: []int32{1}}}}},
	} {
		c.RestoreId = id[:]
		other.propose(&metapb.Command{Body: &metapb.Command_Restore{Restore: c}})
	}
	if err := other.c.PutOffsets(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	other.join("b", "").get() // has a member now, and is put again
	if err := other.c.PutOffsets(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	other.stop()
	other.start()
	for i, g := range groups {
		if _, err := other.c.Locate(t.Context(), g); err != protocol.None {
			t.Fatal(err)
		}
		if at, code := other.fetch(g); at != int64(10+i) || code != protocol.None {
			t.Fatalf("%s is at %d: %v", g, at, code)
		}
	}
}

// TestOffsetsOfAnAbsentCoordinator: a partition that is led elsewhere does not answer with nothing, it does not answer.
func TestOffsetsOfAnAbsentCoordinator(t *testing.T) {
	r := newRig(t)
	if _, err := r.c.Locate(t.Context(), "a"); err != protocol.None {
		t.Fatal(err)
	}
	r.elect("a", 2)
	await(t, "one partition is missing", func() bool { _, missing := r.offsetsOf(); return missing == 1 })
	some := []*metapb.GroupOffset{{Group: "a", Topic: "t", Offset: 1}}
	if err := r.c.PutOffsets(t.Context(), some); protocol.CodeOf(err) != protocol.NotCoordinator {
		t.Fatalf("put into another's partition: %v", err)
	}
	r.log.set(func(l *memLog) { l.fail = protocol.NotEnoughReplicas })
	r.elect("a", 1)
	await(t, "the failed append is told", func() bool {
		err := r.c.PutOffsets(t.Context(), some)
		return err != nil && protocol.CodeOf(err) != protocol.NotCoordinator && protocol.CodeOf(err) != protocol.CoordinatorLoadInProgress
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.log.set(func(l *memLog) { l.fail, l.hold = protocol.None, true })
	if err := r.c.PutOffsets(ctx, some); err == nil {
		t.Fatal("an append that nobody answered was told to be stored")
	}
	r.log.release(false)
}
