package metastore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"varve/metastore/metapb"
	"varve/protocol"
)

var restoreID = uid("restore")

func restoreCmd(body any) *metapb.Command {
	c := &metapb.RestoreCommand{RestoreId: restoreID[:]}
	switch b := body.(type) {
	case *metapb.RestoreBegin:
		c.Body = &metapb.RestoreCommand_Begin{Begin: b}
	case *metapb.RestoreAdvance:
		c.Body = &metapb.RestoreCommand_Advance{Advance: b}
	case *metapb.RestoreTopic:
		c.Body = &metapb.RestoreCommand_Topic{Topic: b}
	case *metapb.RestoreRows:
		c.Body = &metapb.RestoreCommand_Rows{Rows: b}
	case *metapb.RestorePublish:
		c.Body = &metapb.RestoreCommand_Publish{Publish: b}
	case *metapb.RestoreWipe:
		c.Body = &metapb.RestoreCommand_Wipe{Wipe: b}
	case *metapb.RestoreEnd:
		c.Body = &metapb.RestoreCommand_End{End: b}
	case *metapb.ReleaseTopics:
		c.Body = &metapb.RestoreCommand_Release{Release: b}
	case *metapb.SnapshotTaken:
		c.Body = &metapb.RestoreCommand_Snapshot{Snapshot: b}
	}
	return &metapb.Command{Body: &metapb.Command_Restore{Restore: c}}
}

func (r *rig) refused(cmd *metapb.Command, code protocol.ErrorCode) {
	r.t.Helper()
	if _, err := r.apply(cmd); protocol.CodeOf(err) != code {
		r.t.Fatalf("%v, not %v", err, code)
	}
}

// hiddenTopic begins a restore and fills one hidden topic with n finished rows and one that is to be deleted.
func hiddenTopic(r *rig, name string, n int) protocol.UUID {
	id := uid(name)
	r.must(restoreCmd(&metapb.RestoreBegin{Row: &metapb.RestoreRow{Id: restoreID[:], Source: "old"}}))
	r.must(restoreCmd(&metapb.RestoreAdvance{Next: metapb.RestorePhase_RESTORE_IMPORT, Claims: []*metapb.OwnerClaim{{ClusterId: "old", Epoch: 2}}}))
	r.must(restoreCmd(&metapb.RestoreTopic{TopicId: id[:], Row: &metapb.RestoringTopicRow{Name: name, Configs: map[string]string{"k": "v"}, LeaderEpochs: []int32{7}, Replication: 1}}))
	var rows []byte
	place := func(string) uint32 { return 0 }
	for i := range n {
		rows = PackSegments(rows, &RemoteSegment{ID: protocol.NewUUID(), Base: int64(10 * i), Next: int64(10*i + 10), LogBytes: 5, State: SegFinished}, place)
	}
	rows = PackSegments(rows, &RemoteSegment{ID: uid("gone"), Base: 0, Next: 5, State: SegDeleteStarted}, place)
	cmd := &metapb.RestoreRows{TopicId: id[:], Locations: []string{"mem:#p//old"}, Rows: rows,
		Tier: (&TierState{LogStart: 3, End: int64(10 * n), Epochs: []EpochStart{{Epoch: 6}}, Bytes: int64(5 * n), Count: int64(n)}).Row()}
	r.must(restoreCmd(cmd))
	return id
}

func restoredPartition(epoch int32) []*metapb.Partition {
	return []*metapb.Partition{{Replicas: []int32{1}, Dirs: [][]byte{make([]byte, 16)}, Isr: []int32{1}, Leader: 1, LeaderEpoch: epoch}}
}

