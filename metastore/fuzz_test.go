package metastore

import (
	"errors"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"varve/metastore/metapb"
	"varve/protocol"
)

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}

// FuzzCommand: bytes that are no command, or commands that make no sense, are answered and leave the state machine running. Whatever was
// applied can be loaded back.
func FuzzCommand(f *testing.F) {
	seed := newRig(f)
	g := newGenerator(5, seed.f)
	for range 80 {
		cmd := g.command()
		seed.apply(cmd)
		data, err := proto.Marshal(cmd)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, data)
	}
	base := newRig(f) // each run builds on its state and throws away what it did
	base.must(createTopicCmd("t0", 2))
	base.must(startCmd(segment("t0", "s1", 0, 10, 0)))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		x := base.f.begin()
		defer x.batch.Close()
		for i, data := range [][]byte{a, b, a} {
			got := x.run(base.index+uint64(i)+1, data)
			if x.broken != nil {
				t.Fatalf("command %d stopped the state machine: %v", i, x.broken)
			}
			if err := proto.Unmarshal(data, &metapb.Command{}); err != nil {
				var broken *protocol.InvariantError
				if !errors.As(got.err, &broken) {
					t.Fatalf("undecodable command answered %v", got.err)
				}
			}
		}
		x.setProto([]byte{nsCluster}, x.img.cluster.row())
		l, err := load(x.batch)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := describe(l.img), describe(x.img); got != want {
			t.Fatalf("read back\n%s\nin memory\n%s", got, want)
		}
	})
}

// FuzzSegmentRow: a row of any bytes is an error or comes back the same.
func FuzzSegmentRow(f *testing.F) {
	s := segment("t", "s1", 5, 10, 3)
	s.State, s.DeadlineMs = SegDeleteStarted, 99
	f.Add(appendSegment(nil, s, 7))
	f.Fuzz(func(t *testing.T, row []byte) {
		seg, loc, err := decodeSegment(row, uid("t"), 1)
		if err != nil {
			return
		}
		again, loc2, err := decodeSegment(appendSegment(nil, &seg, loc), uid("t"), 1)
		if err != nil || loc != loc2 {
			t.Fatal(err)
		}
		if a, b := appendSegment(nil, &seg, loc), appendSegment(nil, &again, loc); string(a) != string(b) {
			t.Fatal("row changed in a round trip")
		}
	})
}

// TestSegmentRowSize holds the promise of 150 bytes for a FINISHED row with its key.
func TestSegmentRowSize(t *testing.T) {
	s := segment("t", "s1", 5, 10, 3)
	s.State = SegFinished
	if n := len(segmentKey(nsFinished, s)) + len(appendSegment(nil, s, 1)); n > 150 {
		t.Fatalf("%d bytes", n)
	}
}
