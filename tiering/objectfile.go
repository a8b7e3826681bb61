package tiering

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"varve/protocol"
	"varve/tiering/objstore"
)

// maxObjectFiles bounds the objects that are open at a time; what others hold is read into memory.
const maxObjectFiles = 256 // descriptors

// objectFile is the open file of an object that a `dir` store keeps on this machine. Chunks that were read through the store and
// found right stay in it: they are sent out of the page cache by sendfile, like segments of the local log, and take no memory of
// ours. It is closed when the last of them is let go; an object that is deleted meanwhile stays readable until then.
//
// What the page cache has dropped since it was checked is checked again: whoever sends (netio) asks first, at the middle and the end
// of each MiB, whether it is there, and has the rest read by ReadAt.
type objectFile struct {
	f     *objstore.LocalFile
	x     *SegmentIndex
	id    protocol.UUID // the segment's
	key   string
	alarm func(error)
	bad   atomic.Bool // it does not hold what it did: nothing more is read from it

	refs int // guarded by memory.mu
}

// Fd implements protocol.SpanFile.
func (o *objectFile) Fd() uintptr { return o.f.Fd() }

// ReadAt implements protocol.SpanFile: it reads whole chunks and checks them. A mismatch is a *protocol.CorruptionError and an
// alarm, and the object is asked for anew by whoever comes next.
func (o *objectFile) ReadAt(p []byte, off int64) (n int, err error) {
	buf := scratch.Get().(*[chunkBytes]byte)
	defer scratch.Put(buf)
	for n < len(p) {
		at := off + int64(n)
		i := int(at / chunkBytes)
		if i >= len(o.x.Chunks) || at >= o.x.Footer.LogBytes {
			return n, io.EOF
		}
		t := o.x.Chunks[i]
		data := buf[:t.Length]
		if err := o.read(data, t.Stored); err != nil {
			return n, err
		}
		if err := t.check(o.key, data); err != nil {
			return n, o.failed(err)
		}
		n += copy(p[n:], data[at-t.Stored:])
	}
	return n, nil
}

// read fills p with bytes of a chunk that was checked.
func (o *objectFile) read(p []byte, off int64) error {
	n, err := o.f.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case err == nil || err == io.EOF:
		return o.failed(corrupt(o.key, "%d bytes at %d were there and are not any more", len(p)-n, off+int64(n)))
	}
	return o.failed(fmt.Errorf("tiering: read %d bytes at %d of %s: %w", len(p), off, o.key, err))
}

func (o *objectFile) failed(err error) error {
	o.bad.Store(true)
	o.alarm(err)
	return err
}

// scratch is what chunks of files are checked in: as long as it stays in the processor's cache, that costs one copy to there.
var scratch = sync.Pool{New: func() any { return new([chunkBytes]byte) }}

// adopt holds the file that a run's body is read from, until letGo; nil when there is none, or none more may be open. local
// says that the bytes are on this machine anyhow.
func (m *Manager) adopt(body io.Reader, r *run, key string) (o *objectFile, local bool) {
	f := objstore.LocalFileOf(body)
	if f == nil {
		return nil, false
	}
	m.mem.mu.Lock()
	defer m.mem.mu.Unlock()
	if o = m.mem.files[r.row.ID]; o != nil && !o.bad.Load() && o.f.Same(f) {
		o.refs++
		return o, true
	}
	if m.mem.openFiles >= maxObjectFiles {
		return nil, true
	}
	f.Keep()
	row := r.row
	o = &objectFile{f: f, x: r.x, id: row.ID, key: key, alarm: func(err error) { m.alarm(row, err) }, refs: 1}
	m.mem.files[r.row.ID] = o
	m.mem.openFiles++
	return o, true
}

// letGo ends the hold of adopt.
func (m *memory) letGo(o *objectFile) {
	m.mu.Lock()
	defer m.unlock()
	m.letGoLocked(o)
}

// checkChunk reads one chunk through the body and checks it; its bytes stay in the file. It says how many it brought.
func (m *Manager) checkChunk(body io.Reader, r *run, at int, o *objectFile) (n int, err error) {
	buf := scratch.Get().(*[chunkBytes]byte)
	defer scratch.Put(buf)
	c, t := r.chunks[at], r.table(at)
	data := buf[:t.Length]
	if _, err := io.ReadFull(body, data); err != nil {
		return 0, getError(t, o.key, err)
	}
	if err := t.check(o.key, data); err != nil {
		m.alarm(r.row, err)
		return 0, err
	}
	m.mem.inFile(c, o, t)
	close(c.ready)
	m.mem.release(c, false)
	return 1, nil
}

// inFile says that the bytes of c are in o.
func (m *memory) inFile(c *memChunk, o *objectFile, t Chunk) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.file, c.size, c.crc, c.local = o, int(t.Length), t.CRC32C, true
	o.refs++
	m.inFiles++
}

func (m *memory) letGoLocked(o *objectFile) {
	if o.refs--; o.refs > 0 {
		return
	}
	if m.files[o.id] == o {
		delete(m.files, o.id)
	}
	m.openFiles--
	m.dead = append(m.dead, o)
}

// header copies what is at an offset in the chunk to p, as far as the chunk goes. Of a file, it is not checked again: it says
// where batches begin, and is not sent.
func (c *memChunk) header(p []byte, at int) (int, error) {
	if c.file == nil {
		return copy(p, c.data[at:]), nil
	}
	p = p[:min(len(p), c.size-at)]
	return len(p), c.file.read(p, int64(c.key.chunk)*chunkBytes+int64(at))
}

// appendTo appends n bytes from an offset in the chunk on to b.
func (c *memChunk) appendTo(b []byte, at, n int) ([]byte, error) {
	if c.file == nil {
		return append(b, c.data[at:at+n]...), nil
	}
	return protocol.Span{File: c.file, Off: int64(c.key.chunk)*chunkBytes + int64(at), Len: int64(n)}.AppendTo(b)
}