// TestRestoreLife goes through all phases: nothing is seen before the topic is whole, and the counters rise above what was found.
func TestRestoreLife(t *testing.T) {
	r := newRig(t)
	id := hiddenTopic(r, "t", 3)
	img := r.f.hub.img.Load()
	if _, seen := img.Topic("t"); seen || img.ClaimEpoch("old") != 2 {
		t.Fatal("seen before it is whole, or not claimed")
	}
	if h, ok := img.Restoring("t"); !ok || h.ID != id {
		t.Fatal("the hidden topic is not found by its name")
	}
	r.refused(createTopicCmd("t", 1), protocol.TopicAlreadyExists)
	r.refused(restoreCmd(&metapb.RestorePublish{TopicId: id[:], Partitions: restoredPartition(9)}), protocol.InvalidRequest)
	r.refused(restoreCmd(&metapb.RestoreAdvance{Next: metapb.RestorePhase_RESTORE_PUBLISH}), protocol.InvalidRequest)
	r.must(restoreCmd(&metapb.RestoreAdvance{Next: metapb.RestorePhase_RESTORE_GROUPS, NextProducerId: 5000,
		Configs: []*metapb.SnapshotBrokerConfigs{{Broker: "", Configs: map[string]string{"a": "b"}}}}))
	r.refused(restoreCmd(&metapb.RestoreRows{TopicId: id[:]}), protocol.InvalidRequest)
	r.must(restoreCmd(&metapb.RestoreAdvance{Next: metapb.RestorePhase_RESTORE_PUBLISH}))
	r.refused(restoreCmd(&metapb.RestoreAdvance{Next: metapb.RestorePhase_RESTORE_ABORT}), protocol.InvalidRequest)
	r.refused(restoreCmd(&metapb.RestoreAdvance{Next: metapb.RestorePhase_RESTORE_SNAPSHOT}), protocol.InvalidRequest)
	r.refused(restoreCmd(&metapb.RestorePublish{TopicId: id[:], Partitions: restoredPartition(6)}), protocol.UnknownServerError)
	r.must(restoreCmd(&metapb.RestorePublish{TopicId: id[:], Partitions: restoredPartition(8)}))
	img = r.f.hub.img.Load()
	topic, ok := img.Topic("t")
	if !ok || topic.ID != id || !topic.Held || !img.AnyHeld() || topic.Configs["k"] != "v" || topic.Partitions[0].LeaderEpoch != 8 {
		t.Fatalf("published as %+v", topic)
	}
	if img.NextProducerID() != 5000 || img.BrokerConfig(-1).Configs["a"] != "b" || img.RestoredIndex() == 0 {
		t.Fatalf("producer id %d, configs %v", img.NextProducerID(), img.BrokerConfig(-1))
	}
	r.must(restoreCmd(&metapb.RestoreAdvance{Next: metapb.RestorePhase_RESTORE_SNAPSHOT}))
	r.must(restoreCmd(&metapb.SnapshotTaken{Index: img.Index()}))
	r.must(restoreCmd(&metapb.RestoreEnd{}))
	r.must(restoreCmd(&metapb.ReleaseTopics{TopicIds: [][]byte{id[:]}}))
	img = r.f.hub.img.Load()
	if img.Restore() != nil || img.AnyHeld() || img.SnapshotIndex() <= img.RestoredIndex() {
		t.Fatalf("at the end: %+v, held %v, snapshot %d, restored %d", img.Restore(), img.AnyHeld(), img.SnapshotIndex(), img.RestoredIndex())
	}
	reloaded, err := load(r.f.handle.db)
	if err != nil || describe(reloaded.img) != describe(img) || reloaded.img.ClaimEpoch("old") != 2 {
		t.Fatalf("loaded again: %v\n%s", err, describe(reloaded.img))
	}
}

// TestRestoreAbort: what was hidden goes, in bounded steps, and nothing is announced for deletion.
func TestRestoreAbort(t *testing.T) {
	r := newRig(t)
	before := dump(t, r.f)
	hiddenTopic(r, "t", 5)
	if l, err := load(r.f.handle.db); err != nil || l.img.Restore() == nil {
		t.Fatalf("a restart forgets the restore: %v", err)
	}
	r.must(restoreCmd(&metapb.RestoreAdvance{Next: metapb.RestorePhase_RESTORE_ABORT}))
	r.once = true // wiping again wipes more
	for steps := 0; r.must(restoreCmd(&metapb.RestoreWipe{MaxRows: 1})).More; steps++ {
		if steps > 10 {
			t.Fatal("it does not end")
		}
	}
	r.must(restoreCmd(&metapb.RestoreEnd{}))
	r.must(restoreCmd(&metapb.RestoreEnd{}))
	after := strings.Split(dump(t, r.f), "\n")
	for _, line := range after {
		if line != "" && !strings.Contains(before, line) && line[0] != nsLocation && line[0] != nsClaim {
			t.Errorf("left behind: %s", line)
		}
	}
	r.must(createTopicCmd("t", 1))
}

