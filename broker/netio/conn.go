package netio

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"varve/protocol"
)

// Conn is one connection. The exported fields are set before the first request
// and do not change, but for State.
type Conn struct {
	ID       uint64
	Peer     string // remote address, host:port
	Listener string // name of the listener it came in by
	State    any    // the handler's own; touched by Serve only

	known atomic.Bool

	srv    *Server
	nc     net.Conn
	raw    syscall.RawConn // nil: no kernel socket to send files to (TLS)
	br     *bufio.Reader
	ctx    context.Context // ends when the connection is gone
	cancel context.CancelCauseFunc
	drain  context.Context // ends when the server drains or the connection is gone
	stop   context.CancelFunc
	wg     sync.WaitGroup // writer goroutines

	trustedBytes int       // largest frame that arrived whole, capped; owned by the reader
	frames       int       // that were read, up to helloFrames; owned by the reader
	held         int       // replies that leave with a later one; owned by the reader
	here         int64     // bytes of the next frame, at least, that were there when one was held; owned by the reader
	idleUntil    time.Time // the deadline of reads, if it is that of an idle peer; owned by the reader

	writeDeadline time.Time // owned by whoever holds the right to write
	unarmedBytes  int64     // sent since the deadline was last looked at; likewise

	closing       atomic.Bool // a reply asked to close: read no more; set under mu
	mu            sync.Mutex
	wake          sync.Cond // queue or muteUntil changed, or closed
	queue         []*request
	unsent        int   // requests not yet answered on the wire
	inFlightBytes int64 // frames not yet answered by the handler
	lastKey       int16 // of the newest request in the queue
	writing       bool  // someone has the right to write
	closed        bool
	closeCause    error // what the closing reply said
	muteUntil     time.Time
}

var (
	errDraining = errors.New("the server is shutting down")
	errPeerGone = errors.New("the peer closed the connection")
	errIdle     = errors.New("idle for too long")
	errReply    = errors.New("the handler asked to close")
)

// Known tells netio that this peer has sent a request that parsed, so that
// frames up to MaxFrameBytes are accepted from now on.
func (c *Conn) Known() { c.known.Store(true) }

// Drain returns a context that ends when the server begins to shut down: what
// waits only for more to come (a long poll) should answer then.
func (c *Conn) Drain() context.Context {
	if c.drain == nil {
		return context.Background()
	}
	return c.drain
}

// serve reads and dispatches until the connection ends. It returns when no
// goroutine of the connection is left.
func (c *Conn) serve() {
	err := c.readLoop()
	c.pump(true) // what was held back for a request that did not come
	if cause := c.awaitReplies(); cause != nil {
		err = cause
	}
	c.finish(err)
	c.wg.Wait()
}

// readLoop returns why no more is read.
func (c *Conn) readLoop() error {
	for {
		if err := c.awaitRoom(); err != nil {
			return err
		}
		r, err := c.readFrame()
		if err != nil {
			return err
		}
		if !c.enqueue(r) {
			r.dropFrame()
			return errReply
		}
		c.dispatch(r)
	}
}

// dispatch hands r to the handler and writes the replies that are ready, unless
// the next one can be had at once.
func (c *Conn) dispatch(r *request) {
	c.srv.n.requests.Add(1)
	size := 4 + int64(len(r.frame))
	c.callHandler(r)
	ready, plain := r.leave()
	switch {
	case ready && plain && c.nextIsHere(r.key, size):
		c.held++
	case ready || c.held > 0:
		c.release()
	}
}

// release sends what is held.
func (c *Conn) release() {
	c.held = 0
	c.pump(true)
}

// nextIsHere reports whether the next request is there whole and is a Produce like this one of size bytes, so that it is
// dispatched without waiting for anything on the wire: then both replies leave in one write. Of large requests that is a
// guess, that the next is as large; what it is worth shows when the frame's head is read.
func (c *Conn) nextIsHere(key int16, size int64) bool {
	if key != protocol.KeyProduce || c.held >= maxHeldReplies {
		return false
	}
	c.here = int64(c.br.Buffered())
	if c.here >= 4+2 {
		head, _ := c.br.Peek(4 + 2) // cannot fail: these bytes are buffered
		next := int64(int32(binary.BigEndian.Uint32(head)))
		if int16(binary.BigEndian.Uint16(head[4:])) != protocol.KeyProduce || next < minFrameBytes {
			return false
		}
		if 4+next <= c.here {
			return true
		}
		size = 4 + next
	}
	if size < minHeldLargeBytes || c.held >= maxHeldLargeReplies {
		return false
	}
	c.here += c.unread()
	return c.here >= size
}

