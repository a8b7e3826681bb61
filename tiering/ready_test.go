package tiering

import (
	"bytes"
	"testing"
	"testing/synctest"
)

// TestReadReady: what was fetched ahead of a reader in order is answered at once, with the same bytes as by Read;
// nothing else is.
func TestReadReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReadRig(t, 2, 200, 20_000, nil)
		ready := func(off int64, committed bool) (ReadResult, bool) {
			return r.ReadReady(ReadRequest{TopicID: readTopic, Offset: off, MaxBytes: 1 << 20, MinOne: true, ReadCommitted: committed})
		}
		if _, ok := ready(0, false); ok {
			t.Fatal("ready before anybody read")
		}
		var got []byte
		answers := 0
		for off := int64(0); off < r.meta.state.End; {
			res, ok := ready(off, false)
			if ok {
				answers++
				if _, again := ready(off, false); again {
					t.Fatalf("offset %d: the reader has gone on", off)
				}
			} else {
				var err error
				if res, err = r.read(off, 1<<20, true); err != nil {
					t.Fatal(err)
				}
			}
			got, off = append(got, joined(res)...), res.NextOffset
			synctest.Wait() // what is fetched ahead is there
			if _, ok := ready(off, true); ok {
				t.Fatal("aborted transactions need more than is ready")
			}
		}
		if !bytes.Equal(got, r.log) {
			t.Fatal("bytes differ")
		}
		if answers < 12 { // of 16, but for the first ones, the first of the second segment, and its last
			t.Errorf("%d answers were ready", answers)
		}
	})
}
