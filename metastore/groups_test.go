package metastore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"varve/protocol"
)

// rowsRig writes FINISHED rows past Raft, which would take minutes for as many as there are here.
type rowsRig struct {
	t    testing.TB
	s    *Store
	rnd  *rand.Rand
	rows []RemoteSegment // as they must be
	next int
}

func newRowsRig(t testing.TB, partitions int) *rowsRig {
	s, err := Open(context.Background(), Options{Dir: t.TempDir(), NodeID: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	if _, err := s.Propose(context.Background(), createTopicCmd("t", partitions)); err != nil {
		t.Fatal(err)
	}
	return &rowsRig{t: t, s: s, rnd: rand.New(rand.NewPCG(1, 7))}
}

// write runs fn in one batch.
func (r *rowsRig) write(fn func(tx *tx)) {
	r.t.Helper()
	h, err := r.s.fsm.acquire()
	if err != nil {
		r.t.Fatal(err)
	}
	defer h.release()
	tx := &tx{batch: h.db.NewIndexedBatch(), img: r.s.Image(), locations: []string{"dir:///tier"}}
	fn(tx)
	if tx.broken != nil {
		r.t.Fatal(tx.broken)
	}
	if err := tx.batch.Commit(pebble.NoSync); err != nil {
		r.t.Fatal(err)
	}
	r.s.fsm.locations.Store(&tx.locations)
}

// segment is one of a few offsets whose time is near its number's, or far off.
func (r *rowsRig) segment(partition int32, base, next int64) RemoteSegment {
	r.next++
	s := *segment("t", fmt.Sprintf("s%d", r.next), base, next, 0)
	s.Partition, s.State = partition, SegFinished
	s.MaxTimestamp = next*10 + int64(r.rnd.IntN(400)) - 200
	if r.rnd.IntN(200) == 0 {
		s.MaxTimestamp += 20_000
	}
	s.HasTxns = r.rnd.IntN(300) == 0
	return s
}

func (r *rowsRig) append(tx *tx, n int) {
	at := int64(0)
	if len(r.rows) > 0 {
		at = r.rows[len(r.rows)-1].Next
	}
	for range n {
		s := r.segment(0, at, at+1+int64(r.rnd.IntN(5)))
		at = s.Next
		tx.putRow(segRow{seg: s})
		r.rows = append(r.rows, s)
	}
}

// merge replaces n rows by one, as SegmentReplace does.
func (r *rowsRig) merge(tx *tx, at, n int) {
	old := r.rows[at : at+n]
	s := r.segment(0, old[0].Base, old[n-1].Next)
	for _, o := range old {
		tx.dropRow(segRow{seg: o})
	}
	tx.putRow(segRow{seg: s})
	r.rows = append(append(append([]RemoteSegment{}, r.rows[:at]...), s), r.rows[at+n:]...)
}

// check holds the answers against a walk over all rows.
func (r *rowsRig) check(from, ts int64) {
	r.t.Helper()
	first := func(is func(s RemoteSegment) bool) (id protocol.UUID) {
		for _, s := range r.rows {
			if s.Next > from && is(s) {
				return s.ID
			}
		}
		return id
	}
	seg, _, err := r.s.SegmentByTime(uid("t"), 0, from, ts)
	if want := first(func(s RemoteSegment) bool { return s.MaxTimestamp >= ts }); err != nil || seg.ID != want {
		r.t.Fatalf("from %d at %d: %s %v, want %s", from, ts, uidName(seg.ID), err, uidName(want))
	}
	seg, _, err = r.s.SegmentWithTxns(uid("t"), 0, from)
	if want := first(func(s RemoteSegment) bool { return s.HasTxns }); err != nil || seg.ID != want {
		r.t.Fatalf("transactions from %d: %s %v, want %s", from, uidName(seg.ID), err, uidName(want))
	}
	best, some := int64(0), false
	for _, s := range r.rows {
		if s.Base >= from && (!some || s.MaxTimestamp > best) {
			best, some = s.MaxTimestamp, true
		}
	}
	if got, ok, err := r.s.MaxTimestamp(uid("t"), 0, from); err != nil || ok != some || ok && got != best {
		r.t.Fatalf("highest from %d: %d %v %v, want %d %v", from, got, ok, err, best, some)
	}
}

// TestGroupsUnderChange: searches are exact while rows come, are merged and go.
func TestGroupsUnderChange(t *testing.T) {
	r := newRowsRig(t, 1)
	r.check(0, 0)
	for range 20 {
		r.write(func(tx *tx) {
			switch n := r.rnd.IntN(6); {
			case n < 3 || len(r.rows) < 100:
				r.append(tx, 1+r.rnd.IntN(400))
			case n == 3: // retention
				k := r.rnd.IntN(len(r.rows) / 2)
				for _, s := range r.rows[:k] {
					tx.dropRow(segRow{seg: s})
				}
				r.rows = r.rows[k:]
			default:
				k := 2 + r.rnd.IntN(40)
				r.merge(tx, r.rnd.IntN(len(r.rows)-k), k)
			}
			tx.putRow(segRow{seg: r.rows[0]}) // a second time, as a repeated restore does
		})
		end := r.rows[len(r.rows)-1].Next
		for range 40 {
			from := r.rnd.Int64N(end + 2)
			r.check(from, r.rnd.Int64N(end*10+1000))
		}
		r.check(r.rows[0].Base, end*10)
	}
	r.write(func(tx *tx) {
		for _, s := range r.rows {
			tx.dropRow(segRow{seg: s})
		}
	})
	r.rows = nil
	r.check(0, 0)
	if n := rowCount(t, r.s.fsm.handle.db, nsGroup); n != 0 {
		t.Fatalf("%d groups of no rows", n)
	}
}

// BenchmarkSegmentByTime searches one partition of 100,000 segments, and 1,000 partitions of 1,000.
func BenchmarkSegmentByTime(b *testing.B) {
	for _, c := range []struct{ partitions, segments int }{{1, 100_000}, {1000, 1000}} {
		b.Run(fmt.Sprintf("%dx%d", c.partitions, c.segments), func(b *testing.B) {
			r := newRowsRig(b, c.partitions)
			r.fill(c.partitions, c.segments)
			end := int64(c.segments)
			for b.Loop() {
				if _, _, err := r.s.SegmentByTime(uid("t"), int32(r.rnd.IntN(c.partitions)), 0, r.rnd.Int64N(end*10)); err != nil {
					b.Fatal(err)
				}
			}
			began := time.Now()
			if _, ok, err := r.s.MaxTimestamp(uid("t"), 0, 0); err != nil || !ok {
				b.Fatal(ok, err)
			}
			b.ReportMetric(float64(time.Since(began).Microseconds()), "µs/max")
		})
	}
}

// fill writes that many segments of one offset into each partition.
func (r *rowsRig) fill(partitions, segments int) {
	for p := range int32(partitions) {
		for at := int64(0); at < int64(segments); {
			r.write(func(tx *tx) {
				for end := at + 1000; at < end; at++ {
					tx.putRow(segRow{seg: r.segment(p, at, at+1)})
				}
			})
		}
	}
}

// TestTimeLookupReads: a search in 10,000 segments reads a small part of them.
func TestTimeLookupReads(t *testing.T) {
	r := newRowsRig(t, 1)
	r.fill(1, 10_000)
	w, err := r.s.walk(uid("t"), 0)
	if err != nil {
		t.Fatal(err)
	}
	groups, rows := 0, 0
	for ok := w.groupAt(0); ok; ok = w.groups.Next() {
		g, _ := w.group()
		groups, rows = groups+1, rows+int(g.rows)
	}
	if w.close(); groups != (10_000+maxGroupRows-1)/maxGroupRows || rows != 10_000 {
		t.Fatalf("%d groups of %d rows", groups, rows)
	}
}
