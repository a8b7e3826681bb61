package api

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/commitlog"
	"varve/broker/replica"
	"varve/protocol"
)

// fetchRequest asks for both partitions of a and one of b.
func fetchRequest(version int16) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.Version, r.ReplicaID = version, -1
	r.MaxWaitMillis, r.MinBytes, r.MaxBytes, r.SessionEpoch = 500, 1, 1<<20, -1
	part := func(i int32) kmsg.FetchRequestTopicPartition {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch, p.LogStartOffset = i, 10+int64(i), 1000, 7, -1
		return p
	}
	r.Topics = []kmsg.FetchRequestTopic{
		{Topic: "a", TopicID: idA, Partitions: []kmsg.FetchRequestTopicPartition{part(0), part(1)}},
		{Topic: "c", TopicID: idB, Partitions: []kmsg.FetchRequestTopicPartition{part(0)}},
	}
	return r
}

func TestFetch(t *testing.T) {
	b := newBench(t)
	for v := int16(4); v <= 18; v++ {
		resp := ask[*kmsg.FetchResponse](b, fetchRequest(v))
		if resp.SessionID != 0 || resp.ErrorCode != 0 || len(resp.Topics) != 2 || len(resp.Topics[0].Partitions) != 2 {
			t.Fatalf("version %d: %+v", v, resp)
		}
		p := resp.Topics[0].Partitions[1]
		if string(p.RecordBatches) != "firstsecond" || p.HighWatermark != 20 || p.LastStableOffset != 19 || p.Partition != 1 {
			t.Fatalf("version %d: %+v", v, p)
		}
		if v >= 13 && resp.Topics[1].TopicID != idB || v < 13 && resp.Topics[1].Topic != "c" {
			t.Fatalf("version %d: %+v", v, resp.Topics[1])
		}
		got := b.replicas.fetches[len(b.replicas.fetches)-1]
		q := got.Partitions[1]
		if got.ReplicaID != -1 || got.MaxWait != 500*time.Millisecond || got.MinBytes != 1 || got.MaxBytes != 1<<20 || len(got.Partitions) != 3 ||
			q.Partition != 1 || q.Offset != 11 || q.MaxBytes != 1000 {
			t.Fatalf("version %d: %+v", v, got)
		}
		if wantEpoch := int32(7); v >= 9 && q.CurrentLeaderEpoch != wantEpoch || v < 9 && q.CurrentLeaderEpoch != -1 {
			t.Fatalf("version %d: %+v", v, q)
		}
	}
	if b.replicas.made != b.replicas.released {
		t.Fatalf("%d spans, %d released", b.replicas.made, b.replicas.released)
	}
}

func TestFetchBounds(t *testing.T) {
	b := newBench(t, "fetch.max.bytes=5000", "connections.max.idle.ms=2000")
	req := fetchRequest(12)
	req.MaxBytes, req.MinBytes, req.MaxWaitMillis = 1<<30, 1<<29, 1<<30
	ask[*kmsg.FetchResponse](b, req)
	got := b.replicas.fetches[0]
	if got.MaxBytes != 5000 || got.MinBytes != 5000 || got.MaxWait != 2*time.Second {
		t.Fatalf("%+v", got)
	}
	req.MaxBytes, req.MinBytes, req.MaxWaitMillis = -5, -5, -5
	req.Topics[0].Partitions[0].PartitionMaxBytes = -1
	ask[*kmsg.FetchResponse](b, req)
	got = b.replicas.fetches[1]
	if got.MaxBytes != 0 || got.MinBytes != 0 || got.MaxWait != 0 || got.Partitions[0].MaxBytes != 0 {
		t.Fatalf("%+v", got)
	}
}

func TestFetchWaitWithoutIdleBound(t *testing.T) {
	b := newBench(t, "connections.max.idle.ms=-1")
	ask[*kmsg.FetchResponse](b, fetchRequest(12))
	if got := b.replicas.fetches[0].MaxWait; got != 500*time.Millisecond {
		t.Fatal(got)
	}
}

