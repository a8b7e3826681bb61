package tiering

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"varve/metastore"
	"varve/protocol"
	"varve/tiering/objstore"
)

// TestPartRows: whatever is in memory and in the file, a row is found, replaced, and seen once in its order; no more than the bound is in
// memory, and the file has no name.
func TestPartRows(t *testing.T) {
	for _, max := range []int{1, 3, 40, 10_000} {
		dir := t.TempDir()
		rnd := rand.New(rand.NewPCG(1, uint64(max)))
		p := newPartRows(partKey{protocol.UUID{7}, 2}, dir, max)
		want := map[rowKey]metastore.RemoteSegment{}
		ids := []protocol.UUID{protocol.NewUUID(), protocol.NewUUID(), protocol.NewUUID()}
		for range 3000 {
			r := metastore.RemoteSegment{ID: ids[rnd.IntN(len(ids))], TopicID: p.key.topic, Partition: 2, Base: rnd.Int64N(300), LogBytes: rnd.Int64(),
				State: metastore.SegFinished, Location: fmt.Sprint("at ", rnd.IntN(4))}
			if r.Next = r.Base + 5; rnd.IntN(2) == 0 {
				r.State, r.DeleteIndex, r.NeverFinished = metastore.SegDeleteStarted, rnd.Uint64(), true
			}
			has, found, err := p.get(keyOf(&r))
			if was, ok := want[keyOf(&r)]; err != nil || ok != found || fmt.Sprint(was) != fmt.Sprint(has) {
				t.Fatalf("bound %d: %+v, %v, was %+v, %v: %v", max, has, found, was, ok, err)
			}
			want[keyOf(&r)] = r
			if err := p.put(r); err != nil || len(p.mem) > max {
				t.Fatalf("%d rows in memory of %d: %v", len(p.mem), max, err)
			}
		}
		at, seen := int64(math.MinInt64), 0
		var last *metastore.RemoteSegment
		err := p.windows(func(rows []metastore.RemoteSegment, from, to int64) error {
			if from != at || len(rows) > max+len(ids) {
				t.Fatalf("bound %d: a window of %d rows from %d, the one before ended at %d", max, len(rows), from, at)
			}
			at = to
			for _, r := range rows {
				if r.Base < from || r.Base >= to || last != nil && compareRows(*last, r) >= 0 || fmt.Sprint(want[keyOf(&r)]) != fmt.Sprint(r) {
					t.Fatalf("bound %d: %+v in [%d, %d), expected %+v", max, r, from, to, want[keyOf(&r)])
				}
				last, seen = &r, seen+1
			}
			return nil
		})
		if left, lerr := os.ReadDir(dir); err != nil || lerr != nil || len(left) != 0 || seen != len(want) || at != math.MaxInt64 {
			t.Fatalf("bound %d: %d of %d rows, up to %d, files %v: %v %v", max, seen, len(want), at, left, err, lerr)
		}
		p.close()
		p.close()
	}
	if err := newPartRows(partKey{}, "/none", 1).put(metastore.RemoteSegment{}); err == nil {
		t.Fatal("no file, and no error")
	}
}

// settleCase is a partition of 60 segments in the folders of two clusters, and what is to come of it.
type settleCase struct {
	store            *objstore.Mem
	rows             []metastore.RemoteSegment
	gone, sized      int // in the middle
	head, tail       int // gone at both ends
	strays           map[protocol.UUID]bool
	pending, missing int
	logStart, end    int64
}

const settleKept = 60

