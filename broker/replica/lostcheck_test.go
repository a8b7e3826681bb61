package replica

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"varve/broker/commitlog"
	"varve/metastore"
	"varve/protocol"
	"varve/protocol/record"
)

// TestLogStartCheckpointIsLost: without its checkpoint a log seems to begin with its first file. What has settled below is
// readable all the same, and nothing tells the tier that the log starts higher.
func TestLogStartCheckpointIsLost(t *testing.T) {
	for _, settled := range []int64{6, 3} {
		t.Run(fmt.Sprint(settled), func(t *testing.T) {
			b := newBook(t)
			meta := &stillMeta{img: b.s.Image()}
			o := nodeOptions{fs: commitlog.NewMemFS(), meta: meta, control: &bookControl{b: b, meta: meta}, tier: newMemTier()}
			id := b.topic("a", 1, []int32{self}, "remote.storage.enable", "true")
			meta.show(b.s.Image())
			n := startNode(t, o)
			n.awaitState("a", 0, StateLeader)
			for i := range 6 {
				n.mustProduce("a", fmt.Sprint(i))
			}
			n.settle("a", id, 6)
			n.mustProduce("a", "6")
			n.stop()
			if err := o.fs.Remove("/logs/log-start-offset-checkpoint"); err != nil {
				t.Fatal(err)
			}
			meta.setTier(id, metastore.TierState{LogStart: 2, End: settled, Epochs: []metastore.EpochStart{{Epoch: 0}}})
			n = startNode(t, o)
			defer n.stop()
			b.lead(id, 0, self)
			meta.show(b.s.Image())
			n.awaitEpoch("a", 0, 1)
			want := int64(2)
			if settled < 6 {
				want = 6 // offsets 3 to 5 are nowhere: the log cannot begin below them
			}
			if d, _ := n.m.Describe("a", 0); d.LogStart != want || d.LocalStart != 6 || d.End != 7 {
				t.Fatalf("%+v", d)
			}
		})
	}
}

// TestProducerStateOfAnEarlierOffset: a log that starts above the tier's end, where retention has gone, does not hold its
// producers to the sequence that they had at the tier's end.
func TestProducerStateOfAnEarlierOffset(t *testing.T) {
	n, b, id, meta := tieredNode(t)
	n.awaitEpoch("a", 0, 0)
	produce := func(seq int32) AppendResult {
		o := record.Options{Producer: &record.Producer{ID: 7, BaseSequence: seq}}
		return n.produce("a", 0, AcksAll, batchWith(o, time.Now().UnixMilli(), "v"))
	}
	for seq := range int32(3) {
		if r := produce(seq); r.Err != 0 {
			t.Fatalf("%+v", r)
		}
	}
	l, _ := n.logs.Get("a", 0)
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	ex, err := l.Export(0, 3)
	if err != nil || ex == nil || len(ex.ProducerSnapshot) == 0 {
		t.Fatal(ex, err)
	}
	ex.Close()
	meta.setTier(id, metastore.TierState{LogStart: 9, End: 3, Epochs: []metastore.EpochStart{{Epoch: 0}}})
	n.tier.setTail(func(context.Context) (int64, []commitlog.EpochStart, []byte, error) {
		return 3, ex.Epochs, ex.ProducerSnapshot, nil
	})
	b.lead(id, 0, self)
	meta.show(b.s.Image())
	n.awaitEpoch("a", 0, 1)
	if r := produce(9); r.Err != 0 || r.BaseOffset != 9 {
		t.Fatalf("%+v", r)
	}
}

// deafControl takes a report and loses the reply, twice. It counts those that are about a folder which the Image has.
type deafControl struct {
	bookControl
	harm  atomic.Int32
	again atomic.Int32
}

func (c *deafControl) ReplicaLost(ctx context.Context, id protocol.UUID, index, broker int32, epoch int64) error {
	part, _ := c.b.s.Image().Partition(id, index)
	if dir, _ := part.DirOf(broker); dir.IsZero() {
		if c.again.Add(1) == 1 {
			return protocol.RequestTimedOut
		}
		return nil // the controller changes nothing then
	}
	if err := c.bookControl.ReplicaLost(ctx, id, index, broker, epoch); err != nil {
		return err
	}
	if c.harm.Add(1) == 1 {
		return protocol.RequestTimedOut
	}
	return nil
}

// TestReplyToLostReplicaIsLost: the report is not made again once a new folder stands in the Image.
func TestReplyToLostReplicaIsLost(t *testing.T) {
	b := newBook(t)
	control := &deafControl{bookControl: bookControl{b: b}}
	o := nodeOptions{fs: commitlog.NewMemFS(), meta: b.s, control: control}
	b.topic("a", 1, []int32{self})
	n := startNode(t, o)
	n.awaitState("a", 0, StateLeader)
	n.stop()
	erase(t, o.fs, "a-0")
	n = startNode(t, o)
	defer n.stop()
	n.awaitState("a", 0, StateFollower)
	await(t, "nothing left to tell", func() bool { return !n.m.tell.pending() })
	if n := control.harm.Load(); n != 1 {
		t.Fatalf("told %d times", n)
	}
}