func TestRestoreRefuses(t *testing.T) {
	r := newRig(t)
	r.must(createTopicCmd("here", 1))
	r.refused(restoreCmd(&metapb.RestoreBegin{Row: &metapb.RestoreRow{Id: restoreID[:], Source: "cluster"}}), protocol.InvalidRequest)
	id := hiddenTopic(r, "t", 1)
	other := uid("other")
	r.refused(restoreCmd(&metapb.RestoreBegin{Row: &metapb.RestoreRow{Id: other[:], Source: "old"}}), protocol.InvalidRequest)
	row := &metapb.RestoringTopicRow{Name: "here", LeaderEpochs: []int32{0}}
	r.refused(restoreCmd(&metapb.RestoreTopic{TopicId: other[:], Row: row}), protocol.TopicAlreadyExists)
	r.refused(restoreCmd(&metapb.RestoreTopic{TopicId: other[:], Row: &metapb.RestoringTopicRow{Name: "t", LeaderEpochs: []int32{0}}}), protocol.TopicAlreadyExists)
	r.refused(restoreCmd(&metapb.RestoreRows{TopicId: other[:]}), protocol.UnknownTopicID)
	started := PackSegments(nil, &RemoteSegment{ID: other, Base: 0, Next: 1, State: SegStarted}, func(string) uint32 { return 0 })
	for name, rows := range map[string][]byte{"started": started, "short": started[:20], "no location": started} {
		if _, err := r.apply(restoreCmd(&metapb.RestoreRows{TopicId: id[:], Rows: rows, Locations: []string{"x"}})); err == nil {
			t.Errorf("%s rows were taken", name)
		}
	}
	r.refused(restoreCmd(&metapb.SnapshotTaken{Index: 1 << 40}), protocol.InvalidRequest)
}

