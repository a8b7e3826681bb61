package tiering

import (
	"context"
	"errors"
	"slices"

	"varve/metastore"
	"varve/protocol"
	"varve/protocol/record"
	"varve/tiering/objstore"
)

// cursor walks the log of one segment chunk by chunk. It holds a run of neighbouring
// chunks, until drop.
type cursor struct {
	m      *Manager
	ctx    context.Context
	row    metastore.RemoteSegment
	x      *SegmentIndex
	held   []*memChunk
	first  int  // number of held[0]
	fetch  int  // chunks that a GET brings when one is missing
	keep   bool // cache what is fetched, also for the first time
	missed bool // it had to wait for the store
	ready  bool // it takes what is there and waits for nothing
	flow   *objstore.Flow
	buf    [record.HeaderLen]byte
}

// errLater says that a chunk is not there yet.
var errLater = errors.New("tiering: not there yet")

func (m *Manager) cursor(ctx context.Context, row metastore.RemoteSegment, x *SegmentIndex) *cursor {
	return &cursor{m: m, ctx: ctx, row: row, x: x, fetch: extentChunks / 2, keep: true, flow: &objstore.Flow{}}
}

// drop lets go of all chunks.
func (c *cursor) drop() {
	for _, h := range c.held {
		c.m.mem.release(h, false)
	}
	c.held = c.held[:0]
}

// chunk returns chunk i, checked, and keeps all from the first held one up
// to it. Without wait it is errLater when it is not there.
func (c *cursor) chunk(i int, wait bool) (*memChunk, error) {
	if i < c.first {
		c.drop()
	}
	if len(c.held) == 0 {
		c.first = i
	}
	for n := len(c.held); n <= i-c.first; n++ {
		h, err := c.hold(c.first+n, wait)
		if err != nil {
			return nil, err
		}
		c.held = append(c.held, h)
	}
	return c.held[i-c.first], nil
}

// hold gets one chunk, from wherever it is.
func (c *cursor) hold(i int, wait bool) (*memChunk, error) {
	h, err := c.ask(i, wait)
	if err != nil {
		return nil, err
	}
	if err := c.await(h, wait); err != nil {
		c.m.mem.release(h, false)
		return nil, err
	}
	return h, nil
}

// ask holds one chunk that is there, or on its way from now on.
func (c *cursor) ask(i int, wait bool) (*memChunk, error) {
	k := blockKey{c.row.ID, i}
	h := c.m.mem.take(k)
	if h != nil {
		return h, nil
	}
	c.missed = true
	if !wait {
		return nil, errLater
	}
	n := max(1, min(c.fetch, maxGet, len(c.x.Chunks)-i))
	h, fresh, err := c.m.mem.want(c.ctx, k, n, func(b blockKey) bool { return c.m.sameSource(k, b) })
	if len(fresh) > 0 {
		c.m.fill(run{row: c.row, x: c.x, chunks: fresh, keep: c.keep, flow: c.flow})
	}
	return h, err
}

// awaitEnough waits for the last of the chunks that a read from pos waits for: those before it mostly come with it, and each
// wait is a turn of the scheduler's. It is no error that ctx ends: the read takes what is there. The caller calls done.
func (c *cursor) awaitEnough(pos int64, maxBytes int) (done func(), err error) {
	var held []*memChunk
	done = func() {
		for _, h := range held {
			c.m.mem.release(h, false)
		}
	}
	last := int((min(pos+int64(min(maxBytes, enoughBytes)), c.x.Footer.LogBytes) - 1) / chunkBytes)
	if int(pos/chunkBytes) >= last {
		return done, nil
	}
	h, err := c.ask(int(pos/chunkBytes), true)
	if err != nil {
		return done, err
	}
	held = append(held, h)
	wait := false // for the first: if the last one is no longer on its way, neither is this one
	if h := c.m.mem.take(blockKey{c.row.ID, last}); h != nil {
		held, wait = append(held, h), true
	}
	defer h.want.begin()()
	if err = c.await(held[len(held)-1], wait); c.ctx.Err() != nil || errors.Is(err, errLater) {
		err = nil
	}
	return done, err
}

