package commitlog

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"sort"
	"sync"
	"sync/atomic"

	"varve/protocol"
)

// Widths of index entries in bytes. All numbers are big endian.
//
//	.index     relative offset int32, position int32          OffsetIndex.java
//	.timeindex timestamp int64, relative offset int32         TimeIndex.java
//	.txnindex  version int16 (0), producer id int64, first    AbortedTxn.java
//	           offset int64, last offset int64, last stable
//	           offset int64
//
// An offset index entry names the last offset of a batch and where that batch
// begins. A time index entry names the largest timestamp so far and the last
// offset of the first batch that has it; timestamps rise strictly.
const (
	offsetEntryBytes = 8
	timeEntryBytes   = 12
	txnEntryBytes    = 34

	// spillBytes of entries are held in memory before somebody is asked to write them.
	spillBytes = 4096
	// spillMaxBytes is what is held in memory while nobody does; an append then writes them itself.
	spillMaxBytes = 32 * spillBytes
	// maxEntryBytes is the widest entry.
	maxEntryBytes = txnEntryBytes
)

// index is an append-only file of entries of one width whose newest entries are
// in memory. There is one who appends; neither he nor readers wait for the file
// when they look at entries in memory.
type index struct {
	width int
	file  *diskFile // nil: memory only
	id    uint64    // by which cached blocks know it

	writing sync.Mutex // of the file; before mu

	mu     sync.RWMutex
	onDisk int    // entries in the file
	tail   []byte // entries after those
	// firsts holds the first entry of each block of the file, as far as a search
	// has asked, so that the next one reads one block. Never changed in place.
	firsts []byte
	cuts   int // truncations: what was read before one is not kept
}

// indexIDs gives out ids, so that a cached block never speaks for an index that came later.
var indexIDs atomic.Uint64

func newIndex(file *diskFile, width int) *index {
	return &index{width: width, file: file, id: indexIDs.Add(1)}
}

// count is the number of entries.
func (x *index) count() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.onDisk + len(x.tail)/x.width
}

// append adds one entry. A failed write to the file leaves the entries in
// memory; flush says so when it has to.
func (x *index) append(e []byte) {
	x.mu.Lock()
	x.tail = append(x.tail, e...)
	full := len(x.tail) >= spillMaxBytes && x.file != nil
	x.mu.Unlock()
	if full {
		_ = x.flush()
	}
}

// spillDue says whether there is enough in memory for a write.
func (x *index) spillDue() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.tail) >= spillBytes
}

// flush writes the entries in memory to the file. Entries may be added meanwhile.
func (x *index) flush() error {
	x.writing.Lock()
	defer x.writing.Unlock()
	x.mu.RLock()
	at, tail := x.onDisk, x.tail // only who has writing moves them
	x.mu.RUnlock()
	if len(tail) == 0 {
		return nil
	}
	err := x.file.writeAt(tail, int64(at*x.width))
	x.file.closeIdle() // the active segment's log is the only descriptor an idle partition keeps
	if err != nil {
		return err
	}
	x.mu.Lock()
	x.onDisk += len(tail) / x.width
	x.tail = append(x.tail[:0], x.tail[len(tail):]...)
	x.mu.Unlock()
	return nil
}

// seal writes what is left, so that the file is there even without entries
// where always is set, as Kafka has it.
func (x *index) seal(always bool) error {
	if err := x.flush(); err != nil {
		return err
	}
	x.mu.Lock()
	x.tail = nil
	empty := x.onDisk == 0
	x.mu.Unlock()
	if !empty || !always {
		return nil
	}
	defer x.file.closeIdle()
	return x.file.writeAt(nil, 0)
}

// sync makes the file durable if there is one.
func (x *index) sync() error {
	x.file.mu.Lock()
	clean := !x.file.exists || x.file.synced == x.file.writes
	x.file.mu.Unlock()
	if clean {
		return nil
	}
	defer x.file.closeIdle()
	return x.file.sync()
}

// last copies the newest entry into e; false when there is none.
func (x *index) last(e []byte) (bool, error) {
	n := x.count()
	if n == 0 {
		return false, nil
	}
	return true, x.entry(n-1, e)
}

// entry copies entry i into e.
func (x *index) entry(i int, e []byte) error {
	x.mu.RLock()
	if j := i - x.onDisk; j >= 0 {
		defer x.mu.RUnlock()
		if (j+1)*x.width > len(x.tail) {
			return errGone
		}
		copy(e[:x.width], x.tail[j*x.width:])
		return nil
	}
	x.mu.RUnlock()
	return x.readAt(e[:x.width], int64(i*x.width))
}

func (x *index) readAt(p []byte, off int64) error {
	if err := x.file.acquire(); err != nil {
		return err
	}
	defer x.file.release()
	n, err := x.file.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return &protocol.CorruptionError{Where: x.file.path, What: "index file is shorter than its entries"}
	}
	return err
}

// search returns the first i for which after(entry i) is true, or the count, and
// copies entry i-1 into before where there is one. after must be false and then
// true along the entries.
func (x *index) search(after func(e []byte) bool, before []byte) (int, error) {
	x.mu.RLock()
	onDisk, firsts, cuts := x.onDisk, x.firsts, x.cuts
	i := searchEntries(x.tail, x.width, after, before)
	x.mu.RUnlock()
	if i > 0 || onDisk == 0 {
		return onDisk + i, nil
	}
	perBlock := spillBytes / x.width
	if blocks := (onDisk + perBlock - 1) / perBlock; len(firsts) < blocks*x.width {
		var err error
		if firsts, err = x.readFirsts(firsts, blocks, cuts); err != nil {
			return 0, err
		}
	}
	return x.searchFile(onDisk, cuts, firsts, after, before)
}

