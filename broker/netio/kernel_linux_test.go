package netio

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"varve/protocol"
)

// A peer on this machine is near: replies to it are not paced, and who has anything but BBR keeps it.
func TestNearPeersAreNotPaced(t *testing.T) {
	var l net.ListenConfig
	plain, err := l.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	raw, err := plain.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	want := congestionOf(t, raw)
	if strings.HasPrefix(want, "bbr") {
		want = "reno"
	}
	got := make(chan string, 1)
	s := start(t, Options{Handler: handlerFunc(func(_ context.Context, c *Conn, _ []byte, done func(Reply)) {
		got <- congestionOf(t, c.raw)
		done(Reply{None: true})
	})})
	s.dial().send(requestFrame(produce, 1, nil))
	if got := <-got; got != want {
		t.Fatalf("congestion control %s, not %s", got, want)
	}
}

// Each listener's own is what far peers get back.
func TestPacingIsGivenBack(t *testing.T) {
	for _, asked := range []string{"bbr", "cubic", "reno"} {
		var was, before string
		lc := net.ListenConfig{Control: func(_, _ string, rc syscall.RawConn) error {
			_ = rc.Control(func(fd uintptr) { _ = setCongestion(fd, asked) }) // not every system has each
			before = congestionOf(t, rc)
			was = unpace(rc)
			return nil
		}}
		l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		raw, err := l.(*net.TCPListener).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		paced := strings.HasPrefix(before, "bbr")
		if has := congestionOf(t, raw); paced != (was != "") || paced && has != "reno" || !paced && has != before {
			t.Fatalf("%s became %s, to be given back: %q", before, has, was)
		}
		(&Conn{raw: raw}).pace(was) // a socket without a peer is as good as far
		if has := congestionOf(t, raw); has != before {
			t.Fatalf("%s came back as %s", before, has)
		}
	}
}

func congestionOf(t *testing.T, raw syscall.RawConn) (name string) {
	t.Helper()
	err := raw.Control(func(fd uintptr) {
		var err error
		if name, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Error(err)
	}
	return name
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
