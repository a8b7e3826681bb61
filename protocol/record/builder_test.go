package record

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"varve/protocol"
)

// consumed reads batches the way a kgo client does.
func consumed(t interface{ Fatalf(string, ...any) }, batches []byte) []*kgo.Record {
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.RecordBatches = batches
	rp.HighWatermark = math.MaxInt64
	fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{KeepControlRecords: true}, &rp, kgo.DefaultDecompressor(), nil)
	if fp.Err != nil {
		t.Fatalf("kgo: %v", fp.Err)
	}
	return fp.Records
}

// TestBuilderRoundTrip builds drawn records, and reads them back with Each, with
// Validate and with a real client.
func TestBuilderRoundTrip(t *testing.T) {
	bl := NewBuilder(Options{})
	rapid.Check(t, func(t *rapid.T) {
		opts := drawOptions(t)
		gaps := rapid.Bool().Draw(t, "gaps")
		want := drawRecords(t, opts.BaseOffset, gaps)
		bl.Reset(opts)
		for i := range want {
			if err := bl.Append(&want[i]); err != nil {
				t.Fatal(err)
			}
		}
		if bl.Count() != len(want) {
			t.Fatal("count")
		}
		b, err := bl.Batch()
		if err != nil {
			t.Fatal(err)
		}
		got := records(t, b)
		if !slices.EqualFunc(got, want, sameRecord) {
			t.Fatalf("%v\n got %+v\nwant %+v", b, got, want)
		}
		last := want[len(want)-1].Offset
		_, err = b.Validate(Limits{Client: last-opts.BaseOffset == int64(len(want)-1)})
		if next, rest, err2 := Next(b); err != nil || err2 != nil || len(rest) > 0 || len(next) != len(b) || b.LastOffset() != last {
			t.Fatalf("%v: %v, %v", b, err, err2)
		}
		for i, r := range consumed(t, b) {
			theirs := Record{Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
			for _, h := range r.Headers {
				theirs.Headers = append(theirs.Headers, Header{h.Key, h.Value})
			}
			if !sameRecord(theirs, want[i]) {
				t.Fatalf("record %d: kgo has %+v, want %+v", i, theirs, want[i])
			}
		}
	})
}

func TestBuilderSizeIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var bl Builder
		bl.Reset(Options{})
		r := drawRecords(t, 0, false)[0]
		if err := bl.Append(&r); err != nil {
			t.Fatal(err)
		}
		body := bodySize(&r, 0, 0)
		if got := int64(bl.Size() - HeaderLen); got != body+varintLen(body) {
			t.Fatalf("a record of %d bytes was sized %d", got, body)
		}
	})
}

func TestBuilderRefuses(t *testing.T) {
	var broken *protocol.InvariantError
	bl := NewBuilder(Options{BaseOffset: 10})
	if _, err := bl.Batch(); !errors.As(err, &broken) {
		t.Error(err)
	}
	if err := bl.Append(&Record{Offset: 9}); !errors.As(err, &broken) {
		t.Error(err)
	}
	if err := bl.Append(&Record{Offset: 10 + math.MaxInt32 + 1}); !errors.As(err, &broken) {
		t.Error(err)
	}
	if err := bl.Append(&Record{Offset: 12}); err != nil {
		t.Error(err)
	}
	if err := bl.Append(&Record{Offset: 12}); !errors.As(err, &broken) {
		t.Error(err)
	}
	if err := bl.Add(1, nil, nil); err != nil || bl.Count() != 2 {
		t.Error(err)
	}
	if b, err := bl.Batch(); err != nil || b.LastOffset() != 13 {
		t.Error(b, err)
	}
}

