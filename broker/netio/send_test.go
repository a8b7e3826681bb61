package netio

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"varve/protocol"
)

// noFd hides the descriptor of a file, as a memory file system does.
type noFd struct{ io.ReaderAt }

func (noFd) Fd() uintptr { return ^uintptr(0) }

func dataFile(t testing.TB, size int) (*os.File, []byte) {
	t.Helper()
	data := make([]byte, size)
	rnd := rand.NewChaCha8([32]byte{7})
	_, _ = rnd.Read(data)
	name := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, data
}

// sendReply serves one connection with a reply of these spans behind a size
// prefix and returns what the peer read.
func sendReply(t *testing.T, build func() []protocol.Span) []byte {
	t.Helper()
	s := start(t, Options{Handler: handlerFunc(func(_ context.Context, _ *Conn, _ []byte, done func(Reply)) {
		spans := build()
		size := binary.BigEndian.AppendUint32(nil, uint32(protocol.SpansLen(spans)))
		done(Reply{Spans: append([]protocol.Span{protocol.MemSpan(size)}, spans...)})
	})})
	c := s.dial()
	c.send(requestFrame(fetch, 1, nil))
	return c.recv()
}

// Every way of sending, and every boundary between two of them, sends the right
// bytes and releases each span once.
func TestSpansOfEverySize(t *testing.T) {
	f, data := dataFile(t, 6<<20)
	sizes := []int{
		0, 1, 100, maxPreadBehindHeaderBytes - 1, maxPreadBehindHeaderBytes, maxPreadBehindHeaderBytes + 1,
		coalesceBytes, maxPreadBehindHeaderBytes + sendfileEdgeBytes, copyBytes + 3, maxSendfileBytes + 1, 3 << 20,
	}
	for _, kernel := range []bool{true, false} {
		for _, n := range sizes {
			t.Run(fmt.Sprintf("kernel=%v/%d", kernel, n), func(t *testing.T) {
				var r releases
				var file protocol.SpanFile = f
				if !kernel {
					file = noFd{f}
				}
				var want []byte
				got := sendReply(t, func() []protocol.Span {
					var spans []protocol.Span
					for i := range 4 {
						head := bytes.Repeat([]byte{byte(i)}, 20+i*17000)
						off := 1000*i + 7
						spans = append(spans, r.track(protocol.MemSpan(head)),
							r.track(protocol.Span{File: file, Off: int64(off), Len: int64(n)}))
						want = append(append(want, head...), data[off:off+n]...)
					}
					return append(spans, r.track(protocol.MemSpan(nil)))
				})
				if !bytes.Equal(got, want) {
					t.Fatalf("wrong bytes: %d, want %d", len(got), len(want))
				}
				r.check(t)
			})
		}
	}
}

func TestSendfileIsUsed(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // other systems copy
	}
	f, data := dataFile(t, 4<<20)
	s := start(t, Options{Handler: handlerFunc(func(_ context.Context, _ *Conn, _ []byte, done func(Reply)) {
		done(Reply{Spans: []protocol.Span{
			protocol.MemSpan(binary.BigEndian.AppendUint32(nil, uint32(len(data)))),
			{File: f, Len: int64(len(data))},
		}})
	})})
	c := s.dial()
	c.send(requestFrame(fetch, 1, nil))
	if !bytes.Equal(c.recv(), data) {
		t.Fatal("wrong bytes")
	}
	eventually(t, "all counted", func() bool {
		st := s.Stats()
		return st.SendfileBytes == int64(len(data))-sendfileEdgeBytes && st.BytesOut == int64(len(data))+4
	})
}

