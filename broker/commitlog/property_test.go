package commitlog

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"varve/protocol"
	"varve/protocol/event"
	"varve/protocol/record"
)

// modelLog is the simplest thing that a log should be like.
type modelLog struct {
	t       *rapid.T
	e       *env
	l       *Log
	batches []record.Batch
	held    []heldSlice
}

// heldSlice is one that a slow reader keeps through whatever happens.
type heldSlice struct {
	s    Slice
	want []byte
}

type modelRecord struct {
	off, ts int64
	epoch   int32
}

func TestLogAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := testConfig()
		cfg.SegmentBytes = int32(rapid.IntRange(600, 5000).Draw(rt, "segment.bytes"))
		cfg.IndexIntervalBytes = int32(rapid.IntRange(0, 600).Draw(rt, "index.interval.bytes"))
		cfg.SegmentMs = rapid.Int64Range(50, 5000).Draw(rt, "segment.ms")
		m := &modelLog{t: rt, e: &env{t: t, fs: NewMemFS(), clock: newClock(1000), rec: &event.Recorder{}, cfg: cfg}}
		m.e.open()
		m.l = m.e.log()
		rt.Repeat(map[string]func(*rapid.T){
			"append":   m.append,
			"read":     m.read,
			"time":     m.time,
			"truncate": m.truncate,
			"free":     m.free,
			"export":   m.export,
			"roll":     func(*rapid.T) { must(t, m.l.Roll()) },
			"release":  func(*rapid.T) { m.release() },
			"reopen":   func(*rapid.T) { m.release(); m.e.reopen(); m.l = m.e.log() },
			"":         m.check,
		})
		m.release()
		must(t, m.e.m.Close(context.Background(), 1))
	})
}

func (m *modelLog) release() {
	for _, h := range m.held {
		got := make([]byte, h.s.Len)
		if n, err := h.s.File.ReadAt(got, h.s.Off); n < len(got) || !bytes.Equal(got, h.want) {
			m.t.Fatalf("a held slice at %d changed: %v", h.s.FirstOffset, err)
		}
		h.s.Release()
	}
	m.held = nil
}

func (m *modelLog) end() int64 {
	if len(m.batches) == 0 {
		return m.l.End()
	}
	return m.batches[len(m.batches)-1].NextOffset()
}

func (m *modelLog) check(*rapid.T) {
	checkLog(m.e.t, m.l)
	if m.end() != m.l.End() {
		m.t.Fatalf("end is %d, should be %d", m.l.End(), m.end())
	}
}

func (m *modelLog) append(t *rapid.T) {
	m.e.clock.add(rapid.Int64Range(0, 30).Draw(t, "clock"))
	n := rapid.IntRange(1, 6).Draw(t, "records")
	ts := rapid.SliceOfN(rapid.Int64Range(0, 2000), n, n).Draw(t, "timestamps")
	codec := rapid.SampledFrom([]record.Codec{record.None, record.None, record.LZ4}).Draw(t, "codec")
	b := batch(m.e.t, n, record.Options{Codec: codec}, ts...)
	end := m.end()
	info, err := m.l.AppendAsLeader(b, rapid.Int32Range(0, 1).Draw(t, "epoch")+max(m.l.LatestEpoch(), 0), OriginClient)
	must(m.e.t, err)
	if info.FirstOffset != end {
		t.Fatalf("appended at %d, the end is %d", info.FirstOffset, end)
	}
	m.batches = append(m.batches, slices.Clone(b))
}

func (m *modelLog) read(t *rapid.T) {
	start, end := m.l.LocalStart(), m.l.End()
	off := rapid.Int64Range(max(start-3, 0), end+3).Draw(t, "offset")
	maxBytes := rapid.IntRange(0, 3000).Draw(t, "max bytes")
	limit := rapid.Int64Range(start, end+3).Draw(t, "limit")
	minOne := rapid.Bool().Draw(t, "min one")
	s, err := m.l.Read(off, maxBytes, limit, minOne)
	if off < start || off > end {
		wantCode(m.e.t, err, protocol.OffsetOutOfRange)
		return
	}
	must(m.e.t, err)
	var want []byte
	i := slices.IndexFunc(m.batches, func(b record.Batch) bool { return b.LastOffset() >= off })
	next, segments := off, m.l.segments()
	for ; i >= 0 && i < len(m.batches); i++ {
		b := m.batches[i]
		tooLong := len(want)+len(b) > maxBytes && (len(want) > 0 || !minOne)
		if b.NextOffset() > min(limit, end) || off >= limit || tooLong ||
			(len(want) > 0 && floorSegment(segments, b.BaseOffset()) != floorSegment(segments, b.BaseOffset()-1)) {
			break
		}
		want = append(want, b...)
		next = b.NextOffset()
	}
	if s.NextOffset != next || s.Len != int64(len(want)) {
		t.Fatalf("read(%d, %d, %d, %v) gives %d bytes up to %d, should be %d up to %d", off, maxBytes, limit, minOne, s.Len, s.NextOffset, len(want), next)
	}
	if s.Len > 0 {
		m.held = append(m.held, heldSlice{s, want})
	}
	if len(m.held) > 5 {
		m.release()
	}
}

func (m *modelLog) records(from int64) []modelRecord {
	var out []modelRecord
	for _, b := range m.batches {
		must(m.e.t, b.Each(func(r *record.Record) error {
			if r.Offset >= from {
				out = append(out, modelRecord{r.Offset, r.Timestamp, b.LeaderEpoch()})
			}
			return nil
		}))
	}
	return out
}

