package tiering

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"varve/protocol"
)

// memory holds the chunks that readers wait for, are being sent, or will be wanted
// soon, within one bound for all readers. A chunk is in it once, however many read it.
//
// Who wants a chunk for a reader (demand) may push out whatever nobody holds. Who
// fetches ahead may only take what is free, what readers have passed, and what has been
// left unread for idleUnread; and never more than three quarters of all, so that a
// reader always finds room. What is pushed out unread goes to the cache on disk: it was
// paid for, and its reader may come back.
//
// Chunks that are in an object's own file (objectfile.go) are held like the others, and count like them, for they have to be in the
// page cache; of their slots no byte is written to.
type memory struct {
	maxChunks int
	now       func() time.Time
	spill     func(c *memChunk) bool // takes an unread chunk's slot over, until giveSlot; may refuse

	mu     sync.Mutex
	chunks map[blockKey]*memChunk
	count  int           // buffers in use
	ahead  int           // of these, fetched ahead and not yet taken by a reader
	passed *list.List    // kept, held by nobody, read to their end; the oldest at the back
	unread *list.List    // the same, but not read to their end
	freed  chan struct{} // closed when a buffer may be had; nil while nobody waits
	arena  *arena        // nil until the first chunk comes

	files     map[protocol.UUID]*objectFile // by segment: the newest that is open
	openFiles int
	inFiles   int           // chunks
	dead      []*objectFile // to be closed by unlock
}

// memChunk is one chunk in memory. Its bytes are valid, checked and constant once
// ready is closed and err is nil.
type memChunk struct {
	key   blockKey
	slot  int         // in the arena
	data  []byte      // the chunk's bytes, in its slot; nil when they are in file
	file  *objectFile // nil when they are in data
	size  int         // bytes
	crc   uint32
	local bool // they come from a file of this machine: a copy in the cache on disk is of no use
	ready chan struct{}
	err   error
	want  *demand // of all that one fill brings

	// Guarded by memory.mu.
	spilled bool // the slot is the cache's
	holders int
	kept    *list.Element // in passed or unread
	filed   bool          // in memory.chunks
	read    bool          // some reader went beyond its end
	ahead   *stream       // that it was fetched ahead for; nil once a reader took it
	keptAt  time.Time
}

const (
	// idleUnread is how long what was fetched ahead waits for its reader before other
	// readers' read-ahead may take its place.
	idleUnread = 10 * time.Second
	// idleKept is how long memory that nobody reads from is kept.
	idleKept = time.Minute
)

func newMemory(maxBytes int64, now func() time.Time) *memory {
	return &memory{
		maxChunks: int(max(maxBytes/chunkBytes, minMemoryChunks)), now: now, spill: func(*memChunk) bool { return false },
		chunks: map[blockKey]*memChunk{}, passed: list.New(), unread: list.New(), files: map[protocol.UUID]*objectFile{},
	}
}

// unlock closes files that nobody holds any more: to close what was deleted meanwhile is to free its blocks, which takes time.
func (m *memory) unlock() {
	dead := m.dead
	m.dead = nil
	m.mu.Unlock()
	for _, o := range dead {
		_ = o.f.Close() // only read
	}
}

// usedBytes says how much is in use.
func (m *memory) usedBytes() int64 {
	m.mu.Lock()
	defer m.unlock()
	return int64(m.count-m.inFiles) * chunkBytes
}

// aheadMax bounds the chunks that are fetched ahead of all readers.
func (m *memory) aheadMax() int { return m.maxChunks * 3 / 4 }

// demand says whether somebody waits for what a fill brings.
type demand struct {
	waiting atomic.Int32
	once    sync.Once
	come    chan struct{} // closed once somebody has waited
}

func newDemand() *demand { return &demand{come: make(chan struct{})} }

// begin counts in who waits, until done.
func (d *demand) begin() (done func()) {
	d.waiting.Add(1)
	d.once.Do(func() { close(d.come) })
	return func() { d.waiting.Add(-1) }
}

func (d *demand) urgent() bool { return d.waiting.Load() > 0 }

