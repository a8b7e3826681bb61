package tiering

import (
	"math"
	"testing"
	"time"

	"varve/metastore"
)

// mergeYear plays what a partition's uploads and merges do to its rows, hour by hour.
type mergeYear struct {
	t         *testing.T
	m         *Manager
	pt        *part
	meta      *fakeMeta
	clock     *testClock
	look      bool
	rewritten map[int64]int // by the base of what was uploaded
	looks     int
}

func newMergeYear(t *testing.T, cfg TierConfig) *mergeYear {
	y := &mergeYear{t: t, meta: newFakeMeta(), clock: &testClock{now: time.UnixMilli(1_700_000_000_000)}, rewritten: map[int64]int{}}
	y.m = &Manager{o: Options{Meta: y.meta, Now: y.clock.Now, MergeMinSegments: 8, Location: "mem:"}}
	y.pt = &part{Partition: &testPart{cfg: cfg}}
	return y
}

// hour passes, at the end of which an object of so many bytes is uploaded, if any; retention and merges follow.
func (y *mergeYear) hour(bytes int64) {
	y.clock.advance(time.Hour)
	now := y.clock.Now().UnixMilli()
	if bytes > 0 {
		at := y.meta.state.End
		y.meta.rows = append(y.meta.rows, metastore.RemoteSegment{Base: at, Next: at + 1, LogBytes: bytes, StartTimeMs: now, MaxTimestamp: now, Location: "mem:"})
		y.meta.state.End, y.look = at+1, true
	}
	cfg := y.pt.TierConfig()
	for rows := y.meta.rows; cfg.RetentionMs >= 0 && len(rows) > 0 && rows[0].MaxTimestamp < now-cfg.RetentionMs; rows = y.meta.rows {
		y.meta.rows, y.meta.state.LogStart = rows[1:], rows[0].Next
	}
	for p := y.m.mergePolicy(cfg); y.look || y.pt.merge.dueMs > 0 && y.pt.merge.dueMs <= now; y.looks++ {
		f, err := y.m.findMerge(y.pt, p, y.pt.merge.from)
		if err != nil {
			y.t.Fatal(err)
		}
		y.pt.merge.from, y.pt.merge.dueMs, y.look = f.settled, f.dueMs, len(f.old) > 0
		if len(f.old) > 0 {
			y.merge(f.old, now)
		}
	}
}

func (y *mergeYear) merge(old []metastore.RemoteSegment, now int64) {
	first, last := old[0], old[len(old)-1]
	var generation uint32
	for _, r := range old {
		generation = max(generation, r.Generation+1)
	}
	y.meta.rows = replace(y.meta.rows, old, y.rewritten)
	for i := range y.meta.rows {
		if r := &y.meta.rows[i]; r.Base == first.Base {
			r.StartTimeMs, r.MaxTimestamp, r.Generation = now, last.MaxTimestamp, generation
		}
	}
}

// TestMergeMonths: what small uploads of many months end as, and how often their records were rewritten for it.
func TestMergeMonths(t *testing.T) {
	const day = 24
	week := keepAll()
	week.RetentionMs = 7 * day * 3_600_000
	every := func(hours int, bytes int64) func(int) int64 {
		return func(h int) int64 {
			if h%hours > 0 {
				return 0
			}
			return bytes
		}
	}
	for name, c := range map[string]struct {
		cfg         TierConfig
		bytes       func(hour int) int64
		days, quiet int // with uploads, and without
		most, final int // objects, at any time and at the end
	}{
		"a record an hour for a year":        {keepAll(), every(1, 300), 365, 200, 45, 1},
		"the same, kept for a week":          {week, every(1, 300), 60, 3, 30, 12},
		"a record each three days":           {keepAll(), every(72, 300), 720, 200, 30, 1},
		"seven records, then never another":  {keepAll(), every(1, 300), 0, 2, 7, 1},
		"a large one a day, a few behind it": {keepAll(), func(h int) int64 { return [day]int64{64 << 20, 1000, 900, 0, 800, 700}[h%day] }, 90, 3, 2*91 + 6, 2 * 91},
		"hourly, of all sizes up to 1 MB":    {keepAll(), func(h int) int64 { return 100 + int64(h*7919%1000_003) }, 120, 200, 40, 24},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.SegmentBytes = 256 << 20
			y := newMergeYear(t, c.cfg)
			most := 0
			for h := range c.days*day + 7 {
				y.hour(c.bytes(h))
				most = max(most, len(y.meta.rows))
			}
			for range c.quiet * day {
				y.hour(0)
			}
			if n := len(y.meta.rows); most > c.most || n > c.final {
				t.Errorf("%d objects at most and %d in the end, not %d and %d", most, n, c.most, c.final)
			}
			worst := 0
			for _, n := range y.rewritten {
				worst = max(worst, n)
			}
			bound := int(math.Log(float64(256<<20)/100)/math.Log(mergeGrowth)+math.Log2(float64(c.days+c.quiet+1))) + 2
			if t.Logf("%d objects at most, %d in the end, rewritten %d times, %d looks", most, len(y.meta.rows), worst, y.looks); worst > bound || worst == 0 {
				t.Errorf("a record was rewritten %d times, at most %d", worst, bound)
			}
		})
	}
}

