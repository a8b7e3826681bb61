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
	readBytes     = 1 << 20 // that a body is asked for at once

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
// caller has reserved memory, so that those who wait are bounded too. What somebody waits
// for by then takes none of the slots for read-ahead. false: closed.
func (f *filler) start(ahead bool, d *demand, fn func(context.Context)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.startLocked(ahead, d, fn)
}

func (f *filler) startLocked(ahead bool, d *demand, fn func(context.Context)) bool {
	if f.closed {
		return false
	}
	f.wg.Go(func() {
		if ahead && f.enter(f.ahead, d.come) {
			defer func() { <-f.ahead }()
		}
		if f.enter(f.slots, nil) {
			defer func() { <-f.slots }()
		}
		ctx, cancel := context.WithTimeout(f.ctx, fillDeadline)
		defer cancel()
		fn(ctx)
	})
	return true
}

// enter takes a slot, unless the filler ends or none is needed any more.
func (f *filler) enter(slots chan struct{}, enough <-chan struct{}) bool {
	select {
	case slots <- struct{}{}:
		return true
	case <-enough:
		return false
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
	flow   *objstore.Flow // of the reader that they are for
	keep   bool           // put what comes from the store into the cache, even when it comes for the first time
}

func (r *run) table(i int) Chunk { return r.x.Chunks[r.chunks[i].key.chunk] }

// fill starts to fill a run and ends its holds of the chunks.
func (m *Manager) fill(r run) {
	want := r.chunks[0].want
	ok := m.fills.start(r.ahead, want, func(ctx context.Context) {
		ctx = objstore.WithFlow(ctx, r.flow, want.urgent)
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
		data := m.cache.read(c.key, m.mem.slots(c, 1))
		if len(data) != int(r.table(i).Length) {
			return i
		}
		c.data, c.size, c.crc = data, len(data), r.table(i).CRC32C
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
	file, local := m.adopt(body, r, key)
	take := func(at int) (int, error) { return m.takeRun(body, r, at, key, local) }
	if file != nil {
		defer m.mem.letGo(file)
		take = func(at int) (int, error) { return m.checkChunk(body, r, at, file) }
	}
	for at := first; at < len(r.chunks); {
		k, err := take(at)
		if at += k; err != nil {
			return at - first, err
		}
	}
	return len(r.chunks) - first, nil
}

// takeRun reads chunks from at on that lie side by side, up to readBytes, by as few reads as their bytes come in. It says how
// many it brought.
func (m *Manager) takeRun(body io.Reader, r *run, at int, key string, local bool) (n int, err error) {
	chunks := r.chunks[at:]
	side := 1
	for side < min(len(chunks), readBytes/chunkBytes) && chunks[side].slot == chunks[side-1].slot+1 && r.table(at+side-1).Length == chunkBytes {
		side++
	}
	buf := m.mem.slots(chunks[0], side)
	buf = buf[:(side-1)*chunkBytes+int(r.table(at+side-1).Length)]
	for got := 0; n < side; {
		c, t := chunks[n], r.table(at+n)
		begin := n * chunkBytes
		end := begin + int(t.Length)
		if got < end {
			k, err := io.ReadAtLeast(body, buf[got:], end-got)
			if got += k; err != nil {
				return n, getError(t, key, err)
			}
		}
		data := buf[begin:end:end]
		if err := t.check(key, data); err != nil {
			m.alarm(r.row, err)
			return n, err
		}
		c.data, c.size, c.crc, c.local = data, len(data), t.CRC32C, local
		close(c.ready)
		m.toCache(c, r.keep)
		m.mem.release(c, false)
		n++
	}
	return n, nil
}

func getError(t Chunk, key string, err error) error {
	return fmt.Errorf("tiering: get %d bytes at %d of %s: %w", t.Length, t.Stored, key, err)
}

// toCache writes a chunk that has just come to the cache, if that is worth it.
func (m *Manager) toCache(c *memChunk, keep bool) {
	if m.cache == nil || c.local || !m.cache.worth(c.key) && !keep {
		return
	}
	m.mem.retain(c)
	if !m.cache.later(cacheWrite{c.key, c.data, c.crc, func() { m.mem.release(c, false) }}) {
		m.mem.release(c, false)
	}
}

// spill hands a chunk that leaves memory unread to the cache.
func (m *Manager) spill(c *memChunk) bool {
	slot := c.slot
	return c.err == nil && !c.local && m.cache.later(cacheWrite{c.key, c.data, c.crc, func() { m.mem.giveSlot(slot) }})
}

// sameSource says whether both chunks come from the cache, or both from the store.
func (m *Manager) sameSource(a, b blockKey) bool { return m.cache.has(a) == m.cache.has(b) }
