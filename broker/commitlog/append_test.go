package commitlog

import (
	"math"
	"runtime"
	"testing"
	"time"

	"varve/protocol"
	"varve/protocol/record"
)

func TestClientBatchesAreChecked(t *testing.T) {
	cfg := testConfig()
	cfg.RequireKeys, cfg.MaxMessageBytes = true, 300
	cfg.TimestampBeforeMaxMs, cfg.TimestampAfterMaxMs = 1000, 500
	e := newEnv(t, NewMemFS(), cfg)
	l := e.log()
	now := e.clock.get()
	for name, c := range map[string]struct {
		make func() record.Batch
		code protocol.ErrorCode
		bad  int // records named
	}{
		"fine":        {func() record.Batch { return batch(t, 2, record.Options{}, now) }, 0, 0},
		"edges":       {func() record.Batch { return batch(t, 2, record.Options{}, now-1000, now+500) }, 0, 0},
		"old":         {func() record.Batch { return batch(t, 2, record.Options{}, now, now-1001) }, protocol.InvalidTimestamp, 1},
		"future":      {func() record.Batch { return batch(t, 2, record.Options{}, now+501) }, protocol.InvalidTimestamp, 2},
		"large":       {func() record.Batch { return batch(t, 20, record.Options{}, now) }, protocol.MessageTooLarge, 0},
		"crc":         {func() record.Batch { b := batch(t, 1, record.Options{}, now); b[len(b)-1] ^= 1; return b }, protocol.CorruptMessage, 0},
		"base offset": {func() record.Batch { return batch(t, 2, record.Options{BaseOffset: 3}, now) }, protocol.InvalidRecord, 0},
		"control":     {func() record.Batch { return record.EndTxnMarker{ProducerID: 1, Commit: true}.Batch() }, protocol.InvalidRecord, 0},
		"no key": {func() record.Batch {
			bl := record.NewBuilder(record.Options{})
			must(t, bl.Add(now, []byte("k"), nil))
			must(t, bl.Add(now, nil, []byte("v")))
			b, err := bl.Batch()
			must(t, err)
			return b
		}, protocol.InvalidRecord, 1},
	} {
		end := l.End()
		info, err := l.AppendAsLeader(c.make(), 0, OriginClient)
		if protocol.CodeOf(err) != c.code || len(info.RecordErrors) != c.bad {
			t.Errorf("%s: %v, record errors %v", name, err, info.RecordErrors)
		}
		if (l.End() == end) != (c.code != 0) || (c.code != 0 && info.FirstOffset != -1) {
			t.Errorf("%s: end went from %d to %d", name, end, l.End())
		}
	}
	must(t, e.m.Close(t.Context(), 1))
}

func TestLogAppendTimeAndRewriting(t *testing.T) {
	cfg := testConfig()
	cfg.LogAppendTime, cfg.Codec = true, record.Zstd
	e := newEnv(t, NewMemFS(), cfg)
	l := e.log()
	info, err := l.AppendAsLeader(batch(t, 3, record.Options{}, 5), 2, OriginClient)
	must(t, err)
	got := readAll(t, l, 0)[0]
	if info.LogAppendTime != e.clock.get() || !got.LogAppendTime() || got.MaxTimestamp() != e.clock.get() || got.Codec() != record.Zstd || got.LeaderEpoch() != 2 {
		t.Fatalf("%+v, %s", info, got)
	}
	cfg.LogAppendTime, cfg.Codec = false, record.None
	l.SetConfig(cfg)
	_, err = l.AppendAsLeader(batch(t, 3, record.Options{Codec: record.Gzip}, 5, 9, 7), 2, OriginClient)
	must(t, err)
	if got := readAll(t, l, 3)[0]; got.Codec() != record.None || got.MaxTimestamp() != 9 {
		t.Fatal(got)
	}
	must(t, e.m.Close(t.Context(), 1))
}

