package netio

import (
	"context"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"varve/protocol"
)

// TestRepliesLeaveTogether: requests that arrive together are answered in one write.
func TestRepliesLeaveTogether(t *testing.T) {
	s := start(t, Options{Handler: handlerFunc(echo)})
	c := s.dial()
	var all []byte
	for i := range int32(2 * maxHeldReplies) {
		all = append(all, requestFrame(produce, i, nil)...)
	}
	c.send(all)
	reads := 0
	for from := 0; from < 2*maxHeldReplies; reads++ {
		var got [8 * 2 * maxHeldReplies]byte
		n, err := c.Read(got[:])
		if err != nil || n%8 != 0 {
			t.Fatalf("%d bytes at once, %v", n, err)
		}
		for at := 0; at < n; at += 8 {
			if corr := int(binary.BigEndian.Uint32(got[at+4:])); corr != from {
				t.Fatalf("reply %d in place %d", corr, from)
			}
			from++
		}
	}
	if reads > 3 {
		t.Fatalf("%d replies in %d writes", 2*maxHeldReplies, reads)
	}
}

// TestHeldRepliesLeave: a reply that was held back for the next request leaves whatever becomes of that.
func TestHeldRepliesLeave(t *testing.T) {
	const never = 7 // the handler does not answer this one until the server drains
	handler := handlerFunc(func(_ context.Context, c *Conn, frame []byte, done func(Reply)) {
		c.Known()
		switch reply := answer(frame); {
		case corrOf(frame) != never:
			done(reply)
		case keyOf(frame) == fetch:
			<-c.Drain().Done()
			done(reply)
		default:
			context.AfterFunc(c.Drain(), func() { done(reply) })
		}
	})
	first := requestFrame(produce, 1, nil)
	for name, after := range map[string][]byte{
		"a produce that waits": requestFrame(produce, never, nil),
		"a fetch that waits":   requestFrame(fetch, never, nil),
		"a refused frame":      binary.BigEndian.AppendUint32(nil, 1<<31),
		"a frame of no key":    {0, 0, 0, 1, 0, 0},
		"half a frame":         requestFrame(produce, 2, make([]byte, 100))[:50],
		"a produce and half":   append(requestFrame(produce, 2, nil), requestFrame(produce, 3, nil)[:9]...),
	} {
		t.Run(name, func(t *testing.T) {
			for _, o := range []Options{{}, {MaxInFlightRequestsPerConn: 1}, {MaxInFlightBytesPerConn: 1}} {
				o.Handler = handler
				s := start(t, o)
				c := s.dial()
				c.send(slices.Concat(first, after))
				if got := binary.BigEndian.Uint32(c.recv()); got != 1 {
					t.Fatalf("reply %d", got)
				}
				c.Close()
			}
		})
	}
}

// TestMuteIsNotHeld: a reply that mutes is sent, and holds up what came with it.
func TestMuteIsNotHeld(t *testing.T) {
	const muteFor = 200 * time.Millisecond
	s := start(t, Options{Handler: handlerFunc(func(_ context.Context, _ *Conn, frame []byte, done func(Reply)) {
		reply := answer(frame)
		if corrOf(frame) == 1 {
			reply.MuteFor = muteFor
		}
		done(reply)
	})})
	c := s.dial()
	c.send(slices.Concat(requestFrame(produce, 0, nil), requestFrame(produce, 1, nil), requestFrame(produce, 2, nil)))
	began := time.Now()
	c.recv()
	c.recv()
	if took := time.Since(began); took > muteFor/2 {
		t.Fatalf("the muting reply took %v", took)
	}
	c.recv()
	if took := time.Since(began); took < muteFor {
		t.Fatalf("not muted: %v", took)
	}
}

// TestLargeRepliesLeaveTogether: of large requests that wait in the socket two replies at most are held for a third, and
// none for a request that is not whole, of another kind, or refused.
func TestLargeRepliesLeaveTogether(t *testing.T) {
	body := make([]byte, 4*minHeldLargeBytes)
	for name, after := range map[string][]byte{
		"nothing":         nil,
		"a larger one":    requestFrame(produce, 9, make([]byte, 16*minHeldLargeBytes))[:8*minHeldLargeBytes],
		"a fetch":         append(requestFrame(fetch, 9, body), make([]byte, len(body))...),
		"a refused frame": append(binary.BigEndian.AppendUint32(nil, 1<<31), make([]byte, 2*len(body))...),
	} {
		t.Run(name, func(t *testing.T) {
			began, goOn := make(chan struct{}), make(chan struct{})
			s := start(t, Options{Handler: handlerFunc(func(_ context.Context, c *Conn, frame []byte, done func(Reply)) {
				c.Known()
				if corrOf(frame) == 0 {
					close(began)
					<-goOn
				}
				if keyOf(frame) == fetch {
					<-c.Drain().Done() // it is never answered before that
				}
				done(Reply{Spans: []protocol.Span{protocol.MemSpan(frameOf(frame[4:8]))}})
			})})
			c := s.dial()
			c.send(requestFrame(produce, 0, body))
			<-began
			const n = 12
			for i := range int32(n) {
				c.send(requestFrame(produce, 1+i, body))
			}
			c.send(after)
			time.Sleep(20 * time.Millisecond) // all of it is in the socket
			close(goOn)
			for want := range uint32(1 + n) {
				if got := binary.BigEndian.Uint32(c.recv()); got != want {
					t.Fatalf("reply %d in place %d", got, want)
				}
			}
			c.Close()
		})
	}
}
