package replica

import (
	"context"
	"strings"
	"testing"

	"varve/protocol"
)

// BenchmarkAppend is the hot path: one batch of 16 KiB, acks=all, this broker alone in sync.
func BenchmarkAppend(b *testing.B) {
	n, book := newNode(b, nodeOptions{})
	book.topic("a", 1, []int32{self}, "internal.segment.bytes", "100000000")
	n.awaitState("a", 0, StateLeader)
	batch := batchOf(strings.Repeat("x", 16<<10))
	req := &AppendRequest{Acks: AcksAll, Partitions: []AppendPartition{{Topic: "a", Records: batch}}}
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		n.m.Append(req, func(r []AppendResult) {
			if r[0].Err != protocol.None {
				b.Fatal(r[0].Err)
			}
		})
	}
}

// BenchmarkFetch is a hot fetch of one partition in the middle of its log.
func BenchmarkFetch(b *testing.B) {
	n, book := newNode(b, nodeOptions{})
	book.topic("a", 1, []int32{self})
	n.awaitState("a", 0, StateLeader)
	for range 1000 {
		n.mustProduce("a", strings.Repeat("x", 1<<10))
	}
	req := fetchReq("a", 500)
	b.ReportAllocs()
	for b.Loop() {
		r := n.m.Fetch(context.Background(), req)
		protocol.ReleaseSpans(r[0].Spans)
	}
}
