package tiering

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"varve/broker/commitlog"
	"varve/tiering/objstore"
)

// TestQueueOrder: who has more, or older, goes first, and who has little is not passed by
// for ever.
func TestQueueOrder(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	m := &Manager{o: Options{Now: func() time.Time { return now }}, wake: make(chan struct{}, 1)}
	add := func(name string, b backlog) *part {
		pt := &part{name: name, slot: -1, waits: b}
		m.enqueueLocked(pt)
		return pt
	}
	small := add("small", backlog{Segments: 1, Bytes: 1 << 20, Since: now})
	add("big", backlog{Segments: 4, Bytes: 1 << 30, Since: now})
	add("old", backlog{Segments: 1, Bytes: 1 << 20, Since: now.Add(-5 * time.Minute)})
	grows := add("grows", backlog{Segments: 1, Since: now})
	grows.waits.Bytes = 512 << 20
	m.enqueueLocked(grows)
	var order []string
	for m.queue.Len() > 1 {
		order = append(order, heap.Pop(&m.queue).(*part).name)
	}
	if got := fmt.Sprint(order); got != "[old big grows]" {
		t.Errorf("order %v", got)
	}
	// However many large ones keep coming, the small one's turn comes.
	for n := range 1000 {
		now = now.Add(time.Second)
		add(fmt.Sprint(n), backlog{Segments: 99, Bytes: 1 << 40, Since: now.Add(-24 * time.Hour)})
		if heap.Pop(&m.queue).(*part) == small {
			if waited := now.Sub(small.since); waited > maxHeadStart+time.Second {
				t.Errorf("it waited %v", waited)
			}
			return
		}
	}
	t.Error("a small backlog starves")
}

// TestCopyLag: when a segment is due, by the cases of Kafka's RemoteLagCopyTest, and that
// what follows one that is not due waits too.
func TestCopyLag(t *testing.T) {
	const now = 1_700_000_000_000
	for _, c := range []struct {
		ms, bytes, age, after int64
		want                  bool
	}{
		{0, -1, 0, 0, true},
		{-1, 0, 0, 0, true},
		{100, -1, 50, 1 << 40, false},
		{100, -1, 100, 0, true},
		{100, -1, -1, 0, true}, // from the future
		{-1, 60, 1 << 40, 50, false},
		{-1, 50, 0, 50, true},
		{100, 60, 100, 50, true},
		{100, 60, 50, 60, true},
		{100, 60, 50, 50, false},
		{-1, -1, 1 << 40, 1 << 40, false},
	} {
		cfg := TierConfig{CopyLagMs: c.ms, CopyLagBytes: c.bytes}
		s := commitlog.SegmentInfo{MaxTimestamp: now - c.age}
		if got := cfg.copyDue(s, c.after, now); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	cfg := keepAll()
	cfg.CopyLagMs, cfg.CopyLagBytes = 3_600_000, -1
	w := newWorld(t, cfg, nil)
	w.start()
	defer w.stop()
	w.append(20, 59*time.Minute)
	first := w.sealedEnd()
	w.append(20, 0)
	if err := w.round(); err != nil || w.end() != 0 {
		t.Fatalf("tier ends at %d: %v", w.end(), err)
	}
	w.clock.advance(2 * time.Minute)
	if err := w.round(); err != nil || w.end() < first || w.end() == w.sealedEnd() {
		t.Fatalf("tier ends at %d of %d and %d: %v", w.end(), first, w.sealedEnd(), err)
	}
	w.part.mu.Lock()
	w.part.cfg.CopyLagMs = 0 // changed while it runs
	w.part.mu.Unlock()
	w.settle()
	if w.end() != w.sealedEnd() {
		t.Fatalf("tier ends at %d of %d", w.end(), w.sealedEnd())
	}
	w.check()
}

// slowStore counts the PUTs of segments that are under way at once.
type slowStore struct {
	objstore.Store
	mu        sync.Mutex
	now, most int
	fail      func(n int) error // of the n-th PUT
	puts      int
}

func (s *slowStore) Put(ctx context.Context, key string, b objstore.Body, o objstore.PutOptions) (objstore.ObjectInfo, error) {
	if _, err := ParseSegmentKey(key); err != nil {
		return s.Store.Put(ctx, key, b, o)
	}
	s.mu.Lock()
	s.now++
	s.puts++
	n := s.puts
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	time.Sleep(10 * time.Millisecond)
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now--
	}()
	if s.fail != nil {
		if err := s.fail(n); err != nil {
			return objstore.ObjectInfo{}, err
		}
	}
	return s.Store.Put(ctx, key, b, o)
}

