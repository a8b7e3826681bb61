package netio

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"varve/protocol"
)

// held is a handler that keeps Produce requests until the test answers them.
type held struct {
	mu    sync.Mutex
	seen  []int32
	dones map[int32]func(Reply)
}

func (h *held) Serve(_ context.Context, c *Conn, frame []byte, done func(Reply)) {
	c.Known()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, corrOf(frame))
	if keyOf(frame) != produce {
		done(answer(frame))
		return
	}
	if h.dones == nil {
		h.dones = map[int32]func(Reply){}
	}
	h.dones[corrOf(frame)] = done
}

func (h *held) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.seen)
}

func (h *held) finish(corr int32, reply Reply) {
	h.mu.Lock()
	done := h.dones[corr]
	delete(h.dones, corr)
	h.mu.Unlock()
	done(reply)
}

func corrReply(corr int32) Reply {
	return Reply{Spans: []protocol.Span{protocol.MemSpan(frameOf(binary.BigEndian.AppendUint32(nil, uint32(corr))))}}
}

// Produce requests are handed on before earlier ones are answered; the replies
// come in request order whatever order they are finished in.
func TestPipelinedProduce(t *testing.T) {
	h := &held{}
	s := start(t, Options{Handler: h})
	c := s.dial()
	const n = 200
	var all []byte
	for i := range int32(n) {
		all = append(all, requestFrame(produce, i, []byte("x"))...)
	}
	c.send(all)
	eventually(t, "all handed on", func() bool { return h.count() == n })
	order := rand.Perm(n)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < n; i += 4 {
				h.finish(int32(order[i]), corrReply(int32(order[i])))
			}
		})
	}
	for want := range n {
		if got := binary.BigEndian.Uint32(c.recv()); got != uint32(want) {
			t.Fatalf("reply %d at place %d", got, want)
		}
	}
	wg.Wait()
	for i, corr := range h.seen {
		if int(corr) != i {
			t.Fatalf("request %d handed on at place %d", corr, i)
		}
	}
}

// Only Produce overtakes a waiting Produce.
func TestOthersWaitForProduce(t *testing.T) {
	h := &held{}
	s := start(t, Options{Handler: h})
	c := s.dial()
	c.send(requestFrame(produce, 1, nil))
	c.send(requestFrame(fetch, 2, nil))
	c.send(requestFrame(produce, 3, nil))
	eventually(t, "first handed on", func() bool { return h.count() == 1 })
	time.Sleep(50 * time.Millisecond)
	if h.count() != 1 {
		t.Fatal("a Fetch was handed on before the Produce before it was answered")
	}
	h.finish(1, corrReply(1))
	eventually(t, "all handed on", func() bool { return h.count() == 3 })
	h.finish(3, corrReply(3))
	for want := uint32(1); want <= 3; want++ {
		if got := binary.BigEndian.Uint32(c.recv()); got != want {
			t.Fatalf("reply %d, want %d", got, want)
		}
	}
}

// A Produce behind a slow request of another kind waits too.
func TestProduceWaitsForOthers(t *testing.T) {
	var first, second atomic.Bool
	release := make(chan func(Reply), 1)
	s := start(t, Options{Handler: handlerFunc(func(_ context.Context, _ *Conn, frame []byte, done func(Reply)) {
		if keyOf(frame) == fetch {
			first.Store(true)
			release <- done
			return
		}
		second.Store(true)
		done(corrReply(2))
	})})
	c := s.dial()
	c.send(append(requestFrame(fetch, 1, nil), requestFrame(produce, 2, nil)...))
	done := <-release
	time.Sleep(30 * time.Millisecond)
	if second.Load() {
		t.Fatal("Produce overtook a Fetch")
	}
	done(corrReply(1))
	c.recv()
	c.recv()
}

func TestNoneSendsNothing(t *testing.T) {
	s := start(t, Options{Handler: handlerFunc(func(_ context.Context, _ *Conn, frame []byte, done func(Reply)) {
		if keyOf(frame) == produce {
			done(Reply{None: true})
			return
		}
		done(answer(frame))
	})})
	c := s.dial()
	for i := range int32(10) {
		c.send(requestFrame(produce, i, nil))
	}
	c.send(requestFrame(fetch, 11, nil))
	if got := binary.BigEndian.Uint32(c.recv()); got != 11 {
		t.Fatal(got)
	}
}