// Many connections read different ranges of one open file at the same time.
func TestSharedFile(t *testing.T) {
	f, data := dataFile(t, 8<<20)
	var r releases
	s := start(t, Options{Handler: handlerFunc(func(_ context.Context, _ *Conn, frame []byte, done func(Reply)) {
		off, n := binary.BigEndian.Uint32(frame[8:]), binary.BigEndian.Uint32(frame[12:])
		done(Reply{Spans: []protocol.Span{
			protocol.MemSpan(binary.BigEndian.AppendUint32(nil, n)),
			r.track(protocol.Span{File: f, Off: int64(off), Len: int64(n)}),
		}})
	})})
	var wg sync.WaitGroup
	for w := range 16 {
		c := s.dial()
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 0))
			for range 40 {
				n := 1 + rnd.IntN(700_000)
				off := rnd.IntN(len(data) - n)
				body := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(off)), uint32(n))
				if _, err := c.Write(requestFrame(fetch, 1, body)); err != nil {
					t.Error(err)
					return
				}
				got, err := c.tryRecv()
				if err != nil || !bytes.Equal(got, data[off:off+n]) {
					t.Errorf("range %d+%d: wrong bytes, %v", off, n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	r.check(t)
}

// A file that is shorter than its span closes the connection: nothing may ever
// follow at the wrong place.
func TestShortFile(t *testing.T) {
	f, _ := dataFile(t, 2<<20)
	for _, tc := range []struct {
		off, n int64
		file   protocol.SpanFile
	}{
		{0, 3 << 20, f}, {2<<20 - 10, 500_000, f}, {2<<20 - 10, 100, f}, {0, 3 << 20, noFd{f}}, {5 << 20, 20, noFd{f}},
	} {
		var r releases
		s := start(t, Options{Handler: handlerFunc(func(_ context.Context, _ *Conn, _ []byte, done func(Reply)) {
			done(Reply{Spans: []protocol.Span{
				r.track(protocol.MemSpan(binary.BigEndian.AppendUint32(nil, uint32(tc.n)))),
				r.track(protocol.Span{File: tc.file, Off: tc.off, Len: tc.n}),
				r.track(protocol.MemSpan([]byte("must not follow"))),
			}})
		})})
		c := s.dial()
		c.send(requestFrame(fetch, 1, nil))
		all, err := io.ReadAll(c)
		if err != nil && !strings.Contains(err.Error(), "reset") {
			t.Fatal(err)
		}
		if bytes.Contains(all, []byte("must not follow")) {
			t.Fatal("bytes were sent after the gap")
		}
		if e := s.waitEvent("connection_failed").(ConnectionFailed); !strings.Contains(e.Reason, "corruption in file range") {
			t.Fatal(e)
		}
		r.check(t)
	}
}

type failingFile struct{}

func (failingFile) ReadAt([]byte, int64) (int, error) { return 0, errors.New("disk on fire") }
func (failingFile) Fd() uintptr                       { return ^uintptr(0) }

func TestFailingFile(t *testing.T) {
	var r releases
	s := start(t, Options{Handler: handlerFunc(func(_ context.Context, _ *Conn, _ []byte, done func(Reply)) {
		done(Reply{Spans: []protocol.Span{r.track(protocol.Span{File: failingFile{}, Len: 1 << 20})}})
	})})
	c := s.dial()
	c.send(requestFrame(fetch, 1, nil))
	c.mustClose()
	if e := s.waitEvent("connection_failed").(ConnectionFailed); !strings.Contains(e.Reason, "disk on fire") {
		t.Fatal(e)
	}
	r.check(t)
}

// A client that stops reading is cut off, and pins nothing afterwards: file
// ranges and memory, written by the reader or by a writer goroutine.
func TestClientStopsReading(t *testing.T) {
	f, _ := dataFile(t, 32<<20)
	for _, memory := range []bool{false, true} {
		for _, async := range []bool{false, true} {
			var r releases
			var wg sync.WaitGroup
			s := start(t, Options{StallTimeout: 300 * time.Millisecond, Handler: handlerFunc(
				func(_ context.Context, _ *Conn, _ []byte, done func(Reply)) {
					span := protocol.Span{File: f, Len: 32 << 20}
					if memory {
						span = protocol.MemSpan(make([]byte, 32<<20))
					}
					reply := Reply{Spans: []protocol.Span{r.track(span), r.track(protocol.MemSpan([]byte("end")))}}
					if !async {
						done(reply)
						return
					}
					wg.Go(func() {
						time.Sleep(20 * time.Millisecond)
						done(reply)
					})
				})})
			c := s.dial()
			c.send(requestFrame(produce, 1, nil))
			c.send(requestFrame(produce, 2, nil))
			eventually(t, "cut off", func() bool { return s.Stats().FailedConnections == 1 && s.Stats().Connections == 0 })
			wg.Wait()
			r.check(t)
			c.Close()
		}
	}
}

// deadlineConn notes the write deadline.
type deadlineConn struct {
	net.Conn
	at time.Time
}

func (d *deadlineConn) SetWriteDeadline(t time.Time) error {
	d.at = t
	return nil
}

// The time to write a reply is extended by real progress only.
func TestDeadlineMovesWithProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nc := &deadlineConn{}
		c := &Conn{srv: &Server{opts: Options{StallTimeout: 10 * time.Second}}, nc: nc}
		step := func(what string, n int64, moves bool) {
			before := nc.at
			if err := c.wrote(n, nil); err != nil {
				t.Fatal(err)
			}
			if want := time.Now().Add(10 * time.Second); moves && !nc.at.Equal(want) || !moves && !nc.at.Equal(before) {
				t.Fatalf("%s: the deadline is in %v", what, time.Until(nc.at))
			}
		}
		if err := c.armWrite(); err != nil || !nc.at.Equal(time.Now().Add(10*time.Second)) {
			t.Fatal(err, nc.at)
		}
		time.Sleep(5 * time.Second)
		step("a trickle", 1000, false)
		step("real progress", minWriteProgressBytes, true)
		time.Sleep(time.Second)
		step("soon after", minWriteProgressBytes, false)
		time.Sleep(4 * time.Second)
		step("later", minWriteProgressBytes, true)
	})
}

