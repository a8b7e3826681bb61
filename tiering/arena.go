package tiering

import (
	"math/bits"
	"runtime"
)

// arena is the memory that chunks are in: one mapping of the system's, cut into slots of chunkBytes. Neighbouring chunks get
// neighbouring slots where that can be, so that one call takes many of them out of the store's socket and one sends them on:
// calls of 128 KiB took twice the CPU that calls of 1 MiB take. It is not on the heap, where it would let as much garbage
// again come together before a collection. It is given back when nobody can reach it any more.
type arena struct {
	b    []byte
	free []uint64 // a bit for each slot
	room int      // free slots
}

func newArena(slots int) *arena {
	a := &arena{free: make([]uint64, (slots+63)/64), room: slots}
	for i := range slots {
		a.free[i/64] |= 1 << (i % 64)
	}
	var mapped bool
	if a.b, mapped = mapMemory(slots * chunkBytes); mapped {
		runtime.AddCleanup(a, unmapMemory, a.b)
	}
	return a
}

// take returns the slot that follows after, if it is free, else the lowest one. There is one: the callers count.
func (a *arena) take(after int) int {
	slot := after + 1
	if slot < 0 || slot >= len(a.free)*64 || a.free[slot/64]&(1<<(slot%64)) == 0 {
		for i, word := range a.free {
			if word != 0 {
				slot = i*64 + bits.TrailingZeros64(word)
				break
			}
		}
	}
	a.free[slot/64] &^= 1 << (slot % 64)
	a.room--
	return slot
}

func (a *arena) give(slot int) {
	a.free[slot/64] |= 1 << (slot % 64)
	a.room++
}

// bytes are those of n slots from slot on.
func (a *arena) bytes(slot, n int) []byte {
	return a.b[slot*chunkBytes : (slot+n)*chunkBytes : (slot+n)*chunkBytes]
}
