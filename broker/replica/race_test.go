package replica

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"varve/tiering"
)

// TestTimeQueryWhileSegmentsAreFreed: a record that settles after the tier was asked, and leaves the local log before that is
// asked, is found all the same.
func TestTimeQueryWhileSegmentsAreFreed(t *testing.T) {
	n, _, id, _ := tieredNode(t)
	n.awaitState("a", 0, StateLeader)
	for i := range int64(6) {
		if r := n.produce("a", 0, AcksAll, batchAt(time.Now().UnixMilli()-60+10*i, "v")); r.Err != 0 {
			t.Fatalf("%+v", r)
		}
		if i == 1 {
			n.settle("a", id, 2)
		}
	}
	l, _ := n.logs.Get("a", 0)
	at, ok, err := l.OffsetForTimestamp(0)
	if err != nil || !ok || at.Offset != 2 {
		t.Fatal(at, ok, err)
	}
	var asked atomic.Int32
	n.tier.setBefore(func(context.Context, tiering.ReadRequest) error {
		if asked.Add(1) == 1 {
			n.tier.later = func() { n.settle("a", id, 6) }
		}
		return nil
	})
	q := offsetQuery("a", at.Timestamp)
	got, err := n.m.ListOffset(context.Background(), q)
	if err != nil || got.Offset != 2 || asked.Load() < 2 {
		t.Fatalf("%+v %v after %d questions", got, err, asked.Load())
	}
}