// A reply that closes goes out after all before it and before none that follow.
func TestCloseAfterReply(t *testing.T) {
	h := &held{}
	var r releases
	s := start(t, Options{Handler: h})
	c := s.dial()
	for i := range int32(4) {
		c.send(requestFrame(produce, i, nil))
	}
	eventually(t, "all handed on", func() bool { return h.count() == 4 })
	tracked := func(corr int32) Reply {
		reply := corrReply(corr)
		reply.Spans[0] = r.track(reply.Spans[0])
		return reply
	}
	h.finish(2, tracked(2))
	closing := tracked(1)
	closing.Close = true
	h.finish(1, closing)
	h.finish(0, tracked(0))
	for want := range uint32(2) {
		if got := binary.BigEndian.Uint32(c.recv()); got != want {
			t.Fatalf("reply %d, want %d", got, want)
		}
	}
	c.mustClose()
	h.finish(3, tracked(3)) // too late: dropped
	r.check(t)
}

// Closing for a bad request does not reset the connection under replies that
// the peer has not read yet, though bytes of the peer are left unread.
func TestCloseDoesNotReset(t *testing.T) {
	s := start(t, Options{Handler: handlerFunc(func(_ context.Context, _ *Conn, frame []byte, done func(Reply)) {
		reply := Reply{Spans: []protocol.Span{protocol.MemSpan(frameOf(make([]byte, 100_000)))}}
		if reply.Close = keyOf(frame) != produce; reply.Close {
			reply.Cause = errors.New("did not like it")
		}
		done(reply)
	})})
	c := s.dial()
	c.send(requestFrame(produce, 1, nil))
	c.send(requestFrame(fetch, 2, nil))
	c.send(make([]byte, 50_000))
	time.Sleep(50 * time.Millisecond)
	c.recv()
	c.recv()
	c.mustClose()
	if e := s.waitEvent("connection_failed").(ConnectionFailed); e.Reason != "did not like it" {
		t.Fatal(e)
	}
}

func TestMute(t *testing.T) {
	var at atomic.Int64
	s := start(t, Options{Handler: handlerFunc(func(_ context.Context, _ *Conn, frame []byte, done func(Reply)) {
		at.Store(time.Now().UnixNano())
		reply := answer(frame)
		if corrOf(frame) == 1 {
			reply.MuteFor = 150 * time.Millisecond
		}
		done(reply)
	})})
	c := s.dial()
	c.send(append(requestFrame(fetch, 1, nil), requestFrame(fetch, 2, nil)...))
	c.recv()
	answered := time.Now()
	c.recv()
	if waited := time.Unix(0, at.Load()).Sub(answered); waited < 120*time.Millisecond {
		t.Fatalf("the next request was served after %v", waited)
	}
}

func TestHandlerPanics(t *testing.T) {
	var r releases
	late := make(chan func(Reply), 1)
	s := start(t, Options{Handler: handlerFunc(func(_ context.Context, _ *Conn, frame []byte, done func(Reply)) {
		switch corrOf(frame) {
		case 1:
			late <- done
			panic("on purpose")
		case 2:
			done(Reply{Spans: []protocol.Span{r.track(protocol.MemSpan(frameOf([]byte("abcd"))))}})
			panic("after the answer")
		default:
			done(answer(frame))
		}
	})})
	c := s.dial()
	c.send(requestFrame(fetch, 1, nil))
	c.mustClose()
	(<-late)(Reply{Spans: []protocol.Span{r.track(protocol.MemSpan(frameOf([]byte("abcd"))))}})
	c = s.dial()
	c.send(requestFrame(fetch, 2, nil))
	c.mustClose()
	s.mustServe()
	e := s.waitEvent("handler_panicked").(HandlerPanicked)
	if e.Panic != "on purpose" || !strings.Contains(e.Stack, "order_test.go") || s.Stats().HandlerPanics != 2 {
		t.Fatalf("%+v", e)
	}
	r.check(t)
}

