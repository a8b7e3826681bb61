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
