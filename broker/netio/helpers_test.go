package netio

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"varve/protocol"
	"varve/protocol/event"
)

const (
	produce int16 = 0
	fetch   int16 = 1
)

// handlerFunc adapts a function to Handler.
type handlerFunc func(ctx context.Context, c *Conn, frame []byte, done func(Reply))

func (f handlerFunc) Serve(ctx context.Context, c *Conn, frame []byte, done func(Reply)) {
	f(ctx, c, frame, done)
}

// echo answers each frame with its own correlation id and body.
func echo(_ context.Context, c *Conn, frame []byte, done func(Reply)) {
	c.Known()
	done(answer(frame))
}

func answer(frame []byte) Reply {
	return Reply{Spans: []protocol.Span{protocol.MemSpan(frameOf(frame[4:]))}}
}

// frameOf puts 4 size bytes before a copy of b.
func frameOf(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

func requestFrame(key int16, corr int32, body []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(key))
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(corr))
	return frameOf(append(b, body...))
}

func corrOf(frame []byte) int32 { return int32(binary.BigEndian.Uint32(frame[4:])) }
func keyOf(frame []byte) int16  { return int16(binary.BigEndian.Uint16(frame)) }

type testServer struct {
	*Server
	t      *testing.T
	addr   string
	events *event.Recorder
}

// start runs a server on a random port until the test ends.
func start(t *testing.T, o Options) *testServer {
	t.Helper()
	rec := &event.Recorder{}
	o.Events = rec.Emit
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	addr, err := s.Listen(t.Context(), "PLAINTEXT", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { served <- s.Serve() })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		wg.Wait()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		st := s.Stats()
		if st.Connections != 0 || st.InFlightBytes != 0 {
			t.Errorf("left behind after shutdown: %+v", st)
		}
	})
	return &testServer{Server: s, t: t, addr: addr.String(), events: rec}
}

func (s *testServer) dial() *client {
	s.t.Helper()
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	return &client{t: s.t, Conn: nc}
}

type client struct {
	t *testing.T
	net.Conn
}

func (c *client) send(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// recv reads one reply frame.
func (c *client) recv() []byte {
	c.t.Helper()
	b, err := c.tryRecv()
	if err != nil {
		c.t.Fatalf("read: %v", err)
	}
	return b
}

func (c *client) tryRecv() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(c, b)
	return b, err
}

// mustClose checks that the server ends the connection without another byte.
func (c *client) mustClose() {
	c.t.Helper()
	n, err := c.Read(make([]byte, 1))
	var timeout net.Error
	if n != 0 || err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		c.t.Fatalf("the connection stayed open: %d bytes, %v", n, err)
	}
}

// mustServe checks that the server still answers others.
func (s *testServer) mustServe() {
	s.t.Helper()
	c := s.dial()
	c.send(requestFrame(fetch, 99, []byte("still there")))
	if got := string(c.recv()[4:]); got != "still there" {
		s.t.Fatalf("got %q", got)
	}
	c.Close()
}

func (s *testServer) waitEvent(name string) event.Event {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	e, err := s.events.Wait(ctx, name)
	if err != nil {
		s.t.Fatalf("no event %s: %v; have %v", name, err, s.events.All())
	}
	return e
}

// eventually waits for a condition that another goroutine brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// releases counts calls of Release and notices a second one.
type releases struct {
	made, done, twice atomic.Int64
}

func (r *releases) track(s protocol.Span) protocol.Span {
	r.made.Add(1)
	var called atomic.Bool
	s.Release = func() {
		if called.Swap(true) {
			r.twice.Add(1)
		}
		r.done.Add(1)
	}
	return s
}

func (r *releases) check(t *testing.T) {
	t.Helper()
	eventually(t, "every span released", func() bool { return r.done.Load() >= r.made.Load() })
	if r.twice.Load() != 0 || r.done.Load() != r.made.Load() {
		t.Fatalf("%d spans, %d releases, %d twice", r.made.Load(), r.done.Load(), r.twice.Load())
	}
}