// TestMaxTimestampIsTheRecords: what a client says of its largest timestamp is corrected, whether the batch is stored as it came or in another
// codec (LogValidator.java); lookups by time and retention go by it.
func TestMaxTimestampIsTheRecords(t *testing.T) {
	cfg := testConfig()
	e := newEnv(t, NewMemFS(), cfg)
	l := e.log()
	for _, codec := range []record.Codec{CodecProducer, record.None, record.Zstd} {
		cfg.Codec = codec
		l.SetConfig(cfg)
		for _, told := range []int64{1 << 50, 0, record.NoTimestamp} {
			at := l.End()
			lying := batch(t, 2, record.Options{Codec: record.Gzip}, 5, 9)
			lying.SetMaxTimestamp(told)
			_, err := l.AppendAsLeader(lying, 2, OriginClient)
			must(t, err)
			if got := readAll(t, l, at)[0]; got.MaxTimestamp() != 9 || got.CheckCRC() != nil {
				t.Errorf("codec %s: the client said %d, the log says %d", codec, told, got.MaxTimestamp())
			}
		}
	}
	must(t, e.m.Close(t.Context(), 1))
}

// TestTimeLookupTakesNoMemory: a batch of a few KiB whose record is 64 MiB when decompressed does not cost a question by time as much, also where
// the batch begins below the log start.
func TestTimeLookupTakesNoMemory(t *testing.T) {
	const recordBytes, maxAllocBytes = 64 << 20, 4 << 20
	bl := record.NewBuilder(record.Options{Codec: record.Zstd})
	must(t, bl.Add(1, nil, make([]byte, recordBytes)))
	must(t, bl.Add(2, nil, nil))
	b, err := bl.Batch()
	must(t, err)
	for from := range int64(2) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		at, ok, err := findInBatch(b, 2, from)
		runtime.ReadMemStats(&after)
		if err != nil || !ok || at.Offset != 1 || at.Timestamp != 2 {
			t.Fatal(at, ok, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > maxAllocBytes {
			t.Errorf("from %d: %d bytes were allocated for a batch of %d", from, got, b.Size())
		}
	}
}

func TestLeaderEpochs(t *testing.T) {
	e := newEnv(t, NewMemFS(), testConfig())
	l := e.log()
	for _, epoch := range []int32{0, 0, 3, 3, 7} {
		_, err := l.AppendAsLeader(batch(t, 10, record.Options{}), epoch, OriginClient)
		must(t, err)
	}
	_, err := l.AppendAsLeader(batch(t, 1, record.Options{}), 6, OriginClient)
	wantCode(t, err, protocol.FencedLeaderEpoch)
	must(t, l.AssignEpoch(9, 50))
	for _, c := range []struct {
		ask, epoch int32
		end        int64
	}{{0, 0, 20}, {1, 0, 20}, {3, 3, 40}, {5, 3, 40}, {7, 7, 50}, {8, 7, 50}, {9, 9, 50}, {10, -1, -1}, {-1, -1, -1}} {
		if epoch, end := l.EndOfEpoch(c.ask); epoch != c.epoch || end != c.end {
			t.Errorf("end of epoch %d is (%d, %d), want (%d, %d)", c.ask, epoch, end, c.epoch, c.end)
		}
	}
	if l.EpochAt(19) != 0 || l.EpochAt(20) != 3 || l.EpochAt(1000) != 9 || l.LatestEpoch() != 9 {
		t.Error(l.Epochs())
	}
	must(t, l.TruncateTo(45))
	if l.LatestEpoch() != 3 || l.End() != 40 {
		t.Error(l.Epochs(), l.End())
	}
	must(t, l.SetLogStart(25))
	must(t, l.Roll())
	_, err = l.FreeBelow(25)
	must(t, err)
	e.reopen()
	if l = e.log(); l.LatestEpoch() != 3 || l.EpochAt(30) != 3 || l.LogStart() != 25 {
		t.Error(l.Epochs(), l.LogStart())
	}
	must(t, e.m.Close(t.Context(), 1))
}

func TestFollowerAppends(t *testing.T) {
	e := newEnv(t, NewMemFS(), testConfig())
	leader, follower := e.log(), (*Log)(nil)
	follower, err := e.m.Create("f", testID, 0, e.cfg)
	must(t, err)
	for i := range 100 {
		_, err := leader.AppendAsLeader(batch(t, 3, record.Options{}), int32(i/20), OriginClient)
		must(t, err)
	}
	for follower.End() < leader.End() {
		s, err := leader.Read(follower.End(), 1500, leader.End(), true)
		must(t, err)
		run := read(t, s)
		if follower.End() == 30 {
			bad := append([]byte(nil), run...)
			bad[len(bad)-1] ^= 1
			_, err := follower.AppendAsFollower(bad)
			wantCode(t, err, protocol.CorruptMessage)
		}
		info, err := follower.AppendAsFollower(append(run, run[:30]...)) // with a torn tail
		must(t, err)
		if info.LastOffset != s.NextOffset-1 || info.FirstOffset != s.FirstOffset {
			t.Fatalf("%+v", info)
		}
		_, err = follower.AppendAsFollower(run)
		wantCode(t, err, protocol.OffsetOutOfRange)
	}
	checkLog(t, follower)
	if len(follower.Epochs()) != 5 || len(follower.Segments()) < 3 {
		t.Fatal(follower.Epochs(), follower.Segments())
	}
	must(t, e.m.Close(t.Context(), 1))
}

func TestRollBySizeTimeIndexAndOffset(t *testing.T) {
	cfg := testConfig()
	cfg.SegmentBytes, cfg.SegmentMs, cfg.SegmentIndexBytes = 1<<20, 1000, 80
	e := newEnv(t, NewMemFS(), cfg)
	l := e.log()
	rolls := func(want int) {
		t.Helper()
		if got := len(l.Segments()) - 1; got != want {
			t.Fatalf("%d rolls, want %d: %+v", got, want, l.Segments())
		}
	}
	add := func(ts int64) {
		t.Helper()
		_, err := l.AppendAsLeader(batch(t, 1, record.Options{}, ts), 0, OriginClient)
		must(t, err)
	}
	add(10_000)
	e.clock.add(5000)
	add(11_000) // by the records' time, not the clock's
	rolls(0)
	add(11_001)
	rolls(1)
	if rolled, err := l.MaybeRoll(time.UnixMilli(e.clock.get()), 0); err != nil || rolled {
		t.Fatal(rolled, err)
	}
	if rolled, err := l.MaybeRoll(time.UnixMilli(e.clock.get()+51), 50); err != nil || !rolled {
		t.Fatal(rolled, err)
	}
	if rolled, err := l.MaybeRoll(time.UnixMilli(e.clock.get()+1_000_000), 50); err != nil || rolled {
		t.Fatal("an empty segment was rolled", rolled, err)
	}
	for range 40 { // an index entry every third batch, full after 10
		add(11_001)
	}
	rolls(3)
	far := batch(t, 1, record.Options{}, 11_001)
	far.SetBaseOffset(l.End() + math.MaxInt32)
	far.SetLeaderEpoch(0)
	_, err := l.AppendAsFollower(far)
	must(t, err)
	rolls(4)
	must(t, e.m.Close(t.Context(), 1))
}

func TestGroupCommit(t *testing.T) {
	cfg := testConfig()
	cfg.FlushMessages = 1
	e := newEnv(t, NewMemFS(), cfg)
	l := e.log()
	durable := make(chan struct{}, 1)
	l.OnDurable(func() {
		select {
		case durable <- struct{}{}:
		default:
		}
	})
	for range 50 {
		appendN(t, l, 3, 2)
		for l.DurableEnd() < l.End() {
			<-durable
		}
	}
	crashed := e.fs.(*MemFS).Crash(0, nil)
	e.crash(crashed)
	if l = e.log(); l.End() != 300 {
		t.Fatalf("end is %d after the crash", l.End())
	}
	checkLog(t, l)
	must(t, e.m.Close(t.Context(), 1))
}