func searchEntries(entries []byte, width int, after func(e []byte) bool, before []byte) int {
	i := sort.Search(len(entries)/width, func(i int) bool { return after(entries[i*width : (i+1)*width]) })
	if i > 0 {
		copy(before, entries[(i-1)*width:i*width])
	}
	return i
}

// searchFile finds the block by its first entry and looks through it in memory.
// There are n entries in the file.
func (x *index) searchFile(n, cuts int, firsts []byte, after func(e []byte) bool, before []byte) (int, error) {
	perBlock := spillBytes / x.width
	block := searchEntries(firsts, x.width, after, before) - 1
	if block < 0 {
		return 0, nil
	}
	from := block * perBlock
	entries, err := x.block(block, min(perBlock, n-from)*x.width, cuts)
	if err != nil {
		return 0, err
	}
	return from + searchEntries(entries, x.width, after, before), nil
}

// blockCacheSlots bounds the blocks of index files that a log directory keeps in memory, of spillBytes each. Readers that
// go through a log need the same block again and again.
const blockCacheSlots = 256

// indexBlock is the head of one block of one index file as it was after so many truncations. It is never changed.
type indexBlock struct {
	index   uint64
	no      int
	cuts    int
	entries []byte
}

type blockCache [blockCacheSlots]atomic.Pointer[indexBlock]

// block returns the first n bytes of a block of the file, which has had so many truncations.
func (x *index) block(no, n, cuts int) ([]byte, error) {
	slot := &x.file.cache.blocks[(x.id*31+uint64(no))%blockCacheSlots]
	if b := slot.Load(); b != nil && b.index == x.id && b.no == no && b.cuts == cuts && len(b.entries) >= n {
		return b.entries[:n], nil
	}
	entries := make([]byte, n)
	if err := x.readAt(entries, int64(no*(spillBytes/x.width*x.width))); err != nil {
		return nil, err
	}
	slot.Store(&indexBlock{index: x.id, no: no, cuts: cuts, entries: entries})
	return entries, nil
}

// readFirsts completes the first entries of so many blocks, and keeps them unless
// there was a truncation since known was looked up.
func (x *index) readFirsts(known []byte, blocks, cuts int) ([]byte, error) {
	firsts := append(make([]byte, 0, blocks*x.width), known...)
	blockBytes := spillBytes / x.width * x.width
	for i := len(known) / x.width; i < blocks; i++ {
		firsts = firsts[:(i+1)*x.width]
		if err := x.readAt(firsts[i*x.width:], int64(i*blockBytes)); err != nil {
			return nil, err
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cuts == cuts && len(x.firsts) < len(firsts) {
		x.firsts = firsts
	}
	return firsts, nil
}

// truncate keeps the first n entries. The caller has shut readers out or makes
// them look again.
func (x *index) truncate(n int) error {
	x.writing.Lock()
	defer x.writing.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	if n >= x.onDisk {
		x.tail = x.tail[:min(len(x.tail), (n-x.onDisk)*x.width)]
		return nil
	}
	x.tail = x.tail[:0]
	x.onDisk = n
	x.firsts = nil
	x.cuts++
	return x.file.truncate(int64(n * x.width))
}

// bytes returns a copy of entries [from, to).
func (x *index) bytes(from, to int) ([]byte, error) {
	x.mu.RLock()
	onDisk := x.onDisk
	out := make([]byte, (to-from)*x.width)
	if to > onDisk {
		first := max(from, onDisk)
		copy(out[(first-from)*x.width:], x.tail[(first-onDisk)*x.width:(to-onDisk)*x.width])
	}
	x.mu.RUnlock()
	if n := min(to, onDisk) - from; n > 0 {
		if err := x.readAt(out[:n*x.width], int64(from*x.width)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Entries, encoded and decoded.

func putOffsetEntry(e []byte, rel int32, pos int32) {
	binary.BigEndian.PutUint32(e, uint32(rel))
	binary.BigEndian.PutUint32(e[4:], uint32(pos))
}

func offsetEntry(e []byte) (rel int64, pos int64) {
	return int64(int32(binary.BigEndian.Uint32(e))), int64(int32(binary.BigEndian.Uint32(e[4:])))
}

func putTimeEntry(e []byte, ts int64, rel int32) {
	binary.BigEndian.PutUint64(e, uint64(ts))
	binary.BigEndian.PutUint32(e[8:], uint32(rel))
}

func timeEntry(e []byte) (ts int64, rel int64) {
	return int64(binary.BigEndian.Uint64(e)), int64(int32(binary.BigEndian.Uint32(e[8:])))
}

func putTxnEntry(e []byte, t AbortedTxn) {
	binary.BigEndian.PutUint16(e, 0)
	binary.BigEndian.PutUint64(e[2:], uint64(t.ProducerID))
	binary.BigEndian.PutUint64(e[10:], uint64(t.FirstOffset))
	binary.BigEndian.PutUint64(e[18:], uint64(t.LastOffset))
	binary.BigEndian.PutUint64(e[26:], uint64(t.LastStableOffset))
}

func txnEntry(e []byte) AbortedTxn {
	return AbortedTxn{
		ProducerID:       int64(binary.BigEndian.Uint64(e[2:])),
		FirstOffset:      int64(binary.BigEndian.Uint64(e[10:])),
		LastOffset:       int64(binary.BigEndian.Uint64(e[18:])),
		LastStableOffset: int64(binary.BigEndian.Uint64(e[26:])),
	}
}

// fitsRelative reports whether off can stand in an index of a segment that
// begins at base.
func fitsRelative(base, off int64) bool { return off >= base && off-base <= math.MaxInt32 }
