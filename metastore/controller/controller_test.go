package controller

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"varve/metastore"
	"varve/protocol"
	"varve/protocol/event"
)

// clock is a time that tests move.
type clock struct{ ms atomic.Int64 }

func (c *clock) now() time.Time { return time.UnixMilli(c.ms.Load()) }

func startController(t *testing.T, o Options) (*Controller, *metastore.Store, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	s, err := metastore.Open(ctx, metastore.Options{Dir: t.TempDir(), NodeID: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return New(s, o), s, ctx
}

func serve(t *testing.T, c *Controller, ctx context.Context, id int32) int64 {
	t.Helper()
	epoch, err := c.RegisterBroker(ctx, Registration{ID: id, Incarnation: protocol.NewUUID(), Dirs: []protocol.UUID{uid(fmt.Sprint("d", id))}, PrevEpoch: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Unfence(ctx, id, epoch); err != nil {
		t.Fatal(err)
	}
	return epoch
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain")
		}
	}
}

// TestSessions: a silent broker is fenced after its session, one that sends heartbeats is not, and neither is the node's own.
func TestSessions(t *testing.T) {
	var now clock
	var rec event.Recorder
	c, s, ctx := startController(t, Options{SessionTimeout: 40 * time.Millisecond, Now: now.now, Events: rec.Emit, TopicPolicy: testPolicy})
	serve(t, c, ctx, 1)
	silent := serve(t, c, ctx, 2)
	beating := serve(t, c, ctx, 3)
	r := c.CreateTopics(ctx, []CreateTopic{{Name: "t", Partitions: -1, ReplicationFactor: -1, Assignments: []Assignment{{0, []int32{2, 3, 1}}}}}, false)
	if r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	runCtx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { done <- c.Run(runCtx) })
	waitFor(t, func() bool {
		now.ms.Add(15)
		if _, err := c.Heartbeat(ctx, 3, beating); err != nil {
			t.Error(err)
		}
		b, _ := s.Image().Broker(2)
		return b.Fenced
	})
	for _, id := range []int32{1, 3} {
		if b, _ := s.Image().Broker(id); b.Fenced {
			t.Fatalf("broker %d was fenced", id)
		}
	}
	topic, _ := s.Image().Topic("t")
	if p := topic.Partitions[0]; p.Leader != 3 || p.LeaderEpoch != 1 {
		t.Fatalf("%+v", p)
	}
	if p, err := c.Heartbeat(ctx, 2, silent); err != nil || !p.Fenced || !p.Now.Equal(now.now()) {
		t.Fatalf("%+v %v", p, err)
	}
	if _, err := c.Heartbeat(ctx, 2, silent+1); protocol.CodeOf(err) != protocol.StaleBrokerEpoch {
		t.Fatal(err)
	}
	if rec.Count("broker_fenced") != 1 || rec.Count("broker_unfenced") != 3 {
		t.Fatalf("%d fenced, %d unfenced", rec.Count("broker_fenced"), rec.Count("broker_unfenced"))
	}
	stop()
	wg.Wait()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestDuplicateRegistration: another process with the id of a broker that is heard of is refused until its session is over.
func TestDuplicateRegistration(t *testing.T) {
	var now clock
	c, _, ctx := startController(t, Options{Now: now.now})
	serve(t, c, ctx, 2)
	other := Registration{ID: 2, Incarnation: protocol.NewUUID(), Dirs: []protocol.UUID{uid("d2")}, PrevEpoch: -1}
	if _, err := c.RegisterBroker(ctx, other); protocol.CodeOf(err) != protocol.DuplicateBrokerRegistration {
		t.Fatal(err)
	}
	now.ms.Add(DefaultSessionTimeout.Milliseconds())
	first, err := c.RegisterBroker(ctx, other)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.RegisterBroker(ctx, other); err != nil || again != first {
		t.Fatalf("%d then %d, %v", first, again, err)
	}
	if _, err := c.RegisterBroker(ctx, Registration{ID: 5}); protocol.CodeOf(err) != protocol.InvalidRegistration {
		t.Fatal(err)
	}
}

func TestAdminCalls(t *testing.T) {
	var rec event.Recorder
	c, s, ctx := startController(t, Options{TopicPolicy: testPolicy, ValidateTopicConfig: testValidate, Events: rec.Emit})
	epoch := serve(t, c, ctx, 1)
	want := []CreateTopic{{Name: "t", Partitions: 2, ReplicationFactor: 1}, {Name: "bad/", Partitions: 1, ReplicationFactor: 1}}
	if r := c.CreateTopics(ctx, want, true); r[0].Err != nil || r[0].Partitions != 2 || s.Image().TopicCount() != 0 {
		t.Fatalf("validate only: %+v", r)
	}
	r := c.CreateTopics(ctx, want, false)
	topic, ok := s.Image().Topic("t")
	if !ok || r[0].ID != topic.ID || protocol.CodeOf(r[1].Err) != protocol.InvalidTopicException {
		t.Fatalf("%+v", r)
	}
	more := []CreatePartitions{{Topic: "t", Count: 3}}
	if r := c.CreatePartitions(ctx, more, true); r[0].Err != nil || s.Image().PartitionCount() != 2 {
		t.Fatalf("validate only: %+v", r)
	}
	if r := c.CreatePartitions(ctx, more, false); r[0].Err != nil || s.Image().PartitionCount() != 3 {
		t.Fatalf("%+v", r)
	}
	for _, only := range []bool{true, false} {
		if err := c.AlterConfigs(ctx, ConfigChange{Topic: "t", Edit: editOf(map[string]string{"k": "v"}, nil)}, only); err != nil {
			t.Fatal(err)
		}
		if topic, _ := s.Image().Topic("t"); len(topic.Configs) == 1 == only {
			t.Fatalf("validate only %v: %v", only, topic.Configs)
		}
	}
	dir := []DirAssignment{{TopicID: topic.ID, Partition: 2, Dir: uid("d1")}, {TopicID: uid("deleted"), Dir: uid("d1")}}
	if err := c.AssignDirs(ctx, 1, epoch, dir); err != nil {
		t.Fatal(err)
	}
	p, _ := s.Image().Partition(topic.ID, 2)
	a := []AlterPartition{{TopicID: topic.ID, Partition: 2, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, NewISR: []int32{1}}}
	if out, err := c.AlterPartition(ctx, 1, epoch, a); err != nil || out[0].Err != nil || out[0].State.Leader != 1 {
		t.Fatalf("%+v %v", out, err)
	}
	if _, err := c.AlterPartition(ctx, 1, epoch+1, a); protocol.CodeOf(err) != protocol.StaleBrokerEpoch {
		t.Fatal(err)
	}
	// At runtime, too, an erased replica of an untiered topic waits for an operator.
	if err := c.ReplicaLost(ctx, topic.ID, 2, 1, epoch); err != nil {
		t.Fatal(err)
	}
	if p, _ := s.Image().Partition(topic.ID, 2); p.Leader != -1 || rec.Count("replica_erased") != 1 {
		t.Fatalf("%+v", p)
	}
	out, err := c.ElectLeaders(ctx, nil, true)
	if err != nil || len(out) != 1 || out[0].Err != nil || rec.Count("unclean_election") != 1 {
		t.Fatalf("%+v %v", out, err)
	}
	if d := c.DeleteTopics(ctx, []DeleteTopic{{Name: "t"}, {Name: "t"}}); d[0].Err != nil || protocol.CodeOf(d[1].Err) != protocol.UnknownTopicOrPartition {
		t.Fatalf("%+v", d)
	}
	s.Close(ctx)
	if r := c.CreateTopics(ctx, want, false); protocol.CodeOf(r[0].Err) != protocol.NotController {
		t.Fatalf("%+v", r[0].Err)
	}
}

// TestTieredReplicaLostAtRuntime: the only replica of a tiered partition leads on under a new epoch.
func TestTieredReplicaLostAtRuntime(t *testing.T) {
	c, s, ctx := startController(t, Options{TopicPolicy: testPolicy})
	epoch := serve(t, c, ctx, 1)
	r := c.CreateTopics(ctx, []CreateTopic{{Name: "t", Partitions: 1, ReplicationFactor: 1, Configs: map[string]string{"remote.storage.enable": "true"}}}, false)
	if err := c.AssignDirs(ctx, 1, epoch, []DirAssignment{{TopicID: r[0].ID, Dir: uid("d1")}}); err != nil {
		t.Fatal(err)
	}
	if err := c.ReplicaLost(ctx, r[0].ID, 0, 1, epoch); err != nil {
		t.Fatal(err)
	}
	if p, _ := s.Image().Partition(r[0].ID, 0); p.Leader != 1 || p.LeaderEpoch != 2 {
		t.Fatalf("%+v", p)
	}
}

// TestManyPartitions: registration and election of more partitions than one command carries.
func TestManyPartitions(t *testing.T) {
	c, s, ctx := startController(t, Options{})
	serve(t, c, ctx, 1)
	const n = 2*maxChangesPerCommand + 500
	if r := c.CreateTopics(ctx, []CreateTopic{{Name: "t", Partitions: n, ReplicationFactor: 1}}, false); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	start := time.Now()
	serve(t, c, ctx, 1)
	t.Logf("%d partitions registered and elected in %v", n, time.Since(start))
	topic, _ := s.Image().Topic("t")
	for _, p := range topic.Partitions {
		if p.Leader != 1 || p.LeaderEpoch != 2 {
			t.Fatalf("%+v", p)
		}
	}
}
