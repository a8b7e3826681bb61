package commitlog

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"varve/protocol"
	"varve/protocol/record"
)

// idempotent builds a batch of n records.
func idempotent(t testing.TB, id int64, epoch int16, seq int32, n int, txn bool) record.Batch {
	return batch(t, n, record.Options{Producer: &record.Producer{ID: id, Epoch: epoch, BaseSequence: seq}, Transactional: txn})
}

func TestIdempotentProducerRules(t *testing.T) {
	e := newEnv(t, NewMemFS(), testConfig())
	l := e.log()
	for i, c := range []struct {
		epoch int16
		seq   int32
		n     int
		code  protocol.ErrorCode
		first int64
		dup   bool
	}{
		{0, 77, 3, 0, 0, false},                                 // an unknown producer may begin anywhere
		{0, 80, 2, 0, 3, false},                                 //
		{0, 83, 1, protocol.OutOfOrderSequenceNumber, 0, false}, // gap
		{0, 81, 1, protocol.OutOfOrderSequenceNumber, 0, false}, // part of one before
		{0, 77, 3, 0, 0, true},                                  // again
		{0, 82, 1, 0, 5, false},                                 //
		{0, 83, 1, 0, 6, false},                                 //
		{0, 84, 1, 0, 7, false},                                 //
		{0, 77, 3, 0, 0, true},                                  // the fifth last
		{0, 85, 1, 0, 8, false},                                 //
		{0, 77, 3, protocol.OutOfOrderSequenceNumber, 0, false}, // no longer known
		{0, 80, 2, 0, 3, true},                                  //
		{1, 5, 1, protocol.OutOfOrderSequenceNumber, 0, false},  // a new epoch begins at 0
		{1, 0, 1, 0, 9, false},                                  //
		{0, 86, 1, protocol.InvalidProducerEpoch, 0, false},     // fenced
		{1, 0, 1, 0, 9, true},                                   //
		{1, 1, 1, 0, 10, false},                                 //
	} {
		info, err := l.AppendAsLeader(idempotent(t, 9, c.epoch, c.seq, c.n, false), 0, OriginClient)
		if protocol.CodeOf(err) != c.code || (err == nil && (info.FirstOffset != c.first || info.Duplicate != c.dup || info.LastOffset != c.first+int64(c.n)-1)) {
			t.Fatalf("step %d: %+v, %v", i, info, err)
		}
		if i%5 == 4 {
			e.reopen() // the state is that of the snapshot
			l = e.log()
			if p := l.Producers()[0]; c.code == 0 && p.Epoch != c.epoch {
				t.Fatalf("step %d: %+v", i, p)
			}
			replayFromLog(t, e)
			l = e.log()
		}
	}
	must(t, e.m.Close(t.Context(), 1))
}

// replayFromLog restarts without snapshots, so that all batches are known again.
func replayFromLog(t *testing.T, e *env) {
	t.Helper()
	must(t, e.m.Close(t.Context(), 1))
	names, err := e.fs.List(testDir + "/t-0")
	must(t, err)
	for _, name := range names {
		if _, suffix, ok := parseFileName(name); ok && suffix == snapshotSuffix {
			must(t, e.fs.Remove(testDir+"/t-0/"+name))
		}
	}
	e.open()
}

