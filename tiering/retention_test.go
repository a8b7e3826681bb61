package tiering

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"varve/metastore"
	"varve/protocol"
	"varve/tiering/objstore"
)

// The tests named after an issue hold what others' users met (KAFKA.md, section 3) against this code.

func (w *world) state() metastore.TierState {
	w.t.Helper()
	st, err := w.meta.Tier(w.part.id, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return st
}

// TestKafka20732NewLeaderRunsRetentionFirst: a new leader whose log is in the tier as well counts each byte once, and attempts that
// failed not at all (KAFKA-17062): nothing goes while the total is within retention.bytes.
func TestKafka20732NewLeaderRunsRetentionFirst(t *testing.T) {
	w := newWorld(t, keepAll(), nil)
	w.start()
	w.append(60, 0)
	w.settle()
	w.store.Add(objstore.Fault{Kind: objstore.FaultLostReply, Verb: objstore.VerbPut, Key: ".seg", Times: -1})
	w.append(20, 0)
	for range 5 { // rows of failed copies pile up
		w.clock.advance(time.Minute)
		_ = w.round()
	}
	w.stop()
	w.part.cfg.RetentionBytes = w.part.log.SizeBytes()
	w.newEpoch()
	w.start()
	defer w.stop()
	for range 3 {
		if err := w.m.retainPart(w.ctx, w.pt()); err != nil {
			t.Fatal(err)
		}
	}
	if st := w.state(); st.LogStart != 0 || w.part.log.LocalStart() != 0 {
		t.Fatalf("%+v, local start %d", st, w.part.log.LocalStart())
	}
	w.store.Clear()
	w.settle()
	w.check()
}

// TestKafka15352LogStartMovesFirst: no row goes to DELETE_STARTED and no object is deleted before readers are turned away.
func TestKafka15352LogStartMovesFirst(t *testing.T) {
	cfg := keepAll()
	cfg.RetentionBytes = 4000
	w := newWorld(t, cfg, func(o *Options) { o.DeleteDelayMs = 0 })
	deletes := 0
	w.hooks.changes = func(call string) {
		if call != "SegmentsDelete" && call != "Delete" {
			return
		}
		deletes++
		rows, _, err := w.meta.PendingSegments(metastore.Cursor{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if r.State == metastore.SegDeleteStarted && !r.NeverFinished && r.Next > w.part.log.LogStart() {
				t.Errorf("%s: [%d, %d) is to go, the log starts at %d", call, r.Base, r.Next, w.part.log.LogStart())
			}
		}
		if st := w.state(); st.LogStart > w.part.log.LogStart() {
			t.Errorf("%s: log start %d in the metastore, %d at the replica", call, st.LogStart, w.part.log.LogStart())
		}
	}
	w.opts.Store = &watchedStore{w.store, w.hooks.changes}
	w.start()
	defer w.stop()
	w.append(80, 0)
	w.settle()
	w.check()
	if deletes < 2 {
		t.Fatalf("%d deletions", deletes)
	}
}

// TestKafka16511OverlapDoesNotStopCleanup: a leader that was paused between PUT and FINISHED leaves an object over the same offsets as
// its successor's; retention goes on over both.
func TestKafka16511OverlapDoesNotStopCleanup(t *testing.T) {
	w := newWorld(t, keepAll(), nil)
	paused := false
	w.opts.Failpoint = func(name string) error {
		if name != fpUploadFinish || paused {
			return nil
		}
		paused = true
		old, epoch := w.m, w.part.epoch
		w.newEpoch()
		w.start()
		if err := w.round(); err != nil {
			t.Errorf("second leader: %v", err)
		}
		w.m, w.part.epoch = old, epoch
		return nil
	}
	w.start()
	w.append(40, 0)
	if err := w.round(); err == nil {
		t.Fatal("the first leader was not refused")
	}
	w.part.epoch = 1
	w.part.cfg.RetentionMs = 1000
	w.start()
	defer w.stop()
	w.settle()
	if st := w.state(); st.LogStart < w.sealedEnd() || w.objects() != 0 {
		t.Fatalf("%+v, sealed up to %d, %d objects are left", st, w.sealedEnd(), w.objects())
	}
	w.check()
}

// TestKafka17428FailedDeleteAfterFailedCopy: neither is forgotten, however often.
func TestKafka17428FailedDeleteAfterFailedCopy(t *testing.T) {
	w := newWorld(t, keepAll(), nil)
	w.start()
	defer w.stop()
	w.append(40, 0)
	w.store.Add(
		objstore.Fault{Kind: objstore.FaultLostReply, Verb: objstore.VerbPut, Key: ".seg", Times: 3},
		objstore.Fault{Kind: objstore.FaultError, Verb: objstore.VerbDelete, Times: 3},
		objstore.Fault{Kind: objstore.FaultPartialDelete, Verb: objstore.VerbDelete, Times: 3},
	)
	for range 12 {
		w.clock.advance(5 * time.Minute)
		_ = w.round()
	}
	w.settle()
	w.check()
}

// TestRedpanda18097TimeQueryRacesRetention: a question by time that meets retention gets a record that is there, later than asked at
// most, or hears that there is none; never an error, never one that was given up before it asked.
func TestRedpanda18097TimeQueryRacesRetention(t *testing.T) {
	cfg := keepAll()
	w := newWorld(t, cfg, func(o *Options) { o.DeleteDelayMs = 0 })
	w.start()
	defer w.stop()
	w.append(200, 0)
	for w.end() < w.sealedEnd() {
		w.settle()
	}
	var asking sync.WaitGroup
	done := make(chan struct{})
	ts := w.clock.Now().Add(-24 * time.Hour).UnixMilli()
	for range 3 {
		asking.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				before := w.part.log.LogStart()
				at, ok, err := w.m.OffsetForTimestamp(w.ctx, w.part.id, 0, ts)
				if err == nil {
					_, _, err = w.m.MaxTimestamp(w.ctx, w.part.id, 0)
				}
				if err != nil || ok && at.Offset < before {
					t.Errorf("%+v %v, the log started at %d: %v", at, ok, before, err)
					return
				}
			}
		})
	}
	for keep := w.part.log.SizeBytes(); keep > 0; keep -= 3000 {
		w.part.mu.Lock()
		w.part.cfg.RetentionBytes = keep
		w.part.mu.Unlock()
		w.clock.advance(time.Minute)
		if err := w.round(); err != nil {
			t.Errorf("retention: %v", err)
		}
	}
	close(done)
	asking.Wait()
}

