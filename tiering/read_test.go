package tiering

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/broker/commitlog"
	"varve/metastore"
	"varve/protocol"
	"varve/protocol/event"
	"varve/protocol/record"
	"varve/tiering/objstore"
	"varve/tiering/tierpb"
)

var readTopic = protocol.UUID{5}

// readRig is a Manager with segments that were stored without a log.
type readRig struct {
	*Manager
	meta  *fakeMeta
	store *objstore.Faulty
	rec   *event.Recorder
	log   []byte                // of all segments
	at    []int                 // where each batch starts in log
	gap   int64                 // offsets that the next segment claims after its last record
	shift func(batch int) int64 // ms that a batch's records are off their time; nil = none
}

// newReadRig stores segments of batches of 3 records, with an index entry for every
// second batch.
func newReadRig(t *testing.T, segments, batches, size int, change func(*Options)) *readRig {
	t.Helper()
	r := &readRig{}
	r.Manager, r.meta, r.store, r.rec = newTestManager(t, change)
	for s := range segments {
		r.add(t, int64(s*batches*3), batches, size, nil)
	}
	return r
}

func (r *readRig) add(t *testing.T, base int64, batches, size int, txns []byte) metastore.RemoteSegment {
	t.Helper()
	var log, index, times []byte
	next := base
	var highest, highestAt int64 // of the records so far
	for i := range batches {
		if i%2 == 1 {
			index = binary.BigEndian.AppendUint32(index, uint32(next-base))
			index = binary.BigEndian.AppendUint32(index, uint32(len(log)))
			times = binary.BigEndian.AppendUint64(times, uint64(highest))
			times = binary.BigEndian.AppendUint32(times, uint32(highestAt-base))
		}
		r.at = append(r.at, len(r.log)+len(log))
		at := testTime(next)
		if r.shift != nil {
			at += r.shift(len(r.at))
		}
		log = append(log, testBatch(t, next, 3, size, at)...)
		next += 3
		if at+2 > highest {
			highest, highestAt = at+2, next-1
		}
	}
	maxTimestamp := highest
	next += r.gap
	id := protocol.NewUUID()
	enc, err := EncodeSegment(SegmentSource{
		Log: bytes.NewReader(log), LogBytes: int64(len(log)), OffsetIndex: index, TimeIndex: times, TxnIndex: txns,
		ProducerSnapshot: binary.BigEndian.AppendUint64(nil, uint64(next)),
		Footer:           &tierpb.Footer{TopicId: readTopic[:], SegmentId: id[:], Base: base, Next: next},
	})
	if err != nil {
		t.Fatal(err)
	}
	row := metastore.RemoteSegment{
		ID: id, TopicID: readTopic, Base: base, Next: next, MaxTimestamp: maxTimestamp, State: metastore.SegFinished, Location: r.location,
		ObjectBytes: enc.Size, LogBytes: enc.IndexOff, IndexOff: enc.IndexOff, IndexLen: int32(enc.IndexLen()), HasTxns: len(txns) > 0,
	}
	if _, err := r.store.Put(context.Background(), r.rowKey(row), objstore.Body{ReaderAt: enc, Size: enc.Size}, objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	r.log = append(r.log, log...)
	r.meta.rows = append(r.meta.rows, row)
	r.meta.state = metastore.TierState{End: next, Epochs: []metastore.EpochStart{{Epoch: 3}}}
	return row
}

// testTime is when the record at off was made: it rises by 1 ms.
func testTime(off int64) int64 { return 1_700_000_000_000 + off }

func (r *readRig) read(off int64, maxBytes int, minOne bool) (ReadResult, error) {
	return r.Read(context.Background(), ReadRequest{TopicID: readTopic, Offset: off, MaxBytes: maxBytes, MinOne: minOne})
}

// joined copies the bytes out and releases the spans.
func joined(res ReadResult) (b []byte) {
	for _, s := range res.Spans {
		var err error
		if b, err = s.AppendTo(b); err != nil {
			panic(err)
		}
	}
	protocol.ReleaseSpans(res.Spans)
	return b
}

// readAll reads from off to the end and returns the bytes.
func (r *readRig) readAll(t *testing.T, off int64, maxBytes int) (all []byte) {
	t.Helper()
	for off < r.meta.state.End {
		res, err := r.read(off, maxBytes, true)
		if err != nil {
			t.Fatalf("offset %d: %v", off, err)
		}
		if res.NextOffset <= off {
			t.Fatalf("no progress at %d", off)
		}
		all, off = append(all, joined(res)...), res.NextOffset
	}
	return all
}

func TestReadFromEveryOffset(t *testing.T) {
	r := newReadRig(t, 3, 40, 2000, nil)
	for off := int64(0); off < r.meta.state.End; off++ {
		res, err := r.read(off, 10_000, true)
		if err != nil {
			t.Fatal(err)
		}
		b := record.Batch(joined(res))
		if b.BaseOffset() != off-off%3 || !bytes.Equal(b, r.log[r.at[off/3]:][:len(b)]) {
			t.Fatalf("offset %d: starts at %d", off, b.BaseOffset())
		}
		if len(b) > 10_000 || (len(b) < 6000 && res.NextOffset%120 != 0) {
			t.Fatalf("offset %d: %d bytes up to %d", off, len(b), res.NextOffset)
		}
	}
	for _, off := range []int64{-1, r.meta.state.End, 1 << 40} {
		if _, err := r.read(off, 1000, true); protocol.CodeOf(err) != protocol.OffsetOutOfRange {
			t.Fatalf("offset %d: %v", off, err)
		}
	}
	res, err := r.read(0, 10, false)
	if err != nil || len(res.Spans) != 0 || res.NextOffset != 0 {
		t.Fatalf("without MinOne: %+v %v", res, err)
	}
	if res, err = r.read(1, 10, true); err != nil || record.Batch(joined(res)).LastOffset() != 2 || res.NextOffset != 3 {
		t.Fatalf("with MinOne: %v", err)
	}
}

// TestReadTinyCache reads all with a cache of two chunks, of none, and one that is large.
func TestReadTinyCache(t *testing.T) {
	for _, cacheBytes := range []int64{0, 2 * chunkBytes, 1 << 30} {
		r := newReadRig(t, 2, 150, 8000, func(o *Options) { o.CacheDir, o.CacheBytes = t.TempDir(), cacheBytes })
		for range 2 {
			if !bytes.Equal(r.readAll(t, 0, 300_000), r.log) {
				t.Fatalf("cache of %d bytes: bytes differ", cacheBytes)
			}
		}
		r.fills.wg.Wait()
		if gets := r.store.Calls(objstore.VerbGet); cacheBytes == 1<<30 && gets > 2*(6+1) {
			t.Fatalf("%d GETs for 2 segments of 3.6 MB", gets)
		}
	}
}

// TestReadAhead: a sequential reader finds the following extents on their way, a
// jumping one causes no GET that it does not need.
func TestReadAhead(t *testing.T) {
	rig := func() *readRig {
		return newReadRig(t, 1, 500, 8000, func(o *Options) { o.CacheDir, o.CacheBytes = t.TempDir(), 1<<30 })
	}
	r := rig()
	off := int64(0)
	for range 4 {
		res, err := r.read(off, 200_000, true)
		if err != nil {
			t.Fatal(err)
		}
		off = res.NextOffset
		r.fills.wg.Wait()
	}
	if c := r.mem.take(blockKey{r.meta.rows[0].ID, int(off/3*24_000/chunkBytes) + minWindow - 1}); c == nil {
		t.Fatal("nothing was fetched ahead")
	}
	r = rig()
	for i := range 5 {
		if _, err := r.read(int64(1200-i*220), 20_000, true); err != nil {
			t.Fatal(err)
		}
	}
	if gets := r.store.Calls(objstore.VerbGet); gets > 6 {
		t.Fatalf("%d GETs for 5 jumps and an index", gets)
	}
}

// TestReadWrongBytes: a mismatch is an error and an alarm, is not cached, and
// passes once the store answers rightly.
func TestReadWrongBytes(t *testing.T) {
	for name, skip := range map[string]int{"index": 0, "chunk": 1} {
		t.Run(name, func(t *testing.T) {
			r := newReadRig(t, 1, 15, 2000, func(o *Options) { o.CacheDir, o.CacheBytes = t.TempDir(), 1<<20 })
			r.store.Add(objstore.Fault{Kind: objstore.FaultWrongBytes, Verb: objstore.VerbGet, Skip: skip})
			_, err := r.read(0, 1<<20, true)
			var bad *protocol.CorruptionError
			if !errors.As(err, &bad) || protocol.CodeOf(err) != protocol.KafkaStorageError || r.rec.Count("tier_corruption") != 1 {
				t.Fatalf("%v, %d alarms", err, r.rec.Count("tier_corruption"))
			}
			if !bytes.Equal(r.readAll(t, 0, 1<<20), r.log) {
				t.Fatal("bytes differ")
			}
		})
	}
}

func TestReadFaultsPass(t *testing.T) {
	for name, f := range map[string]objstore.Fault{
		"500":      {Kind: objstore.FaultError},
		"throttle": {Kind: objstore.FaultThrottle},
		"reset":    {Kind: objstore.FaultTruncated},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReadRig(t, 1, 40, 2000, nil)
			f.Verb = objstore.VerbGet
			r.store.Add(f)
			if _, err := r.read(0, 1<<20, true); err == nil {
				t.Fatal("no error")
			}
			if !bytes.Equal(r.readAll(t, 0, 1<<20), r.log) || r.rec.Count("tier_corruption") != 0 {
				t.Fatal("bytes differ, or a fault of the wire was taken for corruption")
			}
		})
	}
}