func (m *modelLog) time(t *rapid.T) {
	ts := rapid.Int64Range(0, 2100).Draw(t, "timestamp")
	records := m.records(m.l.LocalStart())
	got, ok, err := m.l.OffsetForTimestamp(ts)
	must(m.e.t, err)
	i := slices.IndexFunc(records, func(r modelRecord) bool { return r.ts >= ts })
	if ok != (i >= 0) || (ok && got != TimestampOffset{records[i].ts, records[i].off, records[i].epoch}) {
		t.Fatalf("offset for %d is %+v, %v; should be record %d of %v", ts, got, ok, i, records)
	}
	if m.l.LogStart() > m.l.segments()[0].base {
		return // the largest may lie below the log start
	}
	top, ok, err := m.l.MaxTimestamp()
	must(m.e.t, err)
	best := -1
	for i, r := range records {
		if best < 0 || r.ts > records[best].ts {
			best = i
		}
	}
	if ok != (best >= 0) || (ok && (top.Offset != records[best].off || top.Timestamp != records[best].ts)) {
		t.Fatalf("max timestamp is %+v, %v; should be %d of %v", top, ok, best, records)
	}
}

func (m *modelLog) truncate(t *rapid.T) {
	off := rapid.Int64Range(m.l.LogStart(), m.l.End()).Draw(t, "offset")
	before := m.l.End()
	must(m.e.t, m.l.TruncateTo(off))
	m.batches = slices.DeleteFunc(m.batches, func(b record.Batch) bool { return b.LastOffset() >= off })
	for _, e := range m.l.Epochs() {
		if off < before && e.Start >= max(m.l.End(), 1) {
			t.Fatalf("epoch %+v survived a truncation to %d", e, m.l.End())
		}
	}
}

func (m *modelLog) free(t *rapid.T) {
	off := rapid.Int64Range(m.l.LogStart(), m.l.End()).Draw(t, "offset")
	if rapid.Bool().Draw(t, "log start too") {
		must(m.e.t, m.l.SetLogStart(off))
	}
	before := m.l.SizeBytes()
	freed, err := m.l.FreeBelow(off)
	must(m.e.t, err)
	if before-freed != m.l.SizeBytes() {
		t.Fatalf("%d bytes, %d freed, %d left", before, freed, m.l.SizeBytes())
	}
	for _, s := range m.l.Segments() {
		if s.Sealed && s.Next <= off {
			t.Fatalf("segment %+v is still there after freeing below %d", s, off)
		}
	}
	base := m.l.segments()[0].base
	m.batches = slices.DeleteFunc(m.batches, func(b record.Batch) bool { return b.BaseOffset() < base })
}

// export checks a range for the tier as its reader would use it.
func (m *modelLog) export(t *rapid.T) {
	from := rapid.Int64Range(m.l.segments()[0].base, m.l.End()).Draw(t, "from")
	limit := rapid.Int64Range(0, m.l.End()).Draw(t, "limit")
	e, err := m.l.Export(from, limit)
	must(m.e.t, err)
	segs := m.l.segments()
	i := floorSegment(segs, from)
	if i == len(segs)-1 || segs[i].next() > limit {
		if e != nil {
			t.Fatalf("export(%d, %d) gives [%d, %d)", from, limit, e.Base, e.Next)
		}
		return
	}
	if e == nil || e.Base != from || e.Next != segs[i].next() {
		t.Fatalf("export(%d, %d) is %+v, the segment ends at %d", from, limit, e, segs[i].next())
	}
	defer e.Close()
	checkExport(m, e)
}

func checkExport(m *modelLog, e *Export) {
	bytesGot := make([]byte, e.Log.Len)
	n, _ := e.Log.File.ReadAt(bytesGot, e.Log.Off)
	var want []byte
	part := &segment{base: e.Base, log: m.e.m.cache.newFile("part"), offsets: &index{width: offsetEntryBytes, tail: e.OffsetIndex},
		times: &index{width: timeEntryBytes, tail: e.TimeIndex}}
	ends, tops, top := map[int64]int64{}, map[int64]int64{}, int64(record.NoTimestamp)
	for _, b := range m.batches {
		if b.LastOffset() < e.Base || b.BaseOffset() >= e.Next {
			continue
		}
		top = max(top, b.MaxTimestamp())
		ends[int64(len(want))], tops[b.LastOffset()] = b.LastOffset(), top
		want = append(want, b...)
	}
	if n != len(bytesGot) || !bytes.Equal(bytesGot, want) {
		m.t.Fatalf("export [%d, %d) has %d bytes, should have %d", e.Base, e.Next, n, len(want))
	}
	checkIndexes(m.e.t, part, ends, tops)
	if top != e.MaxTimestamp || e.FirstTimestamp != record.Batch(want).BaseTimestamp() {
		m.t.Fatalf("export says timestamps %d to %d, should end at %d", e.FirstTimestamp, e.MaxTimestamp, top)
	}
	if _, err := decodeProducers(e.ProducerSnapshot, "export"); err != nil {
		m.t.Fatal(err)
	}
	must(m.e.t, checkEpochs(e.Epochs, "export"))
	if e.Next <= m.l.LogStart() {
		return // its epochs are forgotten
	}
	if len(e.Epochs) == 0 || e.Epochs[len(e.Epochs)-1].Start >= e.Next {
		m.t.Fatalf("export [%d, %d) has epochs %v", e.Base, e.Next, e.Epochs)
	}
}
