package api

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"varve/broker/netio"
	"varve/protocol"
)

// FuzzServe feeds frames to the Dispatcher: it never panics and answers each
// exactly once, either with a frame or by closing.
func FuzzServe(f *testing.F) {
	for key, sample := range sampleRequests(f) {
		r, _ := protocol.RangeOf(key)
		for v := r.Min; v <= r.Max; v++ {
			req := sample()
			req.SetVersion(v)
			f.Add(frameOf(req, "client"))
		}
	}
	f.Add([]byte{})
	f.Add([]byte{0, 18, 0, 99, 0, 0, 0, 1})
	b := newBench(f)
	f.Fuzz(func(t *testing.T, frame []byte) { serveOnce(t, b, frame) })
}

func serveOnce(t *testing.T, b *bench, frame []byte) {
	var calls atomic.Int32
	b.Serve(t.Context(), plainConn(), frame, func(r netio.Reply) {
		calls.Add(1)
		if !r.None && len(r.Spans) == 0 || r.None && !r.Close && !isAcksZero(frame) {
			t.Errorf("neither an answer nor an end: %+v", r)
		}
		if n := protocol.SpansLen(r.Spans); n > 0 {
			if out := wire(t, r); int64(be32(out)) != n-4 {
				t.Errorf("the frame says %d and has %d bytes", be32(out), n-4)
			}
		}
	})
	if calls.Load() != 1 {
		t.Errorf("answered %d times", calls.Load())
	}
}

func isAcksZero(frame []byte) bool { return len(frame) > 1 && frame[0] == 0 && frame[1] == 0 }

// TestMutatedFrames is the fuzz target's short form for every run: typical
// requests with bytes changed, cut and doubled.
func TestMutatedFrames(t *testing.T) {
	b := newBench(t)
	b.control.err = func(string) error { return protocol.UnknownServerError }
	rnd := rand.New(rand.NewPCG(1, 2))
	samples := sampleRequests(t)
	for key, sample := range samples {
		r, _ := protocol.RangeOf(key)
		for v := r.Min; v <= r.Max; v++ {
			req := sample()
			req.SetVersion(v)
			frame := frameOf(req, "client")
			for range 60 {
				serveOnce(t, b, mutate(rnd, frame))
			}
		}
	}
}

func mutate(rnd *rand.Rand, frame []byte) []byte {
	out := append([]byte(nil), frame...)
	for range 1 + rnd.IntN(3) {
		at := 4 + rnd.IntN(len(out)-4)
		switch rnd.IntN(4) {
		case 0:
			out[at] = byte(rnd.Uint32())
		case 1:
			out[at] ^= 1 << rnd.IntN(8)
		case 2:
			if out = out[:at]; len(out) < 6 {
				return out
			}
		case 3:
			out = append(out[:at:at], frame[min(at, len(frame)):]...)
		}
	}
	return out
}
