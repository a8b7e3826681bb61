package netio

import (
	"errors"

	"golang.org/x/sys/unix"

	"varve/protocol"
)

// canSendfile reports whether the kernel can move bytes from f to the socket.
func (c *Conn) canSendfile(f protocol.SpanFile) bool {
	return c.raw != nil && f.Fd() != ^uintptr(0)
}

// sendfile sends a file range without passing it through this process. Each call
// is capped, so that the deadline has a chance to bite.
func (c *Conn) sendfile(f protocol.SpanFile, off, n int64) error {
	fd := int(f.Fd())
	var (
		sent int
		serr error
	)
	step := func(sock uintptr) bool {
		for {
			at := off // a private copy: the file's own position is shared and never used
			sent, serr = unix.Sendfile(int(sock), fd, &at, int(min(n, maxSendfileBytes)))
			if !errors.Is(serr, unix.EINTR) {
				return !errors.Is(serr, unix.EAGAIN)
			}
		}
	}
	for warmTo := off; n > 0; {
		if off >= warmTo {
			warmTo = off + min(n, maxSendfileBytes)
			if err := c.warm(f, off, warmTo-off); err != nil {
				return err
			}
		}
		err := c.raw.Write(step)
		switch {
		case err != nil:
			return err
		case errors.Is(serr, unix.EINVAL), errors.Is(serr, unix.ENOSYS), errors.Is(serr, unix.EOPNOTSUPP):
			return c.copyFile(f, off, n) // this file system has no sendfile
		case serr != nil:
			return serr
		case sent == 0:
			return errShort(off, 0, int(min(n, maxSendfileBytes)))
		}
		off, n = off+int64(sent), n-int64(sent)
		c.srv.n.sendfileBytes.Add(int64(sent))
		if err := c.wrote(int64(sent), nil); err != nil {
			return err
		}
	}
	return nil
}

// tryWrite makes one write call that does not block.
func (c *Conn) tryWrite(b []byte) (n int, err error) {
	var serr error
	err = c.raw.Write(func(sock uintptr) bool {
		for {
			n, serr = unix.SendmsgN(int(sock), b, nil, nil, unix.MSG_NOSIGNAL)
			if !errors.Is(serr, unix.EINTR) {
				return true
			}
		}
	})
	if err == nil {
		err = serr
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

// trySend sends as much of a small reply as the socket takes without blocking,
// and reports whether nothing is left to send. What was sent is cut off.
func (c *Conn) trySend(reply *Reply) bool {
	if len(reply.Spans) == 0 {
		return true
	}
	s := &reply.Spans[0]
	if c.raw == nil || len(reply.Spans) > 1 || s.File != nil || len(s.Bytes) > maxAsyncInlineBytes || c.armWrite() != nil {
		return false
	}
	n, err := c.tryWrite(s.Bytes)
	if err != nil { // no room, or a failure that the writer will meet again
		return false
	}
	_ = c.wrote(int64(n), nil)
	s.Bytes, s.Len = s.Bytes[n:], s.Len-int64(n)
	return len(s.Bytes) == 0
}
