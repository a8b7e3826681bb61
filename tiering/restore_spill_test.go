package tiering

import (
	"math/rand/v2"
	"os"
	"testing"

	"google.golang.org/protobuf/proto"

	"varve/metastore/metapb"
	"varve/protocol"
)

// TestJournalSpill: the entries of each partition come back in their order, from memory and from the file, which has no name.
func TestJournalSpill(t *testing.T) {
	dir := t.TempDir()
	for _, max := range []int{1, 300, 1 << 20} {
		s := newJournalSpill(dir)
		s.max = max
		rnd := rand.New(rand.NewPCG(1, uint64(max)))
		want := map[partKey][]*metapb.JournalEntry{}
		for i := range uint64(500) {
			key := partKey{protocol.UUID{1}, rnd.Int32N(7)}
			e := &metapb.JournalEntry{Index: i + 1, TimeMs: rnd.Int64N(1000)}
			if err := s.add(key, e); err != nil {
				t.Fatal(err)
			}
			if want[key] = append(want[key], e); len(s.kept) > max+64 {
				t.Fatalf("%d bytes in memory of %d", len(s.kept), max)
			}
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Fatalf("%v: %v", left, err)
		}
		if n := len(s.partitions()); n != len(want) {
			t.Fatalf("%d partitions of %d", n, len(want))
		}
		want[partKey{protocol.UUID{2}, 0}] = nil
		for key, entries := range want {
			var got []*metapb.JournalEntry
			err := s.each(key, func(e *metapb.JournalEntry) error { got = append(got, e); return nil })
			if err != nil || len(got) != len(entries) {
				t.Fatalf("%d of %d entries: %v", len(got), len(entries), err)
			}
			for i := range got {
				if !proto.Equal(got[i], entries[i]) {
					t.Fatalf("entry %d is %v", i, got[i])
				}
			}
		}
		s.close()
		s.close()
	}
}
