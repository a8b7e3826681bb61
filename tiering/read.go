package tiering

import (
	"context"
	"errors"
	"fmt"
	"io"

	"varve/broker/commitlog"
	"varve/metastore"
	"varve/protocol"
	"varve/protocol/record"
	"varve/tiering/objstore"
)

const (
	// maxReadBytes bounds one Read, but for a single larger batch.
	maxReadBytes = 8 << 20
	// maxReadTries is how often the metastore is asked again after a missing object.
	maxReadTries = 3
	// maxEmptySegments bounds how many segments without a record at or above the
	// offset one Read passes over.
	maxEmptySegments = 1000
)

// Read returns whole batches from the one that holds the offset on, of one segment,
// verified. ctx bounds the wait; GETs under way outlive it and land in the cache.
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

// readAt reads from the segment that claims off.
func (m *Manager) readAt(ctx context.Context, req ReadRequest, off int64) (res ReadResult, row metastore.RemoteSegment, err error) {
	err = m.withSegment(ctx, req.TopicID, req.Partition, off, func(r metastore.RemoteSegment, x *SegmentIndex) error {
		row = r
		c := &cursor{m: m, ctx: ctx, row: r, x: x}
		if res, err = c.batches(off, min(req.MaxBytes, maxReadBytes), req.MinOne); err != nil || !req.ReadCommitted || len(res.Spans) == 0 {
			return err
		}
		res.Aborted, err = m.aborted(ctx, r, x, off, res.NextOffset)
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

// rowKey is the key of a segment's object.
func (m *Manager) rowKey(s metastore.RemoteSegment) string {
	return SegmentKey{
		Prefix: m.o.Prefix, ClusterID: m.o.ClusterID, TopicID: s.TopicID, Partition: s.Partition, Base: s.Base, Next: s.Next,
		MaxTimestamp: s.MaxTimestamp, LeaderEpoch: s.LeaderEpoch, Generation: s.Generation, ID: s.ID,
	}.String()
}

// elsewhere is a hint for errors: the segment was written to another store than
// the one configured now. That alone is no error: a folder may have moved, an
// endpoint may have a new name, and a key names one object wherever it is.
func (m *Manager) elsewhere(s metastore.RemoteSegment) string {
	if s.Location == m.location {
		return ""
	}
	return fmt.Sprintf(": it was written to %s, but varve.tier.url is now %s", s.Location, m.location)
}

// index returns the segment's index, from memory or the store.
func (m *Manager) index(ctx context.Context, row metastore.RemoteSegment) (*SegmentIndex, error) {
	if x := m.indexes.get(row.ID); x != nil {
		return x, nil
	}
	fl, err := m.fills.get(ctx, fillKey{row.ID, -1}, func(ctx context.Context, fl *fill) {
		fl.index, fl.err = m.fetchIndex(ctx, row)
	})
	if err != nil {
		return nil, err
	}
	return fl.index, nil
}

func (m *Manager) fetchIndex(ctx context.Context, row metastore.RemoteSegment) (*SegmentIndex, error) {
	key := m.rowKey(row)
	if row.IndexLen < trailerBytes || row.IndexLen > maxIndexBytes {
		return nil, corrupt(key, "row says that the index has %d bytes", row.IndexLen)
	}
	b, err := m.getRange(ctx, key, row.IndexOff, int64(row.IndexLen), "index")
	if err != nil {
		return nil, err
	}
	x, err := parseIndex(key, b, row.IndexOff)
	if err == nil && (protocol.UUID(x.Footer.SegmentId) != row.ID || x.Footer.Base != row.Base || x.Footer.Next != row.Next) {
		err = corrupt(key, "footer is of segment %s [%d, %d)", protocol.UUID(x.Footer.SegmentId), x.Footer.Base, x.Footer.Next)
	}
	if err != nil {
		m.alarm(row, err)
		return nil, err
	}
	m.indexes.put(row.ID, x)
	return x, nil
}

// getRange reads exactly length bytes.
func (m *Manager) getRange(ctx context.Context, key string, off, length int64, cause string) ([]byte, error) {
	r, err := m.o.Store.Get(ctx, key, off, length, cause)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b := make([]byte, length)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, fmt.Errorf("tiering: get %d bytes at %d of %s: %w", length, off, key, err)
	}
	return b, nil
}

// alarm tells of corruption; other errors are not its business.
func (m *Manager) alarm(row metastore.RemoteSegment, err error) {
	var bad *protocol.CorruptionError
	if errors.As(err, &bad) {
		m.o.Events.Emit(CorruptionFound{TopicID: row.TopicID, Partition: row.Partition, Key: m.rowKey(row), Err: err})
	}
}

// fetchExtent fills one extent: one GET, checked chunk by chunk, into the cache.
func (m *Manager) fetchExtent(ctx context.Context, fl *fill, row metastore.RemoteSegment, chunks []Chunk, extent int) {
	first := extent * extentChunks
	chunks = chunks[first:min(first+extentChunks, len(chunks))]
	last := chunks[len(chunks)-1]
	off := chunks[0].Stored
	b, err := m.getRange(ctx, m.rowKey(row), off, last.Stored+int64(last.Length)-off, "read")
	if err != nil {
		fl.err = err
		return
	}
	for i, c := range chunks {
		part := b[c.Stored-off:][:c.Length:c.Length]
		if fl.err = c.check(m.rowKey(row), part); fl.err != nil {
			m.alarm(row, fl.err)
			return
		}
		fl.chunks = append(fl.chunks, part)
		m.cache.put(blockKey{row.ID, first + i}, part, c.CRC32C)
	}
}

// cursor walks the log of one segment chunk by chunk.
type cursor struct {
	m    *Manager
	ctx  context.Context
	row  metastore.RemoteSegment
	x    *SegmentIndex
	held map[int][]byte // chunks of this read
}

// chunk returns the checked bytes of one chunk.
func (c *cursor) chunk(i int) ([]byte, error) {
	if b := c.held[i]; b != nil {
		return b, nil
	}
	if c.held == nil {
		c.held = map[int][]byte{}
	}
	if b := c.m.cache.get(blockKey{c.row.ID, i}); b != nil {
		c.held[i] = b
		return b, nil
	}
	extent := i / extentChunks
	fl, err := c.m.fills.get(c.ctx, fillKey{c.row.ID, extent}, func(ctx context.Context, fl *fill) {
		c.m.fetchExtent(ctx, fl, c.row, c.x.Chunks, extent)
	})
	if err != nil {
		return nil, err
	}
	for j, b := range fl.chunks {
		c.held[extent*extentChunks+j] = b
	}
	return c.held[i], nil
}

// at appends the log bytes [pos, pos+n) to dst.
func (c *cursor) at(dst []byte, pos, n int64) ([]byte, error) {
	for n > 0 {
		b, err := c.chunk(int(pos / chunkBytes))
		if err != nil {
			return dst, err
		}
		b = b[pos%chunkBytes:]
		b = b[:min(n, int64(len(b)))]
		dst, pos, n = append(dst, b...), pos+int64(len(b)), n-int64(len(b))
	}
	return dst, nil
}

// header reads the batch header at pos; size is the whole batch's. ok is false at
// the end of the log.
func (c *cursor) header(pos int64, buf []byte) (h record.Batch, size int64, ok bool, err error) {
	end := c.x.Footer.LogBytes
	if pos >= end {
		return nil, 0, false, nil
	}
	if end-pos < record.HeaderLen {
		return nil, 0, false, c.broken(pos, "a batch is cut short")
	}
	if buf, err = c.at(buf[:0], pos, record.HeaderLen); err != nil {
		return nil, 0, false, err
	}
	n, err := record.PeekSize(buf)
	if err != nil {
		return nil, 0, false, c.broken(pos, err.Error())
	}
	if int64(n) > end-pos {
		return nil, 0, false, c.broken(pos, "a batch is cut short")
	}
	return record.Batch(buf), int64(n), true, nil
}

// broken is for bytes that pass their checksum but are no batches.
func (c *cursor) broken(pos int64, what string) error {
	err := corrupt(c.m.rowKey(c.row), "log position %d: %s", pos, what)
	c.m.alarm(c.row, err)
	return err
}

// batches finds the batch that holds off and takes whole batches up to maxBytes.
// When ctx ends after the first of them, it returns those it has.
func (c *cursor) batches(off int64, maxBytes int, minOne bool) (ReadResult, error) {
	res := ReadResult{NextOffset: off}
	var buf [record.HeaderLen]byte
	pos := c.x.position(off)
	start, end := int64(-1), int64(-1)
	for {
		h, size, ok, err := c.header(pos, buf[:])
		if err != nil && start >= 0 && c.ctx.Err() != nil {
			break
		}
		if err != nil {
			return res, err
		}
		if !ok {
			if start < 0 {
				res.NextOffset = c.row.Next
			}
			break
		}
		if start < 0 && h.LastOffset() < off {
			pos += size
			continue
		}
		if start < 0 {
			start, end = pos, pos
		}
		if pos+size-start > int64(maxBytes) && (!minOne || end > start) {
			break
		}
		pos, end = pos+size, pos+size
		res.NextOffset = h.NextOffset()
	}
	if end <= start {
		return res, nil
	}
	return c.spans(res, start, end)
}

// spans cuts [start, end) out of the chunks, without copying, and fetches ahead when
// the reader comes from where an earlier one stopped.
func (c *cursor) spans(res ReadResult, start, end int64) (ReadResult, error) {
	for pos := start; pos < end; {
		b, err := c.chunk(int(pos / chunkBytes))
		if err != nil {
			return ReadResult{}, err
		}
		b = b[pos%chunkBytes:]
		b = b[:min(end-pos, int64(len(b)))]
		res.Spans = append(res.Spans, protocol.MemSpan(b))
		pos += int64(len(b))
	}
	c.ahead(int((end-1)/chunkBytes/extentChunks), c.m.seq.step(c.row.ID, start, end))
	return res, nil
}

// ahead starts to fetch the n extents after the given one into the cache.
func (c *cursor) ahead(extent, n int) {
	if c.m.cache == nil {
		return
	}
	extents := (len(c.x.Chunks) + extentChunks - 1) / extentChunks
	for e := extent + 1; e < min(extents, extent+1+n); e++ {
		if c.m.cache.has(blockKey{c.row.ID, e * extentChunks}) {
			continue
		}
		c.m.fills.ahead(fillKey{c.row.ID, e}, func(ctx context.Context, fl *fill) {
			c.m.fetchExtent(ctx, fl, c.row, c.x.Chunks, e)
		})
	}
}

// batch returns one whole batch.
func (c *cursor) batch(pos, size int64) (record.Batch, error) {
	b, err := c.at(make([]byte, 0, size), pos, size)
	return record.Batch(b), err
}

// aborted lists the aborted transactions that touch [from, to): those of this
// segment's transaction index and, as far as needed, of what follows it, since an
// abort stands where its marker is (RemoteLogManager.collectAbortedTransactions).
func (m *Manager) aborted(ctx context.Context, row metastore.RemoteSegment, x *SegmentIndex, from, to int64) ([]commitlog.AbortedTxn, error) {
	out, done := appendAborted(nil, x.TxnIndex, from, to)
	if done {
		return out, nil
	}
	st, err := m.o.Meta.Tier(row.TopicID, row.Partition)
	if err != nil {
		return nil, err
	}
	for next := row.Next; next < st.End; {
		var seg metastore.RemoteSegment
		found := false
		err := m.o.Meta.SegmentsFrom(row.TopicID, row.Partition, next, func(r metastore.RemoteSegment) bool {
			seg, found = r, r.HasTxns
			return !found
		})
		if err != nil {
			return nil, err
		}
		if !found {
			break
		}
		x, err := m.index(ctx, seg)
		if err != nil {
			return nil, err
		}
		if out, done = appendAborted(out, x.TxnIndex, from, to); done {
			return out, nil
		}
		next = seg.Next
	}
	return m.abortedLocal(out, row, st.End, to)
}
