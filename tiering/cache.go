package tiering

import (
	"container/list"
	"hash/crc32"
	"hash/fnv"
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
// known from memory only. The Manager has two: one for chunks of logs, one for what
// follows the log in an object, cut into chunks.
//
// A file and not memory, because the default bound is a fifth of the disk. One file
// and not one per chunk, because then there is no folder to walk, to clean or to
// recover: the file is emptied at start, as a cache that lost power may hold
// anything. Chunks are checked again when they are read from it. Disk errors turn
// into misses: a reader never depends on the cache, nor on its size or its speed,
// since bytes from the store go to readers first and through a queue to the disk,
// which drops what it has no room for.
//
// Not everything that is read comes in. A replay of months, once, would push out all
// else and take the disk's bandwidth from producers: a sequential reader's chunks are
// kept on disk only when they are fetched again (worth). Pages that the file alone
// brought into the page cache are dropped: what is hot is in memory already.
//
// Chunks are served from memory after a check and not by sendfile from this file:
// between the check and the send the kernel could read the page from the disk again.
type chunkCache struct {
	f     *os.File
	queue chan cacheWrite
	wg    sync.WaitGroup

	mu     sync.Mutex
	closed bool
	begun  bool  // the writer runs
	slots  int64 // capacity
	used   int64 // slots ever written: the file's length
	free   []int64
	byKey  map[blockKey]*list.Element
	lru    *list.List // of *block, most recent first
	once   []uint32   // what was fetched lately: a part of its hash, at the place that another part says
	stats  CacheStatus
}

// cacheWrite is a chunk on its way to the disk; done is called when its bytes are no
// longer needed.
type cacheWrite struct {
	key  blockKey
	data []byte
	crc  uint32
	done func()
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

const (
	cacheFileName = "chunks"
	indexFileName = "indexes"

	maxQueuedWrites = 64      // chunks: 8 MiB
	maxRemembered   = 1 << 18 // chunks: 32 GiB of log
)

// maxEvictLook bounds how many pinned blocks an eviction passes over.
const maxEvictLook = 64

// openCache returns nil, a valid cache that holds nothing, when dir is empty or
// the bound is too small for a chunk.
func openCache(dir, name string, maxBytes int64) (*chunkCache, error) {
	if dir == "" || maxBytes < chunkBytes {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	c := &chunkCache{
		f: f, queue: make(chan cacheWrite, maxQueuedWrites), slots: maxBytes / chunkBytes,
		byKey: map[blockKey]*list.Element{}, lru: list.New(), once: make([]uint32, maxRemembered),
	}
	c.stats.CapacityBytes = c.slots * chunkBytes
	return c, nil
}

func (c *chunkCache) close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.queue)
	}
	c.mu.Unlock()
	c.wg.Wait()
	_ = c.f.Close() // nothing in it outlives the process
}

// worth says whether a chunk that is being fetched has been before, and remembers it.
func (c *chunkCache) worth(k blockKey) bool {
	if c == nil {
		return false
	}
	h := fnv.New64a()
	h.Write(k.seg[:])
	h.Write([]byte{byte(k.chunk), byte(k.chunk >> 8), byte(k.chunk >> 16), byte(k.chunk >> 24)})
	sum := h.Sum64()
	c.mu.Lock()
	defer c.mu.Unlock()
	at, is := &c.once[sum%maxRemembered], uint32(sum>>32)|1
	known := *at == is
	*at = is
	return known
}

// later queues a write, or says that it cannot; then done is not called.
func (c *chunkCache) later(w cacheWrite) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.byKey[w.key] != nil {
		return false
	}
	select {
	case c.queue <- w:
	default:
		c.stats.Dropped++
		return false
	}
	if !c.begun {
		c.begun = true
		c.wg.Go(c.write)
	}
	return true
}

func (c *chunkCache) write() {
	for w := range c.queue {
		c.put(w.key, w.data, w.crc)
		w.done()
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

// read copies the chunk's checked bytes to the start of buf and returns them, nil when it
// is not there, or larger.
func (c *chunkCache) read(k blockKey, buf []byte) []byte {
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
	if b.length > len(buf) {
		c.stats.Misses++
		c.mu.Unlock()
		return nil
	}
	b.pins++
	c.lru.MoveToFront(e)
	c.mu.Unlock()

	data := buf[:b.length:b.length]
	n, err := c.f.ReadAt(data, b.slot*chunkBytes)
	good := n == len(data) && crc32.Checksum(data, castagnoli) == b.crc
	forgetPages(c.f, b.slot*chunkBytes, chunkBytes)

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
	return data
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
	if err == nil {
		writePages(c.f, slot*chunkBytes, int64(len(data)))
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || c.byKey[k] != nil {
		c.free = append(c.free, slot)
		return
	}
	c.byKey[k] = c.lru.PushFront(&block{key: k, slot: slot, length: len(data), crc: crc})
}

// resize changes the bound. What is too much goes at once, but for what is being read.
func (c *chunkCache) resize(maxBytes int64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slots = max(maxBytes/chunkBytes, 1)
	c.stats.CapacityBytes = c.slots * chunkBytes
	before := len(c.free)
	for int64(len(c.byKey)) > c.slots {
		b := c.lru.Back().Value.(*block)
		if c.drop(b); b.pins == 0 {
			c.freeSlot(b)
		}
	}
	for _, slot := range c.free[before:] {
		punchHole(c.f, slot*chunkBytes, chunkBytes)
	}
}

func (c *chunkCache) takeSlot() (int64, bool) {
	e := c.lru.Back()
	for i := 0; c.used-int64(len(c.free)) >= c.slots && e != nil && i < maxEvictLook; i++ {
		b := e.Value.(*block)
		e = e.Prev()
		if b.pins == 0 {
			c.drop(b)
			c.freeSlot(b)
		}
	}
	if c.used-int64(len(c.free)) >= c.slots {
		return 0, false
	}
	if n := len(c.free); n > 0 {
		slot := c.free[n-1]
		c.free = c.free[:n-1]
		return slot, true
	}
	c.used++
	return c.used - 1, true
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