func (c *cursor) await(h *memChunk, wait bool) error {
	select {
	case <-h.ready:
		return h.err
	default:
	}
	c.missed = true
	if !wait {
		return errLater
	}
	defer h.want.begin()()
	select {
	case <-h.ready:
		return h.err
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// skipTo lets go of the chunks before byte position pos, which are not needed.
func (c *cursor) skipTo(pos int64) {
	for n := int(pos / chunkBytes); len(c.held) > 0 && c.first < n; c.first++ {
		c.m.mem.release(c.held[0], true)
		c.held = c.held[1:]
	}
}

// header reads the batch header at pos; size is the whole batch's. ok is false at the
// end of the log. The header is valid until the next one is read.
func (c *cursor) header(pos int64, wait bool) (h record.Batch, size int64, ok bool, err error) {
	end := c.x.Footer.LogBytes
	if pos >= end {
		return nil, 0, false, nil
	}
	if end-pos < record.HeaderLen {
		return nil, 0, false, c.broken(pos, "a batch is cut short")
	}
	for n := 0; n < record.HeaderLen; {
		at := pos + int64(n)
		b, err := c.chunk(int(at/chunkBytes), wait)
		if err != nil {
			return nil, 0, false, err
		}
		k, err := b.header(c.buf[n:], int(at%chunkBytes))
		if n += k; err != nil {
			return nil, 0, false, err
		}
	}
	n, err := record.PeekSize(c.buf[:])
	if err != nil {
		return nil, 0, false, c.broken(pos, err.Error())
	}
	if int64(n) > end-pos {
		return nil, 0, false, c.broken(pos, "a batch is cut short")
	}
	return record.Batch(c.buf[:]), int64(n), true, nil
}

// broken is for bytes that pass their checksum but are no batches.
func (c *cursor) broken(pos int64, what string) error {
	err := corrupt(c.m.rowKey(c.row), "log position %d: %s", pos, what)
	c.m.alarm(c.row, err)
	return err
}

// batch copies one whole batch, holding one chunk of it at a time.
func (c *cursor) batch(pos, size int64) (record.Batch, error) {
	b := make([]byte, 0, size)
	for size > 0 {
		part, err := c.chunk(int(pos/chunkBytes), true)
		if err != nil {
			return nil, err
		}
		n := int(min(size, int64(part.size)-pos%chunkBytes))
		if b, err = part.appendTo(b, int(pos%chunkBytes), n); err != nil {
			return nil, err
		}
		pos, size = pos+int64(n), size-int64(n)
		if size > 0 {
			c.drop() // not read to its end: who tries again needs it again
		}
	}
	return record.Batch(b), nil
}

// read answers a request from this segment. s is the stream that comes here, or nil.
func (c *cursor) read(req ReadRequest, off int64, s *stream) (ReadResult, error) {
	maxBytes := min(req.MaxBytes, maxReadBytes)
	pos, known := s.bytePos(c.row, off)
	if !known {
		pos = c.x.position(off)
	}
	c.fetch = (maxBytes+chunkBytes-1)/chunkBytes + 1
	if c.keep = s == nil; s != nil {
		c.flow = &s.flow
		c.m.pump(s)
	}
	if !c.ready {
		done, err := c.awaitEnough(pos, maxBytes)
		defer done()
		if err != nil && c.ctx.Err() == nil {
			return ReadResult{}, err
		}
	}
	res, end, err := c.batches(off, pos, maxBytes, req.MinOne)
	switch {
	case err != nil && s != nil && c.ctx.Err() != nil:
		s.came(c.row, c.x, pos, off, true)
		c.m.pump(s)
	case err == nil && end >= 0:
		going := s != nil
		if !going {
			s = &stream{}
		}
		s.came(c.row, c.x, end, res.NextOffset, going && c.missed)
		c.m.streams.move(s, place{req.TopicID, req.Partition, res.NextOffset})
		if going {
			c.m.pump(s)
		}
	}
	return res, err
}

// batches finds the batch that holds off and takes whole batches up to maxBytes. When
// ctx ends after the first of them, or enough is there and more is not, it returns what
// it has. end is where in the log it stopped, -1 when it took nothing.
func (c *cursor) batches(off, pos int64, maxBytes int, minOne bool) (res ReadResult, endPos int64, err error) {
	res = ReadResult{NextOffset: off}
	start, end := int64(-1), int64(-1)
	for {
		few := end-start < min(enoughBytes, int64(maxBytes))
		wait := few && !c.ready
		if start < 0 {
			c.skipTo(pos)
		}
		h, size, ok, err := c.header(pos, wait)
		if err == nil && !ok {
			if start < 0 {
				res.NextOffset = c.row.Next
			}
			break
		}
		if err == nil && start < 0 {
			if h.LastOffset() < off {
				pos += size
				continue
			}
			start, end = pos, pos
		}
		if err == nil && pos+size-start > int64(maxBytes) && (!minOne || end > start) {
			break
		}
		if err == nil && size > maxReadBytes {
			return c.giant(h.NextOffset(), pos, size)
		}
		next := int64(0)
		if err == nil {
			next = h.NextOffset()
			_, err = c.chunk(int((pos+size-1)/chunkBytes), wait)
		}
		if err != nil && end > start && (errors.Is(err, errLater) && !(few && c.ready) || c.ctx.Err() != nil) {
			break
		}
		if err != nil {
			return res, -1, err
		}
		pos, end = pos+size, pos+size
		res.NextOffset = next
		pos = c.leap(pos, start+int64(maxBytes))
	}
	if end <= start {
		return res, -1, nil
	}
	res.Spans = c.spans(start, end)
	return res, end, nil
}

// leap returns where to look at a header next after pos: all batches from pos to there are within limit and in chunks that are
// there, and so is the one that begins there. The index knows where batches begin, so that most are passed over unseen.
func (c *cursor) leap(pos, limit int64) int64 {
	limit = min(limit, c.x.Footer.LogBytes)
	there := pos
	for i := int(pos / chunkBytes); there < limit; i++ {
		if _, err := c.chunk(i, false); err != nil {
			break // who needs it meets the error
		}
		there = int64(i+1) * chunkBytes
	}
	return max(pos, c.x.batchBefore(min(there, limit)))
}

// giant returns one batch that is larger than a Read may be: a copy, so that it holds
// no more of the common memory than others do; one at a time.
func (c *cursor) giant(next, pos, size int64) (ReadResult, int64, error) {
	if c.ready {
		return ReadResult{}, -1, errLater
	}
	select {
	case c.m.giants <- struct{}{}:
		defer func() { <-c.m.giants }()
	case <-c.ctx.Done():
		return ReadResult{}, -1, c.ctx.Err()
	}
	c.drop()
	c.fetch = maxGet
	b, err := c.batch(pos, size)
	if err != nil {
		return ReadResult{}, -1, err
	}
	return ReadResult{Spans: []protocol.Span{protocol.MemSpan(b)}, NextOffset: next}, pos + size, nil
}

// spans cuts [start, end) out of the held chunks. They pass to the spans, but for a small
// result in memory, which is copied.
func (c *cursor) spans(start, end int64) (spans []protocol.Span) {
	i, j := int(start/chunkBytes)-c.first, int((end-1)/chunkBytes)-c.first
	from, to := start%chunkBytes, end-int64(c.first+i)*chunkBytes
	if end-start <= maxCopiedBytes && c.held[i].file == nil && c.held[j].file == nil {
		copied := make([]byte, 0, end-start)
		for k := i; k <= j; k++ {
			copied = append(copied, c.held[k].data[from:min(to, int64(len(c.held[k].data)))]...)
			from, to = 0, to-chunkBytes
		}
		return []protocol.Span{protocol.MemSpan(copied)}
	}
	spans = c.m.mem.spans(slices.Clone(c.held[i:j+1]), from, to)
	c.held = slices.Delete(c.held, i, j+1)
	c.drop()
	return spans
}
