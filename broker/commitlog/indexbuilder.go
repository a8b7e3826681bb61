package commitlog

import "varve/protocol/record"

// IndexBuilder makes the indexes of a log that is not a local segment: a part of one, or
// several of the tier's in one.
type IndexBuilder struct {
	part     *segment
	interval int32
}

// NewIndexBuilder is for a log whose offsets are counted from base; intervalBytes is
// index.interval.bytes.
func NewIndexBuilder(base int64, intervalBytes int32) *IndexBuilder {
	part := &segment{base: base, offsets: newIndex(nil, offsetEntryBytes), times: newIndex(nil, timeEntryBytes), txns: newIndex(nil, txnEntryBytes)}
	part.resetState()
	return &IndexBuilder{part, intervalBytes}
}

// Add takes note of the batch, of which the header is enough, that stands at pos; batches
// come in order.
func (b *IndexBuilder) Add(h record.Batch, pos, size int64) { b.part.note(h, pos, size, b.interval) }

// Indexes returns what the .index and .timeindex of a sealed segment would hold, and its
// largest timestamp, in ms, -1 none.
func (b *IndexBuilder) Indexes() (offsets, times []byte, maxTimestamp int64, err error) {
	b.part.noteTime()
	if offsets, err = b.part.offsets.bytes(0, b.part.offsets.count()); err != nil {
		return nil, nil, 0, err
	}
	times, err = b.part.times.bytes(0, b.part.times.count())
	return offsets, times, b.part.maxTimestamp.Load(), err
}
