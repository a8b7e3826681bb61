package tiering

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
	"varve/tiering/objstore"
)

func snapRecords() []*metapb.SnapshotRecord {
	id := make([]byte, 16)
	seg := &metastore.RemoteSegment{ID: protocol.UUID(id), Base: 5, Next: 9, State: metastore.SegFinished, LogBytes: 77}
	return []*metapb.SnapshotRecord{
		{Body: &metapb.SnapshotRecord_Cluster{Cluster: &metapb.SnapshotCluster{ClusterId: "c", Index: 1234, NextProducerId: 5000, Claims: []*metapb.OwnerClaim{{ClusterId: "old", Epoch: 2}}}}},
		{Body: &metapb.SnapshotRecord_Locations{Locations: &metapb.SnapshotLocations{Locations: []string{"mem:#p"}}}},
		{Body: &metapb.SnapshotRecord_Topic{Topic: &metapb.SnapshotTopic{TopicId: id, Name: "t", Configs: map[string]string{"k": "v"}, LeaderEpochs: []int32{7}, Replication: 3}}},
		{Body: &metapb.SnapshotRecord_Partition{Partition: &metapb.SnapshotPartition{TopicId: id, Tier: (&metastore.TierState{LogStart: 5, End: 9}).Row()}}},
		{Body: &metapb.SnapshotRecord_Segments{Segments: &metapb.SnapshotSegments{TopicId: id, Rows: metastore.PackSegments(nil, seg, func(string) uint32 { return 0 })}}},
		{Body: &metapb.SnapshotRecord_GroupOffsets{GroupOffsets: &metapb.GroupOffsets{Partition: 3, AsOfMs: 1_700_000_000_000, Offsets: []*metapb.GroupOffset{{Group: "g", Topic: "t", Offset: 7}}}}},
	}
}

