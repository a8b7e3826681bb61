package netio

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

// TestClosedHasACause: of two who close a connection at once, the second does not go on before the first has said why: it asks for
// the cause next.
func TestClosedHasACause(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	entered, gate, second := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	c := &Conn{nc: near, ctx: ctx, stop: func() {}, cancel: func(err error) {
		close(entered)
		<-gate
		cancel(err)
	}}
	c.wake.L = &c.mu
	first := make(chan struct{})
	go func() {
		defer close(first)
		c.shut(errPeerGone)
	}()
	<-entered
	go func() {
		c.shut(errIdle)
		second <- context.Cause(ctx)
	}()
	select {
	case err := <-second:
		t.Errorf("closed, and the cause was %v", err)
		close(gate)
	case <-time.After(50 * time.Millisecond):
		close(gate)
		if err := <-second; !errors.Is(err, errPeerGone) {
			t.Errorf("the cause was %v", err)
		}
	}
	<-first
}
