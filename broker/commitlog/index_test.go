package commitlog

import (
	"encoding/binary"
	"math/rand/v2"
	"sort"
	"testing"
)

// TestIndexSearch holds searches over several blocks of a file and the entries in memory against a plain list, through
// truncations and what is appended after them.
func TestIndexSearch(t *testing.T) {
	cache := &fileCache{fs: NewMemFS(), maxOpenFiles: 4}
	x := newIndex(cache.newFile("i"), offsetEntryBytes)
	rnd := rand.New(rand.NewPCG(1, 2))
	var want []uint32
	for round := range 8 {
		for range 700 + rnd.IntN(900) {
			next := uint32(round) + uint32(rnd.IntN(3)) + 1
			if len(want) > 0 {
				next += want[len(want)-1]
			}
			want = append(want, next)
			var e [offsetEntryBytes]byte
			binary.BigEndian.PutUint32(e[:], next)
			binary.BigEndian.PutUint32(e[4:], uint32(len(want)))
			x.append(e[:])
		}
		for range 400 {
			checkIndexSearch(t, x, want, uint32(rnd.IntN(int(want[len(want)-1])+3)))
		}
		if round%2 == 1 {
			keep := rnd.IntN(len(want))
			if err := x.truncate(keep); err != nil {
				t.Fatal(err)
			}
			want = want[:keep]
		}
	}
}

func checkIndexSearch(t *testing.T, x *index, want []uint32, key uint32) {
	t.Helper()
	var before [offsetEntryBytes]byte
	got, err := x.search(func(e []byte) bool { return binary.BigEndian.Uint32(e) > key }, before[:])
	if err != nil {
		t.Fatal(err)
	}
	i := sort.Search(len(want), func(i int) bool { return want[i] > key })
	if got != i {
		t.Fatalf("search for %d: %d of %d, want %d", key, got, len(want), i)
	}
	var entry [2]uint32
	if i > 0 {
		entry = [2]uint32{want[i-1], uint32(i)}
	}
	if got := [2]uint32{binary.BigEndian.Uint32(before[:]), binary.BigEndian.Uint32(before[4:])}; got != entry {
		t.Fatalf("the entry before %d is %v, want %v", i, got, entry)
	}
}