// TestMergeRest: three objects are left alone for a day, and then are one, although nothing else comes to the partition; nothing is lost, and it
// is not rewritten again.
func TestMergeRest(t *testing.T) {
	w := newMergeWorld(t, 40_000, nil)
	w.start()
	defer w.stop()
	w.trickle(3)
	for range 2 {
		if err := w.merge(); err != nil || len(w.rows()) != 3 {
			t.Fatalf("%d segments: %v", len(w.rows()), err)
		}
	}
	queued := func() bool {
		w.m.lookForWork()
		w.m.mu.Lock()
		defer w.m.mu.Unlock()
		return w.pt2().merge.queued
	}
	w.unqueueMerge()
	if queued() {
		t.Error("it is looked at though nothing has changed")
	}
	w.clock.advance(25 * time.Hour)
	if !queued() {
		t.Fatal("it is not looked at after a day")
	}
	w.unqueueMerge()
	if err := w.merge(); err != nil || len(w.rows()) != 1 {
		t.Fatalf("%d segments: %v", len(w.rows()), err)
	}
	w.settle()
	w.check()
	if err := w.merge(); err != nil || len(w.rows()) != 1 {
		t.Fatalf("%d segments: %v", len(w.rows()), err)
	}
	w.unqueueMerge()
	w.clock.advance(1000 * time.Hour)
	if queued() {
		t.Error("one object is looked at again")
	}
}

// pt2 is pt for who holds Manager.mu.
func (w *world) pt2() *part { return w.m.parts[partKey{w.part.id, 0}] }

// unqueueMerge takes the partition out of the queue, as startMergeLocked does.
func (w *world) unqueueMerge() {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	w.m.mergeable, w.pt2().merge.queued, w.pt2().merge.look = nil, false, false
}

// TestMergeDueOfEarlierRun: neighbours that will be merged once they have rested are not forgotten for what comes after them.
func TestMergeDueOfEarlierRun(t *testing.T) {
	w := newMergeWorld(t, 8000, nil)
	w.start()
	defer w.stop()
	w.trickle(2)
	w.appendSized(1, 450, 0) // too large for a merge
	w.trickle(1)
	w.trickle(1)
	rows := w.rows()
	p := w.m.mergePolicy(w.part.cfg)
	if len(rows) != 4 || p.small(rows[2]) || !p.small(rows[3]) {
		t.Fatalf("rows %+v", rows)
	}
	f, err := w.m.findMerge(w.pt(), p, 0)
	if err != nil || len(f.old) != 0 || f.dueMs != quietAt(rows[:2]) || f.settled != 0 {
		t.Fatalf("due %d, not %d; settled %d, %d to merge: %v", f.dueMs, quietAt(rows[:2]), f.settled, len(f.old), err)
	}
	w.clock.advance(25 * time.Hour)
	if err := w.merge(); err != nil || len(w.rows()) != 3 {
		t.Fatalf("%d rows: %v", len(w.rows()), err)
	}
}

// TestMergeLeavesAlone: the segment that log start lies in, and objects of another store.
func TestMergeLeavesAlone(t *testing.T) {
	w := newMergeWorld(t, 40_000, nil)
	w.start()
	defer w.stop()
	w.trickle(20)
	if err := w.meta.AdvanceLogStart(w.ctx, w.part.id, 0, 0, 4); err != nil {
		t.Fatal(err)
	}
	f, err := w.m.findMerge(w.pt(), w.m.mergePolicy(w.part.cfg), 0)
	if err != nil || len(f.old) < 8 || f.old[0].Base != 6 {
		t.Fatalf("%d to merge: %v", len(f.old), err)
	}
	other := newMergeWorld(t, 40_000, nil)
	other.start()
	defer other.stop()
	other.finished(0, 20, "mem:old#p")
	f, err = other.m.findMerge(other.pt(), other.m.mergePolicy(other.part.cfg), 0)
	if err != nil || len(f.old) != 0 || f.dueMs != never {
		t.Fatalf("%d to merge, due %d: %v", len(f.old), f.dueMs, err)
	}
}
