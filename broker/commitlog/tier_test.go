package commitlog

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"varve/protocol"
	"varve/protocol/event"
	"varve/protocol/record"
)

// TestHandOverThroughTheTier: what one replica exports, another starts from.
func TestHandOverThroughTheTier(t *testing.T) {
	e := newEnv(t, NewMemFS(), testConfig())
	l := e.log()
	for i := range 100 {
		_, err := l.AppendAsLeader(idempotent(t, 5, 0, int32(i*3), 3, i >= 90), int32(i/30), OriginClient)
		must(t, err)
	}
	must(t, l.Roll())
	var last *Export
	for from := int64(7); ; from = last.Next {
		ex, err := l.Export(from, l.End())
		must(t, err)
		if ex == nil {
			break
		}
		if ex.Base != from {
			t.Fatalf("export at %d begins at %d", from, ex.Base)
		}
		last = ex
		ex.Close()
	}
	if last.Next != 300 {
		t.Fatalf("exported up to %d", last.Next)
	}
	if _, err := l.Export(301, 400); protocol.CodeOf(err) != protocol.OffsetOutOfRange {
		t.Fatal(err)
	}
	r, err := e.m.Create("replica", testID, 0, e.cfg)
	must(t, err)
	appendN(t, r, 10, 2)
	must(t, r.StartFromTier(last.Next, 40, last.Epochs, last.ProducerSnapshot))
	check := func(r *Log) {
		t.Helper()
		if r.LogStart() != 40 || r.LocalStart() != 300 || r.DurableEnd() < 300 || r.EpochAt(95) != 1 || r.LatestEpoch() != 3 {
			t.Fatal(r.LogStart(), r.LocalStart(), r.End(), r.Epochs())
		}
		if off, open := r.FirstUnstable(); !open || off != 270 {
			t.Fatal(off, open)
		}
		_, err := r.Read(299, 100, 400, true)
		wantCode(t, err, protocol.OffsetOutOfRange)
	}
	check(r)
	e.reopen()
	r, _ = e.m.Get("replica", 0)
	check(r)
	info, err := r.AppendAsLeader(idempotent(t, 5, 0, 297, 3, true), 4, OriginClient)
	if err != nil || !info.Duplicate || info.FirstOffset != 297 {
		t.Fatalf("%+v, %v", info, err)
	}
	_, err = r.AppendAsLeader(idempotent(t, 5, 0, 300, 3, true), 4, OriginClient)
	must(t, err)
	if err := r.StartFromTier(10, 20, nil, nil); err == nil {
		t.Fatal("a log start beyond the end was taken")
	}
	if err := r.StartFromTier(10, 2, nil, []byte("x")); protocol.CodeOf(err) != protocol.KafkaStorageError || r.End() != 303 {
		t.Fatal(err, r.End())
	}
	must(t, e.m.Close(t.Context(), 1))
}

// TestAbortedInWhatIsFreed: whoever read records of a segment that is freed before he asks for aborted transactions must not
// take the remaining segments' for all.
func TestAbortedInWhatIsFreed(t *testing.T) {
	e := newEnv(t, NewMemFS(), testConfig())
	l := e.log()
	for range 3 {
		appendN(t, l, 10, 2)
		must(t, l.Roll())
	}
	_, err := l.AbortedIn(0, 10)
	must(t, err)
	_, err = l.FreeBelow(20)
	must(t, err)
	_, err = l.AbortedIn(19, 30)
	wantCode(t, err, protocol.OffsetOutOfRange)
	_, err = l.AbortedIn(l.LocalStart(), 30)
	must(t, err)
	must(t, e.m.Close(t.Context(), 1))
}

// TestPowerCutOfPartitions: a partition is created, written, deleted and created
// anew under the same name; no life ever shows what belonged to another.
func TestPowerCutOfPartitions(t *testing.T) {
	for _, percent := range []int{0, 50, 100} {
		t.Run(fmt.Sprintf("%d%%", percent), func(t *testing.T) { // one for all cuts: how many there are is not always the same
			for at := 1; powerCutAt(t, percent, at); at++ {
			}
		})
	}
}

// powerCutAt reports whether there was a change to cut the power before.
func powerCutAt(t *testing.T, percent, at int) (cut bool) {
	defer func() {
		if t.Failed() {
			t.Logf("power cut before change %d", at)
		}
	}()
	mem := NewMemFS()
	p := &power{mem: mem, at: at, percent: percent, rng: rngFor(uint64(at))}
	e := &env{t: t, fs: newFaultFS(mem, p.hook), clock: newClock(1_700_000_000_000), rec: &event.Recorder{}, cfg: testConfig()}
	twoLives(e)
	cut = p.off()
	left := p.cut()
	if e.m != nil {
		e.abandon()
	}
	checkLives(t, left)
	return cut && !t.Failed()
}