// encodeSnapshot makes the objects of a snapshot; small ones fit into the last.
func encodeSnapshot(t testing.TB, records []*metapb.SnapshotRecord) (objects [][]byte) {
	t.Helper()
	w := newSnapWriter("", "c", 1_700_000_000_000)
	w.put = func(_ string, _ bool, b []byte) error { objects = append(objects, b); return nil }
	w.head.ID = protocol.UUID{1, 2, 3}
	for _, r := range records {
		if err := w.add(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.flush(true); err != nil {
		t.Fatal(err)
	}
	return objects
}

func TestSnapshotGolden(t *testing.T) {
	objects := encodeSnapshot(t, snapRecords())
	if len(objects) != 1 {
		t.Fatalf("%d objects", len(objects))
	}
	golden(t, "snapshot-v1.snap", objects[0])
	var got []*metapb.SnapshotRecord
	h, err := DecodeSnapshot(objects[0], func(r *metapb.SnapshotRecord) error { got = append(got, r); return nil })
	if err != nil || h.Index != 1234 || h.TakenMs != 1_700_000_000_000 || h.Part || h.Parts() != 0 {
		t.Fatalf("%+v: %v", h, err)
	}
	for i, r := range snapRecords() {
		if !proto.Equal(r, got[i]) {
			t.Fatalf("record %d differs", i)
		}
	}
	future := bytes.Clone(objects[0])
	binary.BigEndian.PutUint64(future[32:], 1<<63)
	binary.BigEndian.PutUint32(future[64:], snapCRC(future))
	var newer *FormatError
	if _, err := DecodeSnapshot(future, func(*metapb.SnapshotRecord) error { return nil }); !errors.As(err, &newer) {
		t.Fatalf("an unknown required feature: %v", err)
	}
}

func TestSnapshotDamage(t *testing.T) {
	good := encodeSnapshot(t, snapRecords())[0]
	none := func(*metapb.SnapshotRecord) error { return nil }
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 0x10
		if _, err := DecodeSnapshot(b, none); !isCorrupt(err) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
		if _, err := DecodeSnapshot(good[:i], none); err == nil {
			t.Fatalf("cut to %d bytes: no error", i)
		}
	}
}

func FuzzDecodeSnapshot(f *testing.F) {
	good := encodeSnapshot(f, snapRecords())[0]
	f.Add(good[snapHeaderBytes:], uint32(6), uint32(0), true)
	f.Add(good, uint32(0), uint32(0), false)
	f.Fuzz(func(t *testing.T, b []byte, count, parts uint32, seal bool) {
		if seal { // what lies behind the checksum
			h := bytes.Clone(good[:snapHeaderBytes])
			binary.BigEndian.PutUint32(h[12:], count)
			binary.BigEndian.PutUint32(h[56:], parts)
			binary.BigEndian.PutUint32(h[60:], uint32(max(0, int64(len(b))-8*int64(parts))))
			b = append(h, b...)
			binary.BigEndian.PutUint32(b[64:], snapCRC(b))
		}
		w := &sourceWalk{s: &restoreSource{topics: map[protocol.UUID]*sourceTopic{}, configs: map[string]*metapb.SnapshotBrokerConfigs{}, rep: newRestoreReport("c")}, shown: true, ctx: context.Background()}
		_, _ = DecodeSnapshot(b, func(r *metapb.SnapshotRecord) error {
			if r.GetPartition() != nil { // gathered, not handed on
				w.part = newSourcePartition(r.GetPartition(), "", restoreRowsInMemory)
				return nil
			}
			return w.record(r)
		})
	})
}

// TestSnapshotParts: a large one is cut, and read back whole; a crash before its last object leaves none.
func TestSnapshotParts(t *testing.T) {
	w, groups := newSource(t)
	w.settled(10)
	for i := range 3 * snapPartBytes / 40_000 {
		groups.parts[0] = append(groups.parts[0], &metapb.GroupOffset{Group: fmt.Sprint(i), Topic: "t", Metadata: string(bytes.Repeat([]byte("x"), 40_000))})
	}
	for _, fp := range []string{fpSnapPart, fpSnapPut} {
		w.m.o.Failpoint = func(name string) error {
			if name == fp {
				return errors.New("crash")
			}
			return nil
		}
		if _, err := w.m.snapshotOnce(w.ctx); !crashed(err) {
			t.Fatalf("%s: %v", fp, err)
		}
		if heads, err := listSnapshots(w.ctx, w.store, "p", "cluster"); err != nil || len(heads) != 0 {
			t.Fatalf("%s: %v %v", fp, heads, err)
		}
	}
	w.m.o.Failpoint = nil
	w.snapshot()
	heads, err := listSnapshots(w.ctx, w.store, "p", "cluster")
	if err != nil || len(heads) != 1 {
		t.Fatalf("%v %v", heads, err)
	}
	n := 0
	h, err := w.m.snapReader().read(w.ctx, heads[0].index, func(r *metapb.SnapshotRecord) error { n += len(r.GetGroupOffsets().GetOffsets()); return nil })
	if err != nil || h.Parts() < 2 || n != len(groups.parts[0])+1 {
		t.Fatalf("%d parts, %d offsets: %v", h.Parts(), n, err)
	}
}

// TestSnapshotCarriesOver: a partition whose coordinator is away keeps the offsets that the snapshot before had (KAFKA.md, fault 15), and a
// snapshot at an index that has one is that one.
func TestSnapshotCarriesOver(t *testing.T) {
	w, groups := newSource(t)
	w.settled(10)
	w.snapshot()
	groups.away[1] = true
	groups.parts[0] = []*metapb.GroupOffset{groupAt("a", 6)}
	groups.parts[1] = nil
	for range 3 {
		w.snapshot()
	}
	read := func() (out map[string]int64) {
		out = map[string]int64{}
		heads, err := listSnapshots(w.ctx, w.store, "p", "cluster")
		if err == nil {
			_, err = w.m.snapReader().read(w.ctx, heads[len(heads)-1].index, func(r *metapb.SnapshotRecord) error {
				for _, o := range r.GetGroupOffsets().GetOffsets() {
					out[o.Group] = o.Offset
				}
				return nil
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if got := read(); got["a"] != 6 || got["b"] != 1<<40 {
		t.Fatalf("offsets %v", got)
	}
	w.store.Add(objstore.Fault{Kind: objstore.FaultLostReply, Verb: objstore.VerbPut, Key: "snapshot"})
	if _, err := w.m.snapshotOnce(w.ctx); !objstore.IsRetryable(err) {
		t.Fatalf("lost reply: %v", err)
	}
	index := w.meta.Image().SnapshotIndex()
	w.snapshot()
	if w.meta.Image().SnapshotIndex() <= index {
		t.Fatal("the snapshot whose reply was lost is not known")
	}
}

// TestPrune: what lies within the delete delay can be reached, the rest goes, journal included; the prune that crashed is made up for.
func TestPrune(t *testing.T) {
	w, _ := newSource(t)
	w.opts.DeleteDelayMs = (3 * time.Hour).Milliseconds()
	w.stop()
	w.start()
	var taken []time.Time
	for range 8 {
		w.settled(10)
		w.snapshot()
		taken = append(taken, w.clock.Now())
		w.clock.advance(time.Hour)
		w.m.readClock()
	}
	w.m.o.Failpoint = func(name string) error {
		if name == fpSnapPrune {
			return errors.New("crash")
		}
		return nil
	}
	if _, err := w.m.snapshotOnce(w.ctx); !crashed(err) {
		t.Fatalf("no prune: %v", err)
	}
	w.m.o.Failpoint = nil
	w.m.deleteLimit = time.Minute
	w.snapshot()
	heads, err := listSnapshots(w.ctx, w.store, "p", "cluster")
	if err != nil || len(heads) < 4 || len(heads) > 6 {
		t.Fatalf("%d snapshots are left: %v", len(heads), err)
	}
	var first uint64
	err = w.store.List(w.ctx, journalPrefix("p", "cluster"), "", func(o objstore.ObjectInfo) bool {
		first, _ = ParseJournalKey(o.Key)
		return false
	})
	if err != nil || first < 10 {
		t.Fatalf("the journal begins at %d: %v", first, err)
	}
	for _, at := range taken {
		rep, err := DryRunRestore(w.ctx, w.store, "p", RestoreRequest{Source: "cluster", ToMs: at.UnixMilli()}, w.clock.Now().UnixMilli())
		if within := w.clock.Now().Sub(at) <= 3*time.Hour; within && (err != nil || len(rep.Topics) != 1) {
			t.Fatalf("%v ago: %v", w.clock.Now().Sub(at), err)
		}
	}
}

// TestSnapshotWhileRestoring: none is taken, and nothing is deleted.
func TestSnapshotWhileRestoring(t *testing.T) {
	w, _ := newSource(t)
	w.settled(10)
	w.snapshot()
	g := newTarget(t, w, "new")
	g.begin(RestoreRequest{})
	if done, err := g.m.snapshotOnce(t.Context()); done || err != nil {
		t.Fatalf("taken: %v", err)
	}
	if err := g.m.collect(t.Context()); !errors.Is(err, errNotWhole) {
		t.Fatalf("deletes during a restore: %v", err)
	}
}

// TestReadWrongReadAgain: bytes that turn on their way are fetched again, a few times; what is damaged in the bucket stays an error,
// and what is not there is not asked for again.
func TestReadWrongReadAgain(t *testing.T) {
	w := newWorld(t, keepAll(), nil)
	w.put("whole", []byte("abc"))
	get := func(key string) (calls int, err error) {
		before := w.store.Calls(objstore.VerbGet)
		err = getChecked(t.Context(), w.store, key, 10, "test", func(b []byte) error {
			if string(b) != "abc" {
				return corrupt(key, "%q", b)
			}
			return nil
		})
		return w.store.Calls(objstore.VerbGet) - before, err
	}
	for times, want := range map[int]int{1: 2, maxCheckedGets - 1: maxCheckedGets, maxCheckedGets: maxCheckedGets} {
		w.store.Clear()
		w.store.Add(objstore.Fault{Kind: objstore.FaultWrongBytes, Verb: objstore.VerbGet, Times: times})
		if calls, err := get("whole"); calls != want || (err != nil) != (times == maxCheckedGets) || err != nil && !isCorrupt(err) {
			t.Errorf("wrong %d times: %d requests, %v", times, calls, err)
		}
	}
	w.store.Clear()
	if calls, err := get("none"); calls != 1 || !isMissing(err) {
		t.Errorf("%d requests for nothing: %v", calls, err)
	}
}