// TestReadContinues: a GET that breaks off is continued by another one; one that
// brings nothing, again and again, is an error.
func TestReadContinues(t *testing.T) {
	r := newReadRig(t, 1, 40, 20_000, nil)
	if _, err := r.index(context.Background(), r.meta.rows[0]); err != nil {
		t.Fatal(err)
	}
	r.store.Add(objstore.Fault{Kind: objstore.FaultTruncated, Verb: objstore.VerbGet, Times: 2})
	if res, err := r.read(0, 1<<20, true); err != nil || !bytes.HasPrefix(r.log, joined(res)) {
		t.Fatalf("two broken bodies: %v", err)
	}
	r = newReadRig(t, 1, 40, 20_000, nil)
	if _, err := r.index(context.Background(), r.meta.rows[0]); err != nil {
		t.Fatal(err)
	}
	r.store.Add(objstore.Fault{Kind: objstore.FaultError, Verb: objstore.VerbGet, Times: maxBodyTries})
	if _, err := r.read(0, 1<<20, true); !objstore.IsRetryable(err) {
		t.Fatalf("a store that does not answer: %v", err)
	}
	if !bytes.Equal(r.readAll(t, 0, 1<<20), r.log) {
		t.Fatal("bytes differ")
	}
}

func TestReadMissingObject(t *testing.T) {
	r := newReadRig(t, 1, 10, 100, nil)
	row := r.meta.rows[0]
	if _, err := r.store.Delete(context.Background(), []string{r.rowKey(row)}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.read(0, 1000, true); protocol.CodeOf(err) != protocol.KafkaStorageError || r.rec.Count("tier_object_missing") != 1 {
		t.Fatalf("%v, %d alarms", err, r.rec.Count("tier_object_missing"))
	}
	// The metastore moved on between the two: no alarm, the new row's bytes.
	r = newReadRig(t, 1, 10, 100, nil)
	old := r.meta.rows[0]
	old.ID = protocol.NewUUID()
	fresh := r.meta.rows
	asked := 0
	r.meta.setOnAt(func(int64) {
		if asked++; asked == 1 {
			r.meta.rows = []metastore.RemoteSegment{old}
		} else {
			r.meta.rows = fresh
		}
	})
	res, err := r.read(0, 1<<20, true)
	if err != nil || !bytes.Equal(joined(res), r.log) || r.rec.Count("tier_object_missing") != 0 {
		t.Fatalf("replaced segment: %v", err)
	}
	// Retention took it: out of range, no alarm.
	r.meta.setOnAt(func(int64) {
		r.meta.rows = nil
		r.meta.state.LogStart = r.meta.state.End
	})
	if _, err = r.read(0, 1<<20, true); protocol.CodeOf(err) != protocol.OffsetOutOfRange {
		t.Fatalf("deleted segment: %v", err)
	}
}

// TestReadOtherStore: a row that was written under another name of the store is
// read; if the object is not there, the error tells of both names.
func TestReadOtherStore(t *testing.T) {
	r := newReadRig(t, 1, 10, 100, nil)
	r.meta.rows[0].Location = "s3://elsewhere"
	if !bytes.Equal(r.readAll(t, 0, 1000), r.log) {
		t.Fatal("bytes differ")
	}
	r = newReadRig(t, 1, 10, 100, nil)
	r.meta.rows[0].Location = "s3://elsewhere"
	if _, err := r.store.Delete(context.Background(), []string{r.rowKey(r.meta.rows[0])}); err != nil {
		t.Fatal(err)
	}
	_, err := r.read(0, 1000, true)
	if protocol.CodeOf(err) != protocol.KafkaStorageError || !strings.Contains(err.Error(), "s3://elsewhere") || !strings.Contains(err.Error(), r.location) {
		t.Fatalf("got %v", err)
	}
}

// TestReadSingleFlight: many readers of the same bytes cause one GET.
func TestReadSingleFlight(t *testing.T) {
	r := newReadRig(t, 1, 40, 2000, nil)
	if _, err := r.index(context.Background(), r.meta.rows[0]); err != nil {
		t.Fatal(err)
	}
	before := r.store.Calls(objstore.VerbGet)
	r.store.Add(objstore.Fault{Kind: objstore.FaultDelay, Delay: 100 * time.Millisecond, Verb: objstore.VerbGet, Times: -1})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if res, err := r.read(0, 1<<20, true); err != nil || !bytes.Equal(joined(res), r.log) {
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	if n := r.store.Calls(objstore.VerbGet) - before; n != 1 {
		t.Fatalf("%d GETs", n)
	}
}

// TestReadOutlivesClient: an impatient client's fill completes, so that its retry
// is answered from the cache (KAFKA-15776).
func TestReadOutlivesClient(t *testing.T) {
	r := newReadRig(t, 1, 40, 2000, func(o *Options) { o.CacheDir, o.CacheBytes = t.TempDir(), 1<<20 })
	if _, err := r.index(context.Background(), r.meta.rows[0]); err != nil {
		t.Fatal(err)
	}
	r.store.Add(objstore.Fault{Kind: objstore.FaultDelay, Delay: 50 * time.Millisecond, Verb: objstore.VerbGet})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if _, err := r.Read(ctx, ReadRequest{TopicID: readTopic, MaxBytes: 1000, MinOne: true}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	r.fills.wg.Wait()
	gets := r.store.Calls(objstore.VerbGet)
	if res, err := r.read(0, 1<<20, true); err != nil || !bytes.Equal(joined(res), r.log) || r.store.Calls(objstore.VerbGet) != gets {
		t.Fatalf("the retry went to the store again: %v", err)
	}
}

func TestReadAfterClose(t *testing.T) {
	r := newReadRig(t, 1, 10, 100, nil)
	r.fills.close()
	if _, err := r.read(0, 1000, true); !errors.Is(err, errClosed) {
		t.Fatalf("got %v", err)
	}
}

func TestTimeLookup(t *testing.T) {
	ctx := context.Background()
	r := newReadRig(t, 3, 40, 200, func(o *Options) { o.CacheDir, o.CacheBytes = t.TempDir(), 1<<24 })
	end := r.meta.state.End
	for off := int64(0); off < end; off++ {
		at, ok, err := r.OffsetForTimestamp(ctx, readTopic, 0, testTime(off))
		if err != nil || !ok || at.Offset != off || at.Timestamp != testTime(off) || at.LeaderEpoch != 3 {
			t.Fatalf("offset %d: %+v %v %v", off, at, ok, err)
		}
	}
	if at, ok, err := r.OffsetForTimestamp(ctx, readTopic, 0, 0); err != nil || !ok || at.Offset != 0 {
		t.Fatalf("before all: %+v %v", at, err)
	}
	if _, ok, err := r.OffsetForTimestamp(ctx, readTopic, 0, testTime(end)); err != nil || ok {
		t.Fatalf("after all: %v", err)
	}
	if at, ok, err := r.MaxTimestamp(ctx, readTopic, 0); err != nil || !ok || at.Offset != end-1 {
		t.Fatalf("max: %+v %v", at, err)
	}
	r.meta.state.LogStart = 130 // inside a batch
	if at, ok, err := r.OffsetForTimestamp(ctx, readTopic, 0, 0); err != nil || !ok || at.Offset != 130 {
		t.Fatalf("log start inside a batch: %+v %v", at, err)
	}
	// The highest timestamp of the segment that holds log start may lie below it. (It
	// is cached by now, so that its key does not matter.)
	r.meta.rows[1].MaxTimestamp = testTime(1000)
	r.meta.rows = r.meta.rows[:2]
	if at, ok, err := r.MaxTimestamp(ctx, readTopic, 0); err != nil || !ok || at.Offset != 239 {
		t.Fatalf("max above log start: %+v %v", at, err)
	}
}

// TestTimeLookupOutOfOrder: CreateTime rises and falls, within segments and over them;
// the answer is what a walk over all records says, by two GETs at most.
func TestTimeLookupOutOfOrder(t *testing.T) {
	ctx := context.Background()
	r := newReadRig(t, 0, 0, 0, nil)
	rnd := rand.New(rand.NewPCG(3, 5))
	r.shift = func(int) int64 { return rnd.Int64N(200) - 100 }
	for s := range int64(4) {
		r.add(t, s*300, 100, 5000, nil)
	}
	var all []commitlog.TimestampOffset
	for i, at := range r.at {
		for it := record.Batch(r.log[at:append(r.at, len(r.log))[i+1]]).Records(); it.Next(); {
			x := it.Record()
			all = append(all, commitlog.TimestampOffset{Timestamp: x.Timestamp, Offset: x.Offset})
		}
	}
	for range 60 {
		start := rnd.Int64N(1200)
		ts := testTime(rnd.Int64N(1400) - 100)
		want := int64(-1)
		best := all[start]
		for _, x := range all[start:] {
			if want < 0 && x.Timestamp >= ts {
				want = x.Offset
			}
			if x.Timestamp > best.Timestamp {
				best = x
			}
		}
		// Nothing is remembered from one search to the next.
		r.forget()
		r.meta.state.LogStart = start
		gets := r.store.Calls(objstore.VerbGet)
		at, ok, err := r.OffsetForTimestamp(ctx, readTopic, 0, ts)
		if err != nil || ok != (want >= 0) || ok && at.Offset != want {
			t.Fatalf("from %d at %d: %+v %v %v, want %d", start, ts, at, ok, err, want)
		}
		if n := r.store.Calls(objstore.VerbGet) - gets; start%300 == 0 && n > 2 {
			t.Fatalf("%d GETs", n)
		}
		if at, ok, err = r.MaxTimestamp(ctx, readTopic, 0); err != nil || !ok || at.Offset != best.Offset {
			t.Fatalf("highest from %d: %+v %v, want %+v", start, at, err, best)
		}
	}
}

// TestTimeLookupGets: an index and one range are enough, wherever in a segment.
func TestTimeLookupGets(t *testing.T) {
	r := newReadRig(t, 2, 300, 20_000, nil)
	for off := int64(0); off < r.meta.state.End; off += 97 {
		r.forget()
		gets := r.store.Calls(objstore.VerbGet)
		at, ok, err := r.OffsetForTimestamp(context.Background(), readTopic, 0, testTime(off))
		if n := r.store.Calls(objstore.VerbGet) - gets; err != nil || !ok || at.Offset != off || n > 2 {
			t.Fatalf("offset %d: %+v %v, %d GETs", off, at, err, n)
		}
	}
}

func TestTail(t *testing.T) {
	ctx := context.Background()
	r := newReadRig(t, 2, 10, 100, nil)
	next, epochs, snapshot, err := r.Tail(ctx, readTopic, 0)
	if err != nil || next != 60 || len(epochs) != 1 || binary.BigEndian.Uint64(snapshot) != 60 {
		t.Fatalf("%d %v %x %v", next, epochs, snapshot, err)
	}
	r.meta.rows, r.meta.state.LogStart = nil, 60 // all of it deleted by retention
	if next, _, snapshot, err = r.Tail(ctx, readTopic, 0); err != nil || next != 60 || snapshot != nil {
		t.Fatalf("empty tier: %d %x %v", next, snapshot, err)
	}
}

func txnEntry(first, last, lastStable int64) []byte {
	b := binary.BigEndian.AppendUint64([]byte{0, 0}, 77)
	for _, v := range []int64{first, last, lastStable} {
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	return b
}

// TestReadAborted: aborts stand in the index of the segment that holds the marker,
// which may be a later one.
func TestReadAborted(t *testing.T) {
	r := newReadRig(t, 0, 0, 0, nil)
	r.add(t, 0, 10, 100, txnEntry(2, 8, 9))      // [0,30)
	r.add(t, 30, 10, 100, nil)                   // [30,60)
	r.add(t, 60, 10, 100, txnEntry(25, 70, 25))  // [60,90), open from 25 on
	r.add(t, 90, 10, 100, txnEntry(95, 98, 200)) // [90,120)
	for _, c := range []struct {
		off  int64
		want []int64
	}{{0, []int64{2, 25}}, {12, []int64{25}}, {33, []int64{25}}, {72, nil}, {93, []int64{95}}} {
		res, err := r.Read(context.Background(), ReadRequest{TopicID: readTopic, Offset: c.off, MaxBytes: 1 << 20, ReadCommitted: true})
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, a := range res.Aborted {
			got = append(got, a.FirstOffset)
		}
		if len(got) != len(c.want) || (len(got) > 0 && got[0] != c.want[0]) {
			t.Errorf("offset %d: aborted from %v, want %v", c.off, got, c.want)
		}
	}
	if out, _ := appendAborted(nil, txnEntry(2, 8, 9), 0, 30); len(out) != 1 || out[0] != (commitlog.AbortedTxn{ProducerID: 77, FirstOffset: 2, LastOffset: 8, LastStableOffset: 9}) {
		t.Errorf("entry read as %+v", out)
	}
}

// TestReadOverGaps: a segment claims offsets whose records compaction took; the
// read goes on in the next one.
func TestReadOverGaps(t *testing.T) {
	r := newReadRig(t, 0, 0, 0, nil)
	r.gap = 15
	r.add(t, 0, 5, 100, nil) // records [0, 15), claims [0, 30)
	r.gap = 0
	r.add(t, 30, 5, 100, nil)
	res, err := r.read(14, 1<<20, true)
	if err != nil || res.NextOffset != 15 {
		t.Fatalf("crosses a segment: %d %v", res.NextOffset, err)
	}
	res, err = r.read(15, 1<<20, true)
	if err != nil || record.Batch(joined(res)).BaseOffset() != 30 || res.NextOffset != 45 {
		t.Fatalf("in the gap: %d %v", res.NextOffset, err)
	}
}

// TestTimeInBatchTakesNoMemory: a batch of a few KiB whose record is 64 MiB when decompressed does not cost a question by time as much.
func TestTimeInBatchTakesNoMemory(t *testing.T) {
	const recordBytes, maxAllocBytes = 64 << 20, 4 << 20
	bl := record.NewBuilder(record.Options{Codec: record.Zstd})
	if err := errors.Join(bl.Add(1, nil, make([]byte, recordBytes)), bl.Add(2, nil, nil)); err != nil {
		t.Fatal(err)
	}
	b, err := bl.Batch()
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	at, ok, err := firstAt(b, 2, 1)
	runtime.ReadMemStats(&after)
	if err != nil || !ok || at.Offset != 1 {
		t.Fatal(at, ok, err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > maxAllocBytes {
		t.Errorf("%d bytes were allocated for a batch of %d", got, b.Size())
	}
}
