package commitlog

import (
	"errors"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// errGone says that the file's segment was removed; the caller looks its
// segment up again.
var errGone = errors.New("file was removed")

// fileCache bounds how many descriptors a log directory holds. Files are opened
// when used and closed by second chance (the clock algorithm).
type fileCache struct {
	fs           FS
	maxOpenFiles int
	blocks       blockCache

	mu   sync.Mutex
	ring []*diskFile // those that are open
	hand int
}

// diskFile is a file that is open only while it is used or while the cache has
// room. A pin keeps the descriptor, and with it the bytes: removal unlinks the
// name at once, the inode lives until the last pin is gone.
//
// It is a protocol.SpanFile while pinned.
type diskFile struct {
	cache *fileCache
	path  string

	releaseFn func() // release, so that handing out a slice allocates nothing

	mu       sync.Mutex
	f        vfs.File // nil when closed; never changes while pinned
	pins     int
	exists   bool   // false: the first use creates it, replacing what may lie there
	writable bool   // opened for writing
	writes   uint64 // writes begun
	synced   uint64 // of those, the ones a sync covers; unsynced files are not evicted, so that no fsync error is lost with the descriptor
	gone     bool
	named    bool // gone, but its name could not be removed: that may be tried again
	used     bool // second chance
	slot     int  // place in the cache's ring; guarded by the cache
}

func (c *fileCache) newFile(path string) *diskFile {
	d := &diskFile{cache: c, path: path, writable: true}
	d.releaseFn = d.release
	return d
}

func (c *fileCache) oldFile(path string, writable bool) *diskFile {
	d := c.newFile(path)
	d.exists, d.writable = true, writable
	return d
}

// acquire pins the file, opening it if need be.
func (d *diskFile) acquire() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.acquireLocked()
}

func (d *diskFile) acquireLocked() error {
	if d.gone {
		return errGone
	}
	if d.f == nil {
		if err := d.open(); err != nil {
			return err
		}
	}
	d.pins++
	d.used = true
	return nil
}

func (d *diskFile) open() (err error) {
	switch {
	case !d.exists:
		d.f, err = d.cache.fs.Create(d.path, writeCategory)
	case d.writable:
		d.f, err = d.cache.fs.OpenReadWrite(d.path, writeCategory)
	default:
		d.f, err = d.cache.fs.Open(d.path)
	}
	if err != nil {
		d.f = nil
		return err
	}
	d.exists = true
	d.cache.add(d)
	return nil
}

// release drops a pin.
func (d *diskFile) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pins--; d.pins == 0 && d.gone {
		d.closeLocked()
	}
}

// closeLocked closes the descriptor. An error of close says nothing here that
// a sync has not said: written data that matters was synced or is dirty.
func (d *diskFile) closeLocked() {
	if d.f == nil {
		return
	}
	d.cache.drop(d)
	_ = d.f.Close()
	d.f = nil
}

// remove unlinks the file. Pinned readers keep what they have. After an error it may be called again.
func (d *diskFile) remove() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone && !d.named {
		return nil
	}
	d.gone = true
	if d.pins == 0 {
		d.closeLocked()
	}
	if !d.exists {
		return nil
	}
	err := removeIfThere(d.cache.fs, d.path)
	d.named = err != nil
	return err
}

// abandon forgets the file without touching its name, which somebody else
// (a rename over it, or the removal of its folder) has taken.
func (d *diskFile) abandon() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone = true
	if d.pins == 0 {
		d.closeLocked()
	}
}

// abandonIfUnpinned is abandon when no reader holds the file; it reports
// whether it was.
func (d *diskFile) abandonIfUnpinned() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pins > 0 {
		return false
	}
	d.gone = true
	d.closeLocked()
	return true
}

// writeAt writes all of p at off.
func (d *diskFile) writeAt(p []byte, off int64) error {
	d.mu.Lock()
	err := d.acquireLocked()
	d.writes++
	d.mu.Unlock()
	if err != nil {
		return err
	}
	defer d.release()
	_, err = d.f.WriteAt(p, off)
	return err
}

// sync makes the bytes written so far durable. What is synced may be closed, so the bound of descriptors, which files with
// unsynced bytes may exceed, is restored here.
func (d *diskFile) sync() error {
	err := d.syncPinned()
	if err == nil {
		d.cache.shrink(nil)
	}
	return err
}

func (d *diskFile) syncPinned() error {
	d.mu.Lock()
	err := d.acquireLocked()
	writes := d.writes
	d.mu.Unlock()
	if err != nil {
		return err
	}
	defer d.release()
	if err := d.f.SyncData(); err != nil {
		return err
	}
	d.mu.Lock()
	d.synced = max(d.synced, writes)
	d.mu.Unlock()
	return nil
}

// ReadAt implements protocol.SpanFile; the file must be pinned.
func (d *diskFile) ReadAt(p []byte, off int64) (int, error) { return d.f.ReadAt(p, off) }

// Fd implements protocol.SpanFile; the file must be pinned.
func (d *diskFile) Fd() uintptr { return d.f.Fd() }

// add takes a file that was just opened into the ring and closes others that
// are above the bound. d.mu is held; others are only tried, so that two files
// never wait for each other.
func (c *fileCache) add(d *diskFile) {
	c.mu.Lock()
	d.slot = len(c.ring)
	c.ring = append(c.ring, d)
	c.mu.Unlock()
	c.shrink(d)
}

// shrink closes files that are above the bound, but not keep, whose lock the caller holds.
func (c *fileCache) shrink(keep *diskFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for tries := 2 * len(c.ring); len(c.ring) > c.maxOpenFiles && tries > 0; tries-- {
		if c.hand >= len(c.ring) {
			c.hand = 0
		}
		v := c.ring[c.hand]
		if v == keep || !v.mu.TryLock() {
			c.hand++
			continue
		}
		if v.pins > 0 || v.synced != v.writes || v.used {
			v.used = false
			c.hand++
		} else {
			c.unlink(c.hand)
			_ = v.f.Close()
			v.f = nil
		}
		v.mu.Unlock()
	}
}

func (c *fileCache) drop(d *diskFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unlink(d.slot)
}

// unlink takes ring[i] out; order in the ring does not matter.
func (c *fileCache) unlink(i int) {
	last := len(c.ring) - 1
	c.ring[i] = c.ring[last]
	c.ring[i].slot = i
	c.ring[last] = nil
	c.ring = c.ring[:last]
}

// openFiles is the number of descriptors held.
func (c *fileCache) openFiles() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ring)
}

// truncate cuts the file, if it is there, and forgets nothing: the caller syncs.
func (d *diskFile) truncate(sizeBytes int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone || !d.exists {
		return nil
	}
	d.writes++
	return d.cache.fs.Truncate(d.path, sizeBytes)
}

// preallocate asks for room for n bytes from off on without changing the file's
// size, so that what is reserved never shows.
func (d *diskFile) preallocate(off, n int64) error {
	if err := d.acquire(); err != nil {
		return err
	}
	defer d.release()
	return d.f.Preallocate(off, n)
}

// rename gives the file another name, replacing what may lie there. The file must not be known to readers yet.
func (d *diskFile) rename(to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.cache.fs.Rename(d.path, to); err != nil {
		return err
	}
	d.path = to
	return nil
}

// makeWritable prepares a file that was opened for reading to be written; it
// must not be pinned by a reader of bytes.
func (d *diskFile) makeWritable() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closeLocked()
	d.writable = true
}

// closeIdle gives the descriptor back unless somebody reads.
func (d *diskFile) closeIdle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pins == 0 {
		d.closeLocked()
	}
}
