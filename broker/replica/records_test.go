package replica

import (
	"context"
	"fmt"
	"testing"
	"time"

	"varve/broker/commitlog"
	"varve/protocol"
	"varve/protocol/record"
	"varve/tiering/objstore"
)

func TestDeleteRecords(t *testing.T) {
	b := newBook(t)
	o := nodeOptions{fs: commitlog.NewMemFS(), meta: b.s, control: &bookControl{b: b}}
	n := startNode(t, o)
	b.topic("a", 2, []int32{self})
	b.topic("compact", 1, []int32{self}, "cleanup.policy", "compact")
	b.topic("both", 1, []int32{self}, "cleanup.policy", "compact,delete")
	b.topic("elsewhere", 1, []int32{2})
	b.topic("__consumer_offsets", 1, []int32{self})
	for _, topic := range []string{"a", "compact", "both", "__consumer_offsets"} {
		n.awaitState(topic, 0, StateLeader)
	}
	n.mustProduce("a", "0", "1", "2", "3", "4")
	waiting := make(chan FetchResult, 1)
	go func() { waiting <- n.fetch(fetchWaiting("a", 5)) }()
	for _, c := range []struct {
		topic     string
		partition int32
		offset    int64
		want      int64
		err       protocol.ErrorCode
	}{
		{"a", 0, 2, 2, 0},
		{"a", 0, 1, 2, 0}, // it only rises
		{"a", 0, 6, -1, protocol.OffsetOutOfRange},
		{"a", 0, -2, -1, protocol.OffsetOutOfRange},
		{"a", 0, ToHighWatermark, 5, 0},
		{"a", 1, ToHighWatermark, 0, 0},
		{"a", 2, 0, -1, protocol.UnknownTopicOrPartition},
		{"a", -1, 0, -1, protocol.UnknownTopicOrPartition},
		{"none", 0, 0, -1, protocol.UnknownTopicOrPartition},
		{"elsewhere", 0, 0, -1, protocol.NotLeaderOrFollower},
		{"compact", 0, 0, -1, protocol.PolicyViolation},
		{"both", 0, 0, 0, 0},
		{"__consumer_offsets", 0, 0, -1, protocol.InvalidTopicException},
	} {
		got, err := n.m.DeleteRecords(context.Background(), c.topic, c.partition, c.offset)
		if got != c.want || protocol.CodeOf(err) != c.err {
			t.Errorf("%+v: %d %v", c, got, err)
		}
	}
	n.mustProduce("a", "5")
	if r := <-waiting; r.Err != 0 || r.LogStart != 5 || len(records(t, r)) != 1 {
		t.Fatalf("%+v", r)
	}
	if r := n.fetch(fetchReq("a", 4)); r.Err != protocol.OffsetOutOfRange {
		t.Fatalf("%+v", r)
	}
	o.fs = o.fs.Crash(0, nil) // the power goes: what was answered stays so
	n.stop()
	n = startNode(t, o)
	defer n.stop()
	if d := n.awaitState("a", 0, StateLeader); d.LogStart != 5 {
		t.Fatalf("%+v after a crash", d)
	}
}

// The metastore hears of a tiered partition's new log start before readers do.
func TestDeleteRecordsOfTheTier(t *testing.T) {
	n, b, id := coldNode(t, newMemTier())
	if got, err := n.m.DeleteRecords(context.Background(), "a", 0, 3); got != 3 || err != nil {
		t.Fatal(got, err)
	}
	st, err := b.s.Tier(id, 0)
	if err != nil || st.LogStart != 3 {
		t.Fatalf("%+v %v", st, err)
	}
	b.lead(id, 0, self) // another epoch: the metastore refuses what is said in the name of the old one
	n.awaitEpoch("a", 0, 1)
	p := n.m.hosted.Load().names["a"].partitions[0]
	old := *p.role.Load()
	old.leaderEpoch = 0
	p.role.Store(&old)
	if _, err := n.m.DeleteRecords(context.Background(), "a", 0, 5); protocol.CodeOf(err) != protocol.FencedLeaderEpoch {
		t.Fatal(err)
	}
	if got := p.role.Load().log.LogStart(); got != 3 {
		t.Fatalf("log start %d although the metastore refused", got)
	}
}