// TestDeleteRecordsInsideRemoteSegment: segments wholly below go, the one that holds the new log start stays until it is passed.
func TestDeleteRecordsInsideRemoteSegment(t *testing.T) {
	w := newWorld(t, localConfig(), nil)
	w.start()
	defer w.stop()
	w.append(60, 0)
	w.settle()
	var second metastore.RemoteSegment
	_ = w.meta.SegmentsFrom(w.part.id, 0, 0, func(r metastore.RemoteSegment) bool { second = r; return r.Base == 0 })
	for _, at := range []int64{second.Base + 4, second.Next} {
		if err := w.meta.AdvanceLogStart(w.ctx, w.part.id, 0, 0, at); err != nil {
			t.Fatal(err)
		}
		w.settle()
		row, ok, err := w.meta.SegmentAt(w.part.id, 0, at)
		if err != nil || !ok || w.part.log.LogStart() != at || (row.ID == second.ID) != (at < second.Next) {
			t.Fatalf("log start %d of %d, segment [%d, %d) %v: %v", w.part.log.LogStart(), at, row.Base, row.Next, ok, err)
		}
		w.check()
	}
	if err := w.meta.AdvanceLogStart(w.ctx, w.part.id, 0, 0, w.part.log.End()); err != nil { // all that there is
		t.Fatal(err)
	}
	w.settle()
	if st := w.state(); st.Count != 0 || w.objects() != 0 {
		t.Fatalf("%+v, %d objects", st, w.objects())
	}
	w.append(20, 0)
	w.settle()
	w.check()
}