// want takes the chunk k for a reader, if need be a new one together with up to n-1
// that follow it, which the caller has to fill (fresh). It waits for room for the first
// only. The caller releases what it gets, and separately each of fresh once it is
// filled.
func (m *memory) want(ctx context.Context, k blockKey, n int, same func(blockKey) bool) (c *memChunk, fresh []*memChunk, err error) {
	m.mu.Lock()
	defer m.unlock()
	d := newDemand()
	for {
		if c := m.find(k); c != nil {
			m.hold(c)
			return c, nil, nil
		}
		if c = m.create(k, nil, noSlot, d); c != nil {
			break
		}
		if err := m.wait(ctx); err != nil {
			return nil, nil, err
		}
	}
	c.holders++
	fresh = append(fresh, c)
	for k.chunk++; len(fresh) < n && m.chunks[k] == nil && same(k); k.chunk++ {
		next := m.create(k, nil, fresh[len(fresh)-1].slot, d)
		if next == nil {
			break
		}
		fresh = append(fresh, next)
	}
	return c, fresh, nil
}

// wantAhead makes room for up to n chunks from k on, for s. Those that are there are
// skipped first: at is where fresh begins, or where the next call has to begin when
// there is nothing to fetch. full says that there is no room.
func (m *memory) wantAhead(s *stream, k blockKey, n int, same func(a, b blockKey) bool) (at int, fresh []*memChunk, full bool) {
	m.mu.Lock()
	defer m.unlock()
	end := k.chunk + n
	for k.chunk < end && m.chunks[k] != nil {
		k.chunk++
	}
	at = k.chunk
	after, d := noSlot, newDemand()
	for first := k; k.chunk < end && m.chunks[k] == nil && same(first, k); k.chunk++ {
		c := m.create(k, s, after, d)
		if c == nil {
			return at, fresh, true
		}
		fresh, after = append(fresh, c), c.slot
	}
	return at, fresh, false
}

// take holds the chunk k if it is there.
func (m *memory) take(k blockKey) *memChunk {
	m.mu.Lock()
	defer m.unlock()
	c := m.find(k)
	if c != nil {
		m.hold(c)
	}
	return c
}

// find returns the chunk k, if it is there. One whose file went bad is not.
func (m *memory) find(k blockKey) *memChunk {
	c := m.chunks[k]
	switch {
	case c == nil || c.file == nil || !c.file.bad.Load():
		return c
	case c.kept != nil:
		m.drop(c)
	default:
		m.taken(c)
		m.unfile(c)
	}
	return nil
}

// hold counts a holder in; the chunk's reader has come.
func (m *memory) hold(c *memChunk) {
	c.holders++
	m.unkeep(c)
	m.taken(c)
}

// retain adds a holder to a chunk that the caller holds.
func (m *memory) retain(c *memChunk) {
	m.mu.Lock()
	defer m.unlock()
	c.holders++
}

func (m *memory) taken(c *memChunk) {
	if c.ahead != nil {
		c.ahead = nil
		m.ahead--
	}
}

func (m *memory) unkeep(c *memChunk) {
	if c.kept == nil {
		return
	}
	from := m.unread
	if c.read {
		from = m.passed
	}
	from.Remove(c.kept)
	c.kept = nil
}

// release ends a hold. read says that the holder went beyond the chunk's end.
func (m *memory) release(c *memChunk, read bool) {
	m.mu.Lock()
	defer m.unlock()
	m.releaseLocked(c, read)
}

func (m *memory) releaseLocked(c *memChunk, read bool) {
	c.read = c.read || read
	if c.holders--; c.holders > 0 {
		return
	}
	if !c.filed {
		m.free(c)
		return
	}
	c.keptAt = m.now()
	if c.read {
		c.kept = m.passed.PushFront(c)
	} else {
		c.kept = m.unread.PushFront(c)
	}
	m.signal()
}

// fail ends a chunk whose bytes did not come; the filler's hold stays.
func (m *memory) fail(c *memChunk, err error) {
	m.mu.Lock()
	m.taken(c)
	m.unfile(c)
	m.unlock()
	c.err = err
	close(c.ready)
}

// noSlot is what no slot follows.
const noSlot = -2 // -1 is what slot 0 follows

// create returns a new chunk that is held once, by who fills it; nil without room. Its slot is the one behind after, if that
// is free.
func (m *memory) create(k blockKey, ahead *stream, after int, d *demand) *memChunk {
	if ahead != nil && m.ahead >= m.aheadMax() && (!m.evictIdle() || m.ahead >= m.aheadMax()) {
		return nil
	}
	if m.count >= m.maxChunks && !m.evict(ahead == nil) {
		return nil
	}
	m.count++
	if m.arena == nil {
		m.arena = newArena(m.maxChunks + maxQueuedWrites + 1)
	}
	c := &memChunk{key: k, slot: m.arena.take(after), ready: make(chan struct{}), holders: 1, filed: true, ahead: ahead, want: d}
	if ahead != nil {
		m.ahead++
	}
	m.chunks[k] = c
	return c
}

