package tiering

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/metastore"
	"varve/protocol"
	"varve/tiering/objstore"
)

// verify runs once and returns what was found, ordered by key.
func (w *world) verify(o VerifyOptions) (VerifyReport, []Finding) {
	w.t.Helper()
	var all []Finding
	o.Found = func(f Finding) { all = append(all, f) }
	rep, err := w.m.Verify(w.ctx, o)
	if err != nil {
		w.t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b Finding) int { return strings.Compare(a.Key, b.Key) })
	return rep, all
}

// settled is a world whose tier holds several segments and nothing else.
func settled(t *testing.T) *world {
	w := newWorld(t, keepAll(), nil)
	w.useMem(w.clock.Now)
	w.start()
	t.Cleanup(w.stop)
	w.append(60, 0)
	w.settle()
	return w
}

func (w *world) rows() (rows []metastore.RemoteSegment) {
	w.t.Helper()
	if err := w.meta.SegmentsFrom(w.part.id, 0, 0, func(r metastore.RemoteSegment) bool { rows = append(rows, r); return true }); err != nil {
		w.t.Fatal(err)
	}
	return rows
}

func (w *world) object(key string) []byte {
	w.t.Helper()
	r, err := w.store.Get(w.ctx, key, 0, -1, "test")
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

func (w *world) put(key string, b []byte) {
	w.t.Helper()
	if _, err := w.store.Put(w.ctx, key, objstore.BytesBody(bytes.Clone(b)), objstore.PutOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(key string) {
	w.t.Helper()
	if _, err := w.store.Delete(w.ctx, []string{key}); err != nil {
		w.t.Fatal(err)
	}
}

// TestVerifyClean: what was uploaded in order has no findings at any level, and all of it is looked at.
func TestVerifyClean(t *testing.T) {
	w := settled(t)
	rows := w.rows()
	var size, logs int64
	for _, r := range rows {
		size, logs = size+r.ObjectBytes, logs+r.LogBytes
	}
	for level := VerifyList; level <= VerifyData; level++ {
		rep, found := w.verify(VerifyOptions{Level: level, Repair: true})
		if len(found) != 0 || rep.Unchecked != 0 || rep.Objects != int64(len(rows)) || rep.Segments != int64(len(rows)) || rep.ObjectBytes != size || rep.Partitions != 1 {
			t.Fatalf("level %d: %+v %+v, of %d segments", level, rep, found, len(rows))
		}
		if want := []int64{0, size - logs, size}[level]; rep.BytesRead != want {
			t.Errorf("level %d read %d bytes, not %d", level, rep.BytesRead, want)
		}
	}
}

// TestVerifyFinds damages one object in each way; the level that can see it does, the one below does not.
func TestVerifyFinds(t *testing.T) {
	other := protocol.NewUUID()
	flip := func(w *world, r metastore.RemoteSegment, at int64) {
		b := w.object(w.m.rowKey(r))
		b[at] ^= 1
		w.put(w.m.rowKey(r), b)
	}
	for _, c := range []struct {
		name   string
		kind   FindingKind
		level  VerifyLevel
		damage func(w *world, r metastore.RemoteSegment)
	}{
		{"object gone", FoundMissing, VerifyList, func(w *world, r metastore.RemoteSegment) { w.remove(w.m.rowKey(r)) }},
		{"object cut", FoundSize, VerifyList, func(w *world, r metastore.RemoteSegment) {
			w.put(w.m.rowKey(r), w.object(w.m.rowKey(r))[:r.ObjectBytes-1])
		}},
		{"footer", FoundCorrupt, VerifyIndex, func(w *world, r metastore.RemoteSegment) { flip(w, r, r.ObjectBytes-40) }},
		{"index", FoundCorrupt, VerifyIndex, func(w *world, r metastore.RemoteSegment) { flip(w, r, r.IndexOff+1) }},
		{"magic", FoundCorrupt, VerifyIndex, func(w *world, r metastore.RemoteSegment) { flip(w, r, r.ObjectBytes-1) }},
		{"record", FoundCorrupt, VerifyData, func(w *world, r metastore.RemoteSegment) { flip(w, r, r.IndexOff/2) }},
		{"no row", FoundOrphan, VerifyList, func(w *world, r metastore.RemoteSegment) {
			b := w.object(w.m.rowKey(r))
			r.ID = other
			w.put(w.m.rowKey(r), b)
		}},
		{"deleted topic", FoundOrphan, VerifyList, func(w *world, r metastore.RemoteSegment) {
			b := w.object(w.m.rowKey(r))
			r.TopicID = other
			w.put(w.m.rowKey(r), b)
		}},
		{"foreign key", FoundStranger, VerifyList, func(w *world, r metastore.RemoteSegment) {
			w.put("p/cluster/"+spread(r.TopicID, 0)+"/readme.txt", []byte("hello"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := settled(t)
			r := w.rows()[1]
			c.damage(w, r)
			if c.level > VerifyList {
				if _, found := w.verify(VerifyOptions{Level: c.level - 1}); len(found) != 0 {
					t.Errorf("level %d: %+v", c.level-1, found)
				}
			}
			rep, found := w.verify(VerifyOptions{Level: c.level})
			if len(found) != 1 || found[0].Kind != c.kind || found[0].What == "" || rep.Findings != 1 || rep.Unchecked != 0 {
				t.Fatalf("level %d: %+v %+v", c.level, rep, found)
			}
			if c.kind != FoundStranger && c.name != "deleted topic" && (found[0].Topic != "t" || found[0].Base != r.Base || found[0].Next != r.Next) {
				t.Errorf("found at the wrong place: %+v", found[0])
			}
		})
	}
}

// TestVerifyCancelled: a run that is cut off says so.
func TestVerifyCancelled(t *testing.T) {
	w := settled(t)
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	if _, err := w.m.Verify(ctx, VerifyOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled run: %v", err)
	}
}

// TestOrphans: they go when they are old, hold nothing that the tier lacks, and the prefix is ours.
func TestOrphans(t *testing.T) {
	w := settled(t)
	rows := w.rows()
	b := w.object(w.m.rowKey(rows[0]))
	stray, deleted, only := rows[0], rows[0], rows[len(rows)-1]
	stray.ID, deleted.ID, only.ID = protocol.NewUUID(), protocol.NewUUID(), protocol.NewUUID()
	deleted.TopicID = protocol.NewUUID()
	only.Base, only.Next = only.Next, only.Next+5
	for _, r := range []metastore.RemoteSegment{stray, deleted, only} {
		w.put(w.m.rowKey(r), b)
	}
	expect := func(when string, repaired int64, why string) {
		t.Helper()
		rep, found := w.verify(VerifyOptions{Repair: true})
		if rep.Findings != 3 || rep.Repaired != repaired {
			t.Fatalf("%s: %+v %+v", when, rep, found)
		}
		for _, f := range found {
			if !f.Repaired && f.Key != w.m.rowKey(only) && !strings.Contains(f.Repair, why) {
				t.Errorf("%s: %+v", when, f)
			}
		}
	}
	expect("young", 0, "old, orphans go after")
	w.clock.advance(3 * time.Hour)
	w.m.ownerEpoch++
	expect("taken over", 0, "names cluster")
	w.m.ownerEpoch--
	w.m.o.Failpoint = func(name string) error { return errors.New("crash at " + name) }
	expect("crash", 0, "crash")
	w.m.o.Failpoint = nil
	w.store.Add(objstore.Fault{Kind: objstore.FaultError, Verb: objstore.VerbDelete, Key: ".seg"})
	expect("store fails", 0, "injected")
	expect("old", 2, "")
	rep, found := w.verify(VerifyOptions{Repair: true})
	if len(found) != 1 || found[0].Key != w.m.rowKey(only) || !strings.Contains(found[0].Repair, "no other segment") || rep.Repaired != 0 {
		t.Errorf("at last: %+v", found)
	}
	w.remove(w.m.rowKey(only))
	w.check()
}

// TestVerifyBesideLife runs Verify over and over while uploads, retention and deletes go on, with failures among them. It
// never finds anything.
func TestVerifyBesideLife(t *testing.T) {
	w := newWorld(t, storyConfig(), nil)
	w.start()
	defer w.stop()
	if err := w.m.ClaimOwner(w.ctx); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	var wg sync.WaitGroup
	runs := 0
	wg.Go(func() {
		for ctx.Err() == nil {
			_, err := w.m.Verify(ctx, VerifyOptions{Level: VerifyData, Repair: true, Found: func(f Finding) { t.Errorf("%+v", f) }})
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			runs++
		}
	})
	for range 3 {
		w.story(func(err error) { t.Error(err) })
		w.settle()
	}
	cancel()
	wg.Wait()
	if runs < 3 {
		t.Errorf("only %d runs", runs)
	}
	w.check()
}

// TestVerifyRate: a bound on bytes per second is kept.
func TestVerifyRate(t *testing.T) {
	w := settled(t)
	size := w.object(w.m.rowKey(w.rows()[0]))
	ctx, cancel := context.WithTimeout(w.ctx, 50*time.Millisecond)
	defer cancel()
	rep, err := w.m.Verify(ctx, VerifyOptions{Level: VerifyData, BytesPerSec: int64(len(size))})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if limit := int64(extentChunks*chunkBytes + len(size)); rep.BytesRead > limit {
		t.Errorf("%d bytes read, at most %d", rep.BytesRead, limit)
	}
}

// TestVerifyAfterRestore: objects that lie in the folder of the cluster before are found there, and what else is there is left
// alone.
func TestVerifyAfterRestore(t *testing.T) {
	w, _ := newSource(t)
	w.settled(40)
	w.snapshot()
	g := newTarget(t, w, "new")
	g.restore(RestoreRequest{})
	stray := rowsOf(t, w.meta, w.part.id)[0]
	b := w.object(w.m.rowKey(stray))
	stray.ID = protocol.NewUUID()
	w.put(w.m.rowKey(stray), b)
	w.clock.advance(100 * time.Hour)
	verify := func() (VerifyReport, []Finding) {
		var all []Finding
		rep, err := g.m.Verify(t.Context(), VerifyOptions{Level: VerifyData, Repair: true, Found: func(f Finding) { all = append(all, f) }})
		if err != nil {
			t.Fatal(err)
		}
		return rep, all
	}
	rows := rowsOf(t, g.meta, w.part.id)
	if rep, found := verify(); len(found) != 0 || rep.Unchecked != 0 || rep.Segments != int64(len(rows)) || rep.Objects != int64(len(rows)) {
		t.Fatalf("%+v %+v", rep, found)
	}
	w.remove(g.m.rowKey(rows[1]))
	if _, found := verify(); len(found) != 1 || found[0].Kind != FoundMissing || found[0].Base != rows[1].Base {
		t.Fatalf("%+v", found)
	}
}

// TestHeal: what is missing or damaged is stored anew while the local log has it, and told of when not. A store that fails
// meanwhile leaves nothing behind.
func TestHeal(t *testing.T) {
	w := settled(t)
	rows := w.rows()
	w.remove(w.m.rowKey(rows[1]))
	b := w.object(w.m.rowKey(rows[2]))
	b[10] ^= 1
	w.put(w.m.rowKey(rows[2]), b)
	w.store.Add(objstore.Fault{Kind: objstore.FaultLostReply, Verb: objstore.VerbPut, Key: ".seg"})
	rep, found := w.verify(VerifyOptions{Level: VerifyData, Repair: true})
	if rep.Findings != 2 || rep.Repaired != 1 {
		t.Fatalf("%+v %+v", rep, found)
	}
	if rep, found = w.verify(VerifyOptions{Level: VerifyData, Repair: true}); rep.Findings != 1 || rep.Repaired != 1 {
		t.Fatalf("%+v %+v", rep, found)
	}
	if rep, found = w.verify(VerifyOptions{Level: VerifyData, Repair: true}); len(found) != 0 {
		t.Fatalf("%+v %+v", rep, found)
	}
	healed := w.rows()
	if len(healed) != len(rows) || healed[1].ID == rows[1].ID || healed[1].Generation != rows[1].Generation+1 || healed[2].Generation != rows[2].Generation+1 || healed[3].ID != rows[3].ID {
		t.Fatalf("%+v", healed)
	}
	w.clock.advance(time.Hour)
	w.settle()
	w.check()
	if _, err := w.part.log.FreeBelow(rows[4].Base); err != nil {
		t.Fatal(err)
	}
	w.remove(w.m.rowKey(healed[1]))
	if rep, found = w.verify(VerifyOptions{Repair: true}); rep.Findings != 1 || rep.Repaired != 0 || !strings.Contains(found[0].Repair, "the local log starts at") {
		t.Fatalf("%+v %+v", rep, found)
	}
	w.m.Unlead(w.part.id, 0)
	if _, found = w.verify(VerifyOptions{Repair: true}); !strings.Contains(found[0].Repair, "does not lead") {
		t.Fatalf("%+v", found)
	}
}

// TestHealMerged: a merged object is put together again from the local segments of its offsets.
func TestHealMerged(t *testing.T) {
	w := newMergeWorld(t, 40_000, nil)
	w.start()
	defer w.stop()
	w.trickle(40)
	if err := w.merge(); err != nil || len(w.rows()) > 10 {
		t.Fatalf("%d segments: %v", len(w.rows()), err)
	}
	w.settle()
	w.healAll()
}

// TestHealRolledElsewhere: the leader's log is cut into other segments than the objects are; its active segment counts too.
func TestHealRolledElsewhere(t *testing.T) {
	for _, segmentBytes := range []int32{1300, 3333, 1 << 20} {
		w := settled(t)
		w.elsewhere(segmentBytes)
		w.healAll()
	}
}

// healAll damages all objects and heals them.
func (w *world) healAll() {
	w.t.Helper()
	rows := w.rows()
	for i, r := range rows {
		key := w.m.rowKey(r)
		if b := w.object(key); i%2 > 0 {
			b[10] ^= 1
			w.put(key, b)
		} else {
			w.remove(key)
		}
	}
	if rep, found := w.verify(VerifyOptions{Level: VerifyData, Repair: true}); rep.Repaired != int64(len(rows)) || rep.Findings != rep.Repaired {
		w.t.Fatalf("%+v %+v", rep, found)
	}
	if rep, found := w.verify(VerifyOptions{Level: VerifyData}); len(found) != 0 || rep.Unchecked != 0 {
		w.t.Fatalf("%+v %+v", rep, found)
	}
	for i, r := range w.rows() {
		if was := rows[i]; r.Base != was.Base || r.Next != was.Next || r.LogBytes != was.LogBytes || r.MaxTimestamp != was.MaxTimestamp || r.FirstTimestamp != was.FirstTimestamp || r.ID == was.ID {
			w.t.Errorf("%+v became %+v", was, r)
		}
	}
	w.settle()
	w.check()
}

// TestHealOtherBytes: a local log that does not hold what the object held is not taken for it.
func TestHealOtherBytes(t *testing.T) {
	w := settled(t)
	w.made = w.made[:len(w.made)-8] // the last batches are missing
	w.elsewhere(3333)
	last := w.rows()[len(w.rows())-1]
	w.remove(w.m.rowKey(last))
	if last.Next <= w.part.log.End() {
		t.Fatalf("the local log ends at %d, the tier at %d", w.part.log.End(), last.Next)
	}
	if rep, found := w.verify(VerifyOptions{Repair: true}); rep.Repaired != 0 || len(found) != 1 || !strings.Contains(found[0].Repair, "local is [0, ") {
		t.Fatalf("%+v %+v", rep, found)
	}
}

// TestHealOfOtherSize: nor is one that has other bytes at these offsets.
func TestHealOfOtherSize(t *testing.T) {
	w := settled(t)
	row := w.rows()[2]
	for i, b := range w.made {
		if b.BaseOffset() == row.Base {
			longer := stripProducer(t, testBatch(t, 0, 3, 90, row.FirstTimestamp))
			longer.SetBaseOffset(row.Base)
			w.made[i] = longer
		}
	}
	w.elsewhere(3333)
	w.remove(w.m.rowKey(row))
	if rep, found := w.verify(VerifyOptions{Repair: true}); rep.Repaired != 0 || len(found) != 1 || !strings.Contains(found[0].Repair, "the object had") {
		t.Fatalf("%+v %+v", rep, found)
	}
}

// TestHealIsReadBack: an object that does not read as it was stored takes nobody's place.
func TestHealIsReadBack(t *testing.T) {
	w := settled(t)
	row := w.rows()[2]
	w.remove(w.m.rowKey(row))
	w.store.Add(objstore.Fault{Kind: objstore.FaultWrongBytes, Verb: objstore.VerbGet, Key: ".seg"})
	if rep, found := w.verify(VerifyOptions{Repair: true}); rep.Repaired != 0 || len(found) != 1 || w.rows()[2].ID != row.ID {
		t.Fatalf("%+v %+v", rep, found)
	}
	if rep, found := w.verify(VerifyOptions{Repair: true}); rep.Repaired != 1 || w.rows()[2].ID == row.ID {
		t.Fatalf("%+v %+v", rep, found)
	}
	w.settle()
	w.check()
}

// TestFailedHealIsRetired: what a heal that broke off had STARTED goes with the partition's next turn.
func TestFailedHealIsRetired(t *testing.T) {
	w := settled(t)
	w.remove(w.m.rowKey(w.rows()[2]))
	w.m.o.Failpoint = func(name string) error {
		if name == fpMergeReplace {
			return errors.New("for the test")
		}
		return nil
	}
	if rep, found := w.verify(VerifyOptions{Repair: true}); rep.Repaired != 0 || w.pendingRows() != 1 {
		t.Fatalf("%d rows, %+v %+v", w.pendingRows(), rep, found)
	}
	w.m.o.Failpoint = nil
	if err := w.round(); err != nil {
		t.Fatal(err)
	}
	rows, err := w.meta.PendingOf(w.part.id, 0)
	if err != nil || len(rows) != 1 || rows[0].State != metastore.SegDeleteStarted {
		t.Fatalf("%+v: %v", rows, err)
	}
}

// TestVerifyStoreAway: a run during an outage ends after a few requests, whatever the bucket holds, and says that nothing was
// checked; where single objects fail the others are looked at.
func TestVerifyStoreAway(t *testing.T) {
	w := settled(t)
	w.store.Add(objstore.Fault{Verb: objstore.VerbList, Kind: objstore.FaultError, Times: -1})
	met := w.store.Met()
	rep, all := w.verify(VerifyOptions{Level: VerifyData})
	if n := w.store.Met() - met; n < maxVerifyFailures || n >= maxVerifyFailures+maxVerifyFolders {
		t.Errorf("%d LISTs were tried", n)
	}
	if rep.Unchecked != spreadFolders || len(all) > 0 || !strings.Contains(rep.FirstError, "list") {
		t.Errorf("%+v: %v", rep, all)
	}
	w.store.Clear()
	rows := w.rows()
	if len(rows) < 3 {
		t.Fatalf("%d segments", len(rows))
	}
	w.store.Add(objstore.Fault{Verb: objstore.VerbGet, Key: w.m.rowKey(rows[0]), Kind: objstore.FaultError, Times: -1})
	if rep, all := w.verify(VerifyOptions{Level: VerifyData}); rep.Unchecked != 1 || rep.Segments != int64(len(rows)) || len(all) > 0 || rep.BytesRead == 0 {
		t.Errorf("with one object away: %+v: %v", rep, all)
	}
	w.store.Clear()
	w.store.Add(objstore.Fault{Verb: objstore.VerbGet, Key: ".seg", Kind: objstore.FaultError, Times: -1})
	met = w.store.Met()
	rep, _ = w.verify(VerifyOptions{Level: VerifyData})
	if n := int64(w.store.Met() - met); rep.Unchecked != int64(len(rows)) || n > maxVerifyFailures {
		t.Errorf("with all objects away: %d GETs, %+v", n, rep)
	}
}