func TestProducersAndLogDir(t *testing.T) {
	n, b := newNode(t, nodeOptions{})
	b.topic("a", 1, []int32{self})
	b.topic("elsewhere", 1, []int32{2})
	n.awaitState("a", 0, StateLeader)
	n.mustProduce("a", "plain")
	n.produce("a", 0, AcksAll, batchWith(record.Options{Producer: &record.Producer{ID: 7, Epoch: 2, BaseSequence: 3}}, time.Now().UnixMilli(), "x", "y"))
	got, err := n.m.Producers("a", 0)
	if err != nil || len(got) != 1 || got[0].ProducerID != 7 || got[0].Epoch != 2 || got[0].LastSequence != 4 || got[0].TxnStart != -1 {
		t.Fatalf("%+v %v", got, err)
	}
	if _, err := n.m.Producers("none", 0); protocol.CodeOf(err) != protocol.UnknownTopicOrPartition {
		t.Fatal(err)
	}
	if _, err := n.m.Producers("elsewhere", 0); protocol.CodeOf(err) != protocol.NotLeaderOrFollower {
		t.Fatal(err)
	}
	d := n.m.LogDir()
	if d.Path == "" || d.Offline != nil || len(d.Logs) != 1 || d.Logs[0].Topic != "a" || d.Logs[0].Bytes < 100 {
		t.Fatalf("%+v", d)
	}
}

// Dynamic values act on all topics that do not say otherwise, and no longer once they are gone.
func TestReconfigure(t *testing.T) {
	n, b := newNode(t, nodeOptions{})
	b.topic("a", 1, []int32{self})
	b.topic("own", 1, []int32{self}, "max.message.bytes", "1000000")
	big := batchOf(string(make([]byte, 5000)))
	accepted := func(topic string, want protocol.ErrorCode) {
		t.Helper()
		n.awaitState(topic, 0, StateLeader)
		if r := n.produce(topic, 0, AcksAll, append(record.Batch{}, big...)); r.Err != want {
			t.Fatalf("%s: %v", topic, r.Err)
		}
	}
	accepted("a", 0)
	n.setConfig("message.max.bytes", "4000")
	accepted("a", protocol.MessageTooLarge)
	accepted("own", 0)
	n.setConfig("message.max.bytes", "6000")
	accepted("a", 0)
	if d, _ := n.m.Describe("a", 0); d.LeaderEpoch != 0 {
		t.Fatalf("%+v", d)
	}
}

// A topic that was not tiered becomes so, although its first records are gone, and all that is left settles.
func TestTieringIsSwitchedOn(t *testing.T) {
	b := newBook(t)
	tier, stopTier := realTier(t, b, objstore.NewMem(time.Now))
	defer stopTier()
	n := startNode(t, nodeOptions{meta: b.s, control: &bookControl{b: b}, tier: tier, sets: []string{"varve.topic.remote.storage.enable=false"}})
	defer n.stop()
	id := b.topic("a", 1, []int32{self}, "internal.segment.bytes", "2000", "local.retention.bytes", "3000")
	n.awaitState("a", 0, StateLeader)
	want := map[int64]string{}
	for i := range 100 {
		v := fmt.Sprintf("value %04d", i)
		want[n.mustProduce("a", v)] = v
	}
	if _, err := n.m.DeleteRecords(context.Background(), "a", 0, 30); err != nil {
		t.Fatal(err)
	}
	b.configs(id, "remote.storage.enable", "true")
	await(t, "local copies to go", func() bool { d, _ := n.m.Describe("a", 0); return d.LocalBytes <= 5000 && d.TierEnd > 60 })
	st, err := b.s.Tier(id, 0)
	if err != nil || st.LogStart != 30 {
		t.Fatalf("%+v %v", st, err)
	}
	got := n.readAll("a", 30)
	for off := int64(30); off < 100; off++ {
		if got[off] != want[off] {
			t.Fatalf("offset %d is %q", off, got[off])
		}
	}
	if r := n.fetch(fetchReq("a", 29)); r.Err != protocol.OffsetOutOfRange {
		t.Fatalf("%+v", r)
	}
}
