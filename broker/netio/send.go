package netio

import (
	"fmt"
	"io"
	"time"

	"varve/protocol"
)

// send writes spans in order and releases each as soon as it is written, all of
// them when writing fails. Small runs are gathered into one write. What suits
// which size is measured (sender CPU per GB): a file range of up to 128 KiB is
// cheapest read behind its header. A larger one goes by sendfile but for its
// edges, which leave with what stands before and after it: each write wakes the
// peer, and one of a header alone wakes it for nothing. Holding back in the kernel
// (MSG_MORE, TCP_CORK) was slower at 64 KiB and no cheaper at 1 MiB.
func (c *Conn) send(spans []protocol.Span) error {
	if len(spans) == 0 {
		return nil
	}
	defer protocol.ReleaseSpans(spans)
	if err := c.armWrite(); err != nil {
		return err
	}
	g := gather{c: c, maxBytes: int(min(protocol.SpansLen(spans), coalesceBytes))}
	defer g.free()
	for i := range spans {
		if err := g.add(&spans[i], i == len(spans)-1); err != nil {
			return err
		}
		protocol.ReleaseSpans(spans[i : i+1])
	}
	return g.flush()
}

// gather collects small runs of bytes until they are worth a write.
type gather struct {
	c        *Conn
	maxBytes int
	buf      *buffer
	n        int
}

func (g *gather) add(s *protocol.Span, last bool) error {
	switch {
	case s.Len == 0:
		return nil
	case s.File == nil && int64(len(s.Bytes)) != s.Len:
		return &protocol.InvariantError{What: fmt.Sprintf("span of %d bytes says %d", len(s.Bytes), s.Len)}
	case s.File == nil && (s.Len > maxCopiedMemoryBytes || last && g.n == 0):
		if err := g.flush(); err != nil {
			return err
		}
		return g.c.writeBytes(s.Bytes)
	case s.File == nil:
		room, err := g.room(len(s.Bytes))
		copy(room, s.Bytes)
		return err
	case s.Len <= maxPreadBehindHeaderBytes:
		return g.read(s.File, s.Off, s.Len)
	}
	return g.file(s, last)
}

// file sends a large file range; its head goes with what is gathered, its tail is gathered unless nothing follows.
func (g *gather) file(s *protocol.Span, last bool) error {
	from, to := s.Off, s.Off+s.Len
	if g.n > 0 {
		n := min(sendfileEdgeBytes, int64(g.maxBytes-g.n))
		if err := g.read(s.File, from, n); err != nil {
			return err
		}
		from += n
	}
	if err := g.flush(); err != nil {
		return err
	}
	if !last {
		to -= sendfileEdgeBytes
	}
	send := g.c.copyFile
	if g.c.canSendfile(s.File) {
		send = g.c.sendfile
	}
	if err := send(s.File, from, to-from); err != nil {
		return err
	}
	return g.read(s.File, to, s.Off+s.Len-to)
}

// read gathers a file range.
func (g *gather) read(f protocol.SpanFile, off, n int64) error {
	if n == 0 {
		return nil
	}
	room, err := g.room(int(n))
	if err != nil {
		return err
	}
	return g.c.readRange(f, room, off)
}

// room returns n bytes to fill, behind what is already gathered.
func (g *gather) room(n int) ([]byte, error) {
	if g.buf != nil && g.n+n > len(g.buf.b) {
		if err := g.flush(); err != nil {
			return nil, err
		}
	}
	if g.buf == nil {
		g.buf = getBuffer(g.maxBytes)
	}
	g.n += n
	return g.buf.b[g.n-n : g.n], nil
}

// flush writes what is gathered.
func (g *gather) flush() error {
	if g.n == 0 {
		return nil
	}
	b := g.buf.b[:g.n]
	g.n = 0
	return g.c.writeBytes(b)
}

func (g *gather) free() {
	if g.buf != nil {
		g.buf.free()
	}
}

// writeBytes writes b in steps, so that the deadline is for each and not for all.
func (c *Conn) writeBytes(b []byte) error {
	for len(b) > 0 {
		n, err := c.nc.Write(b[:min(len(b), maxMemoryWriteBytes)])
		if err := c.wrote(int64(n), err); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// copyFile sends a file range through memory.
func (c *Conn) copyFile(f protocol.SpanFile, off, n int64) error {
	buf := getBuffer(copyBytes)
	defer buf.free()
	for n > 0 {
		b := buf.b[:min(n, copyBytes)]
		if err := c.readRange(f, b, off); err != nil {
			return err
		}
		if err := c.writeBytes(b); err != nil {
			return err
		}
		off, n = off+int64(len(b)), n-int64(len(b))
	}
	return nil
}

// readFull fills b from f; fewer bytes than that are corruption.
func readFull(f io.ReaderAt, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		return errShort(off, n, len(b))
	}
	return err
}

func errShort(off int64, got, want int) error {
	return &protocol.CorruptionError{Where: "file range to send", What: fmt.Sprintf("%d of %d bytes at offset %d", got, want, off)}
}

// wrote counts n bytes that left and passes err on. The deadline moves only with
// real progress, so that a peer cannot hold a reply for ever by reading a byte
// now and then.
func (c *Conn) wrote(n int64, err error) error {
	c.srv.n.bytesOut.Add(n)
	if err != nil {
		return err
	}
	if c.unarmedBytes += n; c.unarmedBytes < minWriteProgressBytes {
		return nil
	}
	return c.armWrite()
}

// armWrite sets the deadline of writes to StallTimeout from now, or leaves it
// when that would change little.
func (c *Conn) armWrite() error {
	c.unarmedBytes = 0
	now, d := time.Now(), c.srv.opts.StallTimeout
	if c.writeDeadline.Sub(now) > d-d/writeDeadlineRefreshFraction {
		return nil
	}
	c.writeDeadline = now.Add(d)
	return c.nc.SetWriteDeadline(c.writeDeadline)
}
