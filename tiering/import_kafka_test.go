package tiering

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"varve/metastore/metapb"
	"varve/protocol"
	"varve/protocol/record"
	"varve/tiering/objstore"
)

// kraftRecord is a frame of Apache Kafka's metadata log.
func kraftRecord(key byte, body ...[]byte) []byte {
	return slices.Concat(append([][]byte{{1, key, 0}}, body...)...)
}

func compact(s string) []byte {
	return append(binary.AppendUvarint(nil, uint64(len(s)+1)), s...)
}

func kraftBatch(t *testing.T, values ...[]byte) record.Batch {
	t.Helper()
	b := record.NewBuilder(record.Options{})
	for _, v := range values {
		if err := b.Add(1, nil, v); err != nil {
			t.Fatal(err)
		}
	}
	out, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(out)
}

// TestKafkaConfigs: the last value counts, null removes, a deleted topic's configs are not those of the next with its name, and
// configs of brokers, other records and what follows are passed over.
func TestKafkaConfigs(t *testing.T) {
	id, next := protocol.NewUUID(), protocol.NewUUID()
	config := func(kind byte, of, name string, value []byte) []byte {
		return kraftRecord(kafkaConfigRecord, []byte{kind}, compact(of), compact(name), value, []byte{0})
	}
	var k KafkaConfigs
	for _, b := range []record.Batch{
		kraftBatch(t, kraftRecord(kafkaTopicRecord, compact("a"), id[:], []byte{0}), config(2, "a", "segment.bytes", compact("1")), config(2, "a", "retention.ms", compact("2"))),
		kraftBatch(t, config(4, "a", "segment.bytes", compact("9")), config(2, "a", "retention.ms", []byte{0}), kraftRecord(77, []byte{1, 2, 3})),
		kraftBatch(t, kraftRecord(kafkaTopicRecord, compact("b"), next[:], []byte{0}), config(2, "b", "x", compact("y")), kraftRecord(kafkaRemoveTopicRecord, next[:], []byte{0})),
		kraftBatch(t, config(2, "b", "z", compact("")), config(2, "a", "segment.bytes", compact("3"))),
	} {
		if err := k.Take(b); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(k.Topic("a"), k.Topic("b"), k.Topic("c")); got != "map[segment.bytes:3] map[z:] map[]" {
		t.Error(got)
	}
	whole := config(2, "a", "segment.bytes", compact("1"))
	for n := range len(whole) - 1 { // the tagged fields at the end are not read
		if err := k.Take(kraftBatch(t, whole[:n])); !isCorrupt(err) {
			t.Errorf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
}

// TestImportOffsets: offsets go into the journal once, younger ones again; a lost reply doubles nothing; a restore is handed the last.
func TestImportOffsets(t *testing.T) {
	store := objstore.NewFaulty(objstore.NewMem(nil), 1)
	dir, _ := oldBroker(t, 2)
	if _, err := importAll(t, store, dir); err != nil {
		t.Fatal(err)
	}
	offset := func(group string, at, commitMs int64) *metapb.GroupOffset {
		return &metapb.GroupOffset{Group: group, Topic: "old", Offset: at, LeaderEpoch: -1, CommitMs: commitMs}
	}
	add := func(want int, offsets ...*metapb.GroupOffset) {
		t.Helper()
		im := &Import{Store: store, Prefix: "p", ID: "import-1", Now: func() time.Time { return time.UnixMilli(1_700_000_100_000) }}
		if err := im.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		n, err := im.Offsets(t.Context(), offsets)
		if err != nil || n != want {
			t.Fatalf("%d added, not %d: %v", n, want, err)
		}
	}
	var many []*metapb.GroupOffset
	for i := range 2 * offsetsInRecord {
		many = append(many, offset(fmt.Sprint("g", i), int64(i), 5))
	}
	add(len(many), many...)
	add(0, many...)
	add(1, offset("g7", 100_000, 6), offset("g8", 3, 5), offset("g9", 3, 4))
	rep, err := DryRunRestore(t.Context(), store, "p", RestoreRequest{Source: "import-1"}, 1_700_000_100_000)
	if err != nil || rep.GroupOffsets != len(many) || rep.OffsetsTime == "" {
		t.Fatalf("%+v: %v", rep, err)
	}
}
