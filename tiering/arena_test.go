package tiering

import (
	"math/rand/v2"
	"testing"
)

// TestArena: slots are given out once each, side by side while that can be, and the memory behind them is not shared.
func TestArena(t *testing.T) {
	const slots = 130
	a := newArena(slots)
	taken := map[int]bool{}
	last := noSlot
	for range slots {
		s := a.take(last)
		if taken[s] || s < 0 || s >= slots || last != noSlot && s != last+1 {
			t.Fatalf("slot %d after %d", s, last)
		}
		taken[s], last = true, s
		a.bytes(s, 1)[0], a.bytes(s, 1)[chunkBytes-1] = byte(s), byte(s)
	}
	for s := range slots {
		if b := a.bytes(s, 1); b[0] != byte(s) || b[chunkBytes-1] != byte(s) || cap(b) != chunkBytes {
			t.Fatalf("slot %d holds %d and %d", s, b[0], b[chunkBytes-1])
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		s := rnd.IntN(slots)
		if !taken[s] {
			continue
		}
		a.give(s)
		if n := rnd.IntN(slots); taken[n] && n != s {
			a.give(n)
			if got := a.take(n - 1); got != n {
				t.Fatalf("slot %d instead of %d, which is free", got, n)
			}
		}
		if got := a.take(rnd.IntN(slots)); got != s || a.room != 0 {
			t.Fatalf("slot %d, only %d is free", got, s)
		}
	}
}
