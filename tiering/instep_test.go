package tiering

import (
	"testing"

	"varve/protocol/record"
)

// TestReadersInStep: two readers come to the same offset; one of them goes on before the other has begun. The other gets what is
// there, not what comes later.
func TestReadersInStep(t *testing.T) {
	r := newReadRig(t, 2, 20, 1000, nil)
	end := r.meta.rows[0].Next
	var at int64
	for range 2 { // a reader in order
		res, err := r.read(at, 3000, true)
		if err != nil {
			t.Fatal(err)
		}
		joined(res)
		at = res.NextOffset
	}
	if at == 0 || at >= end {
		t.Fatalf("at %d of %d", at, end)
	}
	var met bool
	r.meta.setOnAt(func(asked int64) {
		if asked != at || met {
			return
		}
		met = true
		for off := at; off < end; {
			res, err := r.read(off, 3000, true)
			if err != nil {
				t.Fatal(err)
			}
			joined(res)
			off = res.NextOffset
		}
	})
	res, err := r.read(at, 3000, true)
	if err != nil {
		t.Fatal(err)
	}
	if got := record.Batch(joined(res)); len(got) == 0 || got.BaseOffset() != at {
		t.Fatalf("a read of %d got a batch at %d", at, got.BaseOffset())
	}
}
