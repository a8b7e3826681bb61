package replica

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/protocol"
)

// TestServingWaitsForNoHousekeeping: while retention, a flush and a checkpoint stand still on the disk, at every operation
// that is not a write or a read of a log file, records are appended, the high watermark rises, and fetches at the tail
// get them.
func TestServingWaitsForNoHousekeeping(t *testing.T) {
	n, b := newNode(t, nodeOptions{})
	b.topic("a", 1, []int32{self}, "retention.ms", "1000", "internal.segment.bytes", "100000")
	n.awaitState("a", 0, StateLeader)
	p := n.m.hosted.Load().names["a"].partitions[0]
	log := p.role.Load().log
	for range 3 {
		n.mustProduce("a", "v")
		if err := log.Roll(); err != nil {
			t.Fatal(err)
		}
	}
	n.mustProduce("a", "v")
	open := make(chan struct{})
	var held atomic.Int64
	hold := func(op errorfs.Op) {
		if (op.Kind == errorfs.OpFileWriteAt || op.Kind == errorfs.OpFileReadAt) &&
			(strings.HasSuffix(op.Path, ".log") || strings.HasSuffix(op.Path, ".ahead")) {
			return
		}
		held.Add(1)
		<-open
	}
	n.disk.ask.Store(&hold)
	var beside sync.WaitGroup
	beside.Go(func() { p.tidy(time.Now().Add(time.Hour), true) })
	await(t, "retention to stand still", func() bool { return held.Load() > 0 })
	beside.Go(func() { _ = log.Flush() })
	beside.Go(func() { _ = n.logs.Checkpoint() })
	await(t, "flush and checkpoint to stand still", func() bool { return held.Load() > 2 })
	for range 20 {
		off := n.mustProduce("a", "w")
		r := n.fetch(fetchReq("a", off))
		if r.Err != protocol.None || r.HighWatermark != off+1 || len(records(t, r)) != 1 {
			t.Fatalf("fetch of offset %d: %+v", off, r)
		}
	}
	n.disk.ask.Store(nil)
	close(open)
	beside.Wait()
	if d, _ := n.m.Describe("a", 0); d.LogStart == 0 {
		t.Fatalf("retention did nothing: %+v", d)
	}
}
