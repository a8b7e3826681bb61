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
	path  string // does not change once readers know the file

	naming sync.Mutex // of what its name on the disk becomes; before mu

	releaseFn func() // release, so that handing out a slice allocates nothing

	mu       sync.Mutex
	lies     string   // the name that it still has on the disk, "" for path
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
	_, err := d.pin(0)
	return err
}

// pin is acquire for so many writes; it returns the number of writes begun.
func (d *diskFile) pin(writes uint64) (begun uint64, err error) {
	d.mu.Lock()
	opened := false
	switch {
	case d.gone:
		err = errGone
	case d.f == nil:
		err = d.open()
		opened = err == nil
	}
	if err == nil {
		d.pins++
		d.used = true
	}
	d.writes += writes
	begun = d.writes
	d.mu.Unlock()
	if opened {
		d.cache.shrink()
	}
	return begun, err
}

// name is where the file is on the disk. The caller holds mu or naming.
func (d *diskFile) name() string {
	if d.lies != "" {
		return d.lies
	}
	return d.path
}

func (d *diskFile) open() (err error) {
	switch {
	case !d.exists:
		d.f, err = d.cache.fs.Create(d.name(), writeCategory)
	case d.writable:
		d.f, err = d.cache.fs.OpenReadWrite(d.name(), writeCategory)
	default:
		d.f, err = d.cache.fs.Open(d.name())
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
	var f vfs.File
	if d.pins--; d.pins == 0 && d.gone {
		f = d.detach()
	}
	d.mu.Unlock()
	closeFile(f)
}

// detach takes the descriptor away, for the caller to close once it holds no lock: the last close of a file frees what
// the file system keeps for it, and all its blocks when it was unlinked. The caller holds mu.
func (d *diskFile) detach() vfs.File {
	f := d.f
	if f != nil {
		d.cache.drop(d)
		d.f = nil
	}
	return f
}

// closeFile closes a descriptor, if there is one. An error of close says nothing here that
// a sync has not said: written data that matters was synced or is dirty.
func closeFile(f vfs.File) {
	if f != nil {
		_ = f.Close()
	}
}

// remove unlinks the file. Pinned readers keep what they have. After an error it may be called again.
func (d *diskFile) remove() error {
	d.naming.Lock()
	defer d.naming.Unlock()
	d.mu.Lock()
	if d.gone && !d.named {
		d.mu.Unlock()
		return nil
	}
	d.gone = true
	var f vfs.File
	if d.pins == 0 {
		f = d.detach()
	}
	exists, name := d.exists, d.name()
	d.mu.Unlock()
	closeFile(f)
	if !exists {
		return nil
	}
	err := removeIfThere(d.cache.fs, name)
	d.mu.Lock()
	d.named = err != nil
	d.mu.Unlock()
	return err
}

// abandon forgets the file without touching its name, which somebody else
// (a rename over it, or the removal of its folder) has taken.
func (d *diskFile) abandon() {
	d.mu.Lock()
	d.gone = true
	var f vfs.File
	if d.pins == 0 {
		f = d.detach()
	}
	d.mu.Unlock()
	closeFile(f)
}

// abandonIfUnpinned is abandon when no reader holds the file; it reports
// whether it was.
func (d *diskFile) abandonIfUnpinned() bool {
	d.mu.Lock()
	if d.pins > 0 {
		d.mu.Unlock()
		return false
	}
	d.gone = true
	f := d.detach()
	d.mu.Unlock()
	closeFile(f)
	return true
}

// writeAt writes all of p at off.
func (d *diskFile) writeAt(p []byte, off int64) error {
	if _, err := d.pin(1); err != nil {
		return err
	}
	defer d.release()
	_, err := d.f.WriteAt(p, off)
	return err
}

// sync makes the bytes written so far durable. What is synced may be closed, so the bound of descriptors, which files with
// unsynced bytes may exceed, is restored here.
func (d *diskFile) sync() error {
	err := d.syncPinned()
	if err == nil {
		d.cache.shrink()
	}
	return err
}

func (d *diskFile) syncPinned() error {
	writes, err := d.pin(0)
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

// add takes a file that was just opened into the ring; d.mu is held.
func (c *fileCache) add(d *diskFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d.slot = len(c.ring)
	c.ring = append(c.ring, d)
}

// shrink closes files that are above the bound. Those that somebody is at are only tried, so that two files never wait for
// each other.
func (c *fileCache) shrink() {
	for _, f := range c.evict() {
		closeFile(f)
	}
}

// evict takes the descriptors above the bound away.
func (c *fileCache) evict() (out []vfs.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for tries := 2 * len(c.ring); len(c.ring) > c.maxOpenFiles && tries > 0; tries-- {
		if c.hand >= len(c.ring) {
			c.hand = 0
		}
		v := c.ring[c.hand]
		if !v.mu.TryLock() {
			c.hand++
			continue
		}
		if v.pins > 0 || v.synced != v.writes || v.used {
			v.used = false
			c.hand++
		} else {
			c.unlink(c.hand)
			out = append(out, v.f)
			v.f = nil
		}
		v.mu.Unlock()
	}
	return out
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
	d.naming.Lock()
	defer d.naming.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone || !d.exists {
		return nil
	}
	d.writes++
	return d.cache.fs.Truncate(d.name(), sizeBytes)
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

// become makes path the file's name, which the disk learns by settleName. The file must not be known to readers yet.
func (d *diskFile) become(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lies, d.path = d.path, path
}

// settleName gives the file on the disk the name that it has here, replacing what may lie there. It may be written
// meanwhile.
func (d *diskFile) settleName() error {
	d.naming.Lock()
	defer d.naming.Unlock()
	d.mu.Lock()
	lies := d.lies
	d.mu.Unlock()
	if lies == "" {
		return nil
	}
	if err := d.acquire(); err != nil { // so that nobody opens it by a name while that changes
		return err
	}
	defer d.release()
	if err := d.cache.fs.Rename(lies, d.path); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lies = ""
	return nil
}

// makeWritable prepares a file that was opened for reading to be written; it
// must not be pinned by a reader of bytes.
func (d *diskFile) makeWritable() {
	d.mu.Lock()
	f := d.detach()
	d.writable = true
	d.mu.Unlock()
	closeFile(f)
}

// closeIdle gives the descriptor back unless somebody reads.
func (d *diskFile) closeIdle() {
	d.mu.Lock()
	var f vfs.File
	if d.pins == 0 {
		f = d.detach()
	}
	d.mu.Unlock()
	closeFile(f)
}
