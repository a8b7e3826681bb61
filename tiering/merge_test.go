package tiering

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"varve/broker/commitlog"
	"varve/metastore"
	"varve/tiering/objstore"
)

// newMergeWorld is a world whose segments are merged by eights, up to so many bytes.
func newMergeWorld(t *testing.T, maxBytes int64, change func(*Options)) *world {
	cfg := keepAll()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = maxBytes, 300
	return newWorld(t, cfg, func(o *Options) {
		o.MergeMinSegments = 8
		if change != nil {
			change(o)
		}
	})
}

// trickle uploads n segments of one batch each.
func (w *world) trickle(n int) {
	w.t.Helper()
	for range n {
		w.clock.advance(time.Minute)
		w.append(1, 0)
		if err := w.part.log.Roll(); err != nil {
			w.t.Fatal(err)
		}
		if err := w.round(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// merge does what a merge's worker does, until nothing is left to merge.
func (w *world) merge() error {
	for {
		t := &task{part: w.pt(), cancel: func() {}, merge: true}
		w.m.mu.Lock()
		w.m.merging, t.part.merge.task = t, t
		w.m.mu.Unlock()
		did, err := w.m.mergeOne(w.ctx, t.part)
		w.m.finish(t, did, err)
		if err != nil || !did {
			return err
		}
	}
}

// TestMergeTrickle: a topic with a record now and then ends as few objects; times, the
// producers' state and all records read as before; footers say what they replace.
func TestMergeTrickle(t *testing.T) {
	w := newMergeWorld(t, 40_000, func(o *Options) { o.CacheDir = t.TempDir() })
	w.start()
	defer w.stop()
	const segments = 150
	type found struct {
		off int64
		ok  bool
	}
	answers := func() (out []found) {
		for n := range segments {
			ts := time.UnixMilli(1_700_000_000_000).Add(time.Duration(n) * time.Minute).UnixMilli()
			at, ok, err := w.m.OffsetForTimestamp(w.ctx, w.part.id, 0, ts)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, found{at.Offset, ok})
		}
		return out
	}
	w.trickle(segments)
	before := answers()
	_, _, snapshot, err := w.m.Tail(w.ctx, w.part.id, 0)
	if err != nil || len(w.rows()) != segments {
		t.Fatalf("%d segments: %v", len(w.rows()), err)
	}
	if err := w.merge(); err != nil {
		t.Fatal(err)
	}
	rows := w.rows()
	if len(rows) > 10 || w.rec.Count("tier_segments_merged") == 0 {
		t.Fatalf("%d segments are left", len(rows))
	}
	if after := answers(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("by time: %v, before %v", after, before)
	}
	if _, _, s, err := w.m.Tail(w.ctx, w.part.id, 0); err != nil || !bytes.Equal(s, snapshot) {
		t.Errorf("the producers' state changed: %v", err)
	}
	x, err := w.m.index(w.ctx, rows[0])
	if err != nil || int(rows[0].Generation) != 1 || len(x.Footer.Replaces) < 8 || len(x.OffsetIndex) < 8*len(x.Footer.Replaces)/4 {
		t.Errorf("generation %d, %d replaced, %d bytes of index: %v", rows[0].Generation, len(x.Footer.Replaces), len(x.OffsetIndex), err)
	}
	if w.rec.Count("tier_corruption")+w.rec.Count("tier_merge_failed") > 0 {
		t.Error("alarms")
	}
	w.settle()
	w.check()
	st, _ := w.meta.Tier(w.part.id, 0)
	if st.Count != int64(len(rows)) {
		t.Errorf("%d segments counted", st.Count)
	}
}

// TestMergeBounds simulates partitions of many sizes: no record is rewritten more often
// than its share of the logarithm, and few segments are left.
func TestMergeBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	p := mergePolicy{min: 8, max: 256 << 20}
	for range 6 {
		var rows []metastore.RemoteSegment
		written, first := map[int64]int{}, map[int64]int64{} // by base of what was uploaded
		scale := 1 << rng.IntN(24)
		for n := range int64(300) {
			size := int64(100 + rng.IntN(scale))
			first[n] = size
			rows = append(rows, metastore.RemoteSegment{Base: n, Next: n + 1, LogBytes: size, StartTimeMs: 1, MaxTimestamp: 1})
			for {
				var small []metastore.RemoteSegment
				for _, r := range rows {
					if p.small(r) {
						small = append(small, r)
					} else if p.pick(small) == nil {
						small = nil
					}
				}
				old := p.pick(small)
				if old == nil {
					break
				}
				rows = replace(rows, old, written)
			}
		}
		for n, times := range written {
			if most := int(math.Log(float64(p.max)/float64(first[n]))/math.Log(mergeGrowth)) + 1; times > most {
				t.Fatalf("%d bytes were rewritten %d times, at most %d", first[n], times, most)
			}
		}
		var bytes int64
		for _, r := range rows {
			bytes += r.LogBytes
		}
		if most := int(bytes/(p.max/int64(p.min))) + 8*14; len(rows) > most {
			t.Fatalf("%d segments of %d bytes are left, at most %d", len(rows), bytes, most)
		}
	}
}

// replace does to rows what a merge would.
func replace(rows, old []metastore.RemoteSegment, written map[int64]int) (out []metastore.RemoteSegment) {
	merged := old[0]
	merged.Next, merged.LogBytes = old[len(old)-1].Next, 0
	for _, r := range old {
		merged.LogBytes += r.LogBytes
	}
	for n := merged.Base; n < merged.Next; n++ {
		written[n]++
	}
	for _, r := range rows {
		if r.Base == merged.Base {
			out = append(out, merged)
		} else if r.Base < merged.Base || r.Base >= merged.Next {
			out = append(out, r)
		}
	}
	return out
}

func TestMergePolicy(t *testing.T) {
	run := func(sizes ...int64) (rows []metastore.RemoteSegment) {
		for i, n := range sizes {
			rows = append(rows, metastore.RemoteSegment{Base: int64(i), Next: int64(i) + 1, LogBytes: n, MaxTimestamp: int64(i) * 1000})
		}
		return rows
	}
	for name, c := range map[string]struct {
		p        mergePolicy
		rows     []metastore.RemoteSegment
		from, to int
	}{
		"too few":          {mergePolicy{min: 4, max: 1 << 20}, run(10, 10, 10), 0, 0},
		"enough":           {mergePolicy{min: 4, max: 1 << 20}, run(10, 10, 10, 10), 0, 4},
		"one outweighs":    {mergePolicy{min: 4, max: 1 << 20}, run(1000, 10, 10, 10), 0, 0},
		"small ones first": {mergePolicy{min: 4, max: 1 << 20}, run(90000, 10, 10, 10, 10, 90000, 90000, 90000), 1, 5},
		"result too large": {mergePolicy{min: 4, max: 100}, run(30, 30, 30, 30, 5, 5, 5, 5), 4, 8},
		"too long a time":  {mergePolicy{min: 4, max: 1 << 20, spanMs: 2500}, run(10, 10, 10, 10), 0, 0},
	} {
		got := c.p.pick(c.rows)
		if len(got) != c.to-c.from || len(got) > 0 && got[0].Base != int64(c.from) {
			t.Errorf("%s: %d from %v", name, len(got), got)
		}
	}
	m := &Manager{o: Options{MergeMinSegments: 8}}
	p := m.mergePolicy(TierConfig{RetentionMs: 10_000, RetentionBytes: 5000, SegmentBytes: 1 << 20})
	if p != (mergePolicy{8, 500, 1000}) {
		t.Errorf("%+v", p)
	}
	if p := m.mergePolicy(TierConfig{RetentionMs: -1, RetentionBytes: -1, SegmentBytes: 1 << 20, CopyDisable: true}); p.min != 0 {
		t.Errorf("a tier that is only read: %+v", p)
	}
}

// TestCrashAtEveryMergeStep ends the Manager at each step of a merge and goes on with a
// new one; the steps are all there.
func TestCrashAtEveryMergeStep(t *testing.T) {
	for _, name := range mergeFailpoints {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crash := false
			w := newMergeWorld(t, 40_000, func(o *Options) {
				o.Failpoint = func(at string) error {
					if at == name && crash {
						crash = false
						return errors.New("crash")
					}
					return nil
				}
			})
			w.start()
			w.trickle(30)
			crash = true
			if name == fpMergeAbandon {
				w.store.Add(objstore.Fault{Kind: objstore.FaultLostReply, Verb: objstore.VerbPut, Key: ".seg"})
			}
			if err := w.merge(); !crashed(err) || !strings.Contains(err.Error(), name) {
				t.Fatalf("no crash at %s: %v", name, err)
			}
			w.stop()
			w.start()
			defer w.stop()
			w.trickle(3)
			if err := w.merge(); err != nil {
				t.Fatal(err)
			}
			w.settle()
			w.check()
			if n := len(w.rows()); n > 10 {
				t.Errorf("%d segments are left", n)
			}
		})
	}
}