func (c *Conn) callHandler(r *request) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		r.forfeit()
		c.srv.n.handlerPanics.Add(1)
		c.srv.opts.Events.Emit(HandlerPanicked{Peer: c.Peer, Conn: c.ID, Panic: fmt.Sprint(p), Stack: string(debug.Stack())})
		c.fail(fmt.Errorf("the handler panicked: %v", p))
	}()
	c.srv.opts.Handler.Serve(c.ctx, c, r.frame, r.done)
}

// awaitRoom holds the reader while the connection has too much in flight or is
// muted.
func (c *Conn) awaitRoom() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held > 0 && c.fullLocked() {
		c.mu.Unlock()
		c.release()
		c.mu.Lock()
	}
	for {
		switch {
		case c.srv.draining.Load():
			return errDraining
		case c.closed || c.closing.Load():
			return errReply
		case c.fullLocked():
			c.wake.Wait()
		case !c.muteUntil.IsZero() && time.Until(c.muteUntil) > 0:
			if err := c.sleepLocked(time.Until(c.muteUntil)); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

func (c *Conn) fullLocked() bool {
	return c.unsent >= c.srv.opts.MaxInFlightRequestsPerConn || c.inFlightBytes >= c.srv.opts.MaxInFlightBytesPerConn
}

// sleepLocked waits outside of the lock until d has passed or the connection or
// server ends.
func (c *Conn) sleepLocked(d time.Duration) error {
	c.mu.Unlock()
	defer c.mu.Lock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-c.drain.Done():
		return errDraining
	}
}

// enqueue puts r behind the requests before it, waiting until it may be
// dispatched. It reports false when the connection ended meanwhile.
func (c *Conn) enqueue(r *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.closed && !c.closing.Load() && c.unsent > 0 &&
		(r.key != protocol.KeyProduce || c.lastKey != protocol.KeyProduce) {
		c.wake.Wait()
	}
	if c.closed || c.closing.Load() {
		return false
	}
	c.queue = append(c.queue, r)
	c.unsent++
	c.inFlightBytes += int64(len(r.frame))
	c.lastKey = r.key
	return true
}

// awaitReplies waits until all that was dispatched is answered, or the
// connection is closed. It returns what a closing reply gave as its cause.
func (c *Conn) awaitReplies() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.unsent > 0 && !c.closed {
		c.wake.Wait()
	}
	return c.closeCause
}

// finish closes after the last reply. Closing a socket with unread bytes would
// reset it and could cost the peer replies it has not read yet, so first only
// our side is closed and what the peer still sends is read for a moment.
func (c *Conn) finish(cause error) {
	if tcp, ok := c.nc.(*net.TCPConn); ok && !errors.Is(cause, errPeerGone) && c.ctx.Err() == nil && tcp.CloseWrite() == nil {
		_ = tcp.SetReadDeadline(time.Now().Add(lingerMs * time.Millisecond))
		_, _ = io.CopyN(io.Discard, tcp, maxLingerBytes)
	}
	c.shut(cause)
	if first := context.Cause(c.ctx); !expected(first) {
		c.srv.n.failed.Add(1)
		c.srv.peerEvent(ConnectionFailed{Listener: c.Listener, Peer: c.Peer, Conn: c.ID, Reason: first.Error()})
	}
}

