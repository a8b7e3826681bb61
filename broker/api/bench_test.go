package api

import (
	"context"
	"testing"

	"varve/broker/netio"
	"varve/broker/replica"
	"varve/protocol"
	"varve/protocol/record"
)

// instant answers at once and keeps nothing.
type instant struct{ fakeReplicas }

func (i *instant) Append(req *replica.AppendRequest, done func([]replica.AppendResult)) {
	done(make([]replica.AppendResult, len(req.Partitions)))
}

func (i *instant) Fetch(_ context.Context, req *replica.FetchRequest) []replica.FetchResult {
	return make([]replica.FetchResult, len(req.Partitions))
}

// BenchmarkProduce and BenchmarkFetch are what decoding, dispatching and
// encoding cost beside the replicas' own work.
func BenchmarkProduce(b *testing.B) {
	d := newBench(b)
	d.o.Replicas = &instant{}
	frame, conn := frameOf(produceRequest(9, 1, testBatch(b, record.None)), "client"), plainConn()
	b.ReportAllocs()
	for b.Loop() {
		d.Serve(b.Context(), conn, frame, func(r netio.Reply) { protocol.ReleaseSpans(r.Spans) })
	}
}

func BenchmarkFetch(b *testing.B) {
	d := newBench(b)
	d.o.Replicas = &instant{}
	frame, conn := frameOf(fetchRequest(12), "client"), plainConn()
	b.ReportAllocs()
	for b.Loop() {
		d.Serve(b.Context(), conn, frame, func(r netio.Reply) { protocol.ReleaseSpans(r.Spans) })
	}
}