// TestEveryMergeStepHasAFailpoint: no two changes without one between.
func TestEveryMergeStepHasAFailpoint(t *testing.T) {
	armed := false
	w := newMergeWorld(t, 40_000, func(o *Options) { o.Failpoint = func(string) error { armed = true; return nil } })
	w.hooks.changes = func(call string) {
		if !armed {
			t.Errorf("%s follows another change without a failpoint between", call)
		}
		armed = false
	}
	w.opts.Store = &watchedStore{w.store, w.hooks.changes}
	w.start()
	defer w.stop()
	w.trickle(20)
	if err := w.merge(); err != nil {
		t.Fatal(err)
	}
}

// TestMergeRefused: what changes under a merge makes the metastore refuse it, and its
// object goes.
func TestMergeRefused(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"another leader": func(w *world) { w.newEpoch() },
		"retention": func(w *world) {
			rows := w.rows()
			if err := w.m.advance(w.ctx, w.pt(), w.part.epoch, rows[2].Next); err != nil {
				w.t.Error(err)
			}
			if err := w.m.segmentsDelete(w.ctx, w.pt(), w.part.epoch, idsOf(rows[:3])); err != nil {
				w.t.Error(err)
			}
		},
		"led again": func(w *world) {
			w.m.Unlead(w.part.id, 0)
			w.m.Lead(w.part)
			if err := w.m.retire(w.ctx, w.pt()); err != nil {
				w.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w *world
			armed := false
			w = newMergeWorld(t, 40_000, func(o *Options) {
				o.Failpoint = func(at string) error {
					if at == fpMergeReplace && armed {
						armed = false
						change(w)
					}
					return nil
				}
			})
			w.start()
			defer w.stop()
			w.trickle(20)
			armed = true
			if err := w.merge(); err == nil || armed || w.rec.Count("tier_segments_merged") != 0 {
				t.Fatalf("not refused: %v", err)
			}
			w.settle()
			w.check()
			w.trickle(10)
			if err := w.merge(); err != nil {
				t.Fatal(err)
			}
			w.settle()
			w.check()
		})
	}
}

