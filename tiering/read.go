package tiering

import (
	"context"
	"errors"

	"varve/metastore"
	"varve/protocol"
	"varve/tiering/objstore"
)

const (
	// maxReadBytes bounds one Read, but for a single larger batch.
	maxReadBytes = 8 << 20
	// enoughBytes is when a Read stops to wait for more: what it has is on its way to the
	// client while the rest comes.
	enoughBytes = 2 << 20
	// maxCopiedBytes is up to where a result is copied: it would hold a whole chunk.
	maxCopiedBytes = 32 << 10
	// maxReadTries is how often the metastore is asked again after a missing object.
	maxReadTries = 3
	// maxEmptySegments bounds how many segments without a record at or above the
	// offset one Read passes over.
	maxEmptySegments = 1000
)

// Read returns whole batches from the one that holds the offset on, of one segment,
// verified. ctx bounds the wait; GETs under way outlive it and land in memory. The caller
// releases the spans: they hold a part of the memory that all readers share.
//
// Below log start it may answer with what is still there: that bound is the
// caller's. Errors: OffsetOutOfRange for what is not in the tier; *protocol.CorruptionError
// for bytes that fail their checksum; KafkaStorageError for an object that is missing;
// those of the store and of ctx.
func (m *Manager) Read(ctx context.Context, req ReadRequest) (ReadResult, error) {
	off := req.Offset
	for range maxEmptySegments {
		res, row, err := m.readAt(ctx, req, off)
		if err != nil || len(res.Spans) > 0 || res.NextOffset < row.Next {
			return res, err
		}
		// Nothing at or above off in this segment: compaction took it. On with the next.
		if _, ok, err := m.o.Meta.SegmentAt(req.TopicID, req.Partition, row.Next); err != nil || !ok {
			return res, err
		}
		off = row.Next
	}
	return ReadResult{NextOffset: off}, nil
}

// ReadReady is Read for a reader in order whose next bytes have been fetched ahead: it does not wait for the store, so that it needs
// no worker. ok is false, and Read is to be asked, when as much as Read would wait for is not there.
func (m *Manager) ReadReady(req ReadRequest) (res ReadResult, ok bool) {
	if req.ReadCommitted {
		return ReadResult{}, false // aborted transactions may be told by later segments
	}
	s := m.streams.find(place{req.TopicID, req.Partition, req.Offset})
	row, x := s.segment(req.Offset)
	if x == nil {
		return ReadResult{}, false
	}
	c := m.cursor(m.fills.ctx, row, x)
	defer c.drop()
	c.ready = true
	res, err := c.read(req, req.Offset, s)
	return res, err == nil && len(res.Spans) > 0
}

// readAt reads from the segment that claims off.
func (m *Manager) readAt(ctx context.Context, req ReadRequest, off int64) (res ReadResult, row metastore.RemoteSegment, err error) {
	s := m.streams.find(place{req.TopicID, req.Partition, off})
	err = m.withSegment(ctx, req.TopicID, req.Partition, off, func(r metastore.RemoteSegment, x *SegmentIndex) error {
		row = r
		c := m.cursor(ctx, r, x)
		defer c.drop()
		if res, err = c.read(req, off, s); err != nil || !req.ReadCommitted || len(res.Spans) == 0 {
			return err
		}
		if res.Aborted, err = m.aborted(ctx, r, x, off, res.NextOffset); err != nil {
			protocol.ReleaseSpans(res.Spans)
			res = ReadResult{}
		}
		return err
	})
	return res, row, err
}

// withSegment finds the segment that claims off, gets its index and calls fn. When
// an object is not there, it asks the metastore again and retries: retention or a
// rewrite may have just replaced the segment. If not, it is an alarm.
func (m *Manager) withSegment(ctx context.Context, topicID protocol.UUID, partition int32, off int64, fn func(metastore.RemoteSegment, *SegmentIndex) error) error {
	var missing protocol.UUID
	for range maxReadTries {
		row, ok, err := m.o.Meta.SegmentAt(topicID, partition, off)
		if err != nil {
			return err
		}
		if !ok {
			return m.notThere(topicID, partition, off)
		}
		x, err := m.index(ctx, row)
		if err == nil {
			err = fn(row, x)
		}
		if !errors.Is(err, objstore.ErrNotFound) {
			return err
		}
		if missing == row.ID {
			key := m.rowKey(row)
			m.o.Events.Emit(ObjectMissing{TopicID: topicID, Partition: partition, Key: key, Location: row.Location})
			return protocol.Errorf(protocol.KafkaStorageError, "tier object %s is missing%s", key, m.elsewhere(row))
		}
		missing = row.ID
	}
	return protocol.Errorf(protocol.KafkaStorageError, "the segment of offset %d changed %d times during a read", off, maxReadTries)
}

// notThere is the answer when no segment claims off.
func (m *Manager) notThere(topicID protocol.UUID, partition int32, off int64) error {
	st, err := m.o.Meta.Tier(topicID, partition)
	if err != nil {
		return err
	}
	if off >= st.LogStart && off < st.End {
		return protocol.Errorf(protocol.KafkaStorageError, "no segment claims offset %d, although the tier holds [%d, %d)", off, st.LogStart, st.End)
	}
	return protocol.Errorf(protocol.OffsetOutOfRange, "offset %d is outside of the tier's [%d, %d)", off, st.LogStart, st.End)
}

// alarm tells of corruption; other errors are not its business.
func (m *Manager) alarm(row metastore.RemoteSegment, err error) {
	var bad *protocol.CorruptionError
	if errors.As(err, &bad) {
		m.o.Events.Emit(CorruptionFound{TopicID: row.TopicID, Partition: row.Partition, Key: m.rowKey(row), Err: err})
	}
}