var firstID, secondID = protocol.UUID{1}, protocol.UUID{2}

// twoLives does as much as the power allows.
func twoLives(e *env) {
	m, err := OpenManager(e.options())
	if err != nil {
		return
	}
	e.m = m
	if m.LoadAll(context.Background(), e.conf) != nil {
		return
	}
	for life, id := range []protocol.UUID{firstID, secondID} {
		l, err := m.Create("t", id, 0, e.cfg)
		if err != nil {
			return
		}
		for i := range 5 - 3*life {
			b := batch(e.t, 4, record.Options{}, int64(life*100+i+1))
			if _, err := l.AppendAsLeader(b, int32(life), OriginClient); err != nil {
				return
			}
		}
		l.SetHighWatermark(l.End())
		if life == 0 && (l.Flush() != nil || l.SetLogStart(9) != nil) || m.Checkpoint() != nil {
			return
		}
		if life == 0 && m.Delete("t", 0) != nil {
			return
		}
	}
}

func checkLives(t *testing.T, fs *MemFS) {
	e := newEnv(t, fs, testConfig())
	l, ok := e.m.Get("t", 0)
	if !ok {
		l = e.log()
	}
	checkLog(t, l)
	var times []int64
	for _, b := range readAll(t, l, l.LocalStart()) {
		times = append(times, b.MaxTimestamp())
	}
	hw := e.m.HighWatermark("t", 0)
	switch l.TopicID() {
	case firstID:
		if slices.ContainsFunc(times, func(ts int64) bool { return ts > 100 }) {
			t.Fatal("the first topic has records of the second", times)
		}
	case secondID:
		if slices.ContainsFunc(times, func(ts int64) bool { return ts < 100 }) || l.LogStart() != 0 || hw > 8 {
			t.Fatal("the second topic has what was the first's", times, l.LogStart(), hw)
		}
	}
	if strays := e.m.Strays(); len(strays) > 0 {
		t.Fatal(strays)
	}
	must(t, e.m.Close(context.Background(), 1))
}

// TestExportPart: ranges that were cut elsewhere are, put together from what the segments here have of them, what a log that is cut
// there exports: bytes, aborted transactions and the producers' state.
func TestExportPart(t *testing.T) {
	e := newEnv(t, NewMemFS(), testConfig())
	here := e.log()
	big := e.cfg
	big.SegmentBytes = 1 << 20
	there, err := e.m.Create("there", testID, 0, big)
	must(t, err)
	for i := range 120 {
		for _, l := range []*Log{here, there} {
			_, err := l.AppendAsLeader(idempotent(t, 5, 0, int32(i*3), 3, true), int32(i/30), OriginClient)
			must(t, err)
			if i%6 == 5 {
				marker := record.EndTxnMarker{ProducerID: 5, TimestampMs: 1_700_000_000_000, Commit: i%12 == 5}.Batch()
				_, err = l.AppendAsLeader(marker, int32(i/30), OriginCoordinator)
				must(t, err)
			}
		}
		if i%17 == 16 {
			must(t, there.Roll())
		}
	}
	parts, ranges := 0, 0
	for from := int64(0); from < there.Segments()[len(there.Segments())-1].Base; {
		want, err := there.Export(from, there.End())
		must(t, err)
		var log, txns, producers []byte
		for at := from; at < want.Next; parts++ {
			p, err := here.ExportPart(at, want.Next)
			must(t, err)
			if p.Base != at || p.Next <= at || p.Next > want.Next {
				t.Fatalf("[%d, %d) of [%d, %d)", p.Base, p.Next, at, want.Next)
			}
			log, txns, producers = append(log, readSpan(t, p.Log)...), append(txns, p.TxnIndex...), p.ProducerSnapshot
			at = p.Next
			p.Close()
		}
		if !slices.Equal(log, readSpan(t, want.Log)) || !slices.Equal(txns, want.TxnIndex) || !slices.Equal(producers, want.ProducerSnapshot) {
			t.Fatalf("[%d, %d): %d bytes and %d of transactions, not %d and %d", from, want.Next, len(log), len(txns), want.Log.Len, len(want.TxnIndex))
		}
		from, ranges = want.Next, ranges+1
		want.Close()
	}
	if segs := len(here.Segments()); ranges != 7 || parts <= ranges {
		t.Fatalf("%d parts of %d segments for %d ranges", parts, segs, ranges)
	}
	_, err = here.ExportPart(0, 4)
	wantCode(t, err, protocol.InvalidRequest)
	_, err = here.ExportPart(0, here.End()+1)
	wantCode(t, err, protocol.OffsetOutOfRange)
}
