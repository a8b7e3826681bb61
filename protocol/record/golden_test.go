package record

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
)

// kafkaRecords are the three records that each data batch of the fixture holds.
func kafkaRecords(base int64) []Record {
	return []Record{
		{Offset: base, Timestamp: 1000, Key: []byte("k0"), Value: []byte{}, Headers: []Header{{"h", []byte{1, 2}}, {"n", nil}}},
		{Offset: base + 1, Timestamp: 1001, Value: []byte(strings.Repeat("value ", 10))},
		{Offset: base + 2, Timestamp: 1002, Key: []byte("k2")},
	}
}

// TestBatchesOfApacheKafka reads what MemoryRecordsBuilder of Apache Kafka 4.4.0
// wrote: one batch in each codec, zstd also at level 22 (a window of 128 MiB),
// and an abort and a commit marker. Where there is no compression, what the
// Builder makes of the same records has the same bytes.
func TestBatchesOfApacheKafka(t *testing.T) {
	rest, err := os.ReadFile("testdata/kafka-4.4.0.batches")
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{BaseOffset: 100, LeaderEpoch: 3, Transactional: true, Producer: &Producer{5, 1, 10}}
	var b Batch
	for _, codec := range append(slices.Clone(allCodecs), Zstd) {
		if b, rest, err = Next(rest); err != nil {
			t.Fatal(err)
		}
		want := kafkaRecords(opts.BaseOffset)
		if _, err := b.Validate(Limits{Client: true}); err != nil || b.Codec() != codec {
			t.Fatalf("%v, %v", b, err)
		}
		if got := records(t, b); !slices.EqualFunc(got, want, sameRecord) {
			t.Errorf("%v: %+v", b, got)
		}
		bl := NewBuilder(opts)
		for i := range want {
			if err := bl.Append(&want[i]); err != nil {
				t.Fatal(err)
			}
		}
		ours, err := bl.Batch()
		if err != nil {
			t.Fatal(err)
		}
		if theirs, err := Rewrite(b, None, DefaultLevel); err != nil || !bytes.Equal(ours, theirs) {
			t.Errorf("%v\n ours % x\n theirs % x", err, ours, theirs)
		}
		opts.BaseOffset += 3
	}
	for _, commit := range []bool{false, true} {
		if b, rest, err = Next(rest); err != nil {
			t.Fatal(err)
		}
		m := EndTxnMarker{BaseOffset: opts.BaseOffset, LeaderEpoch: 3, TimestampMs: 99, ProducerID: 5, ProducerEpoch: 1, CoordinatorEpoch: 7, Commit: commit}
		if ours := m.Batch(); !bytes.Equal(ours, b) {
			t.Errorf("marker\n ours % x\n theirs % x", ours, b)
		}
		opts.BaseOffset++
	}
	if len(rest) > 0 {
		t.Errorf("%d bytes are left", len(rest))
	}
}
