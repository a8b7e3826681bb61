package tiering

import (
	"testing"
	"time"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
	"varve/tiering/objstore"
)

// finished makes n FINISHED rows of one offset each from base on, without objects.
func (w *world) finished(base, n int64, location string) {
	w.t.Helper()
	for i := base; i < base+n; i++ {
		s := metastore.RemoteSegment{ID: protocol.NewUUID(), TopicID: w.part.id, Base: i, Next: i + 1, LogBytes: 1, ObjectBytes: 1,
			Location: location, Broker: 1, Epochs: []metastore.EpochStart{{}}}
		err := w.meta.SegmentStart(w.ctx, s, 1)
		if err == nil {
			_, err = w.meta.SegmentFinish(w.ctx, s)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) deleteTopic() {
	w.t.Helper()
	if _, err := w.meta.Propose(w.ctx, &metapb.Command{Body: &metapb.Command_DeleteTopic{DeleteTopic: &metapb.DeleteTopic{TopicId: w.part.id[:]}}}); err != nil {
		w.t.Fatal(err)
	}
	w.m.Unlead(w.part.id, 0)
}

func (w *world) pendingRows() int {
	w.t.Helper()
	rows, _, err := w.meta.PendingSegments(metastore.Cursor{}, 1<<20)
	if err != nil {
		w.t.Fatal(err)
	}
	return len(rows)
}

// collected runs the deleter and the journal until nothing is pending.
func (w *world) collected(rounds int) {
	w.t.Helper()
	var err error
	for range rounds {
		w.clock.advance(2 * time.Minute)
		if err = w.m.ClaimOwner(w.ctx); err == nil {
			err = w.m.journalAll(w.ctx)
		}
		if err == nil {
			err = w.m.collect(w.ctx)
		}
		if w.pendingRows() == 0 {
			return
		}
	}
	w.t.Fatalf("%d rows are left: %v", w.pendingRows(), err)
}

// TestDeleteInOtherStoreIsBounded: rows of another location cost a few requests each round however many there are; once one object
// is found here, that location is this store under another name, and all go.
func TestDeleteInOtherStoreIsBounded(t *testing.T) {
	w := newWorld(t, keepAll(), nil)
	w.start()
	defer w.stop()
	const rows = 3 * metastore.MaxSegmentIDs / 2
	w.finished(0, rows, "mem:old#p")
	if err := w.m.ClaimOwner(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.deleteTopic()
	w.await(func() bool { return w.pendingRows() == rows }) // the metastore sweeps the second thousand by itself
	for range 3 {
		before := w.store.Calls(objstore.VerbHead)
		w.clock.advance(2 * time.Minute)
		_ = w.m.journalAll(w.ctx)
		err := w.m.collect(w.ctx)
		if n := w.store.Calls(objstore.VerbHead) - before; n > maxElsewhereHeads || w.pendingRows() != rows {
			t.Fatalf("%d requests, %d rows are left: %v", n, w.pendingRows(), err)
		}
	}
	all, _, err := w.meta.PendingSegments(metastore.Cursor{}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all { // the same bucket, now by another name
		if _, err := w.store.Put(w.ctx, w.m.rowKey(r), objstore.BytesBody([]byte("x")), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.collected(5)
	if n := w.objects(); n != 0 {
		t.Fatalf("%d objects are left", n)
	}
}

// TestLostFolderHoldsNothingElseUp: garbage in a folder that was taken over, and whose owner object has gone or cannot be read, waits;
// that in the cluster's own folder goes.
func TestLostFolderHoldsNothingElseUp(t *testing.T) {
	for name, breaks := range map[string]func(*world, string){
		"gone": func(w *world, key string) { w.remove(key) },
		"forbidden": func(w *world, key string) {
			w.store.Add(objstore.Fault{Err: objstore.ErrForbidden, Verb: objstore.VerbGet, Key: key, Times: -1})
		},
		"another's": func(w *world, key string) { w.put(key, []byte(`{"version":1,"cluster_id":"third","epoch":9}`)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, keepAll(), func(o *Options) { o.DeleteDelayMs = 0 })
			w.start()
			defer w.stop()
			if err := w.m.ClaimOwner(w.ctx); err != nil {
				t.Fatal(err)
			}
			other := ownerKey("p", "old")
			w.put(other, []byte(`{"version":1,"cluster_id":"cluster","epoch":0}`))
			w.finished(0, 3, locationOf("mem:", "p", "old"))
			w.finished(3, 3, w.m.location)
			rows := w.rows()
			for _, r := range rows {
				w.put(w.m.rowKey(r), []byte("x"))
			}
			breaks(w, other)
			w.deleteTopic()
			for range 3 {
				w.clock.advance(2 * time.Minute)
				if err := w.m.journalAll(w.ctx); err != nil {
					t.Fatal(err)
				}
				if err := w.m.collect(w.ctx); w.pendingRows() < 6 && err == nil {
					t.Error("nothing is said of what waits")
				}
			}
			if w.pendingRows() != 3 || w.objects() != 3 {
				t.Fatalf("%d rows and %d objects are left, 3 of them have to wait", w.pendingRows(), w.objects())
			}
			w.store.Clear()
			w.put(other, []byte(`{"version":1,"cluster_id":"cluster","epoch":0}`))
			w.collected(3)
			if n := w.objects(); n != 0 {
				t.Fatalf("%d objects are left", n)
			}
		})
	}
}

// jumpingMeta moves the wall clock, and no other, while rows are read.
type jumpingMeta struct {
	Meta
	jump func()
}

func (m *jumpingMeta) PendingSegments(after metastore.Cursor, limit int) ([]metastore.RemoteSegment, metastore.Cursor, error) {
	m.jump()
	return m.Meta.PendingSegments(after, limit)
}

func (m *jumpingMeta) SegmentsFrom(id protocol.UUID, p int32, off int64, fn func(metastore.RemoteSegment) bool) error {
	m.jump()
	return m.Meta.SegmentsFrom(id, p, off, fn)
}

// TestClockJumpsInARound: a wall clock that runs away after a round has begun deletes nothing either, no object and no record.
func TestClockJumpsInARound(t *testing.T) {
	cfg := keepAll()
	cfg.RetentionMs = 3_600_000
	w := newWorld(t, cfg, func(o *Options) { o.DeleteDelayMs = 3_600_000 })
	jumps := 0
	meta := &jumpingMeta{Meta: w.opts.Meta, jump: func() {}}
	w.opts.Meta = meta
	w.start()
	defer w.stop()
	w.append(40, 0)
	if err := w.round(); err != nil {
		t.Fatal(err)
	}
	if err := w.meta.AdvanceLogStart(w.ctx, w.part.id, 0, 0, 40); err != nil {
		t.Fatal(err)
	}
	if err := w.round(); err != nil || w.pendingRows() == 0 {
		t.Fatalf("%d rows wait for their deletion: %v", w.pendingRows(), err)
	}
	meta.jump = func() {
		w.clock.mu.Lock()
		defer w.clock.mu.Unlock()
		w.clock.now = w.clock.now.Add(48 * time.Hour)
		jumps++
	}
	if err := w.m.collect(w.ctx); err == nil || jumps != 1 || w.store.Calls(objstore.VerbDelete) != 0 {
		t.Fatalf("%d deletes after %d jumps: %v", w.store.Calls(objstore.VerbDelete), jumps, err)
	}
	meta.jump = func() {}
	w.clock.mu.Lock()
	w.clock.now = w.clock.now.Add(-48 * time.Hour)
	w.clock.mu.Unlock()
	if err := w.m.readClock(); err != nil {
		t.Fatal(err)
	}
	w.clock.mu.Lock()
	w.clock.now = w.clock.now.Add(48 * time.Hour) // after another partition's turn
	w.clock.mu.Unlock()
	if err := w.m.retainPart(w.ctx, w.pt()); err != nil || w.state().LogStart != 40 {
		t.Fatalf("log start moved to %d: %v", w.state().LogStart, err)
	}
}

// TestDeletedTopicWithManyRows: all rows of a deleted topic go, finished, started and such as await deletion, over many batches.
func TestDeletedTopicWithManyRows(t *testing.T) {
	w := newWorld(t, keepAll(), func(o *Options) { o.DeleteDelayMs = 0 })
	w.start()
	defer w.stop()
	const rows = 2*metastore.MaxSegmentIDs + 500
	w.finished(0, rows, w.m.location)
	if err := w.meta.AdvanceLogStart(w.ctx, w.part.id, 0, 0, 300); err != nil {
		t.Fatal(err)
	}
	if err := w.m.retainTotal(w.ctx, w.pt()); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		s := metastore.RemoteSegment{ID: protocol.NewUUID(), TopicID: w.part.id, Base: rows, Next: rows + 1 + int64(i), Location: w.m.location, Broker: 1, LeaderEpoch: 0}
		if err := w.meta.SegmentStart(w.ctx, s, 1); err != nil {
			t.Fatal(err)
		}
	}
	w.deleteTopic()
	w.collected(60)
}

// TestDeletesAreNotStarved: neither uploads that wait for their bandwidth nor a store that does not take them hold deletes up.
func TestDeletesAreNotStarved(t *testing.T) {
	cfg := keepAll()
	cfg.RetentionBytes = 3000
	w := newWorld(t, cfg, func(o *Options) { o.TaskIntervalMs, o.JournalIntervalMs, o.DeleteDelayMs, o.Concurrency = 10, 10, 0, 1 })
	held := &heldStore{Store: w.store, free: make(chan struct{})}
	w.start()
	w.append(60, 0)
	if err := w.round(); err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.opts.Store = held
	w.start()
	w.append(40, 0)
	deleted := w.store.Calls(objstore.VerbDelete)
	stop := w.run()
	w.await(func() bool {
		return held.puts.Load() > 0 && w.store.Calls(objstore.VerbDelete) > deleted && w.pendingRows() <= 1
	})
	close(held.free)
	stop()
	w.stop()
	w.start()
	w.settle()
	w.check()
	w.stop()
}