// evict makes room for one buffer.
func (m *memory) evict(demand bool) bool {
	if e := m.passed.Back(); e != nil {
		m.drop(e.Value.(*memChunk))
		return true
	}
	if m.evictIdle() {
		return true
	}
	e := m.unread.Back()
	if !demand || e == nil {
		return false
	}
	m.dropUnread(e.Value.(*memChunk))
	return true
}

// evictIdle drops the chunk that has been unread for longest, if that is too long.
func (m *memory) evictIdle() bool {
	e := m.unread.Back()
	if e == nil || m.now().Sub(e.Value.(*memChunk).keptAt) < idleUnread {
		return false
	}
	m.dropUnread(e.Value.(*memChunk))
	return true
}

// dropUnread drops a chunk that a reader is still to come for, and tells whose.
func (m *memory) dropUnread(c *memChunk) {
	if c.ahead != nil {
		c.ahead.wasted.Store(true)
	}
	c.spilled = m.spill(c)
	m.drop(c)
}

// drop removes a chunk that nobody holds.
func (m *memory) drop(c *memChunk) {
	m.unkeep(c)
	m.taken(c)
	m.unfile(c)
	m.free(c)
}

func (m *memory) unfile(c *memChunk) {
	if c.filed {
		c.filed = false
		delete(m.chunks, c.key)
	}
}

func (m *memory) free(c *memChunk) {
	m.count--
	c.data = nil
	if c.file != nil {
		m.inFiles--
		m.letGoLocked(c.file)
	}
	if !c.spilled {
		m.arena.give(c.slot)
	}
	m.signal()
}

// giveSlot ends what spill began.
func (m *memory) giveSlot(slot int) {
	m.mu.Lock()
	defer m.unlock()
	m.arena.give(slot)
}

// slots are the bytes of n slots from c's on.
func (m *memory) slots(c *memChunk, n int) []byte { return m.arena.bytes(c.slot, n) }

// signal wakes all who wait for room.
func (m *memory) signal() {
	if m.freed != nil {
		close(m.freed)
		m.freed = nil
	}
}

// wait returns when there may be room.
func (m *memory) wait(ctx context.Context) error {
	if m.freed == nil {
		m.freed = make(chan struct{})
	}
	freed := m.freed
	m.unlock()
	defer m.mu.Lock()
	select {
	case <-freed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// trim gives memory back that nobody has used for idleKept.
func (m *memory) trim() {
	m.mu.Lock()
	defer m.unlock()
	old := m.now().Add(-idleKept)
	for _, l := range []*list.List{m.passed, m.unread} {
		for e := l.Back(); e != nil && e.Value.(*memChunk).keptAt.Before(old); e = l.Back() {
			c := e.Value.(*memChunk)
			if c.file == nil {
				dropMemory(m.slots(c, 1))
			}
			m.drop(c)
		}
	}
}

// spans cuts [from, to) out of held chunks, counted from the start of the first, of which all but the last are whole. The
// holds pass to the spans. What lies in neighbouring slots is one span, and so is what lies in one file.
func (m *memory) spans(held []*memChunk, from, to int64) (out []protocol.Span) {
	for len(held) > 0 {
		n := 1
		for n < len(held) && held[n].beside(held[n-1]) {
			n++
		}
		run, size := held[:n:n], int64(n-1)*chunkBytes+int64(held[n-1].size)
		end := min(to, size)
		s := protocol.Span{Len: end - from, Release: func() { m.releaseRun(run, end == size) }}
		if f := run[0].file; f != nil {
			s.File, s.Off = f, int64(run[0].key.chunk)*chunkBytes+from
		} else {
			s.Bytes = m.slots(run[0], n)[from:end:end]
		}
		out = append(out, s)
		held, from, to = held[n:], 0, to-int64(n)*chunkBytes
	}
	return out
}

// beside says whether the bytes of c, the next chunk after p, lie behind p's.
func (c *memChunk) beside(p *memChunk) bool {
	if c.file != nil || p.file != nil {
		return c.file == p.file
	}
	return c.slot == p.slot+1
}

// releaseRun ends the holds of a span; read is about its last chunk.
func (m *memory) releaseRun(run []*memChunk, read bool) {
	m.mu.Lock()
	defer m.unlock()
	for i, c := range run {
		m.releaseLocked(c, read || i < len(run)-1)
	}
}