// newSettleCase mixes objects that LIST does not show, that are gone, that have another size and that nobody names.
func newSettleCase(t *testing.T, rnd *rand.Rand, key partKey) *settleCase {
	c := &settleCase{store: objstore.NewMem(time.Now), strays: map[protocol.UUID]bool{}, head: rnd.IntN(20), tail: rnd.IntN(7)}
	put := func(r metastore.RemoteSegment, size int) {
		cluster := cmp.Or(clusterIn(r.Location), "c")
		if _, err := c.store.Put(t.Context(), segmentKeyIn("p", cluster, &r), objstore.BytesBody(make([]byte, size)), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	n := int64(c.head + settleKept + c.tail)
	for i := range n {
		at := int(i) - c.head
		r := metastore.RemoteSegment{ID: protocol.NewUUID(), TopicID: key.topic, Partition: key.partition, Base: 10 * i, Next: 10*i + 10, ObjectBytes: 7, LogBytes: 3, State: metastore.SegFinished}
		if rnd.IntN(3) == 0 {
			r.Location = "mem:#p//older"
		}
		c.rows = append(c.rows, r)
		switch what := rnd.IntN(12); {
		case at < 0 || at >= settleKept:
			c.missing++
		case what == 0 && at > 0 && at < settleKept-1:
			c.gone, c.missing = c.gone+1, c.missing+1
		case what == 1:
			c.sized++
			put(r, 8)
		default:
			put(r, 7)
		}
		if r.ID, r.Location = protocol.NewUUID(), ""; rnd.IntN(6) == 0 {
			put(r, 7)
			c.strays[r.ID] = true
		}
		if r.ID = protocol.NewUUID(); rnd.IntN(6) == 0 {
			r.State = metastore.SegDeleteStarted
			c.rows, c.pending = append(c.rows, r), c.pending+1
			put(r, 7)
		}
	}
	c.logStart, c.end = 10*int64(c.head), 10*(n-int64(c.tail))
	rnd.Shuffle(len(c.rows), func(i, j int) { c.rows[i], c.rows[j] = c.rows[j], c.rows[i] })
	return c
}

// settle hands on what comes of it when max rows may be in memory.
func (c *settleCase) settle(t *testing.T, key partKey, max int, dead bool) (p *sourcePartition, out []metastore.RemoteSegment) {
	t.Helper()
	p = &sourcePartition{key: key, name: "t", cluster: "c", dead: dead, state: metastore.TierState{End: c.end + 10*int64(c.tail)}, rows: newPartRows(key, t.TempDir(), max)}
	defer p.rows.close()
	for _, r := range c.rows {
		if err := p.rows.add(r); err != nil {
			t.Fatal(err)
		}
	}
	over := false
	err := p.settle(t.Context(), c.store, "p", 99, func(rows []metastore.RemoteSegment, last bool) error {
		if over || len(rows) > maxRowsInCommand {
			t.Fatalf("%d rows, %v", len(rows), over)
		}
		out, over = append(out, rows...), last
		return nil
	})
	if err != nil || !over {
		t.Fatal(err, over)
	}
	slices.SortFunc(out, compareRows)
	slices.Sort(p.found)
	return p, out
}

// TestRestoreSettle: rows in the folders of two clusters, objects that LIST keeps back, that are gone, that have another size and that
// nobody names are told apart however they are mixed, and however few rows may be in memory.
func TestRestoreSettle(t *testing.T) {
	key := partKey{protocol.UUID{3}, 1}
	for seed := range uint64(40) {
		c := newSettleCase(t, rand.New(rand.NewPCG(seed, 1)), key)
		whole, rows := c.settle(t, key, restoreRowsInMemory, false)
		wide := 0
		if c.head+c.tail > 0 {
			wide = 1 // the line about both ends
		}
		strays := 0
		for _, r := range rows {
			if r.FirstTimestamp == -1 && c.strays[r.ID] && r.State == metastore.SegDeleteStarted {
				strays++
			}
		}
		if st := whole.state; whole.missing != c.missing || whole.unlisted != len(c.strays) || strays != len(c.strays) || int(whole.dying) != c.pending ||
			len(whole.found) != c.gone+c.sized+wide || st.Count != settleKept || st.Bytes != 3*settleKept || st.LogStart != c.logStart || st.End != c.end ||
			len(rows) != settleKept+c.pending+len(c.strays) {
			t.Fatalf("seed %d: %+v of %+v: %s", seed, whole, c, whole.found)
		}
		for _, max := range []int{7, 20} {
			few, same := c.settle(t, key, max, false)
			if fmt.Sprint(rows) != fmt.Sprint(same) || fmt.Sprint(whole.state, whole.found, whole.missing, whole.unlisted, whole.dying) !=
				fmt.Sprint(few.state, few.found, few.missing, few.unlisted, few.dying) {
				t.Fatalf("seed %d: with %d rows in memory %+v, not %+v", seed, max, few, whole)
			}
		}
		dead, all := c.settle(t, key, 7, true)
		for _, r := range all {
			if r.State != metastore.SegDeleteStarted {
				t.Fatalf("seed %d: %+v of a deleted topic", seed, r)
			}
		}
		if len(all) != settleKept-c.gone+c.pending+len(c.strays) || dead.state.Count != 0 || dead.state.End != 0 || dead.missing != c.missing {
			t.Fatalf("seed %d: %d rows of a deleted topic, %+v", seed, len(all), dead)
		}
	}
}

// TestRestoreLosesManyInARow: more segments at the end than may be held back stay, and are told of.
func TestRestoreLosesManyInARow(t *testing.T) {
	key := partKey{protocol.UUID{3}, 1}
	c := newSettleCase(t, rand.New(rand.NewPCG(5, 5)), key)
	for range 10 {
		base := c.end + 10*int64(c.tail)
		c.tail++
		c.rows = append(c.rows, metastore.RemoteSegment{ID: protocol.NewUUID(), TopicID: key.topic, Partition: 1, Base: base, Next: base + 10, ObjectBytes: 7, LogBytes: 3, State: metastore.SegFinished})
	}
	p, _ := c.settle(t, key, 4, false)
	if p.state.End < c.end+40 || p.state.Count < settleKept+4 || int(p.state.Count) >= settleKept+c.tail {
		t.Fatalf("%+v: %v", p.state, p.found)
	}
}

// TestRestoreFewRowsInMemory: a restore that may hold three rows of a partition brings back what any other does.
func TestRestoreFewRowsInMemory(t *testing.T) {
	w, _ := newSource(t)
	w.opts.CacheDir = t.TempDir()
	w.settled(60)
	w.snapshot()
	w.settled(60) // in the journal only
	if st, err := w.meta.Tier(w.part.id, 0); err != nil || st.Count < 9 {
		t.Fatalf("%+v: %v", st, err)
	}
	g := newTarget(t, w, "new")
	id := g.begin(RestoreRequest{})
	if err := g.m.restoreClaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	src, rep := g.m.source()
	defer src.free()
	src.(*restoreSource).rowsInMemory = 3
	sink := &importSink{m: g.m, id: g.meta.Image().Restore().ID, rep: rep, fill: true}
	if err := src.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := src.run(t.Context(), sink, restorePartitions); err != nil {
		t.Fatal(err)
	}
	if err := sink.whole(t.Context(), src, true); err != nil {
		t.Fatal(err)
	}
	if err := g.m.restoreAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.same()
	g.listed()
	if left, err := os.ReadDir(w.opts.CacheDir); err != nil || slices.ContainsFunc(left, func(e os.DirEntry) bool { return e.Name()[:5] == "varve" }) || g.report(id) == nil {
		t.Fatalf("%v: %v", left, err)
	}
}
