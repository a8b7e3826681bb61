package tiering

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"varve/metastore"
	"varve/protocol"
	"varve/tiering/objstore"
)

const (
	maxFills      = 64 // GETs under way, and reads from the cache's file
	maxAheadFills = 48 // of these, for chunks that no reader waits for
	fillDeadline  = 5 * time.Minute

	// maxBodyTries is how often in a row a GET may break off without having brought a
	// chunk. Failures before the body are retried in the store's wrappers.
	maxBodyTries = 3
)

// errClosed answers readers after Run has ended.
var errClosed = errors.New("tiering: closed")

// filler runs fills: what brings chunks or an index into memory. A fill belongs to no
// reader: when all who wait for it have gone it still completes, so that the retry of an
// impatient client finds the bytes.
type filler struct {
	mu      sync.Mutex
	indexes map[protocol.UUID]*indexFill
	slots   chan struct{}
	ahead   chan struct{}
	wg      sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
	closed  bool
}

func newFiller() *filler {
	f := &filler{indexes: map[protocol.UUID]*indexFill{}, slots: make(chan struct{}, maxFills), ahead: make(chan struct{}, maxAheadFills)}
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

// start runs fn when there is a slot; with an ended context, if close comes first. Each
// caller has reserved memory, so that those who wait are bounded too. false: closed.
func (f *filler) start(ahead bool, fn func(context.Context)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.startLocked(ahead, fn)
}

func (f *filler) startLocked(ahead bool, fn func(context.Context)) bool {
	if f.closed {
		return false
	}
	f.wg.Go(func() {
		if ahead && f.enter(f.ahead) {
			defer func() { <-f.ahead }()
		}
		if f.enter(f.slots) {
			defer func() { <-f.slots }()
		}
		ctx, cancel := context.WithTimeout(f.ctx, fillDeadline)
		defer cancel()
		fn(ctx)
	})
	return true
}

func (f *filler) enter(slots chan struct{}) bool {
	select {
	case slots <- struct{}{}:
		return true
	case <-f.ctx.Done():
		return false
	}
}

// run is a row of neighbouring chunks of one segment that one fill brings.
type run struct {
	row    metastore.RemoteSegment
	x      *SegmentIndex
	chunks []*memChunk
	ahead  bool
	keep   bool // put what comes from the store into the cache, even when it comes for the first time
}

func (r *run) table(i int) Chunk { return r.x.Chunks[r.chunks[i].key.chunk] }

// fill starts to fill a run and ends its holds of the chunks.
func (m *Manager) fill(r run) {
	ok := m.fills.start(r.ahead, func(ctx context.Context) {
		done, err := 0, ctx.Err()
		if err == nil {
			done = m.fillCached(&r)
			done, err = m.fillStored(ctx, &r, done)
		}
		m.abandon(&r, done, err)
	})
	if !ok {
		m.abandon(&r, 0, errClosed)
	}
}

// abandon fails the chunks from done on.
func (m *Manager) abandon(r *run, done int, err error) {
	for _, c := range r.chunks[done:] {
		m.mem.fail(c, err)
		m.mem.release(c, false)
	}
}

// fillCached reads from the cache as far as it has the run's chunks.
func (m *Manager) fillCached(r *run) int {
	for i, c := range r.chunks {
		if !m.cache.has(c.key) {
			return i
		}
		data := m.cache.read(c.key, c.buf)
		if len(data) != int(r.table(i).Length) {
			return i
		}
		c.data, c.crc = data, r.table(i).CRC32C
		close(c.ready)
		m.mem.release(c, false)
	}
	return len(r.chunks)
}

// fillStored brings the chunks from done on from the store. A GET that breaks off is
// continued where it did.
func (m *Manager) fillStored(ctx context.Context, r *run, done int) (int, error) {
	for try := 1; done < len(r.chunks); try++ {
		n, err := m.getChunks(ctx, r, done)
		done += n
		if n > 0 {
			try = 1
		}
		if err != nil && (!objstore.IsRetryable(err) || try >= maxBodyTries || ctx.Err() != nil) {
			return done, err
		}
	}
	return done, nil
}

// getChunks makes one GET for the chunks from first on and says how many it brought.
// Each is handed to its readers as soon as it is there and checked.
func (m *Manager) getChunks(ctx context.Context, r *run, first int) (n int, err error) {
	from, last := r.table(first).Stored, r.table(len(r.chunks)-1)
	key := m.rowKey(r.row)
	body, err := m.o.Store.Get(ctx, key, from, last.Stored+int64(last.Length)-from, "read")
	if err != nil {
		return 0, err
	}
	defer body.Close()
	for i, c := range r.chunks[first:] {
		t := r.table(first + i)
		data := c.buf[:t.Length:t.Length]
		if _, err := io.ReadFull(body, data); err != nil {
			return i, fmt.Errorf("tiering: get %d bytes at %d of %s: %w", t.Length, t.Stored, key, err)
		}
		if err := t.check(key, data); err != nil {
			m.alarm(r.row, err)
			return i, err
		}
		c.data, c.crc = data, t.CRC32C
		close(c.ready)
		m.toCache(c, r.keep)
		m.mem.release(c, false)
	}
	return len(r.chunks) - first, nil
}

// toCache writes a chunk that has just come to the cache, if that is worth it.
func (m *Manager) toCache(c *memChunk, keep bool) {
	if m.cache == nil || !m.cache.worth(c.key) && !keep {
		return
	}
	m.mem.retain(c)
	if !m.cache.later(cacheWrite{c.key, c.data, c.crc, func() { m.mem.release(c, false) }}) {
		m.mem.release(c, false)
	}
}

// spill hands a chunk that leaves memory unread to the cache.
func (m *Manager) spill(c *memChunk) bool {
	buf := c.buf
	return c.err == nil && m.cache.later(cacheWrite{c.key, c.data, c.crc, func() { m.mem.pool.Put(buf) }})
}

// sameSource says whether both chunks come from the cache, or both from the store.
func (m *Manager) sameSource(a, b blockKey) bool { return m.cache.has(a) == m.cache.has(b) }
