package api

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/replica"
	"varve/protocol"
)

// sessionRequest continues a session with these partitions of topic a.
func sessionRequest(version int16, id, epoch int32, partitions ...int32) *kmsg.FetchRequest {
	r := fetchRequest(version)
	r.SessionID, r.SessionEpoch = id, epoch
	t := kmsg.FetchRequestTopic{Topic: "a", TopicID: idA}
	for _, i := range partitions {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.PartitionMaxBytes = i, 1000
		t.Partitions = append(t.Partitions, p)
	}
	r.Topics = nil
	if len(partitions) > 0 {
		r.Topics = []kmsg.FetchRequestTopic{t}
	}
	return r
}

func forget(r *kmsg.FetchRequest, partitions ...int32) *kmsg.FetchRequest {
	r.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{Topic: "a", TopicID: idA, Partitions: partitions}}
	return r
}

// quiet makes partitions answer without records, at this high watermark and log start.
func quiet(b *bench, highWatermark, logStart *int64) {
	b.replicas.fetch = func(_ context.Context, req *replica.FetchRequest) []replica.FetchResult {
		out := make([]replica.FetchResult, len(req.Partitions))
		for i := range out {
			out[i] = replica.FetchResult{HighWatermark: *highWatermark, LastStable: *highWatermark, LogStart: *logStart, Leader: -1, PreferredReplica: -1}
		}
		return out
	}
}

func (b *bench) fetchOK(req *kmsg.FetchRequest, want ...int32) *kmsg.FetchResponse {
	b.t.Helper()
	resp := ask[*kmsg.FetchResponse](b, req)
	var got []int32
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			got = append(got, p.Partition)
		}
	}
	if resp.ErrorCode != 0 || len(got) != len(want) {
		b.t.Fatalf("error %d, partitions %v, want %v", resp.ErrorCode, got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			b.t.Fatalf("partitions %v, want %v", got, want)
		}
	}
	return resp
}

func (b *bench) fetchFails(req *kmsg.FetchRequest, want protocol.ErrorCode) {
	b.t.Helper()
	if resp := ask[*kmsg.FetchResponse](b, req); resp.ErrorCode != int16(want) || len(resp.Topics) != 0 {
		b.t.Fatalf("session %d epoch %d: %d with %d topics, want %v", req.SessionID, req.SessionEpoch, resp.ErrorCode, len(resp.Topics), want)
	}
}

// A session tells what is new and nothing else, in every version that has sessions.
func TestFetchSession(t *testing.T) {
	for v := int16(7); v <= 18; v++ {
		b := newBench(t)
		hw, start := int64(5), int64(0)
		quiet(b, &hw, &start)
		id := b.fetchOK(sessionRequest(v, 0, 0, 0, 1), 0, 1).SessionID
		if id <= 0 {
			t.Fatalf("version %d: session %d", v, id)
		}
		if got := b.fetchOK(sessionRequest(v, id, 1)).SessionID; got != id {
			t.Fatalf("version %d: session %d became %d", v, id, got)
		}
		hw = 6
		b.fetchOK(sessionRequest(v, id, 2), 0, 1)
		start = 1
		b.fetchOK(sessionRequest(v, id, 3), 0, 1)
		b.fetchOK(forget(sessionRequest(v, id, 4), 0, 7))
		hw = 7
		b.fetchOK(sessionRequest(v, id, 5), 1)
		b.fetchOK(sessionRequest(v, id, 6, 0), 0)
		failing(b, protocol.OffsetOutOfRange, -1)
		b.fetchOK(sessionRequest(v, id, 7), 1, 0)
		b.fetchOK(sessionRequest(v, id, 8), 1, 0)
		quiet(b, &hw, &start)
		b.fetchOK(sessionRequest(v, id, 9), 1, 0) // the error is over
		b.fetchOK(sessionRequest(v, id, 10))
		b.replicas.fetch = nil // records, each time
		b.fetchOK(sessionRequest(v, id, 11), 1, 0)
		b.fetchOK(sessionRequest(v, id, 12), 1, 0)
		if b.replicas.made != b.replicas.released {
			t.Fatalf("%d spans, %d released", b.replicas.made, b.replicas.released)
		}
	}
}

