package tiering

import (
	"container/list"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"

	"varve/protocol"
)

// blockKey names a chunk by the id of its segment: ids are never used twice, so
// what is cached under one never becomes wrong.
type blockKey struct {
	seg   protocol.UUID
	chunk int
}

// chunkCache keeps chunks in one file, a slot of chunkBytes each; what is in it is
// known from memory only.
//
// A file and not memory, because the default bound is a fifth of the disk. One file
// and not one per chunk, because then there is no folder to walk, to clean or to
// recover: the file is emptied at start, as a cache that lost power may hold
// anything. Chunks are checked again when they are read from it. Disk errors turn
// into misses: a reader never depends on the cache, also not on its size, since a
// fill hands its bytes to those who wait for it directly.
type chunkCache struct {
	mu    sync.Mutex
	f     *os.File
	slots int64 // capacity
	used  int64 // slots ever written: the file's length
	free  []int64
	byKey map[blockKey]*list.Element
	lru   *list.List // of *block, most recent first
	stats CacheStatus
}

// block is one cached chunk. Its slot is not reused while pinned.
type block struct {
	key    blockKey
	slot   int64
	length int
	crc    uint32
	pins   int
	dead   bool // no longer in the map; the last pin frees the slot
}

const cacheFileName = "chunks"

// maxEvictLook bounds how many pinned blocks an eviction passes over.
const maxEvictLook = 64

// openCache returns nil, a valid cache that holds nothing, when dir is empty or
// the bound is too small for a chunk.
func openCache(dir string, maxBytes int64) (*chunkCache, error) {
	if dir == "" || maxBytes < chunkBytes {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, cacheFileName), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	c := &chunkCache{f: f, slots: maxBytes / chunkBytes, byKey: map[blockKey]*list.Element{}, lru: list.New()}
	c.stats.CapacityBytes = c.slots * chunkBytes
	return c, nil
}

func (c *chunkCache) close() {
	if c != nil {
		_ = c.f.Close() // nothing in it outlives the process
	}
}

func (c *chunkCache) status() CacheStatus {
	if c == nil {
		return CacheStatus{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.UsedBytes = int64(len(c.byKey)) * chunkBytes
	return s
}

// has says whether the chunk is cached, without counting as use.
func (c *chunkCache) has(k blockKey) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byKey[k] != nil
}

// get returns the chunk's checked bytes, or nil.
func (c *chunkCache) get(k blockKey) []byte {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	e := c.byKey[k]
	if e == nil {
		c.stats.Misses++
		c.mu.Unlock()
		return nil
	}
	b := e.Value.(*block)
	b.pins++
	c.lru.MoveToFront(e)
	c.mu.Unlock()

	buf := make([]byte, b.length)
	n, err := c.f.ReadAt(buf, b.slot*chunkBytes)
	good := n == len(buf) && crc32.Checksum(buf, castagnoli) == b.crc

	c.mu.Lock()
	defer c.mu.Unlock()
	if !good {
		if err == nil {
			c.stats.CorruptChunks++
		}
		c.stats.Misses++
		c.drop(b)
	} else {
		c.stats.Hits++
	}
	c.unpin(b)
	if !good {
		return nil
	}
	return buf
}

// put stores a checked chunk; when it cannot, nothing happens.
func (c *chunkCache) put(k blockKey, data []byte, crc uint32) {
	if c == nil || len(data) == 0 || len(data) > chunkBytes {
		return
	}
	c.mu.Lock()
	slot, ok := c.takeSlot()
	if !ok || c.byKey[k] != nil {
		if ok {
			c.free = append(c.free, slot)
		}
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()

	// The slot is in no list now: nobody reads or takes it.
	_, err := c.f.WriteAt(data, slot*chunkBytes)

	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || c.byKey[k] != nil {
		c.free = append(c.free, slot)
		return
	}
	c.byKey[k] = c.lru.PushFront(&block{key: k, slot: slot, length: len(data), crc: crc})
}

func (c *chunkCache) takeSlot() (int64, bool) {
	if c.used < c.slots && len(c.free) == 0 {
		c.used++
		return c.used - 1, true
	}
	e := c.lru.Back()
	for i := 0; len(c.free) == 0 && e != nil && i < maxEvictLook; i++ {
		b := e.Value.(*block)
		e = e.Prev()
		if b.pins == 0 {
			c.drop(b)
			c.freeSlot(b)
		}
	}
	if n := len(c.free); n > 0 {
		slot := c.free[n-1]
		c.free = c.free[:n-1]
		return slot, true
	}
	return 0, false
}

func (c *chunkCache) drop(b *block) {
	if e := c.byKey[b.key]; e != nil && e.Value.(*block) == b {
		delete(c.byKey, b.key)
		c.lru.Remove(e)
		b.dead = true
	}
}

func (c *chunkCache) unpin(b *block) {
	b.pins--
	if b.pins == 0 && b.dead {
		c.freeSlot(b)
	}
}

func (c *chunkCache) freeSlot(b *block) { c.free = append(c.free, b.slot) }
