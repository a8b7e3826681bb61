package netio

import (
	"context"
	"encoding/binary"
	"testing"
)

// TestReadBufferGrows: a connection that only says hello keeps a small read buffer; frames that are pipelined across the
// change, larger and smaller than either buffer, arrive whole and in order.
func TestReadBufferGrows(t *testing.T) {
	var sizes []int
	s := start(t, Options{Handler: handlerFunc(func(ctx context.Context, c *Conn, frame []byte, done func(Reply)) {
		c.Known()
		sizes = append(sizes, c.br.Size())
		echo(ctx, c, frame, done)
	})})
	c := s.dial()
	corr := int32(0)
	next := func(bytes int) []byte {
		corr++
		return requestFrame(1, corr, make([]byte, bytes))
	}
	expect := func(from int32) {
		for want := from; want <= corr; want++ {
			if got := int32(binary.BigEndian.Uint32(c.recv())); got != want {
				t.Fatalf("reply %d, not %d", got, want)
			}
		}
	}
	for range helloFrames {
		c.send(next(20))
		expect(corr)
	}
	for i, size := range sizes {
		if size != helloReadBufferBytes {
			t.Errorf("request %d was read through %d bytes", i, size)
		}
	}
	for range 3 {
		var all []byte
		from := corr + 1
		for _, n := range []int{10, 500, 20, 5000, 1, 4096, 700} {
			all = append(all, next(n)...)
		}
		c.send(all)
		expect(from)
	}
	if last := sizes[len(sizes)-1]; last != connReadBufferBytes {
		t.Errorf("a busy connection is read through %d bytes", last)
	}
}