// TestMergeReplyLost: REPLACE is asked for again, and was done once.
func TestMergeReplyLost(t *testing.T) {
	w := newMergeWorld(t, 40_000, nil)
	w.start()
	defer w.stop()
	w.trickle(20)
	lost := 0
	w.hooks.replied = func() error {
		if lost++; lost == 1 {
			return errors.New("leadership lost")
		}
		return nil
	}
	if err := w.merge(); err != nil || w.rec.Count("tier_segments_merged") == 0 || lost < 2 {
		t.Fatal(err)
	}
	w.settle()
	w.check()
}

// TestUploadDuringMerge: an upload of the same partition leaves the merge's attempt alone.
func TestUploadDuringMerge(t *testing.T) {
	var w *world
	armed := false
	w = newMergeWorld(t, 40_000, func(o *Options) {
		o.Failpoint = func(at string) error {
			if at == fpMergePut && armed {
				armed = false
				w.m.doubt(w.pt())
				w.trickle(2)
			}
			return nil
		}
	})
	w.start()
	defer w.stop()
	w.trickle(20)
	armed = true
	if err := w.merge(); err != nil || armed || w.rec.Count("tier_segments_merged") == 0 {
		t.Fatal(err)
	}
	w.settle()
	w.check()
}

// switchStore runs a hook before one GET.
type switchStore struct {
	objstore.Store
	before atomic.Pointer[func()]
}

