package netio

import (
	"context"

	"varve/protocol"
)

// onDisk runs what reads from the disk in one of the places that there are for it, so that readers of cold ranges hold a
// bounded number of the process's threads. It waits for a place as long as the connection is there.
func (c *Conn) onDisk(read func() error) error {
	select {
	case c.srv.disk <- struct{}{}:
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
	defer func() { <-c.srv.disk }()
	c.srv.n.coldReads.Add(1)
	return read()
}

// readRange fills b from f: at once where the bytes are in memory, in a place for cold reads where they are not.
func (c *Conn) readRange(f protocol.SpanFile, b []byte, off int64) error {
	all, known := readResident(f, b, off)
	switch {
	case all:
		return nil
	case !known:
		return readFull(f, b, off)
	}
	return c.onDisk(func() error { return readFull(f, b, off) })
}
