package commitlog

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"varve/protocol"
	"varve/protocol/event"
	"varve/protocol/record"
)

var testID = protocol.UUID{1, 2, 3}

const testDir = "/data/log"

// clock is a settable time.
type clock struct{ ms atomic.Int64 }

func newClock(ms int64) *clock {
	c := &clock{}
	c.ms.Store(ms)
	return c
}

func (c *clock) now() time.Time { return time.UnixMilli(c.ms.Load()) }
func (c *clock) get() int64     { return c.ms.Load() }
func (c *clock) add(ms int64)   { c.ms.Add(ms) }

// env is one life of a log directory.
type env struct {
	t     testing.TB
	fs    FS
	clock *clock
	rec   *event.Recorder
	m     *Manager
	cfg   Config
}

func testConfig() Config {
	c := DefaultConfig()
	c.SegmentBytes = 4096
	c.IndexIntervalBytes = 200
	c.FileDeleteDelayMs = 0
	c.TimestampAfterMaxMs = 1 << 60
	return c
}

func newEnv(t testing.TB, fs FS, cfg Config) *env {
	t.Helper()
	e := &env{t: t, fs: fs, clock: newClock(1_700_000_000_000), rec: &event.Recorder{}, cfg: cfg}
	e.open()
	return e
}

func (e *env) options() ManagerOptions {
	return ManagerOptions{FS: e.fs, Dir: testDir, NodeID: 1, ClusterID: "c", Now: e.clock.now, Events: e.rec.Emit, FlushThreads: 1, RecoveryThreads: 1}
}

func (e *env) open() {
	e.t.Helper()
	m, err := OpenManager(e.options())
	must(e.t, err)
	e.m = m
	must(e.t, m.LoadAll(context.Background(), func(string, protocol.UUID, int32) Config { return e.cfg }))
}

// reopen closes cleanly and opens again.
func (e *env) reopen() {
	e.t.Helper()
	must(e.t, e.m.Close(context.Background(), 7))
	e.open()
}

// crash opens what a power cut leaves. The old manager is stopped without being
// able to change it.
func (e *env) crash(fs FS) {
	e.t.Helper()
	e.abandon()
	e.fs = fs
	e.open()
}

// abandon stops the manager's goroutines without closing anything.
func (e *env) abandon() {
	e.m.mu.Lock()
	e.m.closed = true
	e.m.mu.Unlock()
	e.m.cancel()
	e.m.wg.Wait()
	e.m.flusher.stop()
	_ = e.m.lock.Close()
}

func (e *env) log() *Log {
	e.t.Helper()
	l, err := e.m.Create("t", testID, 0, e.cfg)
	must(e.t, err)
	return l
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, code protocol.ErrorCode) {
	t.Helper()
	if protocol.CodeOf(err) != code {
		t.Fatalf("error is %v, want %s", err, code.Name())
	}
}

// batch builds one with n records of these timestamps (the last repeats).
func batch(t testing.TB, n int, opts record.Options, ts ...int64) record.Batch {
	t.Helper()
	bl := record.NewBuilder(opts)
	for i := range n {
		at := int64(1_700_000_000_000)
		if len(ts) > 0 {
			at = ts[min(i, len(ts)-1)]
		}
		must(t, bl.Add(at, fmt.Appendf(nil, "k%d", i), fmt.Appendf(nil, "value-%d-%d", i, at)))
	}
	b, err := bl.Batch()
	must(t, err)
	return b
}

func appendN(t testing.TB, l *Log, batches, records int) {
	t.Helper()
	for range batches {
		_, err := l.AppendAsLeader(batch(t, records, record.Options{}), max(l.LatestEpoch(), 0), OriginClient)
		must(t, err)
	}
}

func read(t testing.TB, s Slice) []byte {
	t.Helper()
	if s.Len == 0 {
		return nil
	}
	buf := make([]byte, s.Len)
	if n, err := s.File.ReadAt(buf, s.Off); n < len(buf) {
		t.Fatalf("slice of %d bytes gave %d: %v", s.Len, n, err)
	}
	s.Release()
	return buf
}

