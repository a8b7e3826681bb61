package replica

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"varve/broker/commitlog"
	"varve/protocol"
	"varve/tiering"
	"varve/tiering/objstore"
)

// coldReaders bounds reads from the tier: so many at a time (remote.log.reader.threads), so many more waiting
// (remote.log.reader.max.pending.tasks). What finds no place comes back empty and is asked for again.
type coldReaders struct {
	slots   chan struct{}
	pending atomic.Int64
	max     int64
}

func (c *coldReaders) init(threads, maxPending int) {
	c.slots = make(chan struct{}, max(threads, 1))
	c.max = int64(max(threads, 1) + max(maxPending, 0))
}

// run calls fn in a place of its own; false when there is none.
func (c *coldReaders) run(ctx context.Context, wg *sync.WaitGroup, fn func()) bool {
	if c.pending.Add(1) > c.max {
		c.pending.Add(-1)
		return false
	}
	wg.Go(func() {
		defer c.pending.Add(-1)
		select {
		case c.slots <- struct{}{}:
			defer func() { <-c.slots }()
			fn()
		case <-ctx.Done():
		}
	})
	return true
}

// coldFetch are the reads from the tier of one fetch. They end with it; what they made the tier fetch stays in its cache.
type coldFetch struct {
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // capacity 1

	mu     sync.Mutex
	closed bool
	done   []coldAnswer
}

type coldAnswer struct {
	place int
	res   tiering.ReadResult
	err   error
}

func (c *coldFetch) deliver(a coldAnswer) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		protocol.ReleaseSpans(a.res.Spans)
		return
	}
	c.done = append(c.done, a)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *coldFetch) take() []coldAnswer {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.done
	c.done = nil
	return out
}

func (c *coldFetch) close() {
	c.cancel()
	c.mu.Lock()
	c.closed = true
	rest := c.done
	c.done = nil
	c.mu.Unlock()
	for _, a := range rest {
		protocol.ReleaseSpans(a.res.Spans)
	}
}

// startCold starts the reads of all cold slots that were not started yet.
func (f *fetch) startCold(ctx context.Context) {
	if f.colds == 0 {
		return
	}
	if f.cold == nil {
		ctx, cancel := context.WithTimeout(ctx, f.m.remoteMaxWait())
		f.cold = &coldFetch{ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1)}
	}
	for i := range f.slots {
		if s := &f.slots[i]; s.cold && !s.asked {
			s.asked = true
			f.startOneCold(f.cold.ctx, i)
		}
	}
}

func (f *fetch) startOneCold(ctx context.Context, i int) {
	s := &f.slots[i]
	q := s.q
	req := tiering.ReadRequest{
		TopicID: s.p.id, Partition: s.p.index, Offset: q.Offset,
		MaxBytes: int(s.reserved), MinOne: s.minOne, ReadCommitted: f.req.ReadCommitted,
	}
	cold, tier := f.cold, f.m.tier
	if res, ok := tier.ReadReady(req); ok {
		cold.deliver(coldAnswer{place: i, res: res})
		return
	}
	if !f.m.beginWork() {
		return
	}
	defer f.m.endWork()
	f.m.cold.run(ctx, &f.m.wg, func() {
		res, err := tier.Read(ctx, req)
		cold.deliver(coldAnswer{i, res, err})
	})
}

// coldDone is nil, and so blocks, when nothing is read from the tier.
func (f *fetch) coldDone() <-chan struct{} {
	if f.cold == nil {
		return nil
	}
	return f.cold.wake
}

// takeCold puts the answers that have come into their slots.
func (f *fetch) takeCold() {
	for _, a := range f.cold.take() {
		s := &f.slots[a.place]
		if a.err != nil {
			f.coldFailed(s, s.q, a.err)
			continue
		}
		f.colds--
		f.budget += s.reserved
		s.cold, s.reserved = false, 0
		s.res.Spans = a.res.Spans
		if f.req.ReadCommitted {
			s.res.Aborted = append([]commitlog.AbortedTxn{}, a.res.Aborted...)
		}
		f.take(s)
		f.gotOne = f.gotOne || s.bytes > 0
	}
}

// coldFailed judges an error of the tier. A store that does not answer leaves the partition empty until the wait is
// over, without an error. An offset without a segment is OffsetOutOfRange if log start has passed it, else
// ReplicaNotAvailable, which clients repeat; what is left is UnknownServerError, as in Kafka, whose
// RemoteStorageException is no error of the protocol.
func (f *fetch) coldFailed(s *fetchSlot, q *FetchPartition, err error) {
	if objstore.IsRetryable(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return
	}
	code := protocol.UnknownServerError
	r := s.p.role.Load()
	switch protocol.CodeOf(err) {
	case protocol.OffsetOutOfRange, protocol.ReplicaNotAvailable:
		code = protocol.ReplicaNotAvailable
		if r.log != nil && q.Offset < r.log.LogStart() {
			code = protocol.OffsetOutOfRange
		}
	}
	f.colds--
	f.budget += s.reserved
	s.cold, s.reserved = false, 0
	s.res = failedFetch(code)
	f.ended = true
	if code != protocol.OffsetOutOfRange {
		s.p.m.events.Emit(TierReadFailed{Topic: s.p.topic, Partition: s.p.index, Offset: q.Offset, Err: err})
	}
}