func TestFetchSessionErrors(t *testing.T) {
	b := newBench(t)
	for _, v := range []int16{7, 12, 13, 18} {
		b.fetchFails(sessionRequest(v, 0, 1, 0), protocol.FetchSessionIDNotFound)
		b.fetchFails(sessionRequest(v, 55, 1, 0), protocol.FetchSessionIDNotFound)
		b.fetchFails(sessionRequest(v, -1, -7, 0), protocol.FetchSessionIDNotFound)
		id := b.fetchOK(sessionRequest(v, 0, 0, 0), 0).SessionID
		for _, epoch := range []int32{2, 3, -2, 1 << 30} {
			b.fetchFails(sessionRequest(v, id, epoch, 0), protocol.InvalidFetchSessionEpoch)
		}
		b.fetchOK(sessionRequest(v, id, 1), 0)
		b.fetchFails(sessionRequest(v, id, 1), protocol.InvalidFetchSessionEpoch)
		other := int16(12)
		if v <= 12 {
			other = 13
		}
		b.fetchFails(sessionRequest(other, id, 2), protocol.FetchSessionTopicIDError)
		b.fetchOK(sessionRequest(v, id, 2), 0)
		if got := b.fetchOK(sessionRequest(v, id, -1, 0), 0).SessionID; got != 0 {
			t.Fatalf("a last request is answered with session %d", got)
		}
		b.fetchFails(sessionRequest(v, id, 3), protocol.FetchSessionIDNotFound)
	}
	if b.replicas.sessions != 0 {
		t.Fatalf("%d sessions are open", b.replicas.sessions)
	}
}

// A session ends when it is begun anew, when it is empty, when there are no slots.
func TestFetchSessionEnds(t *testing.T) {
	b := newBench(t)
	id := b.fetchOK(sessionRequest(12, 0, 0, 0), 0).SessionID
	next := b.fetchOK(sessionRequest(12, id, 0, 0), 0).SessionID
	if next == id || next == 0 {
		t.Fatalf("session %d after %d", next, id)
	}
	b.fetchFails(sessionRequest(12, id, 1), protocol.FetchSessionIDNotFound)
	if got := b.fetchOK(forget(sessionRequest(12, next, 1), 0)).SessionID; got != 0 {
		t.Fatalf("an empty session is answered with session %d", got)
	}
	b.fetchFails(sessionRequest(12, next, 2), protocol.FetchSessionIDNotFound)
	if empty := b.fetchOK(sessionRequest(12, 0, 0)).SessionID; empty == 0 {
		t.Fatal("a session cannot begin empty")
	}
	b = newBench(t, "max.incremental.fetch.session.cache.slots=0")
	if got := b.fetchOK(sessionRequest(12, 0, 0, 0), 0).SessionID; got != 0 {
		t.Fatalf("session %d without slots", got)
	}
}

// Version 6 and before know no sessions, whatever kmsg's struct says.
func TestFetchBeforeSessions(t *testing.T) {
	b := newBench(t)
	for v := int16(4); v <= 6; v++ {
		if b.fetchOK(sessionRequest(v, 0, 0, 0), 0); b.replicas.sessions != 0 {
			t.Fatal("a session was begun")
		}
	}
}

func TestFetchDuplicatePartitions(t *testing.T) {
	b := newBench(t)
	for _, epoch := range []int32{0, -1} {
		req := sessionRequest(12, 0, epoch, 0, 1, 0)
		req.Topics = append(req.Topics, req.Topics[0])
		req.Topics[1].Partitions = append([]kmsg.FetchRequestTopicPartition{}, req.Topics[0].Partitions[:1]...)
		req.Topics[1].Partitions[0].FetchOffset = 99
		b.fetchOK(req, 0, 1)
		if got := b.replicas.fetches[len(b.replicas.fetches)-1].Partitions; got[0].Offset != 99 {
			t.Fatalf("%+v", got)
		}
	}
}

func TestFetchZeroTopicID(t *testing.T) {
	b := newBench(t)
	failing(b, protocol.UnknownTopicOrPartition, -1)
	req := sessionRequest(13, 0, 0, 0)
	req.Topics[0].TopicID = [16]byte{}
	if p := b.fetchOK(req, 0).Topics[0].Partitions[0]; p.ErrorCode != int16(protocol.UnknownTopicID) {
		t.Fatalf("%+v", p)
	}
}

// An id that a session knows the name of is told what has become of the name.
func TestFetchSessionOfRemadeTopic(t *testing.T) {
	b := newBench(t)
	id := b.fetchOK(sessionRequest(13, 0, 0, 0), 0).SessionID
	b.fetchOK(sessionRequest(13, id, 1), 0)
	old := *b.cluster.topics["a"]
	failing(b, protocol.UnknownTopicID, -1)
	for epoch, want := range map[int32]protocol.ErrorCode{2: protocol.InconsistentTopicID, 3: protocol.UnknownTopicOrPartition} {
		remade := old
		remade.ID = protocol.UUID{99}
		b.cluster.topics["a"] = &remade
		if want == protocol.UnknownTopicOrPartition {
			delete(b.cluster.topics, "a")
		}
		s := b.sessions.find(id)
		s.epoch = epoch
		if p := b.fetchOK(sessionRequest(13, id, epoch), 0).Topics[0].Partitions[0]; p.ErrorCode != int16(want) {
			t.Fatalf("%+v, want %v", p, want)
		}
	}
	if p := b.fetchOK(sessionRequest(13, 0, 0, 0), 0).Topics[0].Partitions[0]; p.ErrorCode != int16(protocol.UnknownTopicID) {
		t.Fatalf("%+v", p)
	}
}

