package tiering

import (
	"container/list"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"varve/metastore"
	"varve/protocol"
	"varve/tiering/objstore"
)

// maxIndexMemoryBytes bounds the parsed indexes in memory, but for the newest one; those
// on disk have remote.log.index.file.cache.total.size.bytes.
const maxIndexMemoryBytes = 64 << 20

// indexFill is an index on its way. Its fields are valid once done is closed.
type indexFill struct {
	done  chan struct{}
	want  *demand
	index *SegmentIndex
	err   error
}

// index returns the segment's index, from memory, the disk or the store.
func (m *Manager) index(ctx context.Context, row metastore.RemoteSegment) (*SegmentIndex, error) {
	if x := m.indexes.get(row.ID); x != nil {
		return x, nil
	}
	fl := m.startIndex(row, false, nil)
	defer fl.want.begin()()
	select {
	case <-fl.done:
		return fl.index, fl.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// startIndex joins the fill that brings a segment's index, or starts it; then is called
// after one that it started.
func (m *Manager) startIndex(row metastore.RemoteSegment, ahead bool, then func()) *indexFill {
	f := m.fills
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl := f.indexes[row.ID]; fl != nil {
		return fl
	}
	fl := &indexFill{done: make(chan struct{}), err: errClosed, want: newDemand()}
	ok := f.startLocked(ahead, fl.want, func(ctx context.Context) {
		ctx = objstore.WithFlow(ctx, &objstore.Flow{}, fl.want.urgent)
		fl.index, fl.err = m.fetchIndex(ctx, row)
		f.mu.Lock()
		delete(f.indexes, row.ID)
		f.mu.Unlock()
		close(fl.done)
		if then != nil {
			then()
		}
	})
	if ok {
		f.indexes[row.ID] = fl
	} else {
		close(fl.done)
	}
	return fl
}

func (m *Manager) fetchIndex(ctx context.Context, row metastore.RemoteSegment) (*SegmentIndex, error) {
	key := m.rowKey(row)
	if row.IndexLen < trailerBytes || row.IndexLen > maxIndexBytes {
		return nil, corrupt(key, "row says that the index has %d bytes", row.IndexLen)
	}
	b := m.cachedIndex(row)
	cached := b != nil
	var err error
	if !cached {
		if b, err = m.getRange(ctx, key, row.IndexOff, int64(row.IndexLen), "index"); err != nil {
			return nil, err
		}
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
	if !cached {
		m.cacheIndex(row, b)
	}
	return x, nil
}

// SetIndexCacheBytes changes the bound of the indexes on disk.
func (m *Manager) SetIndexCacheBytes(n int64) { m.indexFile.resize(n) }

// cachedIndex reads an object's tail from the disk, nil unless all of it is there. Its
// parts are checked one by one, and as a whole by parseIndex.
func (m *Manager) cachedIndex(row metastore.RemoteSegment) []byte {
	if !m.indexFile.has(blockKey{row.ID, 0}) {
		return nil
	}
	out := make([]byte, row.IndexLen)
	for at := 0; at < len(out); at += chunkBytes {
		part := out[at:min(at+chunkBytes, len(out))]
		if len(m.indexFile.read(blockKey{row.ID, at / chunkBytes}, part)) != len(part) {
			return nil
		}
	}
	return out
}

// cacheIndex writes an object's tail to the disk. The bytes are never changed, so that
// the queue may keep them.
func (m *Manager) cacheIndex(row metastore.RemoteSegment, b []byte) {
	if m.indexFile == nil || len(b) > maxQueuedWrites/2*chunkBytes {
		return
	}
	for i := 0; len(b) > 0; i++ {
		part := b[:min(chunkBytes, len(b))]
		b = b[len(part):]
		m.indexFile.later(cacheWrite{blockKey{row.ID, i}, part, crc32.Checksum(part, castagnoli), func() {}})
	}
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
	for c.bytes > maxIndexMemoryBytes && c.lru.Len() > 1 {
		e := c.lru.Back()
		old := c.lru.Remove(e).(indexEntry)
		delete(c.byID, old.id)
		c.bytes -= old.x.bytes
	}
}
