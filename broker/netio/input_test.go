package netio

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestEcho(t *testing.T) {
	s := start(t, Options{Handler: handlerFunc(echo)})
	c := s.dial()
	for i, n := range []int{0, 1, 100, 5000, 70_000, 300_000} {
		body := bytes.Repeat([]byte{byte(i + 1)}, n)
		c.send(requestFrame(fetch, int32(i), body))
		got := c.recv()
		if binary.BigEndian.Uint32(got) != uint32(i) || !bytes.Equal(got[4:], body) {
			t.Fatalf("reply %d: wrong bytes", i)
		}
	}
	eventually(t, "all counted", func() bool {
		st := s.Stats()
		return st.Requests == 6 && st.BytesIn == 6*12+375_101 && st.BytesOut == 6*8+375_101
	})
}

// A frame larger than anything pooled, and another after it on the same
// connection, arrive whole though the buffer starts small.
func TestLargeFramesGrow(t *testing.T) {
	s := start(t, Options{Handler: handlerFunc(echo)})
	c := s.dial()
	c.send(requestFrame(fetch, 0, nil))
	c.recv()
	for i := range 2 {
		body := make([]byte, 9<<20+i)
		for j := range body {
			body[j] = byte(j * 7 >> 3)
		}
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = c.Write(requestFrame(fetch, 1, body)) })
		if got := c.recv(); !bytes.Equal(got[4:], body) {
			t.Fatal("wrong bytes")
		}
		wg.Wait()
	}
}

func TestRefusedFrames(t *testing.T) {
	for _, tc := range []struct {
		name  string
		bytes []byte
	}{
		{"2 GB", []byte{0x7f, 0xff, 0xff, 0xff}},
		{"negative", []byte{0xff, 0xff, 0xff, 0xff}},
		{"most negative", []byte{0x80, 0, 0, 0, 1, 2, 3}},
		{"empty", []byte{0, 0, 0, 0}},
		{"shorter than a header", []byte{0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7}},
		{"over the limit", []byte{0, 0x10, 0, 1}},
		{"http", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")},
		{"tls", []byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := start(t, Options{Handler: handlerFunc(echo), MaxFrameBytes: 1 << 20})
			c := s.dial()
			c.send(requestFrame(fetch, 1, nil))
			c.recv()
			c.send(tc.bytes)
			c.mustClose()
			e := s.waitEvent("connection_failed").(ConnectionFailed)
			if !strings.Contains(e.Reason, "refused a frame that claims") || s.Stats().RefusedFrames != 1 {
				t.Fatalf("%+v, %+v", e, s.Stats())
			}
			s.mustServe()
		})
	}
}

// Before a request has parsed, frames are bounded more tightly.
func TestFirstFrameIsSmall(t *testing.T) {
	s := start(t, Options{Handler: handlerFunc(echo), MaxPreHandshakeFrameBytes: 1000})
	c := s.dial()
	c.send(binary.BigEndian.AppendUint32(nil, 1001))
	c.mustClose()
	c = s.dial()
	c.send(requestFrame(fetch, 1, make([]byte, 992)))
	c.recv()
	c.send(requestFrame(fetch, 2, make([]byte, 5000)))
	c.recv()
}

