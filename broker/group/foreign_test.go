package group

import (
	"encoding/binary"
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

// foreignReader writes batches one behind the other and has them read.
type foreignReader struct {
	t    *testing.T
	f    ForeignOffsets
	next int64
}

func (r *foreignReader) start(index int32) {
	r.f.StartPartition(index)
	r.next = 0
}

func (r *foreignReader) take(batches ...record.Batch) {
	r.t.Helper()
	for _, b := range batches {
		binary.BigEndian.PutUint64(b, uint64(r.next))
		r.next = b.NextOffset()
		if err := r.f.Take(b); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *foreignReader) want(want string) {
	r.t.Helper()
	got := ""
	for _, o := range r.f.Offsets() {
		got += fmt.Sprintf("%s %s-%d %d epoch %d %s at %d\n", o.Group, o.Topic, o.Partition, o.Offset, o.LeaderEpoch, o.Metadata, o.CommitMs)
	}
	if got != want {
		r.t.Errorf("%s, not %s", got, want)
	}
}

func foreignAt(group string, n, commitMs int64) Record {
	return offsetRecord(group, "t", 0, offset{at: n, leaderEpoch: 3, metadata: "m", commitMs: commitMs, expireMs: noTimestamp})
}

func foreignGone(group string) Record { return Record{Key: offsetKey(group, "t", 0)} }

// TestForeignOffsets: the last commit in the log counts, a removal takes it back, a transaction's counts from its commit on and in its own
// place, what is not an offset is passed over.
func TestForeignOffsets(t *testing.T) {
	marker := func(producer int64, commit bool) record.Batch {
		return record.EndTxnMarker{ProducerID: producer, Commit: commit}.Batch()
	}
	r := foreignReader{t: t}
	r.start(0)
	r.take(foreignBatch(t, -1, foreignAt("a", 1, 10), foreignAt("b", 1, 10), Record{Key: groupKey("a"), Value: []byte{0, 3}}, Record{Key: []byte{0, 9, 1}, Value: []byte{1}}),
		foreignBatch(t, -1, foreignAt("a", 2, 11), foreignGone("b")),
		foreignBatch(t, 7, foreignAt("committed", 5, 12), foreignAt("later", 5, 12)), foreignBatch(t, 8, foreignAt("aborted", 6, 12)), foreignBatch(t, 9, foreignAt("open", 7, 12)),
		foreignBatch(t, -1, foreignAt("later", 6, 13), foreignAt("a", 3, 9)), // by a leader whose clock is behind
		marker(7, true), marker(8, false), foreignBatch(t, 8, foreignAt("second", 1, 14)), marker(8, true))
	r.start(1) // a producer of the same id has a transaction there too
	r.take(foreignBatch(t, -1, foreignAt("c", 1, 10)), marker(9, true))
	r.want("a t-0 3 epoch 3 m at 9\nc t-0 1 epoch 3 m at 10\ncommitted t-0 5 epoch 3 m at 12\nlater t-0 6 epoch 3 m at 13\nsecond t-0 1 epoch 3 m at 14\n")
	if err := r.f.Take(foreignBatch(t, -1, Record{Key: []byte{0}})); err == nil {
		t.Error("a key of one byte")
	}
}

// TestForeignReplicas: a replica that is behind neither removes what was committed again since, nor brings back what is gone since,
// whichever is read first.
func TestForeignReplicas(t *testing.T) {
	for _, behindFirst := range []bool{true, false} {
		r := foreignReader{t: t}
		for _, behind := range []bool{behindFirst, !behindFirst} {
			r.start(4)
			r.take(foreignBatch(t, -1, foreignAt("again", 1, 10), foreignAt("gone", 1, 10)), foreignBatch(t, -1, foreignGone("again")))
			if !behind {
				r.take(foreignBatch(t, -1, foreignAt("again", 2, 11), foreignGone("gone")))
			}
		}
		r.want("again t-0 2 epoch 3 m at 11\n")
	}
}