func TestAnsweredTwice(t *testing.T) {
	var r releases
	s := start(t, Options{Handler: handlerFunc(func(_ context.Context, _ *Conn, frame []byte, done func(Reply)) {
		for range 2 {
			done(Reply{Spans: []protocol.Span{r.track(protocol.MemSpan(frameOf([]byte("abcd"))))}})
		}
	})})
	c := s.dial()
	c.send(requestFrame(produce, 1, nil))
	c.mustClose()
	s.waitEvent("request_answered_twice")
	r.check(t)
}

// Requests in flight are bounded per connection by not reading.
func TestInFlightRequestsAreBounded(t *testing.T) {
	h := &held{}
	s := start(t, Options{Handler: h, MaxInFlightRequestsPerConn: 3})
	c := s.dial()
	for i := range int32(10) {
		c.send(requestFrame(produce, i, nil))
	}
	eventually(t, "three in flight", func() bool { return h.count() == 3 })
	time.Sleep(30 * time.Millisecond)
	for i := range int32(10) {
		if got := h.count(); got != min(int(i)+3, 10) {
			t.Fatalf("%d handed on after %d answers", got, i)
		}
		h.finish(i, corrReply(i))
		c.recv()
		eventually(t, "next handed on", func() bool { return h.count() == min(int(i)+4, 10) })
	}
}

func TestInFlightBytesPerConn(t *testing.T) {
	h := &held{}
	s := start(t, Options{Handler: h, MaxInFlightBytesPerConn: 2500})
	c := s.dial()
	for i := range int32(6) {
		c.send(requestFrame(produce, i, make([]byte, 992)))
	}
	eventually(t, "three in flight", func() bool { return h.count() == 3 })
	time.Sleep(30 * time.Millisecond)
	if h.count() != 3 {
		t.Fatalf("%d handed on", h.count())
	}
	for i := range int32(6) {
		h.finish(i, corrReply(i))
		c.recv()
		eventually(t, "next handed on", func() bool { return h.count() == min(int(i)+4, 6) })
	}
}

// The broker's budget holds Produce of all connections together, lets one frame
// go beyond it, never other small requests, and is given back in full.
func TestBrokerBudget(t *testing.T) {
	h := &held{}
	s := start(t, Options{Handler: h, MaxInFlightBytes: 250_000})
	body := make([]byte, 99_992)
	var clients []*client
	for i := range int32(6) {
		c := s.dial()
		c.send(requestFrame(fetch, 100, nil))
		c.recv()
		c.send(requestFrame(produce, i, body))
		clients = append(clients, c)
	}
	handed := func() int { return h.count() - 6 }
	// How many frames that is depends on how they arrive: a half-read one counts too.
	eventually(t, "the budget is used up", func() bool { return handed() >= 1 && s.Stats().InFlightBytes > 150_000 })
	time.Sleep(50 * time.Millisecond)
	if got := s.Stats().InFlightBytes; handed() > 3 || got > 250_000+100_000 {
		t.Fatalf("%d handed on, %d bytes in flight", handed(), got)
	}
	other := s.dial()
	other.send(requestFrame(fetch, 7, body))
	if !bytes.Equal(other.recv()[4:], body) {
		t.Fatal("a Fetch waited for Produce")
	}
	for answered := 0; answered < 6; {
		h.mu.Lock()
		var some []int32
		for corr := range h.dones {
			some = append(some, corr)
		}
		h.mu.Unlock()
		for _, corr := range some {
			h.finish(corr, corrReply(corr))
			clients[corr].recv()
			answered++
		}
	}
	eventually(t, "all given back", func() bool { return s.Stats().InFlightBytes == 0 })
}

// Half-read frames that together exceed the budget do not block each other.
func TestBudgetNeverDeadlocks(t *testing.T) {
	s := start(t, Options{Handler: handlerFunc(echo), MaxInFlightBytes: 200_000, MaxPreHandshakeFrameBytes: 1 << 20})
	frame := requestFrame(produce, 1, make([]byte, 500_000))
	var wg sync.WaitGroup
	for range 8 {
		c := s.dial()
		wg.Go(func() {
			for range 5 {
				if _, err := c.Write(frame); err != nil {
					t.Error(err)
					return
				}
				if _, err := c.tryRecv(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
