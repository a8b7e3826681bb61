package tiering

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"varve/broker/commitlog"
	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
	"varve/protocol/record"
	"varve/tiering/objstore"
)

// keepAll is a config under which nothing is ever given up.
func keepAll() TierConfig {
	return TierConfig{RetentionMs: -1, RetentionBytes: -1, LocalRetentionMs: -1, LocalRetentionBytes: -1}
}

func (w *world) end() int64 {
	w.t.Helper()
	st, err := w.meta.Tier(w.part.id, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return st.End
}

// sealedEnd is where the active segment begins.
func (w *world) sealedEnd() int64 {
	w.t.Helper()
	segs := w.part.log.Segments()
	return segs[len(segs)-1].Base
}

// rottenStore flips a bit of what the first PUT of a segment reads.
type rottenStore struct {
	objstore.Store
	puts int
}

type rottenReader struct{ io.ReaderAt }

func (r rottenReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(p, off)
	if off <= 100 && off+int64(n) > 100 {
		p[100-off] ^= 4
	}
	return n, err
}

func (s *rottenStore) Put(ctx context.Context, key string, b objstore.Body, o objstore.PutOptions) (objstore.ObjectInfo, error) {
	if _, err := ParseSegmentKey(key); err == nil {
		if s.puts++; s.puts == 1 {
			b.ReaderAt = rottenReader{b.ReaderAt}
		}
	}
	return s.Store.Put(ctx, key, b, o)
}

// TestUploadWrongBytes: what changes between the check of the batches and the PUT
// does not become an object.
func TestUploadWrongBytes(t *testing.T) {
	w := newWorld(t, keepAll(), nil)
	w.opts.Store = &rottenStore{Store: w.store}
	w.start()
	defer w.stop()
	w.append(40, 0)
	if err := w.round(); err == nil || w.end() != 0 || w.rec.Count("tier_upload_failed") != 1 {
		t.Fatalf("tier ends at %d: %v", w.end(), err)
	}
	w.settle()
	w.check()
}

// TestFinishReplyLost: FINISHED is asked for again, and it is one segment.
func TestFinishReplyLost(t *testing.T) {
	w := newWorld(t, keepAll(), nil)
	w.start()
	defer w.stop()
	w.append(40, 0)
	lost := 0
	w.hooks.replied = func() error {
		if lost++; lost == 1 {
			return errors.New("leadership lost")
		}
		return nil
	}
	if err := w.round(); err != nil || w.end() != w.sealedEnd() || w.rec.Count("tier_upload_failed") != 0 {
		t.Fatalf("tier ends at %d: %v", w.end(), err)
	}
	w.settle()
	w.check()
}

// TestFinishUnknown: an attempt believed lost was FINISHED after all.
func TestFinishUnknown(t *testing.T) {
	w := newWorld(t, keepAll(), nil)
	w.start()
	defer w.stop()
	w.append(40, 0)
	w.hooks.replied = func() error { return protocol.Errorf(protocol.InvalidRequest, "so it seems") }
	if err := w.round(); err == nil || w.end() == 0 {
		t.Fatalf("tier ends at %d: %v", w.end(), err)
	}
	w.hooks.replied = nil
	w.settle()
	w.check()
}

// newEpoch makes the broker leader anew, in a higher leader epoch.
func (w *world) newEpoch() {
	w.t.Helper()
	p, _ := w.meta.Image().Partition(w.part.id, 0)
	_, err := w.meta.Propose(w.ctx, &metapb.Command{Body: &metapb.Command_ChangePartitions{ChangePartitions: &metapb.ChangePartitions{
		Changes: []*metapb.PartitionChange{{
			TopicId: w.part.id[:], ExpectPartitionEpoch: p.PartitionEpoch, ExpectLeaderEpoch: p.LeaderEpoch,
			State: &metapb.Partition{Replicas: []int32{1}, Dirs: [][]byte{make([]byte, 16)}, Isr: []int32{1}, Leader: 1, LeaderEpoch: p.LeaderEpoch + 1},
		}},
	}}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.part.epoch = p.LeaderEpoch + 1
	if err := w.part.log.AssignEpoch(w.part.epoch, w.part.log.End()); err != nil {
		w.t.Fatal(err)
	}
}

// TestPausedWriter: a leader stops between PUT and FINISHED, another takes over and
// uploads the same offsets; when the first goes on, it is refused, and its object
// goes.
func TestPausedWriter(t *testing.T) {
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
	defer w.stop()
	w.append(40, 0)
	if err := w.round(); err == nil || w.rec.Count("tier_upload_failed") != 1 {
		t.Fatalf("the first leader was not refused: %v", err)
	}
	if w.end() != w.sealedEnd() {
		t.Fatalf("tier ends at %d", w.end())
	}
	w.part.epoch = 1
	w.start()
	w.settle()
	w.check()
}

// TestUploadInsideLocalSegment: a new leader whose log rolled elsewhere goes on at
// the tier's end.
func TestUploadInsideLocalSegment(t *testing.T) {
	w := newWorld(t, keepAll(), nil)
	w.start()
	w.append(20, 0)
	if err := w.round(); err != nil {
		t.Fatal(err)
	}
	tierEnd := w.end()
	w.elsewhere(3333)
	for _, s := range w.part.log.Segments() {
		if s.Base == tierEnd {
			t.Fatal("the other log rolled at the same place: the test shows nothing")
		}
	}
	w.stop()
	w.newEpoch()
	w.start()
	defer w.stop()
	w.append(20, 0)
	w.settle()
	if w.end() <= tierEnd || w.end() != w.sealedEnd() {
		t.Fatalf("tier ended at %d, now at %d", tierEnd, w.end())
	}
	w.check()
}

// elsewhere gives the partition another replica's log, of other segments.
func (w *world) elsewhere(segmentBytes int32) {
	w.t.Helper()
	logs, err := commitlog.OpenManager(commitlog.ManagerOptions{FS: commitlog.NewMemFS(), Dir: "other", NodeID: 1, ClusterID: "cluster", Now: w.clock.Now})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = logs.Close(w.ctx, 1) })
	c := commitlog.DefaultConfig()
	c.SegmentBytes, c.IndexIntervalBytes = segmentBytes, 200
	log, err := logs.Create("t", w.part.id, 0, c)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, b := range w.made {
		if _, err := log.AppendAsFollower(append(record.Batch(nil), b...)); err != nil {
			w.t.Fatal(err)
		}
	}
	w.part.log = log
}

// TestOnlyCommittedIsUploaded: nothing at or above the last stable offset.
func TestOnlyCommittedIsUploaded(t *testing.T) {
	w := newWorld(t, keepAll(), nil)
	w.start()
	defer w.stop()
	w.append(40, 0)
	w.part.limit = 50
	if err := w.round(); err != nil || w.end() == 0 || w.end() > 50 {
		t.Fatalf("tier ends at %d: %v", w.end(), err)
	}
	w.part.limit = -1
	w.settle()
	w.check()
}

func TestCopyDisable(t *testing.T) {
	cfg := keepAll()
	cfg.CopyDisable, cfg.UploadMaxLagMs = true, 60_000
	cfg.RetentionBytes, cfg.LocalRetentionBytes = 5000, 1000
	w := newWorld(t, cfg, nil)
	w.start()
	defer w.stop()
	w.append(60, 0)
	w.settle()
	st, err := w.meta.Tier(w.part.id, 0)
	if err != nil || st.Count != 0 || w.rec.Count("tier_segment_uploaded") != 0 {
		t.Fatalf("uploaded %d: %v", st.Count, err)
	}
	if size := w.part.log.SizeBytes(); st.LogStart == 0 || size < 5000 || size > 5000+2000 {
		t.Fatalf("log start %d, %d bytes left of at least 5000", st.LogStart, size)
	}
}

// TestCopyDisableLeavesNothing: what a leader before had STARTED goes although no upload follows.
func TestCopyDisableLeavesNothing(t *testing.T) {
	w := newWorld(t, keepAll(), func(o *Options) {
		o.Failpoint = func(name string) error {
			if name == fpUploadFinish {
				return errors.New("crash")
			}
			return nil
		}
	})
	w.start()
	w.append(40, 0)
	if err := w.round(); !crashed(err) || w.objects() != 1 {
		t.Fatalf("%d objects: %v", w.objects(), err)
	}
	w.stop()
	w.opts.Failpoint, w.part.cfg.CopyDisable = nil, true
	w.newEpoch()
	w.start()
	defer w.stop()
	w.settle()
	if n := w.objects(); n != 0 || w.end() != 0 {
		t.Fatalf("%d objects are left, the tier ends at %d", n, w.end())
	}
}

func TestAgeSealing(t *testing.T) {
	cfg := keepAll()
	cfg.UploadMaxLagMs = 600_000
	w := newWorld(t, cfg, nil)
	w.start()
	defer w.stop()
	w.append(1, 0)
	for range 9 {
		w.clock.advance(time.Minute)
		if err := w.round(); err != nil || w.end() != 0 {
			t.Fatalf("tier ends at %d: %v", w.end(), err)
		}
	}
	w.clock.advance(time.Minute)
	if err := errors.Join(w.round(), w.round()); err != nil || w.end() != 3 {
		t.Fatalf("after the longest lag the tier ends at %d: %v", w.end(), err)
	}
}

// TestClockJump: a wall clock that runs away deletes nothing.
func TestClockJump(t *testing.T) {
	cfg := keepAll()
	cfg.RetentionMs = 3_600_000
	w := newWorld(t, cfg, nil)
	w.start()
	defer w.stop()
	w.append(40, 0)
	if err := w.round(); err != nil {
		t.Fatal(err)
	}
	w.clock.mu.Lock()
	w.clock.now = w.clock.now.Add(48 * time.Hour)
	w.clock.mu.Unlock()
	if err := w.round(); err == nil || w.rec.Count("tier_clock_judged") != 1 {
		t.Fatalf("the jump was not noticed: %v", err)
	}
	if st, _ := w.meta.Tier(w.part.id, 0); st.LogStart != 0 {
		t.Fatalf("log start moved to %d", st.LogStart)
	}
	w.settle() // an hour of agreement
	w.clock.advance(time.Hour)
	w.settle()
	if st, _ := w.meta.Tier(w.part.id, 0); st.LogStart == 0 {
		t.Fatal("retention did not resume")
	}
	w.check()
}

// TestDeleteWaits: for the delay, for the journal, and for the owner object.
func TestDeleteWaits(t *testing.T) {
	cfg := keepAll()
	cfg.RetentionBytes = 3000
	w := newWorld(t, cfg, func(o *Options) { o.DeleteDelayMs = 3_600_000 })
	w.start()
	defer w.stop()
	w.append(60, 0)
	if err := errors.Join(w.round(), w.round()); err != nil {
		t.Fatal(err)
	}
	deletes := func() int { return w.store.Calls(objstore.VerbDelete) }
	w.clock.advance(59 * time.Minute)
	if err := w.round(); err != nil || deletes() != 0 {
		t.Fatalf("%d deletes inside the delay: %v", deletes(), err)
	}
	w.store.Add(objstore.Fault{Kind: objstore.FaultError, Verb: objstore.VerbPut, Key: "journal", Times: -1})
	w.append(60, 0) // more retention, whose entry does not get into the journal
	_ = w.round()
	before, _, _ := w.meta.PendingSegments(metastore.Cursor{}, 1000)
	w.clock.advance(2 * time.Hour)
	if err := w.round(); err == nil {
		t.Fatal("no error of the journal")
	}
	after, _, _ := w.meta.PendingSegments(metastore.Cursor{}, 1000)
	if deletes() != 1 || len(after) == 0 || len(after) >= len(before) {
		t.Fatalf("%d deletes; %d rows were pending, %d are", deletes(), len(before), len(after))
	}
	w.store.Clear()
	foreign := objstore.BytesBody([]byte(`{"version":1,"cluster_id":"other","epoch":2}`))
	if _, err := w.store.Put(w.ctx, w.m.ownerKey, foreign, objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	var owner *OwnerError
	if err := w.round(); !errors.As(err, &owner) || deletes() != 1 {
		t.Fatalf("%d deletes under a foreign owner: %v", deletes(), err)
	}
}

// TestDeleteInOtherStore: rows of another store stay until it is configured again.
func TestDeleteInOtherStore(t *testing.T) {
	cfg := keepAll()
	cfg.RetentionBytes = 3000
	w := newWorld(t, cfg, nil)
	w.start()
	defer w.stop()
	w.append(60, 0)
	if err := errors.Join(w.round(), w.round()); err != nil {
		t.Fatal(err)
	}
	first := w.opts.Store
	w.opts.Store, w.opts.Location = objstore.NewMem(nil), "mem:other"
	w.start()
	w.clock.advance(5 * time.Minute)
	if err := w.round(); err == nil || !strings.Contains(err.Error(), "mem:other") {
		t.Fatalf("got %v", err)
	}
	w.opts.Store = first // the same store under another name
	w.start()
	w.settle()
	w.checkList()
}

// TestTopicDeletion: the controller collects what a deleted topic leaves, attempts
// in flight included.
func TestTopicDeletion(t *testing.T) {
	w := newWorld(t, keepAll(), nil)
	w.opts.Failpoint = func(name string) error {
		if name == fpUploadFinish && w.end() > 20 {
			return errors.New("crash")
		}
		return nil
	}
	w.start()
	defer w.stop()
	w.append(40, 0)
	if err := w.round(); !crashed(err) {
		t.Fatal(err)
	}
	if _, err := w.meta.Propose(w.ctx, &metapb.Command{Body: &metapb.Command_DeleteTopic{DeleteTopic: &metapb.DeleteTopic{TopicId: w.part.id[:]}}}); err != nil {
		t.Fatal(err)
	}
	w.m.Unlead(w.part.id, 0)
	for range 3 {
		w.clock.advance(5 * time.Minute)
		if err := errors.Join(w.m.journalAll(w.ctx), w.m.collect(w.ctx)); err != nil {
			t.Fatal(err)
		}
	}
	rows, _, err := w.meta.PendingSegments(metastore.Cursor{}, 10)
	if err != nil || len(rows) != 0 {
		t.Fatalf("%d rows are left: %v", len(rows), err)
	}
	w.checkList()
}

// heldStore holds the first PUT of a segment, whatever its context says.
type heldStore struct {
	objstore.Store
	puts atomic.Int32
	free chan struct{}
}

func (s *heldStore) Put(ctx context.Context, key string, b objstore.Body, o objstore.PutOptions) (objstore.ObjectInfo, error) {
	if _, err := ParseSegmentKey(key); err == nil && s.puts.Add(1) == 1 {
		<-s.free
	}
	return s.Store.Put(ctx, key, b, o)
}

// TestStuckUpload: an upload that never returns is named and costs neither its
// partition nor its slot (Aiven #820).
func TestStuckUpload(t *testing.T) {
	w := newWorld(t, keepAll(), func(o *Options) { o.TaskIntervalMs, o.Concurrency = 10, 1 })
	held := &heldStore{Store: w.store, free: make(chan struct{})}
	w.opts.Store = held
	w.start()
	w.append(40, 0)
	stop := w.run()
	w.await(func() bool { return held.puts.Load() > 0 })
	w.clock.advance(time.Hour)
	ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
	defer cancel()
	if _, err := w.rec.Wait(ctx, "tier_partition_stuck"); err != nil {
		t.Fatal(err)
	}
	w.await(func() bool { return w.end() == w.sealedEnd() })
	close(held.free)
	stop()
	w.start()
	w.settle()
	w.check()
	w.stop()
}

// run starts Run and returns what ends it.
func (w *world) run() (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.m.Run(ctx); err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
	return func() { cancel(); wg.Wait() }
}

func (w *world) await(done func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("not in time: %+v", w.m.Status())
		}
	}
}