// TestBatchesOfCompaction reads what Kafka's cleaner leaves: a gap in front and
// behind, a delete horizon in the place of the base timestamp, no record at all.
func TestBatchesOfCompaction(t *testing.T) {
	for _, codec := range allCodecs {
		bl := NewBuilder(Options{BaseOffset: 10, Codec: codec, Producer: &Producer{1, 2, 3}})
		if err := bl.Append(&Record{Offset: 15, Timestamp: 900, Key: []byte("k")}); err != nil {
			t.Fatal(err)
		}
		b, err := bl.Batch()
		if err != nil {
			t.Fatal(err)
		}
		b = changed(b, put32(lastOffsetDeltaAt, 10))
		b = changed(b, orAttributes(attrDeleteHorizon))
		if info, err := b.Validate(Limits{}); err != nil || b.LastOffset() != 20 || !b.HasDeleteHorizon() || b.LastSequence() != 13 || info.OffsetOfMaxTimestamp != 15 {
			t.Errorf("%v, %+v, %v", b, info, err)
		}
		if got := records(t, b); len(got) != 1 || got[0].Offset != 15 || got[0].Timestamp != 900 {
			t.Errorf("%+v", got)
		}
		empty := changed(sealed(b, nil), put32(countAt, 0))
		if info, err := empty.Validate(Limits{}); err != nil || info.OffsetOfMaxTimestamp != -1 || len(records(t, empty)) != 0 {
			t.Errorf("%+v, %v", info, err)
		}
		if r, err := Rewrite(empty, Zstd, DefaultLevel); err != nil || !bytes.Equal(r, empty) {
			t.Errorf("%v, %v", r, err)
		}
		if err := empty.Times(func(int64, int64) bool { t.Error("a record"); return true }); err != nil {
			t.Error(err)
		}
	}
}

func TestIterStopsAndReportsErrors(t *testing.T) {
	stop := errors.New("stop")
	for _, codec := range allCodecs {
		b := built(t, Options{Codec: codec}, 20)
		seen := 0
		if err := b.Each(func(*Record) error { seen++; return stop }); err != stop || seen != 1 {
			t.Errorf("%s: %v after %d", codec, err, seen)
		}
		it := b.Records()
		for range 5 {
			if !it.Next() {
				t.Fatal(it.Err())
			}
		}
		if it.Record().Offset != 4 {
			t.Error(it.Record().Offset)
		}
		it.Close()
		it.Close()
		if it.Next() || it.Err() != nil {
			t.Error("a closed iterator goes on")
		}
		more := changed(b, put32(countAt, 21))
		if err := more.Each(func(*Record) error { return nil }); !errors.Is(err, protocol.InvalidRecord) {
			t.Errorf("%s: a missing record gives %v", codec, err)
		}
		less := changed(b, put32(countAt, 19))
		if err := less.Each(func(*Record) error { return nil }); !errors.Is(err, protocol.InvalidRecord) {
			t.Errorf("%s: a record too many gives %v", codec, err)
		}
	}
	bad := changed(built(t, Options{}, 1), orAttributes(6))
	if err := bad.Each(func(*Record) error { return nil }); !errors.Is(err, protocol.InvalidRecord) {
		t.Error(err)
	}
	if err := bad.Times(func(int64, int64) bool { return true }); !errors.Is(err, protocol.InvalidRecord) {
		t.Error(err)
	}
}

func TestTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts := drawOptions(t)
		bl := NewBuilder(opts)
		rs := drawRecords(t, opts.BaseOffset, true)
		for i := range rs {
			if err := bl.Append(&rs[i]); err != nil {
				t.Fatal(err)
			}
		}
		b, err := bl.Batch()
		if err != nil {
			t.Fatal(err)
		}
		stop := rapid.IntRange(0, len(rs)).Draw(t, "stop after")
		n := 0
		err = b.Times(func(offset, ts int64) bool {
			if offset != rs[n].Offset || ts != rs[n].Timestamp {
				t.Fatalf("record %d: offset %d, time %d, want %+v", n, offset, ts, rs[n])
			}
			n++
			return n != stop
		})
		if want := min(max(stop, 1), len(rs)); err != nil || stop > 0 && n != want || stop == 0 && n != len(rs) {
			t.Fatalf("%d of %d records, told to stop after %d: %v", n, len(rs), stop, err)
		}
	})
	b := built(t, Options{BaseOffset: 7}, 3)
	b.SetLogAppendTime(500)
	var got []int64
	if err := b.Times(func(offset, ts int64) bool { got = append(got, offset, ts); return true }); err != nil || !slices.Equal(got, []int64{7, 500, 8, 500, 9, 500}) {
		t.Error(got, err)
	}
}