// Of two requests at once the earlier one ends, without what it had.
func TestFetchSessionOvertaken(t *testing.T) {
	b := newBench(t)
	id := b.fetchOK(sessionRequest(12, 0, 0, 0), 0).SessionID
	waits := make(chan struct{})
	plain := b.replicas.fetch
	b.replicas.fetch = func(ctx context.Context, req *replica.FetchRequest) []replica.FetchResult {
		close(waits)
		<-ctx.Done()
		return []replica.FetchResult{{Spans: []protocol.Span{b.replicas.span([]byte("lost"))}, Leader: -1, PreferredReplica: -1}}
	}
	first := make(chan kmsg.Response, 1)
	go func() { first <- ask[*kmsg.FetchResponse](b, sessionRequest(12, id, 1)) }()
	<-waits
	b.replicas.fetch = plain
	b.fetchOK(sessionRequest(12, id, 2), 0)
	resp := (<-first).(*kmsg.FetchResponse)
	if resp.ErrorCode != int16(protocol.InvalidFetchSessionEpoch) || resp.SessionID != id || len(resp.Topics) != 0 {
		t.Fatalf("%+v", resp)
	}
	if b.replicas.made != b.replicas.released {
		t.Fatalf("%d spans, %d released", b.replicas.made, b.replicas.released)
	}
}

func TestSessionEpochsGoRound(t *testing.T) {
	for from, want := range map[int32]int32{0: 1, 1: 2, 1<<31 - 1: 1} {
		if got := nextSessionEpoch(from); got != want {
			t.Errorf("%d after %d", got, from)
		}
	}
}

// The rules of eviction, as FetchSessionTest.java states them.
func TestFetchSessionEviction(t *testing.T) {
	b := newBench(t)
	now := time.Unix(1000, 0)
	f := &b.sessions
	f.slots, f.now = 2, func() time.Time { return now }
	create := func(privileged bool, size int) int32 {
		return f.create(privileged, false, make([]fetchAsk, size), make([]toldPartition, size))
	}
	has := func(id int32) bool { return f.find(id) != nil }
	small, big := create(false, 1), create(false, 3)
	if small == 0 || big == 0 || create(false, 9) != 0 {
		t.Fatal("young sessions are evicted by their like")
	}
	follower := create(true, 1)
	if follower == 0 || has(small) || !has(big) {
		t.Fatal("a follower takes the smallest slot of consumers")
	}
	if second := create(true, 1); second == 0 || has(big) {
		t.Fatal("a follower takes the last slot of consumers")
	}
	if create(true, 9) != 0 {
		t.Fatal("young followers are evicted by their like")
	}
	now = now.Add(sessionEvictionAge - time.Second)
	f.touch(f.find(follower), 1)
	now = now.Add(2 * time.Second)
	third := create(false, 5) // the slot of the one that was not used
	if third == 0 || !has(follower) {
		t.Fatal("what was not used goes first")
	}
	if create(false, 9) != 0 {
		t.Fatal("a consumer took a follower's slot or a younger one's")
	}
	if next := create(true, 1); next == 0 || has(third) || !has(follower) {
		t.Fatal("a follower takes a consumer's slot before an old follower's")
	}
	if b.replicas.sessions != 2 || f.partitions != 2 {
		t.Fatalf("%d sessions are open, of %d partitions", b.replicas.sessions, f.partitions)
	}
}

// Sessions do not hold more partitions than the bound, all together.
func TestFetchSessionPartitionBound(t *testing.T) {
	b := newBench(t)
	id := b.fetchOK(sessionRequest(12, 0, 0, 0), 0).SessionID
	b.sessions.partitions = maxSessionPartitions
	if got := b.fetchOK(sessionRequest(12, 0, 0, 0), 0).SessionID; got != 0 {
		t.Fatal("a session was begun beyond the bound")
	}
	b.fetchFails(sessionRequest(12, id, 1, 0, 1), protocol.FetchSessionIDNotFound)
	if b.replicas.sessions != 0 {
		t.Fatalf("%d sessions are open", b.replicas.sessions)
	}
}
