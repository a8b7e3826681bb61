package netio

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"varve/protocol"
)

// A peer on this machine is near: its replies are not paced, and whoever has anything but BBR keeps it.
func TestNearPeersAreNotPaced(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, has := range []string{"bbr", "cubic", "reno"} {
		peer, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		nc, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		raw, err := nc.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		c := &Conn{raw: raw}
		if err := raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, has) // not every system has each
		}); err != nil {
			t.Fatal(err)
		}
		before, _ := sendingOf(t, c)
		c.keepNear()
		after, sndbuf := sendingOf(t, c)
		paced := strings.HasPrefix(before, "bbr")
		if !paced && after != before || paced && after != "reno" && sndbuf > 2*nearSendBufferBytes {
			t.Fatalf("%s became %s with a send buffer of %d bytes", before, after, sndbuf)
		}
	}
}

// sendingOf is a connection's congestion control and send buffer; the kernel doubles what it is given.
func sendingOf(t *testing.T, c *Conn) (congestion string, sndbuf int) {
	t.Helper()
	err := c.raw.Control(func(fd uintptr) {
		var err error
		if congestion, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil {
			t.Error(err)
		}
		if sndbuf, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Error(err)
	}
	return congestion, sndbuf
}

// segmentsOut is how many segments with data a connection has sent.
func segmentsOut(t *testing.T, c *Conn) (n uint32) {
	t.Helper()
	_ = c.raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			t.Error(err)
			return
		}
		n = info.Data_segs_out
	})
	return n
}

// TestLateRepliesLeaveTogether: replies that come from elsewhere, the oldest last, leave in order and in one write.
func TestLateRepliesLeaveTogether(t *testing.T) {
	const n = 20
	var r releases
	type waiting struct {
		corr int32
		done func(Reply)
	}
	late := make(chan waiting, n)
	var conn *Conn
	s := start(t, Options{Handler: handlerFunc(func(_ context.Context, c *Conn, frame []byte, done func(Reply)) {
		conn = c
		late <- waiting{corrOf(frame), done}
	})})
	c := s.dial()
	for round := range int32(3) {
		for i := range int32(n) {
			c.send(requestFrame(produce, round*n+i, nil))
		}
		var all []waiting
		for range n {
			all = append(all, <-late)
		}
		time.Sleep(10 * time.Millisecond) // Serve has returned for all of them
		before, segments := s.Stats().BytesOut, segmentsOut(t, conn)
		for _, w := range slices.Backward(all) {
			w.done(Reply{Spans: []protocol.Span{r.track(protocol.MemSpan(frameOf(binary.BigEndian.AppendUint32(nil, uint32(w.corr)))))}})
		}
		eventually(t, "all written", func() bool { return s.Stats().BytesOut == before+8*n })
		if sent := segmentsOut(t, conn) - segments; sent != 1 {
			t.Fatalf("%d replies in %d segments", n, sent)
		}
		var got [8 * n]byte
		if _, err := io.ReadFull(c, got[:]); err != nil {
			t.Fatal(err)
		}
		for i := range int32(n) {
			if corr := int32(binary.BigEndian.Uint32(got[8*i+4:])); corr != round*n+i {
				t.Fatalf("reply %d in place %d", corr, round*n+i)
			}
		}
	}
	r.check(t)
}