// TestChangesWhileUploading: retention is lowered, or the topic deleted, between any two steps of an upload.
func TestChangesWhileUploading(t *testing.T) {
	for _, name := range []string{fpUploadStart, fpUploadPut, fpUploadFinish, fpUploadDone} {
		for _, deleted := range []bool{false, true} {
			w := newWorld(t, localConfig(), func(o *Options) { o.DeleteDelayMs = 0 })
			met := false
			w.opts.Failpoint = func(at string) error {
				if at != name || w.end() < 40 || met {
					return nil
				}
				met = true
				if deleted {
					w.deleteTopic()
				} else {
					w.part.mu.Lock()
					w.part.cfg.RetentionBytes, w.part.cfg.LocalRetentionBytes = 0, 0
					w.part.mu.Unlock()
					if err := w.m.retainPart(w.ctx, w.pt()); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
				return nil
			}
			w.start()
			w.append(60, 0)
			_, _ = w.m.uploadSome(w.ctx, &task{part: w.pt(), cancel: func() {}}) // nobody has claimed the prefix: only collect needs it
			if !met {
				t.Fatalf("%s was not met", name)
			}
			if deleted {
				w.collected(60)
				if n := w.objects(); n != 0 {
					t.Fatalf("%s: %d objects of the deleted topic are left", name, n)
				}
			} else {
				w.settle()
				if st := w.state(); st.LogStart != w.sealedEnd() || w.objects() != 0 {
					t.Fatalf("%s: %+v, %d objects", name, st, w.objects())
				}
				w.check()
			}
			w.stop()
		}
	}
}

// TestOnlyRemoteData: the active segment is rolled once it is past local retention and freed the next time; what is then only in
// the tier reads, ages and goes, and offsets go on behind it.
func TestOnlyRemoteData(t *testing.T) {
	cfg := keepAll()
	cfg.LocalRetentionMs = 600_000
	w := newWorld(t, cfg, nil)
	w.start()
	defer w.stop()
	w.append(30, 0)
	w.clock.advance(20 * time.Minute)
	w.settle()
	w.settle()
	end := w.part.log.End()
	if w.part.log.LocalStart() != end || w.end() != end || w.part.log.SizeBytes() != 0 {
		t.Fatalf("local start %d, tier's end %d of %d", w.part.log.LocalStart(), w.end(), end)
	}
	w.check()
	w.part.cfg.RetentionMs = 3_600_000
	w.clock.advance(2 * time.Hour)
	w.settle()
	if st := w.state(); st.LogStart != end || st.Count != 0 || st.End != end || w.objects() != 0 {
		t.Fatalf("%+v, %d objects", st, w.objects())
	}
	w.append(1, 0)
	if w.part.log.End() != end+3 {
		t.Fatalf("goes on at %d", w.part.log.End()-3)
	}
	w.check()
}

// TestOutOfOrderTimestamps: old segments behind one with a young record stay until that goes.
func TestOutOfOrderTimestamps(t *testing.T) {
	cfg := keepAll()
	cfg.RetentionMs = 3_600_000
	w := newWorld(t, cfg, nil)
	w.start()
	defer w.stop()
	w.append(10, -30*time.Minute) // from a producer that is ahead
	w.append(50, 48*time.Hour)
	w.append(10, 0)
	if err := w.round(); err != nil {
		t.Fatal(err)
	}
	w.clock.advance(time.Hour)
	if err := errors.Join(w.round(), w.round()); err != nil || w.state().LogStart != 0 {
		t.Fatalf("log start %d: %v", w.state().LogStart, err)
	}
	w.clock.advance(time.Hour)
	if err := w.round(); err != nil || w.state().LogStart < 30 {
		t.Fatalf("log start %d: %v", w.state().LogStart, err)
	}
	w.settle()
	w.check()
}

// TestRecreatedTopic: a topic made again under its name has nothing of the one before, whose rows still wait.
func TestRecreatedTopic(t *testing.T) {
	w := newWorld(t, localConfig(), func(o *Options) { o.DeleteDelayMs = 3_600_000 })
	w.start()
	w.append(60, 0)
	w.settle()
	first := w.part.id
	w.deleteTopic()
	waiting := w.pendingRows()
	if waiting == 0 {
		t.Fatal("nothing waits")
	}
	w.stop()
	w.made = nil
	w.openPart(localConfig())
	w.start()
	defer w.stop()
	w.append(60, 0)
	for range 3 {
		w.clock.advance(time.Minute)
		if err := w.round(); err != nil {
			t.Fatal(err)
		}
	}
	if w.part.id == first || w.pendingRows() != waiting || w.state().LogStart != 0 {
		t.Fatalf("%d rows wait, %d did: %+v", w.pendingRows(), waiting, w.state())
	}
	w.clock.advance(2 * time.Hour)
	w.settle()
	w.check()
}

// TestColdReadersRaceRetention: a reader of old offsets gets the right bytes or hears that they are out of range, and that only when
// log start has passed it; objects go without any delay meanwhile.
func TestColdReadersRaceRetention(t *testing.T) {
	w := newWorld(t, keepAll(), func(o *Options) { o.DeleteDelayMs = 0 })
	w.start()
	defer w.stop()
	w.append(300, 0)
	for w.end() < w.sealedEnd() {
		w.settle()
	}
	var reading sync.WaitGroup
	done := make(chan struct{})
	for i := range 4 {
		reading.Go(func() { w.readersPass(done, 300+200*i) })
	}
	for keep := w.part.log.SizeBytes(); keep > 0; keep -= 1500 {
		w.part.mu.Lock()
		w.part.cfg.RetentionBytes = keep
		w.part.mu.Unlock()
		w.clock.advance(time.Minute)
		if err := w.round(); err != nil {
			t.Errorf("retention: %v", err)
		}
	}
	close(done)
	reading.Wait()
	if n := w.rec.Count("tier_object_missing") + w.rec.Count("tier_corruption"); n != 0 {
		t.Fatalf("%d alarms", n)
	}
	w.settle()
	w.check()
}

// readersPass reads from log start to the tier's end, over and over.
func (w *world) readersPass(done chan struct{}, maxBytes int) {
	end := w.end()
	for off := int64(0); ; {
		select {
		case <-done:
			return
		default:
		}
		res, err := w.m.Read(w.ctx, ReadRequest{TopicID: w.part.id, Offset: off, MaxBytes: maxBytes, MinOne: true})
		if err != nil {
			// The metastore's log start is what counts: the replica's may be a moment behind.
			if protocol.CodeOf(err) != protocol.OffsetOutOfRange || w.state().LogStart <= off {
				w.t.Errorf("offset %d: %v", off, err)
				return
			}
			off = w.state().LogStart
		} else {
			got := joined(res)
			want := w.made[off/3]
			if len(got) < len(want) || !bytes.Equal(got[:len(want)], want) {
				w.t.Errorf("offset %d: not the bytes that were written", off)
				return
			}
			off = res.NextOffset
		}
		if off >= end {
			if off = w.state().LogStart; off >= end {
				return
			}
		}
	}
}
