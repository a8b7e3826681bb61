package tiering

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"varve/protocol"
	"varve/tiering/objstore"
)

// TestReadersBeforeReadAhead: under a bound on what the store brings, whoever is waited for comes before what is fetched
// ahead, be it of another reader or of the same one; and so does a fill that had not yet begun when a reader came for it.
func TestReadersBeforeReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 1 << 20
		b := objstore.NewBandwidth(0, 0)
		r := newReadRig(t, 1, 1200, 20_000, func(o *Options) { o.Store = objstore.WithBandwidth(o.Store, b) })
		res, err := r.read(0, 100_000, true)
		if err != nil || !bytes.HasPrefix(r.log, joined(res)) {
			t.Fatal(err)
		}
		at := res.NextOffset
		r.fills.wg.Wait()
		s := r.streams.find(place{readTopic, 0, at})
		s.mu.Lock()
		s.window = 64 // chunks: four GETs
		s.mu.Unlock()
		b.Set(0, rate)
		r.pump(s)
		timed := func(what string, off int64, maxBytes int, most time.Duration) {
			t.Helper()
			start := time.Now()
			res, err := r.read(off, maxBytes, true)
			took := time.Since(start)
			if pos := r.at[off/3]; err != nil || !bytes.HasPrefix(r.log[pos:], joined(res)) || res.NextOffset == off {
				t.Fatalf("%s: %v", what, err)
			}
			if took > most {
				t.Errorf("%s came after %v, not %v", what, took, most)
			}
		}
		time.Sleep(100 * time.Millisecond)
		// Two chunks at most, alone: a fourth of a second. In turns with four others it would be more than one.
		timed("another reader", 3*1100, 100_000, 400*time.Millisecond)
		// Five chunks of the first GET, of which a part is there: the other three GETs do not share in the time.
		timed("the reader itself", at, 700_000, 800*time.Millisecond)

		// All slots for read-ahead are taken by fills that do not move; what a reader comes for needs none of them.
		for range maxAheadFills {
			r.fills.ahead <- struct{}{}
		}
		b.Set(0, 0)
		var far *memChunk
		row := r.meta.rows[0]
		x, err := r.index(context.Background(), row)
		if err != nil {
			t.Fatal(err)
		}
		k := blockKey{row.ID, r.at[1000] / chunkBytes}
		if _, fresh, _ := r.mem.wantAhead(s, k, 4, r.sameSource); len(fresh) == 4 {
			far = fresh[0]
			r.fill(run{row: row, x: x, chunks: fresh, ahead: true, flow: &s.flow})
		}
		synctest.Wait()
		select {
		case <-far.ready:
			t.Error("read-ahead needed no slot")
		default:
		}
		timed("what had not begun", 3*1000, 100_000, 10*time.Millisecond)
		for range maxAheadFills {
			<-r.fills.ahead
		}
	})
}

// TestHeldAnswersStay: what a client has not read yet keeps its bytes, whatever others read meanwhile, and gives its memory
// back when the client has it, or is gone.
func TestHeldAnswersStay(t *testing.T) {
	r := newReadRig(t, 1, 1200, 20_000, func(o *Options) { o.ReadMemoryBytes = 16 << 20 })
	type answer struct {
		res ReadResult
		pos int
	}
	var held []answer
	for i := range 4 {
		res, err := r.read(int64(3*i*40), 1<<20, true)
		if err != nil || protocol.SpansLen(res.Spans) < 1<<20-30_000 {
			t.Fatalf("%d bytes: %v", protocol.SpansLen(res.Spans), err)
		}
		held = append(held, answer{res, r.at[i*40]})
	}
	if got := r.readAll(t, 3*200, 1<<20); !bytes.Equal(got, r.log[r.at[200]:]) {
		t.Fatal("bytes differ")
	}
	for i, a := range held {
		var b []byte
		for _, s := range a.res.Spans {
			b = append(b, s.Bytes...)
		}
		if !bytes.HasPrefix(r.log[a.pos:], b) {
			t.Errorf("answer %d changed while it was held", i)
		}
		protocol.ReleaseSpans(a.res.Spans)
	}
	r.fills.wg.Wait()
	r.mem.mu.Lock()
	defer r.mem.mu.Unlock()
	if kept := r.mem.passed.Len() + r.mem.unread.Len(); kept != r.mem.count || kept != len(r.mem.chunks) {
		t.Errorf("%d chunks are kept, %d counted, %d filed", kept, r.mem.count, len(r.mem.chunks))
	}
}
