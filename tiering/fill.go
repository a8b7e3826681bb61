package tiering

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"varve/protocol"
)

const (
	extentChunks = 8 // chunks of one GET: 1 MiB
	maxFills     = 32
	fillDeadline = 60 * time.Second

	maxIndexCacheBytes = 64 << 20
)

// errClosed answers readers after Run has ended.
var errClosed = errors.New("tiering: closed")

// fillKey names what one fill fetches: an extent, or the index when extent is -1.
type fillKey struct {
	seg    protocol.UUID
	extent int
}

// fill is a GET under way that any number of readers wait for. It is not bound to
// any of them: when all have gone it still completes into the cache, so that the
// retry of an impatient client finds the bytes.
type fill struct {
	done   chan struct{}
	chunks [][]byte // checked; valid once done is closed, never changed
	index  *SegmentIndex
	err    error
}

// filler runs fills, at most maxFills at a time, one per key.
type filler struct {
	mu     sync.Mutex
	fills  map[fillKey]*fill
	slots  chan struct{}
	wg     sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc
	closed bool
}

func newFiller() *filler {
	f := &filler{fills: map[fillKey]*fill{}, slots: make(chan struct{}, maxFills)}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// close ends all fills and waits for them.
func (f *filler) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.cancel()
	f.wg.Wait()
}

// get joins the fill for k or starts it, and waits for its end or ctx's.
func (f *filler) get(ctx context.Context, k fillKey, run func(context.Context, *fill)) (*fill, error) {
	fl := f.running(k)
	if fl == nil {
		select {
		case f.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-f.ctx.Done():
			return nil, errClosed
		}
		if fl = f.start(k, run); fl == nil {
			return nil, errClosed
		}
	}
	select {
	case <-fl.done:
		return fl, fl.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ahead starts a fill that nobody waits for, if at most half of the slots are busy.
func (f *filler) ahead(k fillKey, run func(context.Context, *fill)) {
	if len(f.slots) > maxFills/2 || f.running(k) != nil {
		return
	}
	select {
	case f.slots <- struct{}{}:
		f.start(k, run)
	default:
	}
}

func (f *filler) running(k fillKey) *fill {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fills[k]
}

// start runs the fill on a slot that the caller took; one that came up meanwhile
// is joined instead.
func (f *filler) start(k fillKey, run func(context.Context, *fill)) *fill {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl := f.fills[k]; fl != nil || f.closed {
		<-f.slots
		return fl
	}
	fl := &fill{done: make(chan struct{})}
	f.fills[k] = fl
	f.wg.Go(func() {
		ctx, cancel := context.WithTimeout(f.ctx, fillDeadline)
		defer cancel()
		run(ctx, fl)
		f.mu.Lock()
		delete(f.fills, k)
		f.mu.Unlock()
		<-f.slots
		close(fl.done)
	})
	return fl
}

// indexCache keeps parsed indexes in memory, least recently used go first. They are
// immutable, so whoever still reads a dropped one keeps it alive.
type indexCache struct {
	mu    sync.Mutex
	byID  map[protocol.UUID]*list.Element
	lru   *list.List // of indexEntry
	bytes int64
}

type indexEntry struct {
	id protocol.UUID
	x  *SegmentIndex
}

func newIndexCache() *indexCache {
	return &indexCache{byID: map[protocol.UUID]*list.Element{}, lru: list.New()}
}

func (c *indexCache) get(id protocol.UUID) *SegmentIndex {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byID[id]
	if e == nil {
		return nil
	}
	c.lru.MoveToFront(e)
	return e.Value.(indexEntry).x
}

func (c *indexCache) put(id protocol.UUID, x *SegmentIndex) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[id] != nil {
		return
	}
	c.byID[id] = c.lru.PushFront(indexEntry{id, x})
	c.bytes += x.bytes
	for c.bytes > maxIndexCacheBytes && c.lru.Len() > 1 {
		e := c.lru.Back()
		old := c.lru.Remove(e).(indexEntry)
		delete(c.byID, old.id)
		c.bytes -= old.x.bytes
	}
}

// sequence remembers where recent reads ended, to tell a reader that goes on from
// there, and how far ahead of it to fetch.
type sequence struct {
	mu   sync.Mutex
	next map[seqKey]int // extents ahead
	ring [maxSequences]seqKey
	at   int
}

type seqKey struct {
	seg protocol.UUID
	off int64
}

const (
	maxSequences    = 1024
	maxAheadExtents = 8
)

// step says how many extents to fetch ahead for a read of [from, to): none for a
// jump, then twice as many each time.
func (s *sequence) step(seg protocol.UUID, from, to int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = map[seqKey]int{}
	}
	ahead, ok := s.next[seqKey{seg, from}]
	delete(s.next, seqKey{seg, from})
	if from == to {
		return 0
	}
	following := 1
	if ok {
		following = min(ahead*2, maxAheadExtents)
	}
	k := seqKey{seg, to}
	delete(s.next, s.ring[s.at])
	s.next[k], s.ring[s.at] = following, k
	s.at = (s.at + 1) % maxSequences
	return ahead
}