func TestRun(t *testing.T) {
	cfg := keepAll()
	cfg.RetentionBytes, cfg.LocalRetentionBytes = 6000, 2000
	w := newWorld(t, cfg, func(o *Options) {
		o.TaskIntervalMs, o.JournalIntervalMs, o.DeleteDelayMs = 10, 10, 0
		o.CacheDir, o.CacheBytes = t.TempDir(), 1<<20
	})
	w.start()
	stop := w.run()
	w.append(100, 0)
	w.m.Nudge(w.part.id, 0)
	w.await(func() bool {
		rows, _, err := w.meta.PendingSegments(metastore.Cursor{}, 10)
		st, _ := w.meta.Tier(w.part.id, 0)
		total := st.Bytes + w.part.log.Segments()[len(w.part.log.Segments())-1].SizeBytes
		return err == nil && len(rows) == 0 && st.LogStart > 0 && st.End == w.sealedEnd() && w.part.log.SizeBytes() <= 4000 && total < 6000+2000
	})
	s := w.m.Status()
	if len(s.Errors) != 0 || len(s.Partitions) != 1 {
		t.Fatalf("%+v", s)
	}
	p := s.Partitions[0]
	if p.LastError != "" || p.TierEnd != w.end() || p.TierStart != p.LogStart || p.Segments == 0 || p.Bytes == 0 || p.LocalBytes == 0 {
		t.Fatalf("%+v", p)
	}
	w.check()
	w.m.Unlead(w.part.id, 0)
	start := time.Now()
	stop()
	if took := time.Since(start); took > 2*time.Second {
		t.Fatalf("shutdown took %v", took)
	}
}

// TestRunForeignOwner: Run ends with the reason.
func TestRunForeignOwner(t *testing.T) {
	m, _, store, _ := newTestManager(t, nil)
	b := objstore.BytesBody([]byte(`{"version":1,"cluster_id":"other","epoch":2}`))
	if _, err := store.Put(context.Background(), m.ownerKey, b, objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	var foreign *OwnerError
	if err := m.Run(context.Background()); !errors.As(err, &foreign) {
		t.Fatalf("got %v", err)
	}
}

// TestUploadMemory: what an upload allocates does not grow with the log.
func TestUploadMemory(t *testing.T) {
	src, log := testSource(t, 600, 20_000)
	if len(log) < 30<<20 {
		t.Fatalf("log of %d bytes", len(log))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := EncodeSegment(src); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Fatalf("%d bytes allocated", n)
	}
}