func (s *switchStore) Get(ctx context.Context, key string, off, length int64, cause string) (io.ReadCloser, error) {
	if f := s.before.Swap(nil); f != nil {
		(*f)()
	}
	return s.Store.Get(ctx, key, off, length, cause)
}

// TestReadersAcrossMerge: the object that a reader is about to ask for has just been
// merged away and deleted.
func TestReadersAcrossMerge(t *testing.T) {
	w := newMergeWorld(t, 40_000, func(o *Options) { o.DeleteDelayMs = 0 })
	store := &switchStore{Store: w.store}
	w.opts.Store = store
	w.start()
	defer w.stop()
	w.trickle(20)
	other, err := New(w.opts) // another broker, whose caches are empty
	if err != nil {
		t.Fatal(err)
	}
	defer other.fills.close()
	merged := func() {
		if err := errors.Join(w.merge(), w.m.journalAll(w.ctx), w.m.collect(w.ctx)); err != nil {
			t.Error(err)
		}
	}
	store.before.Store(&merged)
	res, err := other.Read(w.ctx, ReadRequest{TopicID: w.part.id, Offset: 30, MaxBytes: 1000, MinOne: true})
	if err != nil || !bytes.Equal(joined(res)[:len(w.made[10])], w.made[10]) || w.rec.Count("tier_segments_merged") == 0 {
		t.Fatalf("%v", err)
	}
	if w.rec.Count("tier_object_missing") > 0 {
		t.Error("a false alarm")
	}
	w.settle()
	w.check()
}

// TestMergeEpochs: a merged object says once, and in order, which leader epochs lead to it and lie in it.
func TestMergeEpochs(t *testing.T) {
	w := newMergeWorld(t, 40_000, nil)
	w.start()
	for range 3 {
		w.trickle(5)
		w.stop()
		w.newEpoch()
		w.start()
	}
	defer w.stop()
	w.trickle(5)
	before := w.state().Epochs
	if err := w.merge(); err != nil {
		t.Fatal(err)
	}
	rows := rowsOf(t, w.meta, w.part.id)
	if len(rows) > 4 || rows[0].Generation == 0 || len(before) != 4 || fmt.Sprint(w.state().Epochs) != fmt.Sprint(before) {
		t.Fatalf("%d rows, epochs %v, were %v", len(rows), w.state().Epochs, before)
	}
	x, err := w.m.index(w.ctx, rows[0])
	if err != nil {
		t.Fatal(err)
	}
	var want []commitlog.EpochStart
	for _, e := range before {
		if e.Start < rows[0].Next {
			want = append(want, commitlog.EpochStart{Epoch: e.Epoch, Start: e.Start})
		}
	}
	if !slices.Equal(x.Epochs, want) || len(want) < 2 {
		t.Fatalf("epochs %v, want %v", x.Epochs, want)
	}
	w.settle()
	w.check()
}