// TestSegmentsSideBySide: a backlog of one partition goes several at a time, becomes
// readable in order, and one that fails leaves nothing wrong behind.
func TestSegmentsSideBySide(t *testing.T) {
	for name, fail := range map[string]func(int) error{
		"fair":        nil,
		"first fails": func(n int) error { return failAt(n, 1) },
		"third fails": func(n int) error { return failAt(n, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, keepAll(), func(o *Options) { o.Concurrency = 4 })
			slow := &slowStore{Store: w.store, fail: fail}
			w.opts.Store = slow
			w.start()
			defer w.stop()
			w.append(150, 0)
			_ = w.round()
			if slow.most < 2 || slow.most > maxInLine {
				t.Errorf("%d PUTs at once", slow.most)
			}
			for range 10 {
				w.settle()
			}
			if w.end() != w.sealedEnd() {
				t.Fatalf("tier ends at %d of %d", w.end(), w.sealedEnd())
			}
			if n := w.rec.Count("tier_upload_failed"); (n > 0) != (fail != nil) {
				t.Errorf("%d failures told", n)
			}
			w.check()
			if busy := w.m.busyLocked(); busy != 0 {
				t.Errorf("%d slots are still taken", busy)
			}
		})
	}
}

func failAt(n, at int) error {
	if n == at {
		return &objstore.RetryableError{Err: errors.New("injected")}
	}
	return nil
}

// hours runs the Manager over hours of its own clock.
func (w *world) hours(n int) {
	w.t.Helper()
	for range n * 60 {
		w.clock.advance(time.Minute)
		w.m.Nudge(w.part.id, 0)
		time.Sleep(2 * time.Millisecond)
	}
}

// TestLongOutage: however long the store is away, the attempts that have to be cleaned
// up stay few, and uploads resume by themselves.
func TestLongOutage(t *testing.T) {
	for name, c := range map[string]struct {
		key  string // what fails
		most int    // rows left
		err  error
	}{
		"store away":     {"", gateFails, nil},
		"bucket missing": {"", gateFails, objstore.ErrBucketMissing},
		"segments only":  {".seg", maxAbandoned, objstore.ErrForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, keepAll(), func(o *Options) { o.TaskIntervalMs, o.JournalIntervalMs, o.UploadDeadlineMs = 5, 5, 3_600_000 })
			w.start()
			stop := w.run()
			w.await(func() bool { return w.m.claimed() })
			w.store.Add(objstore.Fault{Kind: objstore.FaultError, Err: c.err, Verb: objstore.VerbPut, Key: c.key, Times: -1},
				objstore.Fault{Kind: objstore.FaultError, Err: c.err, Verb: objstore.VerbDelete, Times: -1})
			w.append(40, 0)
			w.hours(10)
			rows, err := w.meta.PendingOf(w.part.id, 0)
			if err != nil || len(rows) == 0 || len(rows) > c.most {
				t.Errorf("%d attempts to clean up: %v", len(rows), err)
			}
			if w.rec.Count("tier_store_judged") != 1 || len(w.m.Status().Errors) == 0 {
				t.Errorf("%d events, status %+v", w.rec.Count("tier_store_judged"), w.m.Status())
			}
			w.store.Clear()
			w.hours(3)
			w.await(func() bool { return w.end() == w.sealedEnd() })
			stop()
			w.start()
			w.settle()
			w.check()
			w.stop()
		})
	}
}

func (m *Manager) claimed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ownerEpoch != 0
}

// TestOneRecordAnHour: over a day of a topic with a record an hour the tier never lags
// by more than the bound, and the time between two looks.
func TestOneRecordAnHour(t *testing.T) {
	cfg := keepAll()
	cfg.UploadMaxLagMs, cfg.SegmentBytes = 600_000, 1<<20
	w := newWorld(t, cfg, func(o *Options) { o.TaskIntervalMs, o.MergeMinSegments = 120_000, 8 })
	w.start()
	defer w.stop()
	written := map[int64]time.Time{} // by the offset after the record
	for range 24 * 30 {
		if w.clock.Now().Minute() < 2 {
			w.append(1, 0)
			written[w.part.log.End()] = w.clock.Now()
		}
		w.clock.advance(2 * time.Minute)
		if err := w.round(); err != nil {
			t.Fatal(err)
		}
		if err := w.merge(); err != nil {
			t.Fatal(err)
		}
		for off, at := range written {
			if lag := w.clock.Now().Sub(at); off <= w.end() {
				delete(written, off)
			} else if lag > 14*time.Minute {
				t.Fatalf("offset %d is not in the tier after %v", off, lag)
			}
		}
	}
	if n := len(w.rows()); n > 14 {
		t.Errorf("%d segments after a day", n)
	}
	w.settle()
	w.check()
}

// TestLagIsTold once when a partition falls behind and once when it has caught up.
func TestLagIsTold(t *testing.T) {
	cfg := keepAll()
	cfg.UploadMaxLagMs = 600_000
	w := newWorld(t, cfg, nil)
	w.start()
	defer w.stop()
	w.append(40, 0)
	for range 30 {
		w.clock.advance(time.Minute)
		w.m.lookForWork()
	}
	p := w.m.Status().Partitions[0]
	if w.rec.Count("tier_upload_lag") != 1 || p.LagSegments == 0 || p.LagMs < 29*60_000 {
		t.Fatalf("told %d times, %+v", w.rec.Count("tier_upload_lag"), p)
	}
	w.settle()
	w.m.lookForWork()
	if p := w.m.Status().Partitions[0]; w.rec.Count("tier_upload_lag") != 2 || p.LagMs > 600_000 {
		t.Fatalf("told %d times, %+v", w.rec.Count("tier_upload_lag"), p)
	}
}
