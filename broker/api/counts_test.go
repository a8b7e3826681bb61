package api

import (
	"context"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/replica"
	"varve/protocol"
)

// TestRequestsAreCounted: each key on its own, whatever way its answer goes; an answer with an error anywhere is a failed one.
func TestRequestsAreCounted(t *testing.T) {
	b := newBench(t)
	conn := plainConn()
	for _, sample := range sampleRequests(t) {
		req := sample()
		r, _ := protocol.RangeOf(req.Key())
		req.SetVersion(r.Max)
		b.serve(conn, frameOf(req, "client"))
	}
	unknown := kmsg.NewPtrMetadataRequest()
	unknown.Version = 4
	unknown.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("nobody")}}
	b.serve(conn, frameOf(unknown, "client"))
	b.serve(conn, frameOf(unknown, "client")[:20])
	stats := map[string]RequestStats{}
	for _, s := range b.Requests() {
		stats[s.API] = s
	}
	for key := range sampleRequests(t) {
		r, _ := protocol.RangeOf(key)
		name := r.Name
		want := uint64(1)
		if key == 3 {
			want = 3
		}
		var n uint64
		for _, c := range stats[name].Buckets {
			n += c
		}
		if n != want || stats[name].Seconds <= 0 || len(stats[name].Buckets) != len(RequestBounds)+1 {
			t.Errorf("%s: %+v", name, stats[name])
		}
	}
	for name, failed := range map[string]uint64{"Metadata": 3, "DescribeAcls": 1, "ApiVersions": 0, "Produce": 0, "Fetch": 0} {
		if stats[name].Errors != failed {
			t.Errorf("%s: %d errors, want %d", name, stats[name].Errors, failed)
		}
	}
}

func TestHoldsCode(t *testing.T) {
	resp := kmsg.NewPtrMetadataResponse()
	resp.Topics = []kmsg.MetadataResponseTopic{{}, {Partitions: []kmsg.MetadataResponseTopicPartition{{}, {}}}}
	if holdsCode(reflect.ValueOf(resp)) {
		t.Fatal("an error was found")
	}
	resp.Topics[1].Partitions[1].ErrorCode = -1
	if !holdsCode(reflect.ValueOf(resp)) || holdsCode(reflect.ValueOf(&kmsg.SyncGroupResponse{})) || !holdsCode(reflect.ValueOf(&kmsg.SyncGroupResponse{ErrorCode: 27})) {
		t.Fatal("codes are not found where they are")
	}
}

// TestFailedPartitionsAreCounted: an error in one partition makes a Produce or a Fetch a failed request.
func TestFailedPartitionsAreCounted(t *testing.T) {
	b := newBench(t)
	conn := plainConn()
	produce := kmsg.NewPtrProduceRequest()
	produce.Version, produce.Acks = 9, 1
	produce.Topics = []kmsg.ProduceRequestTopic{{Topic: "nobody", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: []byte("no batch")}}}}
	b.serve(conn, frameOf(produce, "client"))
	b.replicas.fetch = func(context.Context, *replica.FetchRequest) []replica.FetchResult {
		return []replica.FetchResult{{Err: protocol.UnknownTopicOrPartition, Leader: -1}}
	}
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version, fetch.ReplicaID, fetch.SessionEpoch = 12, -1, -1
	fetch.Topics = []kmsg.FetchRequestTopic{{Topic: "nobody", Partitions: []kmsg.FetchRequestTopicPartition{kmsg.NewFetchRequestTopicPartition()}}}
	b.serve(conn, frameOf(fetch, "client"))
	for _, s := range b.Requests() {
		if s.Errors != 1 {
			t.Errorf("%+v", s)
		}
	}
	if n := len(b.Requests()); n != 2 {
		t.Errorf("%d kinds of requests", n)
	}
}