func TestSequenceWraps(t *testing.T) {
	e := newEnv(t, NewMemFS(), testConfig())
	l := e.log()
	for i, c := range []struct {
		seq  int32
		n    int
		code protocol.ErrorCode
	}{
		{math.MaxInt32 - 1, 2, 0},
		{0, 1, 0},
		{1, 1, 0},
		{math.MaxInt32 - 1, 2, 0}, // a duplicate across the wrap
		{0, 2, protocol.OutOfOrderSequenceNumber},
	} {
		_, err := l.AppendAsLeader(idempotent(t, 9, 0, c.seq, c.n, false), 0, OriginClient)
		if protocol.CodeOf(err) != c.code {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	_, err := l.AppendAsLeader(idempotent(t, 10, 0, math.MaxInt32-2, 5, false), 0, OriginClient)
	must(t, err)
	if p := l.Producers()[1]; p.LastSequence != 1 {
		t.Fatalf("%+v", p)
	}
	info, err := l.AppendAsLeader(idempotent(t, 10, 0, math.MaxInt32-2, 5, false), 0, OriginClient)
	if err != nil || !info.Duplicate {
		t.Fatalf("%+v, %v", info, err)
	}
	must(t, e.m.Close(t.Context(), 1))
}

func TestProducersExpireByTheBrokersClock(t *testing.T) {
	cfg := testConfig()
	cfg.ProducerIDExpirationMs = 1000
	e := newEnv(t, NewMemFS(), cfg)
	l := e.log()
	appendOK := func(id int64, seq int32, txn bool) {
		_, err := l.AppendAsLeader(idempotent(t, id, 0, seq, 1, txn), 0, OriginClient)
		must(t, err)
	}
	appendOK(1, 0, false)
	appendOK(2, 0, true)
	e.clock.add(999)
	appendOK(3, 0, false)
	l.expireProducers(e.clock.get())
	if n := len(l.Producers()); n != 3 {
		t.Fatalf("%d producers", n)
	}
	e.clock.add(1)
	l.expireProducers(e.clock.get())
	if p := l.Producers(); len(p) != 2 || p[0].ProducerID != 2 {
		t.Fatalf("%+v", p) // an open transaction does not expire
	}
	appendOK(1, 500, false)
	must(t, e.m.Close(t.Context(), 1))
}

// marker ends a transaction.
func marker(t testing.TB, l *Log, id int64, epoch int16, coordinator int32, commit bool) (AppendInfo, error) {
	return l.AppendAsLeader(record.EndTxnMarker{ProducerID: id, ProducerEpoch: epoch, CoordinatorEpoch: coordinator,
		TimestampMs: 1_700_000_000_000, Commit: commit}.Batch(), 0, OriginCoordinator)
}

func wantStable(t *testing.T, l *Log, hw, want int64) {
	t.Helper()
	if got := l.LastStable(hw); got != want {
		t.Fatalf("last stable offset with high watermark %d is %d, want %d", hw, got, want)
	}
}

func TestTransactions(t *testing.T) {
	e := newEnv(t, NewMemFS(), testConfig())
	l := e.log()
	ok := func(info AppendInfo, err error) { t.Helper(); must(t, err) }
	appendN(t, l, 1, 5)                                                    // [0,5)
	ok(l.AppendAsLeader(idempotent(t, 1, 0, 0, 5, true), 0, OriginClient)) // [5,10)
	ok(l.AppendAsLeader(idempotent(t, 2, 0, 0, 5, true), 0, OriginClient)) // [10,15)
	if off, open := l.FirstUnstable(); off != 5 || !open {
		t.Fatal(off, open)
	}
	wantStable(t, l, 3, 3)
	wantStable(t, l, 15, 5)
	_, err := l.AppendAsLeader(idempotent(t, 1, 0, 5, 1, false), 0, OriginClient)
	wantCode(t, err, protocol.InvalidTxnState)
	ok(marker(t, l, 1, 0, 3, false)) // 15, aborts [5,10)
	wantStable(t, l, 15, 5)          // the marker is not replicated yet
	wantStable(t, l, 16, 10)
	_, err = marker(t, l, 1, 0, 2, false)
	wantCode(t, err, protocol.TransactionCoordinatorFenced)
	ok(marker(t, l, 2, 0, 3, true)) // 16
	wantStable(t, l, 16, 10)
	wantStable(t, l, 17, 17)
	ok(l.AppendAsLeader(idempotent(t, 2, 0, 5, 2, true), 0, OriginClient)) // [17,19)
	ok(marker(t, l, 2, 1, 3, false))                                       // 19, at a raised epoch
	_, err = l.AppendAsLeader(idempotent(t, 2, 0, 7, 1, true), 0, OriginClient)
	wantCode(t, err, protocol.InvalidProducerEpoch)
	wantStable(t, l, 20, 20)
	checkAborted(t, l)
	must(t, l.Roll())
	checkAborted(t, l)
	e.reopen()
	l = e.log()
	checkAborted(t, l)
	wantStable(t, l, 20, 20)
	ok(l.AppendAsLeader(idempotent(t, 1, 0, 5, 1, true), 0, OriginClient)) // 20
	e.reopen()
	l = e.log()
	wantStable(t, l, 21, 20)
	must(t, l.TruncateTo(20))
	wantStable(t, l, 20, 20)
	must(t, l.TruncateTo(15))
	wantStable(t, l, 15, 5)
	must(t, e.m.Close(t.Context(), 1))
}

func checkAborted(t *testing.T, l *Log) {
	t.Helper()
	for _, c := range []struct {
		from, to int64
		want     string
	}{
		{0, 20, "[{1 5 15 10} {2 17 19 20}]"},
		{0, 5, "[]"},
		{0, 6, "[{1 5 15 10}]"},
		{15, 17, "[{1 5 15 10}]"},
		{16, 20, "[{2 17 19 20}]"},
		{20, 30, "[]"},
	} {
		got, err := l.AbortedIn(c.from, c.to)
		must(t, err)
		if s := fmt.Sprint(got); s != c.want && (len(got) > 0 || c.want != "[]") {
			t.Fatalf("aborted in [%d,%d): %s, want %s", c.from, c.to, s, c.want)
		}
	}
}

// TestRetriesAfterACrash: a client with five requests in flight whose replies a crash took away sends all five again. Each is
// known, though the segment was sealed in between and the snapshot is all that is left of the first ones.
func TestRetriesAfterACrash(t *testing.T) {
	for _, freed := range []bool{false, true} {
		e := newEnv(t, NewMemFS(), testConfig())
		l := e.log()
		for seq := range int32(8) {
			_, err := l.AppendAsLeader(idempotent(t, 7, 0, seq, 1, false), 0, OriginClient)
			must(t, err)
			if seq == 6 {
				must(t, l.Roll())
			}
		}
		if freed {
			_, err := l.FreeBelow(7)
			must(t, err)
		}
		must(t, l.Flush())
		must(t, e.m.Checkpoint())
		e.reopen()
		l = e.log()
		for seq := int32(3); seq < 8; seq++ {
			info, err := l.AppendAsLeader(idempotent(t, 7, 0, seq, 1, false), 0, OriginClient)
			if err != nil || !info.Duplicate || info.FirstOffset != int64(seq) {
				t.Fatalf("retry of %d: %+v, %v", seq, info, err)
			}
		}
		must(t, e.m.Close(t.Context(), 1))
	}
}

func TestSnapshotRoundTrip(t *testing.T) {
	ps := newProducers()
	ps.apply(idempotent(t, 7, 3, 10, 4, true), endMarker{}, 99)
	ps.apply(idempotent(t, 8, 0, 0, 1, false), endMarker{}, 50)
	data := ps.encode()
	got, err := decodeProducers(data, "x")
	must(t, err)
	if !slices.Equal(got.infos(), ps.infos()) || got.firstUnstable.Load() != 0 {
		t.Fatalf("%+v", got.infos())
	}
	if !slices.Equal(got.encode(), data) {
		t.Fatal("encodes differently")
	}
	for i := range data {
		bad := slices.Clone(data)
		bad[i] ^= 1
		if _, err := decodeProducers(bad, "x"); protocol.CodeOf(err) != protocol.KafkaStorageError {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
}