// Replies that come from other goroutines while the socket is full are all
// written, in order, and no writer goroutine stays.
func TestAsyncRepliesThroughFullSocket(t *testing.T) {
	const n, size = 400, 60_000
	var wg sync.WaitGroup
	var handed atomic.Int64
	s := start(t, Options{Handler: handlerFunc(func(_ context.Context, _ *Conn, frame []byte, done func(Reply)) {
		corr := corrOf(frame)
		wg.Go(func() {
			time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
			b := binary.BigEndian.AppendUint32(nil, uint32(corr))
			done(Reply{Spans: []protocol.Span{protocol.MemSpan(frameOf(append(b, make([]byte, size)...)))}})
		})
		handed.Add(1)
	})})
	c := s.dial()
	c.send(requestFrame(fetch, 0, nil))
	c.recv()
	eventually(t, "counted", func() bool { return handed.Load() == 1 })
	wg.Wait()
	time.Sleep(10 * time.Millisecond)
	before := runtime.NumGoroutine()
	handed.Store(0)
	for i := range int32(n) {
		c.send(requestFrame(produce, i, nil))
	}
	eventually(t, "all handed on", func() bool { return handed.Load() == n })
	wg.Wait() // done never waits for the client
	for want := range uint32(n) {
		got := c.recv()
		if binary.BigEndian.Uint32(got) != want || len(got) != size+4 {
			t.Fatalf("reply %d of %d bytes at place %d", binary.BigEndian.Uint32(got), len(got), want)
		}
	}
	eventually(t, "the writer ends", func() bool { return runtime.NumGoroutine() <= before })
}

func TestPartialAsyncWriteReleasesOnce(t *testing.T) {
	var r releases
	dones := make(chan func(Reply), 300)
	s := start(t, Options{StallTimeout: 200 * time.Millisecond, Handler: handlerFunc(
		func(_ context.Context, _ *Conn, _ []byte, done func(Reply)) { dones <- done })})
	c := s.dial()
	for i := range int32(300) {
		c.send(requestFrame(produce, i, nil))
	}
	for range 300 {
		(<-dones)(Reply{Spans: []protocol.Span{r.track(protocol.MemSpan(frameOf(make([]byte, 50_000))))}})
	}
	eventually(t, "cut off", func() bool { return s.Stats().Connections == 0 })
	r.check(t)
}
