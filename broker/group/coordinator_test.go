package group

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/metastore/controller"
	"varve/protocol"
)

// located makes the topic and waits for its shards.
func (r *rig) located(group string) {
	r.t.Helper()
	if r.meta.Image(); r.topic("t", 1) != nil {
		r.t.Fatal("topic t")
	}
	if node, err := r.c.Locate(r.t.Context(), group); node != self || err != protocol.None {
		r.t.Fatalf("coordinator %d, %v", node, err)
	}
}

func TestFirstRequestCreatesTheTopic(t *testing.T) {
	r := newRig(t)
	if got := codeOf(r.commit("g", 1).get()); got != protocol.NotCoordinator {
		t.Errorf("before there is a topic: %v", got)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if node, err := r.c.Locate(t.Context(), "g"); node != self || err != protocol.None {
				t.Errorf("coordinator %d, %v", node, err)
			}
		})
	}
	wg.Wait()
	topic, ok := r.meta.Image().Topic(OffsetsTopic)
	if !ok || len(topic.Partitions) != 3 {
		t.Fatalf("topic %+v", topic)
	}
	if got := codeOf(r.commit("g", 1).get()); got != protocol.None {
		t.Errorf("right after the coordinator was found: %v", got)
	}
	if spec := r.c.Topic(); spec.ReplicationFactor != 1 || spec.Configs["cleanup.policy"] != "compact" || spec.Configs["segment.bytes"] != "104857600" {
		t.Errorf("%+v", spec)
	}
}

func TestTopicThatCannotBeCreated(t *testing.T) {
	r := newRig(t)
	r.c.o.CreateTopic = func(ctx context.Context, _ controller.CreateTopic) error { return protocol.InvalidReplicationFactor }
	if _, err := r.c.Locate(t.Context(), "g"); err != protocol.CoordinatorNotAvailable {
		t.Errorf("%v", err)
	}
	if r.events.Count("group_topic_not_created") != 1 {
		t.Error("nobody is told")
	}
}

func TestGroupThroughALeaderChange(t *testing.T) {
	r := newRig(t)
	r.located("g")
	joined := r.join("g", "").get()
	member := joined.MemberID
	if joined.ErrorCode != 0 || joined.Generation != 1 || joined.LeaderID != member {
		t.Fatalf("%+v", joined)
	}
	if got := r.sync("g", member, 1).get(); got.ErrorCode != 0 || string(got.MemberAssignment) != "all" {
		t.Fatalf("%+v", got)
	}
	commit := soon(t, func(done func(*kmsg.OffsetCommitResponse)) { r.c.Commit(me, commitOf("g", member, 1, 7), done) })
	if got := codeOf(commit.get()); got != protocol.None {
		t.Fatal(got)
	}
	second := r.join("g", "")
	if !second.waits() {
		t.Fatal("the first member has not joined again")
	}
	r.elect("g", 2)
	if got := second.get(); protocol.ErrorCode(got.ErrorCode) != protocol.NotCoordinator {
		t.Errorf("a waiting JoinGroup: %+v", got)
	}
	await(t, "another broker is named", func() bool { node, _ := r.c.Locate(t.Context(), "g"); return node == 2 })
	if got := r.heartbeat("g", member, 1); got != protocol.NotCoordinator {
		t.Errorf("heartbeat elsewhere: %v", got)
	}
	r.log.set(func(l *memLog) { l.readErr = errors.New("disk") })
	r.elect("g", self)
	await(t, "it is told that loading fails", func() bool { return r.events.Count("group_load_failed") > 0 })
	if _, err := r.fetch("g"); err != protocol.CoordinatorLoadInProgress {
		t.Errorf("while it is loaded: %v", err)
	}
	if got := r.heartbeat("g", member, 1); got != protocol.None {
		t.Errorf("heartbeat while it is loaded: %v", got)
	}
	listed := make(chan protocol.ErrorCode, 1)
	r.c.List(me, &List{}, func(_ []kmsg.ListGroupsResponseGroup, err protocol.ErrorCode) { listed <- err })
	if err := <-listed; err != protocol.CoordinatorLoadInProgress {
		t.Errorf("list while one is loaded: %v", err)
	}
	r.log.set(func(l *memLog) { l.readErr = nil })
	await(t, "offsets are back", func() bool { at, err := r.fetch("g"); return at == 7 && err == protocol.None })
	if got := r.heartbeat("g", member, 1); got != protocol.None {
		t.Errorf("the member is known: %v", got)
	}
}

