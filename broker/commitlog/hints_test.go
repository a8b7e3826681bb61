package commitlog

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/protocol/record"
)

// countReads opens a log on a file system that counts reads of files with this suffix.
func countReads(t *testing.T, suffix string, cfg Config) (*env, *Log, *atomic.Int64) {
	t.Helper()
	n := new(atomic.Int64)
	e := newEnv(t, newFaultFS(NewMemFS(), func(op errorfs.OpKind, path string) error {
		if op == errorfs.OpFileReadAt && strings.HasSuffix(path, suffix) {
			n.Add(1)
		}
		return nil
	}), cfg)
	t.Cleanup(func() { must(t, e.m.Close(context.Background(), 1)) })
	return e, e.log(), n
}

// walk reads a log from off to its end and returns the batches and how many reads it took.
func walk(t *testing.T, l *Log, off int64, maxBytes int) (batches []record.Batch, reads int) {
	t.Helper()
	for off < l.End() {
		s, err := l.Read(off, maxBytes, l.End(), true)
		must(t, err)
		if s.FirstOffset != off {
			t.Fatalf("a read at %d begins at %d", off, s.FirstOffset)
		}
		next := s.NextOffset
		for rest := read(t, s); len(rest) > 0; {
			b, r, err := record.Next(rest)
			must(t, err)
			batches, rest = append(batches, b), r
		}
		if last := batches[len(batches)-1].NextOffset(); last != next || next <= off {
			t.Fatalf("a read at %d says %d comes next, its last batch says %d", off, next, last)
		}
		off = next
		reads++
	}
	return batches, reads
}

// TestReadersGoOnWithoutSearching: a reader that goes on where it stopped reads one header to find where its next answer
// ends, and none at the log's end; the index's block is read once.
func TestReadersGoOnWithoutSearching(t *testing.T) {
	cfg := testConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 1<<20, 4096
	_, l, headers := countReads(t, logSuffix, cfg)
	fill := func(l *Log) {
		for range 80 {
			bl := record.NewBuilder(record.Options{})
			must(t, bl.Add(1_700_000_000_000, nil, make([]byte, 8<<10)))
			b, err := bl.Batch()
			must(t, err)
			_, err = l.AppendAsLeader(b, 0, OriginClient)
			must(t, err)
		}
	}
	fill(l)
	headers.Store(0)
	if batches, reads := walk(t, l, 0, 30<<10); len(batches) != 80 || int(headers.Load()) > 2*reads+2 {
		t.Fatalf("%d batches in %d reads with %d reads of headers or records", len(batches), reads, headers.Load())
	} // one of each two is this test's reading of the records
	appendN(t, l, 1, 1)
	headers.Store(0)
	if _, reads := walk(t, l, 80, 30<<10); reads != 1 || headers.Load() != 1 {
		t.Fatalf("%d reads of the file at the log's end", headers.Load())
	}
	_, l, blocks := countReads(t, indexSuffix, cfg)
	fill(l)
	must(t, l.Roll())
	blocks.Store(0)
	if walk(t, l, 0, 30<<10); blocks.Load() > 2 { // the block's first entry, the block
		t.Fatalf("the index was read %d times", blocks.Load())
	}
}

// TestHintsGoWithTheirSegment: after a truncation, or from other offsets, readers get what is there now.
func TestHintsGoWithTheirSegment(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	cfg := testConfig()
	cfg.SegmentBytes = 16 << 10
	_, l, _ := countReads(t, logSuffix, cfg)
	for range 200 {
		appendN(t, l, 1+rng.IntN(5), 1+rng.IntN(9))
		walk(t, l, l.LocalStart(), 200+rng.IntN(2000))
		if rng.IntN(3) > 0 {
			continue
		}
		must(t, l.TruncateTo(l.End()*int64(rng.IntN(100))/100))
		appendN(t, l, 1+rng.IntN(3), 1+rng.IntN(5))
		want := readAll(t, l, 0)
		got, _ := walk(t, l, 0, 200+rng.IntN(2000))
		if len(got) != len(want) {
			t.Fatalf("%d batches, there are %d", len(got), len(want))
		}
		off := rng.Int64N(l.End())
		s, err := l.Read(off, 1, l.End(), true)
		must(t, err)
		if b := record.Batch(read(t, s)); b.BaseOffset() > off || b.LastOffset() < off {
			t.Fatalf("a read at %d gave %s", off, b)
		}
	}
}

// TestHintBeforeAGap: what follows the log's end need not begin there on a follower; a reader that stopped at the end
// gets it.
func TestHintBeforeAGap(t *testing.T) {
	_, l, _ := countReads(t, logSuffix, testConfig())
	appendN(t, l, 3, 2)
	walk(t, l, 0, 1<<20)
	b := batch(t, 2, record.Options{})
	b.SetBaseOffset(100)
	_, err := l.AppendAsFollower(b)
	must(t, err)
	s, err := l.Read(6, 1<<20, l.End(), true)
	must(t, err)
	if got := record.Batch(read(t, s)); got.BaseOffset() != 100 || s.NextOffset != 102 {
		t.Fatalf("a read at 6 gave %s, then %d", got, s.NextOffset)
	}
}