// A claim is not believed: the memory held grows with what has arrived.
func TestClaimsCostNothing(t *testing.T) {
	s := start(t, Options{Handler: handlerFunc(echo), MaxPreHandshakeFrameBytes: 100 << 20, StallTimeout: 5 * time.Second})
	var clients []*client
	for range 50 {
		c := s.dial()
		c.send(append(binary.BigEndian.AppendUint32(nil, 100<<20), make([]byte, 10)...))
		clients = append(clients, c)
	}
	eventually(t, "all claims read", func() bool { return s.Stats().InFlightBytes >= 50*firstFrameBytes })
	if got := s.Stats().InFlightBytes; got != 50*firstFrameBytes {
		t.Fatalf("%d bytes held for claims", got)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > 200<<20 {
		t.Fatalf("%d MB on the heap", m.HeapAlloc>>20)
	}
	for _, c := range clients {
		c.Close()
	}
	eventually(t, "all given back", func() bool { return s.Stats().InFlightBytes == 0 })
}

func TestRandomBytes(t *testing.T) {
	s := start(t, Options{Handler: handlerFunc(echo), StallTimeout: 50 * time.Millisecond})
	rnd := rand.NewChaCha8([32]byte{1})
	for range 100 {
		b := make([]byte, 1+rnd.Uint64()%300)
		_, _ = rnd.Read(b)
		if rnd.Uint64()%2 == 0 {
			b[0], b[1], b[2] = 0, 0, 0 // a size that may be served
		}
		c := s.dial()
		c.send(b)
		c.Close()
	}
	s.mustServe()
}

func TestTruncatedFrame(t *testing.T) {
	s := start(t, Options{Handler: handlerFunc(echo)})
	whole := requestFrame(produce, 5, make([]byte, 100_000))
	for _, n := range []int{1, 3, 4, 5, 11, 100, 70_000, len(whole) - 1} {
		c := s.dial()
		c.send(whole[:n])
		c.Close()
	}
	eventually(t, "connections end", func() bool { return s.Stats().Connections == 0 })
	if st := s.Stats(); st.Requests != 0 || st.InFlightBytes != 0 || st.FailedConnections != 0 {
		t.Fatalf("%+v", st)
	}
}

// A peer that sends a frame byte by byte is cut off when the time is over, also
// when each byte comes in time.
func TestSlowLoris(t *testing.T) {
	s := start(t, Options{Handler: handlerFunc(echo), StallTimeout: 150 * time.Millisecond})
	for _, first := range []int{1, 4, 6, 20} {
		c := s.dial()
		frame := requestFrame(fetch, 1, make([]byte, 500))
		c.send(frame[:first])
		begun := time.Now()
		for _, b := range frame[first:] {
			time.Sleep(30 * time.Millisecond)
			if _, err := c.Write([]byte{b}); err != nil {
				break
			}
		}
		if took := time.Since(begun); took > 3*time.Second {
			t.Fatalf("held on for %v", took)
		}
		c.mustClose()
	}
	if e := s.waitEvent("connection_failed").(ConnectionFailed); !strings.Contains(e.Reason, "did not arrive") {
		t.Fatal(e)
	}
}

func TestIdleIsClosed(t *testing.T) {
	s := start(t, Options{Handler: handlerFunc(echo), IdleTimeout: 80 * time.Millisecond})
	c := s.dial()
	c.send(requestFrame(fetch, 1, nil))
	c.recv()
	c.mustClose()
	eventually(t, "counted", func() bool { return s.Stats().IdleClosed == 1 })
	if s.Stats().FailedConnections != 0 {
		t.Fatal("idle counted as failure")
	}
}

func TestIdleWithoutBound(t *testing.T) {
	s := start(t, Options{Handler: handlerFunc(echo), IdleTimeout: -1})
	c := s.dial()
	for i := range int32(2) {
		c.send(requestFrame(fetch, i, nil))
		c.recv()
		time.Sleep(20 * time.Millisecond)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.mustClose()
}

// Waiting for a reply is not idleness.
func TestPendingIsNotIdle(t *testing.T) {
	release := make(chan func(Reply), 1)
	s := start(t, Options{IdleTimeout: 50 * time.Millisecond, Handler: handlerFunc(func(_ context.Context, _ *Conn, _ []byte, done func(Reply)) {
		release <- done
	})})
	c := s.dial()
	c.send(requestFrame(produce, 1, nil))
	done := <-release
	time.Sleep(200 * time.Millisecond)
	done(answer(requestFrame(produce, 1, nil)[4:]))
	c.recv()
	c.mustClose()
}

// A peer that closes its sending side still gets its answers.
func TestHalfClose(t *testing.T) {
	var wg sync.WaitGroup
	s := start(t, Options{Handler: handlerFunc(func(_ context.Context, _ *Conn, frame []byte, done func(Reply)) {
		r := answer(frame)
		wg.Go(func() {
			time.Sleep(50 * time.Millisecond)
			done(r)
		})
	})})
	c := s.dial()
	c.send(requestFrame(produce, 1, nil))
	c.send(requestFrame(produce, 2, nil))
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	for want := range 2 {
		if got := binary.BigEndian.Uint32(c.recv()); got != uint32(want+1) {
			t.Fatalf("got %d", got)
		}
	}
	c.mustClose()
	eventually(t, "the connection is gone", func() bool { return s.Stats().Connections == 0 })
	wg.Wait()
}

func TestManyConnections(t *testing.T) {
	const n = 1000
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur < 2*n+100 {
		limit.Cur = min(2*n+100, limit.Max)
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, Options{Handler: handlerFunc(echo), MaxConnections: n})
	clients := make([]*client, n)
	for i := range clients {
		clients[i] = s.dial()
	}
	eventually(t, "all accepted", func() bool { return s.Stats().Connections == n })
	over := s.dial()
	over.mustClose()
	if e := s.waitEvent("connection_refused").(ConnectionRefused); e.Bound != "max.connections" || e.Max != n {
		t.Fatalf("%+v", e)
	}
	for range 3 {
		for i, c := range clients {
			c.send(requestFrame(fetch, int32(i), fmt.Append(nil, i)))
		}
		for i, c := range clients {
			if got := c.recv(); string(got[4:]) != fmt.Sprint(i) {
				t.Fatalf("connection %d got %q", i, got)
			}
		}
	}
	clients[0].Close()
	eventually(t, "a place is free", func() bool { return s.Stats().Connections == n-1 })
	s.mustServe()
}

func TestPerIP(t *testing.T) {
	s := start(t, Options{Handler: handlerFunc(echo), MaxConnectionsPerIP: 5, PerIPOverrides: map[string]int{"127.0.0.1": 2}})
	a, b := s.dial(), s.dial()
	a.send(requestFrame(fetch, 1, nil))
	a.recv()
	s.dial().mustClose()
	if e := s.waitEvent("connection_refused").(ConnectionRefused); e.Bound != "max.connections.per.ip" || e.Max != 2 {
		t.Fatalf("%+v", e)
	}
	b.Close()
	eventually(t, "a place is free", func() bool { return s.Stats().Connections == 1 })
	s.mustServe()
}

// Events that peers can cause at will do not flood the log.
func TestHostileEventsAreBounded(t *testing.T) {
	s := start(t, Options{Handler: handlerFunc(echo), MaxConnections: 1})
	s.dial()
	eventually(t, "accepted", func() bool { return s.Stats().Connections == 1 })
	for range 200 {
		c := s.dial()
		c.mustClose()
		c.Close()
	}
	if n := s.events.Count("connection_refused"); n > 150 || s.Stats().SuppressedEvents == 0 {
		t.Fatalf("%d events, %+v", n, s.Stats())
	}
}

func TestOptions(t *testing.T) {
	h := handlerFunc(echo)
	for _, o := range []Options{
		{},
		{Handler: h, MaxFrameBytes: 1},
		{Handler: h, MaxFrameBytes: -1},
		{Handler: h, MaxPreHandshakeFrameBytes: 3},
		{Handler: h, MaxConnections: -1},
		{Handler: h, StallTimeout: -1},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("accepted %+v", o)
		}
	}
}

func TestPortTaken(t *testing.T) {
	s := start(t, Options{Handler: handlerFunc(echo)})
	if _, err := s.Listen(t.Context(), "OTHER", s.addr); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Fatal(err)
	}
}