func TestStopAnswersWhoWaits(t *testing.T) {
	r := newRig(t)
	r.located("g")
	member := r.join("g", "").get().MemberID
	waiting := r.join("g", "")
	r.log.set(func(l *memLog) { l.hold = true })
	unsaved := r.commit("h", 3)
	if !waiting.waits() || !unsaved.waits() {
		t.Fatal("answered")
	}
	r.c.Release()
	if got := waiting.get(); protocol.ErrorCode(got.ErrorCode) != protocol.NotCoordinator {
		t.Errorf("%+v", got)
	}
	if got := codeOf(unsaved.get()); got != protocol.NotCoordinator {
		t.Error(got)
	}
	if got := r.heartbeat("g", member, 1); got != protocol.NotCoordinator {
		t.Error(got)
	}
	r.stop()
	r.log.release(false)
	r.start()
	await(t, "what reached the log is there", func() bool { at, err := r.fetch("h"); return at == 3 && err == protocol.None })
}

func TestAppendsThatEndInAnyOrder(t *testing.T) {
	r := newRig(t)
	r.located("g")
	r.log.set(func(l *memLog) { l.hold = true })
	var all []later[*kmsg.OffsetCommitResponse]
	for at := range int64(20) {
		all = append(all, r.commit("g", at))
	}
	if at, _ := r.fetch("g"); at != -1 {
		t.Errorf("offset %d is not stored yet", at)
	}
	r.log.release(true)
	for _, l := range all {
		if got := codeOf(l.get()); got != protocol.None {
			t.Error(got)
		}
	}
	if at, _ := r.fetch("g"); at != 19 {
		t.Errorf("offset %d after 19 was committed last", at)
	}
}

func TestFailedAppends(t *testing.T) {
	r := newRig(t)
	r.located("g")
	for from, to := range map[protocol.ErrorCode]protocol.ErrorCode{
		protocol.RequestTimedOut: protocol.CoordinatorNotAvailable, protocol.KafkaStorageError: protocol.NotCoordinator,
		protocol.MessageTooLarge: protocol.UnknownServerError, protocol.InvalidRecord: protocol.InvalidRecord,
	} {
		r.log.set(func(l *memLog) { l.fail = from })
		if got := codeOf(r.commit("g", 1).get()); got != to {
			t.Errorf("%v is told as %v", from, got)
		}
	}
	if at, err := r.fetch("g"); at != -1 || err != protocol.None {
		t.Errorf("offset %d, %v", at, err)
	}
}

func TestSessionsEndByThemselves(t *testing.T) {
	r := newRig(t)
	r.located("g")
	req := joinOf("g", "")
	req.SessionTimeoutMillis = 150
	member := soon(t, func(done func(*kmsg.JoinGroupResponse)) { r.c.Join(me, req, done) }).get().MemberID
	if got := r.sync("g", member, 1).get(); got.ErrorCode != 0 {
		t.Fatal(got.ErrorCode)
	}
	await(t, "the member is forgotten", func() bool {
		d := soon(t, func(done func(*kmsg.DescribeGroupsResponseGroup)) { r.c.Describe(me, &Describe{Group: "g"}, done) }).get()
		return d.State == string(Empty)
	})
}

func TestDeletedTopicLosesItsOffsets(t *testing.T) {
	r := newRig(t)
	r.located("g")
	if got := codeOf(r.commit("g", 5).get()); got != protocol.None {
		t.Fatal(got)
	}
	r.deleteTopic("t")
	await(t, "the offset is gone", func() bool { at, _ := r.fetch("g"); return at == -1 })
	r.deleteTopic(OffsetsTopic)
	await(t, "nobody coordinates", func() bool { _, err := r.fetch("g"); return err == protocol.NotCoordinator })
	if node, err := r.c.Locate(t.Context(), "g"); node != self || err != protocol.None {
		t.Errorf("made again: %d, %v", node, err)
	}
}

// TestManyClientsAndElections: each request is answered exactly once, whatever happens to leadership, and what was
// acknowledged last is there in the end.
func TestManyClientsAndElections(t *testing.T) {
	r := newRig(t)
	r.located("g0")
	r.log.set(func(l *memLog) { l.async = true })
	var asked, answered atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	acked := make([]int64, 6)
	for i := range acked {
		wg.Go(func() {
			group := fmt.Sprintf("g%d", i)
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			for at := int64(1); ; at++ {
				select {
				case <-stop:
					return
				default:
				}
				asked.Add(1)
				if rnd.IntN(4) == 0 {
					r.c.Join(me, joinOf("m"+group, ""), func(*kmsg.JoinGroupResponse) { answered.Add(1) })
					continue
				}
				got := codeOf(r.commit(group, at).get())
				answered.Add(1)
				if got == protocol.None {
					acked[i] = at
				} else {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	for i := range 30 {
		time.Sleep(10 * time.Millisecond)
		group := fmt.Sprintf("g%d", i%len(acked))
		r.elect(group, int32(2-i%2)) // to another broker and back
		r.elect(group, self)
	}
	close(stop)
	wg.Wait()
	for i, at := range acked {
		group := fmt.Sprintf("g%d", i)
		await(t, group+" has what was acknowledged", func() bool { got, err := r.fetch(group); return err == protocol.None && got >= at && at > 0 })
	}
	r.stop()
	if asked.Load() != answered.Load() {
		t.Errorf("%d requests, %d answers", asked.Load(), answered.Load())
	}
}
