package metastore

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"varve/protocol/event"
)

// TestPutRowsIsPutRow: rows that are written together leave what they would leave one by one, whatever their order and whatever is there.
func TestPutRowsIsPutRow(t *testing.T) {
	for seed := range uint64(6) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		many, one := newRig(t), newRig(t)
		at := int64(0)
		for range 4 {
			var rows []segRow
			for range 1 + rnd.IntN(2*maxGroupRows) {
				s := RemoteSegment{ID: uid(string(rune(at))), TopicID: uid("t"), Base: at, Next: at + 5, State: SegFinished, MaxTimestamp: rnd.Int64N(1e6), HasTxns: rnd.IntN(300) == 0}
				switch rnd.IntN(400) {
				case 0:
					s.State = SegDeleteStarted
				case 1: // behind what is there already
					s.Base = rnd.Int64N(at + 1)
				case 2: // room for others
					at += 1000
				}
				at += 5
				rows = append(rows, segRow{seg: s})
			}
			if rnd.IntN(3) == 0 {
				rnd.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
			}
			for _, r := range []*rig{many, one} {
				tx := r.f.begin()
				if r == many {
					tx.putRows(rows)
				} else {
					for _, row := range rows {
						tx.putRow(row)
					}
				}
				if tx.index++; tx.broken != nil {
					t.Fatal(tx.broken)
				}
				if err := r.f.commit(tx); err != nil {
					t.Fatal(err)
				}
			}
		}
		if a, b := snapshotBytes(t, many), snapshotBytes(t, one); !bytes.Equal(a, b) {
			t.Fatalf("seed %d: the states differ", seed)
		}
	}
}

func snapshotBytes(t *testing.T, r *rig) []byte {
	var b bytes.Buffer
	if _, err := writeSnapshot(&b, r.f.handle.db); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestSnapshotEvery: a change is in a snapshot after the interval, and nothing new makes no snapshot.
func TestSnapshotEvery(t *testing.T) {
	snaps := make(chan StateSnapshotted, 100)
	sink := event.Sink(func(e event.Event) {
		if s, ok := e.(StateSnapshotted); ok {
			snaps <- s
		}
	})
	s, err := Open(context.Background(), Options{Dir: t.TempDir(), NodeID: 1, SnapshotInterval: 20 * time.Millisecond, Events: sink})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	for _, name := range []string{"a", "b"} {
		res, err := s.Propose(context.Background(), createTopicCmd(name, 1))
		if err != nil {
			t.Fatal(err)
		}
		for {
			select {
			case got := <-snaps:
				if got.Rows == 0 || got.Bytes == 0 {
					t.Fatalf("%+v", got)
				}
				if got.Index < res.Index {
					continue
				}
			case <-time.After(20 * time.Second):
				t.Fatal("no snapshot")
			}
			break
		}
	}
	time.Sleep(100 * time.Millisecond)
	for len(snaps) > 0 {
		<-snaps // of the bootstrap's last commands
	}
	time.Sleep(200 * time.Millisecond)
	if n := len(snaps); n != 0 {
		t.Fatalf("%d snapshots of nothing new", n)
	}
}
