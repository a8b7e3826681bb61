package tiering

import (
	"context"

	"varve/broker/commitlog"
	"varve/metastore"
	"varve/protocol"
	"varve/protocol/record"
)

// OffsetForTimestamp finds the first record in the remote part, at or above log
// start, whose timestamp is ts (ms) or later. Errors are those of Read.
func (m *Manager) OffsetForTimestamp(ctx context.Context, topicID protocol.UUID, partition int32, ts int64) (commitlog.TimestampOffset, bool, error) {
	return m.overtaken(topicID, partition, func(st metastore.TierState) (commitlog.TimestampOffset, bool, error) {
		return m.offsetForTimestamp(ctx, topicID, partition, st, ts)
	})
}

// maxOvertaken bounds how often a question is asked again because retention took the segment that was to answer it.
const maxOvertaken = 8

// overtaken asks, and asks again from where the log starts now when retention was faster: that is no error of a question
// that names no offset.
func (m *Manager) overtaken(topicID protocol.UUID, partition int32, ask func(metastore.TierState) (commitlog.TimestampOffset, bool, error)) (at commitlog.TimestampOffset, ok bool, err error) {
	for range maxOvertaken {
		st, terr := m.o.Meta.Tier(topicID, partition)
		if terr != nil {
			return commitlog.TimestampOffset{}, false, terr
		}
		if at, ok, err = ask(st); protocol.CodeOf(err) != protocol.OffsetOutOfRange {
			return at, ok && err == nil, err
		}
	}
	return commitlog.TimestampOffset{}, false, err
}

func (m *Manager) offsetForTimestamp(ctx context.Context, topicID protocol.UUID, partition int32, st metastore.TierState, ts int64) (commitlog.TimestampOffset, bool, error) {
	for from := st.LogStart; ; {
		row, ok, err := m.o.Meta.SegmentByTime(topicID, partition, from, ts)
		if err != nil || !ok {
			return commitlog.TimestampOffset{}, false, err
		}
		var at commitlog.TimestampOffset
		err = m.withSegment(ctx, topicID, partition, row.Base, func(r metastore.RemoteSegment, x *SegmentIndex) error {
			row = r
			c := m.cursor(ctx, r, x)
			defer c.drop()
			at, ok, err = c.atTime(ts, st.LogStart)
			return err
		})
		if err != nil || ok {
			return at, ok, err
		}
		from = row.Next // its only such records lie below log start
	}
}

// MaxTimestamp finds the record with the highest timestamp in the remote part, the
// first one if several have it. Errors are those of Read.
func (m *Manager) MaxTimestamp(ctx context.Context, topicID protocol.UUID, partition int32) (commitlog.TimestampOffset, bool, error) {
	return m.overtaken(topicID, partition, func(st metastore.TierState) (commitlog.TimestampOffset, bool, error) {
		return m.maxTimestamp(ctx, topicID, partition, st)
	})
}

func (m *Manager) maxTimestamp(ctx context.Context, topicID protocol.UUID, partition int32, st metastore.TierState) (commitlog.TimestampOffset, bool, error) {
	best, ok, err := m.o.Meta.MaxTimestamp(topicID, partition, st.LogStart)
	if err != nil {
		return commitlog.TimestampOffset{}, false, err
	}
	if !ok {
		best = -1
	}
	// The segment that log start lies in counts from there on only.
	row, cut, err := m.o.Meta.SegmentAt(topicID, partition, st.LogStart)
	if err == nil && cut && row.Base < st.LogStart && row.MaxTimestamp > best {
		err = m.withSegment(ctx, topicID, partition, st.LogStart, func(r metastore.RemoteSegment, x *SegmentIndex) error {
			c := m.cursor(ctx, r, x)
			defer c.drop()
			t, err := c.maxTime(st.LogStart)
			best = max(best, t)
			return err
		})
	}
	if err != nil || best < 0 {
		return commitlog.TimestampOffset{}, false, err
	}
	return m.offsetForTimestamp(ctx, topicID, partition, st, best)
}

// maxTime is the highest timestamp at or above logStart, -1 if there is none.
func (c *cursor) maxTime(logStart int64) (best int64, err error) {
	best = -1
	for pos := c.x.position(logStart); ; c.skipTo(pos) {
		h, size, more, err := c.header(pos, true)
		if err != nil || !more {
			return best, err
		}
		switch {
		case h.BaseOffset() >= logStart:
			best = max(best, h.MaxTimestamp())
		case h.LastOffset() >= logStart:
			b, err := c.batch(pos, size)
			if err != nil {
				return best, err
			}
			err = b.Times(func(offset, at int64) bool {
				if offset >= logStart {
					best = max(best, at)
				}
				return true
			})
			if err != nil {
				return best, err
			}
		}
		pos += size
	}
}

// atTime finds the first record at or above logStart with a timestamp of ts or
// later.
func (c *cursor) atTime(ts, logStart int64) (at commitlog.TimestampOffset, ok bool, err error) {
	pos := max(c.x.positionOfTime(ts), c.x.position(logStart))
	c.fetch = int(c.x.endOfTime(ts)/chunkBytes-pos/chunkBytes) + 1
	for ; ; c.skipTo(pos) {
		h, size, more, err := c.header(pos, true)
		if err != nil || !more {
			return at, false, err
		}
		if h.MaxTimestamp() >= ts && h.LastOffset() >= logStart {
			b, err := c.batch(pos, size)
			if err != nil {
				return at, false, err
			}
			if at, ok, err = firstAt(b, ts, logStart); err != nil || ok {
				return at, ok, err
			}
		}
		pos += size
	}
}

// firstAt finds the record in one batch.
func firstAt(b record.Batch, ts, logStart int64) (at commitlog.TimestampOffset, ok bool, err error) {
	err = b.Times(func(offset, time int64) bool {
		if ok = time >= ts && offset >= logStart; ok {
			at = commitlog.TimestampOffset{Timestamp: time, Offset: offset, LeaderEpoch: b.LeaderEpoch()}
		}
		return !ok
	})
	return at, ok, err
}

// Tail returns where a log that has nothing local starts: the tier's end, the
// epochs that lead there and the producer state at that offset, which is nil when
// the tier is empty. Errors are those of Read.
func (m *Manager) Tail(ctx context.Context, topicID protocol.UUID, partition int32) (next int64, epochs []commitlog.EpochStart, producerSnapshot []byte, err error) {
	st, err := m.o.Meta.Tier(topicID, partition)
	if err != nil {
		return 0, nil, nil, err
	}
	for _, e := range st.Epochs {
		epochs = append(epochs, commitlog.EpochStart{Epoch: e.Epoch, Start: e.Start})
	}
	if _, ok, err := m.o.Meta.SegmentAt(topicID, partition, st.End-1); err != nil || !ok {
		return st.End, epochs, nil, err
	}
	err = m.withSegment(ctx, topicID, partition, st.End-1, func(_ metastore.RemoteSegment, x *SegmentIndex) error {
		producerSnapshot = x.ProducerSnapshot
		return nil
	})
	return st.End, epochs, producerSnapshot, err
}
