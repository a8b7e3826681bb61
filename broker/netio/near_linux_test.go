package netio

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"
)

// A peer on this machine is near: its send buffer is bounded, to what the system allows at most.
func TestNearPeersHaveSmallSendBuffers(t *testing.T) {
	sizes := make(chan int, 1)
	s := start(t, Options{Handler: handlerFunc(func(_ context.Context, c *Conn, _ []byte, done func(Reply)) {
		_ = c.raw.Control(func(fd uintptr) {
			n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
			if err != nil {
				t.Error(err)
			}
			sizes <- n
		})
		done(Reply{None: true})
	})})
	c := s.dial()
	c.send(requestFrame(produce, 1, nil))
	// The kernel doubles what it is given, for its own bookkeeping.
	if n := <-sizes; n <= 0 || n > 2*nearSendBufferBytes {
		t.Fatalf("a send buffer of %d bytes", n)
	}
}
