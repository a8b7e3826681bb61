package replica

import (
	"testing"
	"time"

	"varve/protocol"
)

// TestCoordinatorWritesAtItsEpochOnly: what a coordinator writes, and reads back, is of the leader epoch that it took over.
func TestCoordinatorWritesAtItsEpochOnly(t *testing.T) {
	b := newBook(t)
	n := startNode(t, nodeOptions{meta: b.s, control: &bookControl{b: b}})
	defer n.stop()
	id := b.topic("__consumer_offsets", 1, []int32{self})
	n.awaitState("__consumer_offsets", 0, StateLeader)
	epoch := int32(0)
	if p, ok := b.s.Image().Partition(id, 0); ok {
		epoch = p.LeaderEpoch
	}
	write := func(epoch int32, value string) AppendResult {
		got := make(chan AppendResult, 1)
		n.m.AppendCoordinator(CoordinatorAppend{TopicID: id, LeaderEpoch: epoch, Batch: batchOf(value), Timeout: time.Second}, func(r AppendResult) { got <- r })
		return <-got
	}
	if r := write(epoch, "one"); r.Err != protocol.None || r.BaseOffset != 0 {
		t.Fatalf("%+v", r)
	}
	if r := write(epoch+1, "two"); r.Err != protocol.UnknownLeaderEpoch {
		t.Errorf("at an epoch to come: %+v", r)
	}
	read, err := n.m.ReadCoordinator(id, 0, epoch, 0, 1<<20)
	if err != nil || read.Next != 1 || read.End != 1 || len(read.Records) == 0 {
		t.Errorf("%+v, %v", read, err)
	}
	if again, err := n.m.ReadCoordinator(id, 0, epoch, read.Next, 1<<20); err != nil || len(again.Records) != 0 || again.Next != again.End {
		t.Errorf("at the end: %+v, %v", again, err)
	}
	b.lead(id, 0, self)
	n.awaitEpoch("__consumer_offsets", 0, epoch+1)
	if r := write(epoch, "late"); r.Err != protocol.FencedLeaderEpoch {
		t.Errorf("at an epoch that is over: %+v", r)
	}
	if _, err := n.m.ReadCoordinator(id, 0, epoch, 0, 1); protocol.CodeOf(err) != protocol.FencedLeaderEpoch {
		t.Errorf("read at an epoch that is over: %v", err)
	}
	if r := write(epoch+1, "two"); r.Err != protocol.None || r.BaseOffset != 1 {
		t.Errorf("at the new one: %+v", r)
	}
	if _, err := n.m.ReadCoordinator(protocol.NewUUID(), 0, 0, 0, 1); protocol.CodeOf(err) != protocol.UnknownTopicID {
		t.Errorf("of no topic: %v", err)
	}
}
