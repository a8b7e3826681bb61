package netio

import (
	"fmt"
	"sync/atomic"
	"time"

	"varve/protocol"
)

// request is one frame on its way through the handler and its reply on its way
// to the socket.
type request struct {
	c      *Conn
	key    int16
	buf    *buffer
	frame  []byte
	charge charge // of the broker's budget

	answered atomic.Bool // done was called

	// Under c.mu:
	left    bool // Serve has returned: the reader no longer looks after the reply
	ready   bool
	dropped bool // nobody will send the reply
	reply   Reply
}

// done is what the handler calls.
func (r *request) done(reply Reply) {
	c := r.c
	if !r.answered.CompareAndSwap(false, true) {
		protocol.ReleaseSpans(reply.Spans)
		if c.ctx.Err() == nil {
			c.srv.opts.Events.Emit(AnsweredTwice{Peer: c.Peer, Conn: c.ID})
			c.fail(&protocol.InvariantError{What: "a request was answered twice"})
		}
		return
	}
	frameBytes := int64(len(r.frame))
	r.dropFrame()
	c.mu.Lock()
	c.inFlightBytes -= frameBytes
	if r.dropped {
		c.mu.Unlock()
		protocol.ReleaseSpans(reply.Spans)
		return
	}
	r.reply, r.ready = reply, true
	mine := r.left && !c.writing && c.queue[0] == r
	c.wake.Broadcast()
	c.mu.Unlock()
	if mine {
		c.pump(false)
	}
}

// leave marks that Serve has returned and reports whether the reader has a
// reply to see to, and whether sending it is all there is to do.
func (r *request) leave() (ready, plain bool) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.left = true
	return r.ready, r.reply.plain()
}

// dropFrame gives the frame's memory back.
func (r *request) dropFrame() {
	if r.buf != nil {
		r.buf.free()
	}
	r.buf, r.frame = nil, nil
	r.c.srv.budget.free(&r.charge)
}

// forfeit takes the place of done after a panic. The buffer is not pooled again:
// the handler may have passed it on before it panicked.
func (r *request) forfeit() {
	if r.answered.CompareAndSwap(false, true) {
		r.c.srv.budget.free(&r.charge)
	}
}

// dropQueueLocked empties the queue and returns the spans of the replies that
// will not be sent, for the caller to release outside of the lock.
func (c *Conn) dropQueueLocked() []protocol.Span {
	var spans []protocol.Span
	for _, r := range c.queue {
		r.dropped = true
		spans = append(spans, r.reply.Spans...)
		r.reply = Reply{}
	}
	c.queue = nil
	c.unsent = 0
	c.wake.Broadcast()
	return spans
}

// pump writes the replies that are ready and due, unless someone does already.
// Without block the caller's time is not the connection's: what does not go
// at once is left to a writer goroutine.
func (c *Conn) pump(block bool) {
	c.mu.Lock()
	if c.writing {
		c.mu.Unlock()
		return
	}
	c.writing = true
	c.mu.Unlock()
	for {
		out, ok := c.nextReplies()
		if !ok {
			return
		}
		if !block && !c.trySend(&out.Reply) {
			c.handOver(out)
			return
		}
		if !c.sendAll(out) {
			return
		}
	}
}

// outgoing is a reply, or several that leave as one.
type outgoing struct {
	Reply
	requests int
}

// plain says that sending a reply is all there is to do.
func (r *Reply) plain() bool { return !r.Close && r.MuteFor == 0 }

// small says that a reply is cheaper copied than written on its own.
func (r *Reply) small() bool {
	return len(r.Spans) == 1 && r.Spans[0].File == nil && r.Spans[0].Len <= maxMergedReplyBytes
}

// nextReplies takes the reply that is due, and if it is small the small ones behind
// it that are ready too. When there is none the right to write is given up.
func (c *Conn) nextReplies() (outgoing, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.queue) == 0 || !c.queue[0].ready {
		c.writing = false
		return outgoing{}, false
	}
	out := outgoing{Reply: c.takeLocked(), requests: 1}
	if !out.plain() || !out.small() {
		return out, true
	}
	for out.requests <= maxHeldReplies && len(c.queue) > 0 && c.queue[0].ready {
		if next := &c.queue[0].reply; !next.plain() || !next.small() {
			break
		}
		out.Spans = append(out.Spans[:out.requests:out.requests], c.takeLocked().Spans...)
		out.requests++
	}
	return out, true
}

func (c *Conn) takeLocked() Reply {
	r := c.queue[0]
	c.queue[0] = nil
	c.queue = c.queue[1:]
	reply := r.reply
	r.reply = Reply{}
	return reply
}

// handOver passes a reply, and the right to write, to a writer goroutine.
func (c *Conn) handOver(out outgoing) {
	c.mu.Lock()
	gone := c.closed
	if !gone { // under the lock, so that serve waits for it
		c.wg.Go(func() {
			if c.sendAll(out) {
				c.mu.Lock()
				c.writing = false
				c.mu.Unlock()
				c.pump(true)
			}
		})
	}
	c.mu.Unlock()
	if gone {
		protocol.ReleaseSpans(out.Spans)
	}
}

// sendAll writes what is left of a reply and does what else it asks for. It
// reports false when the connection is over.
func (c *Conn) sendAll(reply outgoing) bool {
	if err := c.send(reply.Spans); err != nil {
		c.fail(fmt.Errorf("writing a reply: %w", err))
		return false
	}
	c.mu.Lock()
	if reply.MuteFor > 0 {
		c.muteUntil = time.Now().Add(reply.MuteFor)
	}
	if !reply.Close {
		c.unsent = max(c.unsent-reply.requests, 0)
		c.wake.Broadcast()
		c.mu.Unlock()
		return true
	}
	c.closing.Store(true)
	if reply.Cause != nil {
		c.closeCause = reply.Cause
	}
	spans := c.dropQueueLocked()
	c.mu.Unlock()
	_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // wakes the reader
	protocol.ReleaseSpans(spans)
	return false
}
