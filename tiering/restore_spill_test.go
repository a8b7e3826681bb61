package tiering

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
	"varve/tiering/objstore"
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
			got, err := s.of(key)
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

// TestRestoreCompare: rows in the folders of two clusters, objects that LIST keeps back, that are gone, that have another size and that
// nobody names are told apart however they are mixed.
func TestRestoreCompare(t *testing.T) {
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		store := objstore.NewMem(time.Now)
		p := &sourcePartition{key: partKey{protocol.UUID{3}, 1}, name: "t", cluster: "c", state: metastore.TierState{LogStart: 0}}
		put := func(r metastore.RemoteSegment, size int) {
			key := segmentKeyIn("p", "c", &r)
			if clusterIn(r.Location) != "" {
				key = segmentKeyIn("p", "older", &r)
			}
			if _, err := store.Put(t.Context(), key, objstore.BytesBody(make([]byte, size)), objstore.PutOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		gone, sized, strays := 0, 0, map[protocol.UUID]bool{}
		for i := range int64(60) {
			r := metastore.RemoteSegment{ID: protocol.NewUUID(), TopicID: p.key.topic, Partition: 1, Base: 10 * i, Next: 10*i + 10, ObjectBytes: 7, State: metastore.SegFinished}
			if rnd.IntN(3) == 0 {
				r.Location = "mem:#p//older"
			}
			p.finished, p.state.End = append(p.finished, r), r.Next
			switch what := rnd.IntN(12); {
			case what == 0 && i > 0 && i < 59:
				gone++
			case what == 1:
				sized++
				put(r, 8)
			default:
				put(r, 7)
			}
			if r.ID, r.Location = protocol.NewUUID(), ""; rnd.IntN(6) == 0 {
				put(r, 7)
				strays[r.ID] = true
			}
			if r.ID = protocol.NewUUID(); rnd.IntN(6) == 0 {
				r.State = metastore.SegDeleteStarted
				p.pending = append(p.pending, r)
				put(r, 7)
			}
		}
		rnd.Shuffle(len(p.finished), func(i, j int) { p.finished[i], p.finished[j] = p.finished[j], p.finished[i] })
		was := len(p.pending)
		if err := p.compare(t.Context(), store, "p", 99); err != nil {
			t.Fatal(err)
		}
		if p.missing != gone || p.unlisted != len(strays) || len(p.pending) != was+len(strays) || len(p.found) != gone+sized || len(p.finished) != 60 {
			t.Fatalf("seed %d: %d missing of %d, %d unlisted of %d, %d pending, found %d of %d: %s", seed, p.missing, gone, p.unlisted, len(strays), len(p.pending)-was,
				len(p.found), gone+sized, fmt.Sprint(p.found))
		}
		for _, r := range p.pending[was:] {
			if !strays[r.ID] || r.State != metastore.SegDeleteStarted {
				t.Fatalf("%+v was not stray", r)
			}
		}
	}
}