// TestMergeLooksAgain: what was too large for a merge under one config is looked at again under another.
func TestMergeLooksAgain(t *testing.T) {
	w := newMergeWorld(t, 1500, nil)
	w.start()
	defer w.stop()
	w.trickle(20)
	if err := w.merge(); err != nil || len(w.rows()) != 20 {
		t.Fatalf("%d rows: %v: the test shows nothing", len(w.rows()), err)
	}
	w.part.mu.Lock()
	w.part.cfg.SegmentBytes = 40_000
	w.part.mu.Unlock()
	if err := w.merge(); err != nil || len(w.rows()) > 6 {
		t.Fatalf("%d rows: %v", len(w.rows()), err)
	}
}

// TestMergeOfWrongTimes: a source with a record that is newer than its row says is not merged: the row of the result would hide it from
// lookups by time.
func TestMergeOfWrongTimes(t *testing.T) {
	w := newMergeWorld(t, 40_000, nil)
	w.start()
	defer w.stop()
	w.trickle(4)
	rows := w.rows()
	exp, err := w.m.gather(w.ctx, rows, w.part.cfg)
	if err != nil || exp.MaxTimestamp != rows[3].MaxTimestamp {
		t.Fatal(err)
	}
	exp.Close()
	object := w.object(w.m.rowKey(rows[3]))
	rows[3].MaxTimestamp--
	w.put(w.m.rowKey(rows[3]), object) // its key says so too
	if _, err := w.m.gather(w.ctx, rows, w.part.cfg); !isCorrupt(err) {
		t.Fatalf("got %v", err)
	}
}

// TestMergeTxns: aborted transactions of all sources are there, in order, once.
func TestMergeTxns(t *testing.T) {
	g := &gathering{marker: -1}
	g.exp = &commitlog.Export{}
	entry := func(marker byte) []byte {
		b := make([]byte, txnEntryBytes)
		b[25] = marker
		return b
	}
	g.takeTxns(append(entry(3), entry(7)...))
	g.takeTxns(nil)
	g.takeTxns(append(entry(7), entry(9)...))
	if want := append(append(entry(3), entry(7)...), entry(9)...); !bytes.Equal(g.exp.TxnIndex, want) {
		t.Errorf("%d bytes", len(g.exp.TxnIndex))
	}
}

// TestRunMerges: the workers do it by themselves; one that hangs is named and freed.
func TestRunMerges(t *testing.T) {
	w := newMergeWorld(t, 40_000, func(o *Options) { o.TaskIntervalMs, o.JournalIntervalMs, o.DeleteDelayMs = 10, 10, 0 })
	held := &heldMerge{Store: w.store, free: make(chan struct{})}
	w.opts.Store = held
	w.start()
	stop := w.run()
	w.await(func() bool { return w.m.claimed() })
	for n := range 20 {
		w.append(1, 0)
		if err := w.part.log.Roll(); err != nil {
			t.Fatal(err)
		}
		w.m.Nudge(w.part.id, 0)
		w.await(func() bool { return w.end() == w.part.log.End() })
		_ = n
	}
	w.await(func() bool { return held.gets.Load() > 0 })
	w.clock.advance(time.Hour)
	ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
	defer cancel()
	e, err := w.rec.Wait(ctx, "tier_partition_stuck")
	if err != nil || !e.(PartitionStuck).Merge {
		t.Fatalf("%+v: %v", e, err)
	}
	w.await(func() bool { w.clock.advance(time.Second); return len(w.rows()) <= 8 })
	close(held.free)
	stop()
	w.start()
	w.settle()
	w.check()
	w.stop()
}

// heldMerge holds the first read of a merge, whatever its context says.
type heldMerge struct {
	objstore.Store
	gets atomic.Int32
	free chan struct{}
}

func (s *heldMerge) Get(ctx context.Context, key string, off, length int64, cause string) (io.ReadCloser, error) {
	if cause == objstore.CauseMerge && s.gets.Add(1) == 1 {
		<-s.free
	}
	return s.Store.Get(ctx, key, off, length, cause)
}