// expected reports whether connections end for this reason every day.
func expected(err error) bool {
	for _, e := range []error{errPeerGone, errDraining, errIdle, errReply, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// fail closes the connection now, because of err.
func (c *Conn) fail(err error) {
	if tcp, ok := c.nc.(*net.TCPConn); ok && errors.Is(err, os.ErrDeadlineExceeded) {
		_ = tcp.SetLinger(0) // the kernel need not keep what this peer will not read
	}
	c.shut(err)
}

// shut closes the connection and releases what waits to be written.
func (c *Conn) shut(err error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	c.cancel(err) // under the lock: whoever finds the connection closed also finds why
	spans := c.dropQueueLocked()
	c.mu.Unlock()
	c.stop()
	_ = c.nc.Close()
	protocol.ReleaseSpans(spans)
}

// readFrame reads the next frame. Errors end the connection.
func (c *Conn) readFrame() (*request, error) {
	if err := c.awaitFirstByte(); err != nil {
		return nil, err
	}
	head, err := c.peek(4)
	if err != nil {
		return nil, err
	}
	size := int64(int32(binary.BigEndian.Uint32(head)))
	limit := int64(c.srv.opts.MaxFrameBytes)
	if !c.known.Load() {
		limit = int64(c.srv.opts.MaxPreHandshakeFrameBytes)
	}
	if size < minFrameBytes || size > limit {
		c.srv.n.refusedFrames.Add(1)
		return nil, fmt.Errorf("refused a frame that claims %d bytes (allowed: %d to %d)", size, minFrameBytes, limit)
	}
	if head, err = c.peek(4 + 2); err != nil {
		return nil, err
	}
	r := &request{c: c, key: int16(binary.BigEndian.Uint16(head[4:]))}
	if c.held > 0 && (r.key != protocol.KeyProduce || 4+size > c.here) {
		c.release()
	}
	_, _ = c.br.Discard(4) // cannot fail: these bytes are buffered
	if err := c.readBody(r, int(size)); err != nil {
		r.dropFrame()
		return nil, err
	}
	c.srv.n.bytesIn.Add(size + 4)
	c.frames = min(c.frames+1, helloFrames)
	return r, nil
}

// awaitFirstByte waits for a frame to begin. A peer that waits for replies is
// not idle. One that said hello and now goes on gets its full read buffer; most
// connections of a client never do.
func (c *Conn) awaitFirstByte() error {
	for c.br.Buffered() == 0 {
		if c.frames == helloFrames && c.br.Size() < connReadBufferBytes {
			c.br = bufio.NewReaderSize(c.nc, connReadBufferBytes)
		}
		if err := c.armIdle(); err != nil {
			return err
		}
		_, err := c.br.Peek(1)
		if err == nil {
			return nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return c.readError(err)
		}
		c.mu.Lock()
		busy := c.unsent > 0
		c.mu.Unlock()
		if !busy && !c.srv.draining.Load() && !c.closing.Load() {
			c.srv.n.idleClosed.Add(1)
			return errIdle
		}
	}
	return nil
}

// peek returns the next n bytes, of a frame that has begun to arrive.
func (c *Conn) peek(n int) ([]byte, error) {
	if c.br.Buffered() < n {
		if err := c.armRead(c.srv.opts.StallTimeout); err != nil {
			return nil, err
		}
	}
	b, err := c.br.Peek(n)
	if err != nil {
		return nil, c.readError(err)
	}
	return b, nil
}

// readBody reads size bytes into r.frame. The buffer begins small unless this
// peer has sent such frames before, and grows with what has arrived.
func (c *Conn) readBody(r *request, size int) error {
	exempt := r.key != protocol.KeyProduce && size <= maxExemptFrameBytes
	for at := 0; at < size; {
		if r.buf == nil || at == len(r.buf.b) {
			want := min(size, max(firstFrameBytes, c.trustedBytes, at*frameGrowFactor))
			if err := c.reserve(r, want-at, exempt); err != nil {
				return err
			}
			grown := getBuffer(want)
			if r.buf != nil {
				copy(grown.b, r.buf.b[:at])
				r.buf.free()
			}
			r.buf = grown
		}
		step := min(size, len(r.buf.b), at+frameStepBytes)
		if c.br.Buffered() < step-at {
			if err := c.armRead(c.srv.opts.StallTimeout); err != nil {
				return err
			}
		}
		n, err := io.ReadFull(c.br, r.buf.b[at:step])
		if at += n; err != nil {
			return c.readError(err)
		}
	}
	r.frame = r.buf.b[:size]
	c.trustedBytes = max(c.trustedBytes, min(size, maxTrustedFrameBytes))
	return nil
}

// reserve charges n bytes of r's frame to the broker's budget.
func (c *Conn) reserve(r *request, n int, exempt bool) error {
	if exempt {
		c.srv.budget.force(&r.charge, int64(n))
		return nil
	}
	if _, ok := c.srv.budget.take(&r.charge, int64(n)); ok {
		return nil
	}
	if c.held > 0 {
		c.release() // there may be a wait
	}
	if !c.srv.budget.grow(&r.charge, int64(n), c.drain.Done()) {
		return errDraining
	}
	return nil
}

// armIdle sets the deadline of reads to IdleTimeout from now, or a little later so that it need not be set for each frame.
func (c *Conn) armIdle() error {
	d := c.srv.opts.IdleTimeout
	if d > 0 && time.Until(c.idleUntil) >= d {
		return c.armed()
	}
	later := d + d/idleDeadlineSlackFraction
	if err := c.armRead(later); err != nil {
		return err
	}
	c.idleUntil = time.Now().Add(later)
	return nil
}

// armRead sets the deadline of reads, none if d is negative. The checks come after, so that a server
// that begins to drain, or a reply that closes, at this moment is not overlooked.
func (c *Conn) armRead(d time.Duration) error {
	var at time.Time
	if d >= 0 {
		at = time.Now().Add(d)
	}
	c.idleUntil = time.Time{}
	if err := c.nc.SetReadDeadline(at); err != nil {
		return c.readError(err)
	}
	return c.armed()
}

// armed tells what a read must not wait for: its deadline may have been set after that began.
func (c *Conn) armed() error {
	if c.srv.draining.Load() {
		return errDraining
	}
	if c.closing.Load() {
		return errReply
	}
	return nil
}

func (c *Conn) readError(err error) error {
	switch {
	case c.srv.draining.Load():
		return errDraining
	case c.closing.Load():
		return errReply
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("a frame did not arrive within %v for each %d bytes", c.srv.opts.StallTimeout, frameStepBytes)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return errPeerGone
	}
	return err
}