// readAll reads every batch from off on and checks that they are whole and in order.
func readAll(t testing.TB, l *Log, off int64) []record.Batch {
	t.Helper()
	var out []record.Batch
	for off < l.End() {
		s, err := l.Read(off, 700, l.End(), true)
		must(t, err)
		if s.Len == 0 {
			t.Fatalf("nothing at %d of %d", off, l.End())
		}
		next := s.NextOffset
		for rest := read(t, s); len(rest) > 0; {
			b, r, err := record.Next(rest)
			if err == io.EOF {
				break
			}
			must(t, err)
			must(t, b.CheckCRC())
			out = append(out, b)
			rest = r
		}
		if last := out[len(out)-1].NextOffset(); last != next {
			t.Fatalf("read says %d comes next, the last batch says %d", next, last)
		}
		off = next
	}
	return out
}

// checkLog holds a log against its invariants: contiguous offsets, indexes that
// agree with the log, epochs in order, End right.
func checkLog(t testing.TB, l *Log) {
	t.Helper()
	next := l.segments()[0].base
	for _, s := range l.segments() {
		next = checkSegment(t, s, next)
	}
	if next != l.End() {
		t.Fatalf("segments end at %d, the log at %d", next, l.End())
	}
	if l.recoveryPoint.Load() > l.End() || l.LogStart() > l.End() {
		t.Fatalf("recovery point %d, log start %d, end %d", l.recoveryPoint.Load(), l.LogStart(), l.End())
	}
	must(t, checkEpochs(l.Epochs(), "memory"))
	for _, e := range l.Epochs() {
		if e.Start > l.End() {
			t.Fatalf("epoch %d begins at %d, beyond the end %d", e.Epoch, e.Start, l.End())
		}
	}
}

func checkSegment(t testing.TB, s *segment, next int64) int64 {
	t.Helper()
	must(t, s.log.acquire())
	defer s.log.release()
	ends := map[int64]int64{} // position -> last offset
	maxTs := map[int64]int64{}
	top := int64(record.NoTimestamp)
	scan := batchScan{src: s.log, end: s.size()}
	for {
		b, pos, err := scan.next()
		if err == io.EOF {
			break
		}
		must(t, err)
		must(t, b.CheckCRC())
		if b.BaseOffset() != next {
			t.Fatalf("%s: batch at %d, expected %d", s.log.path, b.BaseOffset(), next)
		}
		next = b.NextOffset()
		top = max(top, b.MaxTimestamp())
		ends[pos], maxTs[b.LastOffset()] = b.LastOffset(), top
	}
	if next != s.next() || top != s.maxTimestamp.Load() {
		t.Fatalf("%s: ends at %d with max timestamp %d, says %d and %d", s.log.path, next, top, s.next(), s.maxTimestamp.Load())
	}
	checkIndexes(t, s, ends, maxTs)
	return next
}

func checkIndexes(t testing.TB, s *segment, ends, maxTs map[int64]int64) {
	t.Helper()
	entries, err := s.offsets.bytes(0, s.offsets.count())
	must(t, err)
	prev := int64(-1)
	for ; len(entries) > 0; entries = entries[offsetEntryBytes:] {
		rel, pos := offsetEntry(entries)
		if last, ok := ends[pos]; !ok || last != s.base+rel || last <= prev {
			t.Fatalf("%s: index entry %d at %d, the log has %d there", s.log.path, s.base+rel, pos, last)
		}
		prev = s.base + rel
	}
	times, err := s.times.bytes(0, s.times.count())
	must(t, err)
	prev = record.NoTimestamp
	for ; len(times) > 0; times = times[timeEntryBytes:] {
		ts, rel := timeEntry(times)
		if got, ok := maxTs[s.base+rel]; !ok || got != ts || ts <= prev {
			t.Fatalf("%s: time index entry (%d, %d), the log has %d there", s.log.path, ts, s.base+rel, got)
		}
		prev = ts
	}
}