func TestFetchReplicaID(t *testing.T) {
	b := newBench(t)
	for _, v := range []int16{4, 14, 15, 18} {
		req := fetchRequest(v)
		req.ReplicaID, req.ReplicaState.ID = 2, 2
		ask[*kmsg.FetchResponse](b, req)
		if got := b.replicas.fetches[len(b.replicas.fetches)-1].ReplicaID; got != 2 {
			t.Fatalf("version %d: %d", v, got)
		}
	}
}

// failing answers all partitions with one error.
func failing(b *bench, code protocol.ErrorCode, leader int32) {
	b.replicas.fetch = func(_ context.Context, req *replica.FetchRequest) []replica.FetchResult {
		out := make([]replica.FetchResult, len(req.Partitions))
		for i := range out {
			out[i] = replica.FetchResult{Err: code, HighWatermark: -1, LastStable: -1, LogStart: -1, Leader: leader, LeaderEpoch: 9, PreferredReplica: -1}
		}
		return out
	}
}

func TestFetchErrors(t *testing.T) {
	b := newBench(t)
	failing(b, protocol.KafkaStorageError, -1)
	for v := int16(4); v <= 18; v++ {
		want := protocol.KafkaStorageError
		if v <= 5 {
			want = protocol.NotLeaderOrFollower
		}
		if p := ask[*kmsg.FetchResponse](b, fetchRequest(v)).Topics[0].Partitions[0]; p.ErrorCode != int16(want) {
			t.Fatalf("version %d: %+v", v, p)
		}
	}
	failing(b, protocol.NotLeaderOrFollower, 2)
	for v := int16(12); v <= 18; v++ {
		resp := ask[*kmsg.FetchResponse](b, fetchRequest(v))
		p := resp.Topics[0].Partitions[0]
		told := p.CurrentLeader.LeaderID == 2 && p.CurrentLeader.LeaderEpoch == 9 && len(resp.Brokers) == 1 && resp.Brokers[0].Port == 9002
		if told != (v >= 16) {
			t.Fatalf("version %d: %+v", v, resp)
		}
	}
}

func TestFetchAbortedAndDiverging(t *testing.T) {
	b := newBench(t)
	b.replicas.fetch = func(_ context.Context, req *replica.FetchRequest) []replica.FetchResult {
		out := make([]replica.FetchResult, len(req.Partitions))
		for i := range out {
			out[i] = replica.FetchResult{Leader: -1, PreferredReplica: -1, Diverging: &replica.EpochEnd{Epoch: 3, End: 44}}
			if req.ReadCommitted && i == 0 {
				out[i].Aborted = []commitlog.AbortedTxn{{ProducerID: 8, FirstOffset: 9}}
			}
		}
		return out
	}
	req := fetchRequest(12)
	p := ask[*kmsg.FetchResponse](b, req).Topics[0].Partitions
	if p[0].AbortedTransactions != nil || p[0].DivergingEpoch.Epoch != 3 || p[0].DivergingEpoch.EndOffset != 44 {
		t.Fatalf("%+v", p[0])
	}
	req.IsolationLevel = 1
	p = ask[*kmsg.FetchResponse](b, req).Topics[0].Partitions
	if len(p[0].AbortedTransactions) != 1 || p[0].AbortedTransactions[0].ProducerID != 8 || p[1].AbortedTransactions == nil {
		t.Fatalf("%+v", p)
	}
}

// Clients that may not know zstd are not sent it.
func TestFetchZstdTopicByOldClient(t *testing.T) {
	b := newBench(t)
	for _, v := range []int16{4, 9, 10} {
		req := fetchRequest(v)
		req.Topics[1].Topic = "b"
		resp := ask[*kmsg.FetchResponse](b, req)
		if got := resp.Topics[1].Partitions[0].ErrorCode; (got == 76) != (v < 10) || resp.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Fatalf("version %d: %+v", v, resp)
		}
	}
	if b.replicas.made != b.replicas.released {
		t.Fatalf("%d spans, %d released", b.replicas.made, b.replicas.released)
	}
}
