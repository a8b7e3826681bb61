package netio

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"varve/protocol"
)

// coldFile is a file on the disk of which nothing is in memory, unless its file system is nothing but memory: then cold is
// false.
func coldFile(t *testing.T, size int64) (f *os.File, data []byte, cold bool) {
	t.Helper()
	for range 2 { // asking begins to read: the second file is like the first, and was not asked about
		f, data = dataFile(t, int(size))
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
		if !cold {
			all, known := readResident(f, make([]byte, 1), size/2)
			cold = known && !all
		}
	}
	return f, data, cold
}

// TestColdRangesWaitForAPlace: with all places for cold reads taken, what is in memory is sent all the same; what is not
// waits, and comes whole once there is a place.
func TestColdRangesWaitForAPlace(t *testing.T) {
	hot, data := dataFile(t, 2<<20)
	for _, n := range []int{1000, maxPreadBehindHeaderBytes, 2 << 20} {
		f, wanted, cold := coldFile(t, 2<<20)
		t.Logf("%d bytes, cold: %v", n, cold)
		s := start(t, Options{Handler: handlerFunc(func(_ context.Context, _ *Conn, frame []byte, done func(Reply)) {
			file := hot
			if corrOf(frame) == 1 {
				file = f
			}
			done(Reply{Spans: []protocol.Span{protocol.MemSpan(binary.BigEndian.AppendUint32(nil, uint32(n))),
				{File: file, Len: int64(n)}}})
		})})
		for range maxColdReads {
			s.disk <- struct{}{}
		}
		waits, goes := s.dial(), s.dial()
		waits.send(requestFrame(fetch, 1, nil))
		goes.send(requestFrame(fetch, 2, nil))
		if got := goes.recv(); !bytes.Equal(got, data[:n]) {
			t.Fatalf("%d wrong bytes of what is in memory", len(got))
		}
		if sent := s.Stats().BytesOut; cold && sent >= int64(2*n) {
			t.Fatalf("%d bytes left while there was no place", sent)
		}
		for range maxColdReads {
			<-s.disk
		}
		if got := waits.recv(); !bytes.Equal(got, wanted[:n]) {
			t.Fatalf("%d wrong bytes of what was cold", len(got))
		}
		if reads := s.Stats().ColdReads; (reads > 0) != cold {
			t.Fatalf("%d cold reads", reads)
		}
	}
}

// TestColdReadEndsWithItsConnection: whoever waits for a place gives up when the peer is cut off.
func TestColdReadEndsWithItsConnection(t *testing.T) {
	f, _, cold := coldFile(t, 1<<20)
	var r releases
	s := start(t, Options{Handler: handlerFunc(func(_ context.Context, c *Conn, _ []byte, done func(Reply)) {
		done(Reply{Spans: []protocol.Span{r.track(protocol.Span{File: f, Len: 1 << 20})}})
	})})
	for range maxColdReads {
		s.disk <- struct{}{}
	}
	c := s.dial()
	c.send(requestFrame(fetch, 1, nil))
	eventually(t, "asked", func() bool { return s.Stats().Requests == 1 })
	if cold {
		s.mu.Lock()
		for conn := range s.conns {
			conn.cancel(errDraining)
		}
		s.mu.Unlock()
	} else {
		c.Close()
	}
	eventually(t, "the connection is gone", func() bool { return s.Stats().Connections == 0 })
	r.check(t)
}
