//go:build !linux

package netio

import (
	"syscall"

	"varve/protocol"
)

// canSendfile is for Linux: the calls of other systems differ in what a short
// count means, and nobody runs a broker of size on them.
func (c *Conn) canSendfile(protocol.SpanFile) bool { return false }

func (c *Conn) sendfile(f protocol.SpanFile, off, n int64) error { return c.copyFile(f, off, n) }

// trySend leaves all replies with bytes to the writer goroutine.
func (c *Conn) trySend(reply *Reply) bool { return len(reply.Spans) == 0 }

// unpace leaves the congestion control as the system has it.
func unpace(syscall.RawConn) string { return "" }

func (c *Conn) pace(string) {}

// readResident cannot be asked here.
func readResident(protocol.SpanFile, []byte, int64) (all, known bool) { return false, false }

// unread is not asked here.
func (c *Conn) unread() int64 { return 0 }
