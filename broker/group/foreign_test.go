package group

import (
	"fmt"
	"slices"
	"testing"

	"varve/protocol/record"
)

// foreignBatch is a batch of records of one producer; producer -1 writes outside of transactions.
func foreignBatch(t *testing.T, producer int64, records ...Record) record.Batch {
	t.Helper()
	o := record.Options{}
	if producer >= 0 {
		o.Producer, o.Transactional = &record.Producer{ID: producer}, true
	}
	b := record.NewBuilder(o)
	for _, r := range records {
		if err := b.Add(1, r.Key, r.Value); err != nil {
			t.Fatal(err)
		}
	}
	out, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(out)
}

// TestForeignOffsets: the last commit counts, a removal takes it back, a transaction's counts from its commit on, what is not an offset is
// passed over, and of two replicas the younger commit stays.
func TestForeignOffsets(t *testing.T) {
	at := func(group string, n, commitMs int64) Record {
		return offsetRecord(group, "t", 0, offset{at: n, leaderEpoch: 3, metadata: "m", commitMs: commitMs, expireMs: noTimestamp})
	}
	gone := func(group string) Record { return Record{Key: offsetKey(group, "t", 0)} }
	marker := func(producer int64, commit bool) record.Batch {
		return record.EndTxnMarker{ProducerID: producer, Commit: commit}.Batch()
	}
	var f ForeignOffsets
	take := func(batches ...record.Batch) {
		t.Helper()
		for _, b := range batches {
			if err := f.Take(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	take(foreignBatch(t, -1, at("a", 1, 10), at("b", 1, 10), Record{Key: groupKey("a"), Value: []byte{0, 3}}, Record{Key: []byte{0, 9, 1}, Value: []byte{1}}),
		foreignBatch(t, -1, at("a", 2, 11), gone("b")),
		foreignBatch(t, 7, at("committed", 5, 12)), foreignBatch(t, 8, at("aborted", 6, 12)), foreignBatch(t, 9, at("open", 7, 12)),
		marker(7, true), marker(8, false))
	f.StartPartition() // another replica, which is behind, and has a transaction of the same producer
	take(foreignBatch(t, -1, at("a", 1, 10)), marker(9, true))
	got := ""
	for _, o := range f.Offsets() {
		got += fmt.Sprintf("%s %s-%d %d epoch %d %s at %d\n", o.Group, o.Topic, o.Partition, o.Offset, o.LeaderEpoch, o.Metadata, o.CommitMs)
	}
	if want := "a t-0 2 epoch 3 m at 11\ncommitted t-0 5 epoch 3 m at 12\n"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	if err := f.Take(foreignBatch(t, -1, Record{Key: []byte{0}})); err == nil {
		t.Error("a key of one byte")
	}
}
