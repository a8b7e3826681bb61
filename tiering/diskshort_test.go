package tiering

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"varve/tiering/objstore"
)

// TestFreedEarly: while the disk is short, what is in the tier goes ahead of local retention, oldest first and no more than is
// needed; what is not in the tier stays.
func TestFreedEarly(t *testing.T) {
	w := newWorld(t, keepAll(), nil)
	var want atomic.Int64 // local bytes that the disk has room for
	want.Store(1 << 30)
	w.opts.DiskShort = func() int64 { return max(w.part.log.SizeBytes()-want.Load(), 0) }
	w.start()
	defer w.stop()
	w.append(60, 0)
	w.settle()
	size := w.part.log.SizeBytes()
	if w.part.log.LocalStart() != 0 || w.rec.Count("tier_local_freed") != 0 {
		t.Fatal("freed on a roomy disk")
	}
	want.Store(size / 2)
	w.m.retainAll(w.ctx)
	if got := w.part.log.SizeBytes(); got > size/2 || got < size/2-2000 {
		t.Fatalf("%d bytes are left of %d, %d fit", got, size, size/2)
	}
	if n := w.rec.Count("tier_local_freed"); n < 2 {
		t.Fatalf("told %d times", n)
	}
	w.check()
	w.store.Add(objstore.Fault{Kind: objstore.FaultError, Verb: objstore.VerbPut, Key: ".seg", Times: -1})
	end := w.end()
	w.append(60, 0)
	want.Store(0)
	_ = w.round()
	w.m.retainAll(w.ctx)
	if at := w.part.log.LocalStart(); at != end {
		t.Fatalf("local start %d, the tier ends at %d", at, end)
	}
	w.check()
	w.store.Clear()
	w.settle() // the store is back: what goes up is freed
	w.settle()
	w.m.retainAll(w.ctx)
	if at := w.part.log.LocalStart(); at != w.sealedEnd() {
		t.Fatalf("local start %d, sealed is %d", at, w.sealedEnd())
	}
	w.check()
}

// TestLogKnowsWhatSettled: the log is told up to where it is in the tier, so that a tight disk refuses what waits; nothing waits for
// a tier that takes nothing.
func TestLogKnowsWhatSettled(t *testing.T) {
	w := newWorld(t, keepAll(), nil)
	w.start()
	defer w.stop()
	w.append(20, 0)
	waits := func(want bool) {
		t.Helper()
		if got := w.part.log.WaitsForTier(); got != want {
			t.Fatalf("waits: %v, want %v", got, want)
		}
	}
	waits(false) // not known yet
	w.store.Add(objstore.Fault{Kind: objstore.FaultError, Verb: objstore.VerbPut, Key: ".seg", Times: -1})
	if err := w.round(); err == nil {
		t.Fatal("no error")
	}
	waits(true)
	w.part.mu.Lock()
	w.part.cfg.CopyDisable = true
	w.part.mu.Unlock()
	w.m.retainAll(w.ctx)
	waits(false)
	w.part.mu.Lock()
	w.part.cfg.CopyDisable = false
	w.part.mu.Unlock()
	w.m.retainAll(w.ctx)
	waits(true)
	w.store.Clear()
	w.clock.advance(time.Minute)
	if err := w.round(); err != nil {
		t.Fatal(err)
	}
	waits(false)
}

// TestLogOfNobodyKnowsNothing: what still works for a partition when it is let go tells its log nothing after that. A follower's log, or
// that of a topic which left the tier, would take nothing on a tight disk, for as long as it stays so.
func TestLogOfNobodyKnowsNothing(t *testing.T) {
	w := newWorld(t, keepAll(), nil)
	w.start()
	defer w.stop()
	w.append(40, 0)
	if err := w.m.retainLocal(w.pt()); err != nil || !w.part.log.WaitsForTier() {
		t.Fatalf("waits: %v, %v: the test shows nothing", w.part.log.WaitsForTier(), err)
	}
	pt := w.pt()
	w.m.Unlead(w.part.id, 0)
	w.part.log.Settled(-1)
	if err := w.m.retainPart(w.ctx, pt); err != nil || w.part.log.WaitsForTier() {
		t.Fatalf("it waits for a tier that it does not go to: %v", err)
	}
}

// TestRetainSoon: a short disk does not wait for the next round.
func TestRetainSoon(t *testing.T) {
	w := newWorld(t, keepAll(), func(o *Options) { o.TaskIntervalMs = 3_600_000 })
	var short atomic.Bool
	w.opts.DiskShort = func() int64 {
		if short.Load() {
			return w.part.log.SizeBytes()
		}
		return 0
	}
	w.start()
	w.append(60, 0)
	w.settle()
	stop := w.run()
	defer stop()
	short.Store(true)
	w.m.RetainSoon()
	w.await(func() bool { return w.part.log.LocalStart() == w.sealedEnd() })
}

// TestCrashWhileFreeingEarly: at either step, nothing is lost.
func TestCrashWhileFreeingEarly(t *testing.T) {
	for _, name := range []string{fpLocalFree, fpLocalDone} {
		w := newWorld(t, keepAll(), nil)
		w.start()
		w.append(60, 0)
		w.settle()
		w.opts.DiskShort = func() int64 { return 1 }
		w.opts.Failpoint = func(at string) error {
			if at == name {
				return errors.New("crash")
			}
			return nil
		}
		w.stop()
		w.start()
		ctx, cancel := context.WithCancel(w.ctx)
		w.m.retainAll(ctx)
		cancel()
		w.check()
		w.stop()
	}
}