// TestDump: the records, taken in by another state machine, are the same state.
func TestDump(t *testing.T) {
	ctx := context.Background()
	s := openTest(t, Options{Dir: t.TempDir(), NodeID: 1, ClusterID: "c", Now: func() time.Time { return time.UnixMilli(1000) }})
	randomRun(t, s, 3, 300)
	var rows, pending int
	parts := map[protocol.UUID]bool{}
	var locations []string
	index, err := s.Dump(ctx, func(r *metapb.SnapshotRecord) error {
		switch {
		case r.GetLocations() != nil:
			locations = r.GetLocations().Locations
		case r.GetTopic() != nil:
			if topic, ok := s.Image().Topic(r.GetTopic().Name); !ok || len(topic.Partitions) != len(r.GetTopic().LeaderEpochs) {
				t.Errorf("topic %s differs", r.GetTopic().Name)
			}
		case r.GetPartition() != nil:
			parts[protocol.UUID(r.GetPartition().TopicId)] = true
		case r.GetSegments() != nil:
			g := r.GetSegments()
			if !parts[protocol.UUID(g.TopicId)] {
				t.Error("rows before their partition")
			}
			segs, err := UnpackSegments(g.Rows, protocol.UUID(g.TopicId), g.Partition, locations)
			if err != nil {
				return err
			}
			for _, seg := range segs {
				if rows++; seg.State != SegFinished {
					rows, pending = rows-1, pending+1
				}
			}
		}
		return nil
	})
	if err != nil || index != s.Image().Index() {
		t.Fatalf("index %d of %d: %v", index, s.Image().Index(), err)
	}
	var want int64
	for topic := range s.Image().Topics() {
		for _, p := range topic.Partitions {
			st, err := s.Tier(topic.ID, p.Index)
			if err != nil {
				t.Fatal(err)
			}
			want += st.Count
		}
	}
	all, _, err := s.PendingSegments(Cursor{}, 1<<20)
	if err != nil || int64(rows) != want || pending != len(all) || rows == 0 || pending == 0 {
		t.Fatalf("%d rows of %d, %d pending of %d: %v", rows, want, pending, len(all), err)
	}
	stop := errors.New("stop")
	if _, err := s.Dump(ctx, func(*metapb.SnapshotRecord) error { return stop }); !errors.Is(err, stop) {
		t.Fatalf("emit's error: %v", err)
	}
	if _, err := s.ProposeRestore(ctx, restoreCmd(&metapb.RestoreBegin{Row: &metapb.RestoreRow{Id: restoreID[:], Source: "old"}}).GetRestore()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Dump(ctx, func(*metapb.SnapshotRecord) error { return nil }); protocol.CodeOf(err) != protocol.ReassignmentInProgress {
		t.Fatalf("during a restore: %v", err)
	}
}

// TestTakenBackAlone: the newest record of a kind takes back the one before it, not what else its entry tells of.
func TestTakenBackAlone(t *testing.T) {
	r := newRig(t)
	r.once = true
	hiddenTopic(r, "t", 1)
	r.must(restoreCmd(&metapb.RestoreAdvance{Next: metapb.RestorePhase_RESTORE_GROUPS, NextProducerId: 5000,
		Configs: []*metapb.SnapshotBrokerConfigs{{Broker: "", Configs: map[string]string{"a": "b"}}}}))
	inc := uid("incarnation")
	epoch := r.must(&metapb.Command{Body: &metapb.Command_RegisterBroker{RegisterBroker: &metapb.RegisterBroker{
		Broker: &metapb.Broker{Id: 1, Incarnation: inc[:]}, ExpectEpoch: -1,
	}}}).Epoch
	for next := int64(5000); next < 5003; next++ {
		r.must(&metapb.Command{Body: &metapb.Command_AllocateProducerIds{AllocateProducerIds: &metapb.AllocateProducerIds{
			Broker: 1, BrokerEpoch: epoch, ExpectNext: next, Count: 1,
		}}})
	}
	var configs, ids, entries int64
	err := eachRow(r.f.handle.db, []byte{nsJournal}, func(_, value []byte) error {
		entries++
		e := &metapb.JournalEntry{}
		if err := proto.Unmarshal(value, e); err != nil {
			return err
		}
		for _, rec := range e.Records {
			if rec.GetBrokerConfigs() != nil {
				configs++
			}
			if p := rec.GetProducerIds(); p != nil {
				if ids++; p.Next != 5003 {
					t.Errorf("next producer id %d", p.Next)
				}
			}
		}
		return nil
	})
	if err != nil || configs != 1 || ids != 1 || entries != r.f.hub.img.Load().JournalEntries() {
		t.Fatalf("%v: %d configs, %d producer ids in %d entries of %d", err, configs, ids, entries, r.f.hub.img.Load().JournalEntries())
	}
}

// TestRefusedRowsLeaveNoTrace: a location that cannot be is found before one that can is written down: what leaves a trace
// though it is refused would stop the state machine for good.
func TestRefusedRowsLeaveNoTrace(t *testing.T) {
	r := newRig(t)
	id := hiddenTopic(r, "t", 1)
	rows := PackSegments(nil, &RemoteSegment{ID: uid("more"), Base: 10, Next: 20, State: SegFinished}, func(string) uint32 { return 1 })
	for _, bad := range []string{"", strings.Repeat("x", maxLocationBytes+1)} {
		_, err := r.apply(restoreCmd(&metapb.RestoreRows{TopicId: id[:], Locations: []string{"mem:#p//other", bad}, Rows: rows}))
		if err == nil {
			t.Fatal("taken")
		}
	}
}
