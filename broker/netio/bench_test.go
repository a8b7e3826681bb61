package netio

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"

	"varve/protocol"
)

func benchServer(b *testing.B, h Handler) net.Conn {
	b.Helper()
	s, err := New(Options{Handler: h})
	if err != nil {
		b.Fatal(err)
	}
	addr, err := s.Listen(b.Context(), "PLAINTEXT", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- s.Serve() }()
	nc, err := net.Dial("tcp", addr.String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		nc.Close()
		_ = s.Shutdown(context.Background())
		<-served
	})
	return nc
}

// BenchmarkRoundTrip is the cost of a small request and reply.
func BenchmarkRoundTrip(b *testing.B) {
	nc := benchServer(b, handlerFunc(echo))
	frame := requestFrame(fetch, 1, make([]byte, 100))
	buf := make([]byte, len(frame)-4)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := nc.Write(frame); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(nc, buf); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLateReplies is the cost of requests whose replies come together from elsewhere, the oldest last: acks=all with
// followers.
func BenchmarkLateReplies(b *testing.B) {
	const n = 5 // as many as a producer has in flight
	late := make(chan func(Reply), n)
	nc := benchServer(b, handlerFunc(func(_ context.Context, _ *Conn, _ []byte, done func(Reply)) { late <- done }))
	frames := bytes.Repeat(requestFrame(produce, 1, make([]byte, 1000)), n)
	buf := make([]byte, 8*n)
	var waiting [n]func(Reply)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := nc.Write(frames); err != nil {
			b.Fatal(err)
		}
		for i := range waiting {
			waiting[i] = <-late
		}
		for _, done := range slices.Backward(waiting[:]) {
			done(corrReply(1))
		}
		if _, err := io.ReadFull(nc, buf); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReceive is the cost of taking in frames.
func BenchmarkReceive(b *testing.B) {
	for _, n := range []int{16 << 10, 1 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			nc := benchServer(b, handlerFunc(func(_ context.Context, c *Conn, frame []byte, done func(Reply)) {
				c.Known()
				done(corrReply(1))
			}))
			frame := requestFrame(produce, 1, make([]byte, n))
			buf := make([]byte, 8)
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := nc.Write(frame); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(nc, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSendFile is the cost of replies made of one file range.
func BenchmarkSendFile(b *testing.B) {
	f, _ := dataFile(b, 64<<20)
	for _, n := range []int64{16 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var off int64
			nc := benchServer(b, handlerFunc(func(_ context.Context, _ *Conn, _ []byte, done func(Reply)) {
				head := binary.BigEndian.AppendUint32(nil, uint32(n)+60)
				off = (off + n) % (32 << 20)
				done(Reply{Spans: []protocol.Span{
					protocol.MemSpan(append(head, make([]byte, 60)...)),
					{File: f, Off: off, Len: n},
				}})
			}))
			frame := requestFrame(fetch, 1, nil)
			buf := make([]byte, 256<<10)
			b.SetBytes(n)
			for b.Loop() {
				if _, err := nc.Write(frame); err != nil {
					b.Fatal(err)
				}
				for left := n + 64; left > 0; {
					k, err := nc.Read(buf[:min(left, int64(len(buf)))])
					if err != nil {
						b.Fatal(err)
					}
					left -= int64(k)
				}
			}
		})
	}
}
