package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

type memFile struct{ *bytes.Reader }

func (memFile) Fd() uintptr { return ^uintptr(0) }

func drawRecords(t *rapid.T) []Span {
	var spans []Span
	for range rapid.IntRange(0, 3).Draw(t, "spans") {
		b := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "records")
		if rapid.Bool().Draw(t, "file") {
			file := append([]byte("skipped"), b...)
			spans = append(spans, Span{File: memFile{bytes.NewReader(file)}, Off: 7, Len: int64(len(b))})
		} else {
			spans = append(spans, MemSpan(b))
		}
	}
	return spans
}

func drawPartition(t *rapid.T) FetchPartition {
	i64 := func(name string) int64 { return rapid.Int64().Draw(t, name) }
	i32 := func(name string) int32 { return rapid.Int32().Draw(t, name) }
	p := NewFetchPartition(i32("partition"))
	p.ErrorCode = ErrorCode(rapid.Int16().Draw(t, "error"))
	p.HighWatermark, p.LastStableOffset, p.LogStartOffset = i64("hw"), i64("lso"), i64("start")
	p.PreferredReplica = i32("preferred")
	for range rapid.IntRange(0, 3).Draw(t, "aborted") {
		p.Aborted = append(p.Aborted, FetchAborted{i64("pid"), i64("first")})
	}
	if p.Aborted == nil && rapid.Bool().Draw(t, "empty, not null") {
		p.Aborted = []FetchAborted{}
	}
	p.Records = drawRecords(t)
	if rapid.Bool().Draw(t, "diverging") {
		p.Diverging = &FetchEpochEnd{rapid.Int32Min(0).Draw(t, "epoch"), i64("end")}
	}
	if rapid.Bool().Draw(t, "leader") {
		p.CurrentLeader = &FetchLeader{rapid.Int32Min(0).Draw(t, "leader id"), i32("leader epoch")}
	}
	if rapid.Bool().Draw(t, "snapshot") {
		p.Snapshot = &FetchSnapshotID{rapid.Int64Min(0).Draw(t, "snapshot end"), i32("snapshot epoch")}
	}
	return p
}

func drawFetchResponse(t *rapid.T) *FetchResponse {
	r := &FetchResponse{
		ThrottleMs: rapid.Int32().Draw(t, "throttle"),
		ErrorCode:  ErrorCode(rapid.Int16().Draw(t, "error")),
		SessionID:  rapid.Int32().Draw(t, "session"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "topics") {
		topic := FetchTopic{Topic: rapid.StringN(0, 20, 200).Draw(t, "topic"), TopicID: UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))}
		for range rapid.IntRange(0, 4).Draw(t, "partitions") {
			topic.Partitions = append(topic.Partitions, drawPartition(t))
		}
		r.Topics = append(r.Topics, topic)
	}
	for range rapid.IntRange(0, 12).Draw(t, "nodes") {
		r.Nodes = append(r.Nodes, FetchNode{rapid.Int32().Draw(t, "node"), rapid.StringN(0, 300, 400).Draw(t, "host"), rapid.Int32().Draw(t, "port"), rapid.StringN(0, 3, 10).Draw(t, "rack")})
	}
	return r
}

// asKmsg is the response as kmsg would build it.
func asKmsg(t *rapid.T, r *FetchResponse, version int16) *kmsg.FetchResponse {
	out := kmsg.NewPtrFetchResponse()
	out.Version, out.ThrottleMillis = version, r.ThrottleMs
	out.ErrorCode, out.SessionID = int16(r.ErrorCode), r.SessionID
	for _, topic := range r.Topics {
		kt := kmsg.NewFetchResponseTopic()
		kt.Topic, kt.TopicID = topic.Topic, topic.TopicID
		for _, p := range topic.Partitions {
			kt.Partitions = append(kt.Partitions, partitionAsKmsg(t, p))
		}
		out.Topics = append(out.Topics, kt)
	}
	for _, n := range r.Nodes {
		kn := kmsg.NewFetchResponseBroker()
		kn.NodeID, kn.Host, kn.Port = n.NodeID, n.Host, n.Port
		if n.Rack != "" {
			kn.Rack = kmsg.StringPtr(n.Rack)
		}
		// kmsg writes the tag in all flexible versions, Kafka from 16 on.
		if version >= 16 {
			out.Brokers = append(out.Brokers, kn)
		}
	}
	return out
}

func partitionAsKmsg(t *rapid.T, p FetchPartition) kmsg.FetchResponseTopicPartition {
	kp := kmsg.NewFetchResponseTopicPartition()
	kp.Partition, kp.ErrorCode = p.Partition, int16(p.ErrorCode)
	kp.HighWatermark, kp.LastStableOffset, kp.LogStartOffset = p.HighWatermark, p.LastStableOffset, p.LogStartOffset
	kp.PreferredReadReplica = p.PreferredReplica
	if p.Aborted != nil {
		kp.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
	}
	for _, a := range p.Aborted {
		ka := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
		ka.ProducerID, ka.FirstOffset = a.ProducerID, a.FirstOffset
		kp.AbortedTransactions = append(kp.AbortedTransactions, ka)
	}
	kp.RecordBatches = flatten(t, p.Records)
	if d := p.Diverging; d != nil {
		kp.DivergingEpoch.Epoch, kp.DivergingEpoch.EndOffset = d.Epoch, d.EndOffset
	}
	if l := p.CurrentLeader; l != nil {
		kp.CurrentLeader.LeaderID, kp.CurrentLeader.LeaderEpoch = l.LeaderID, l.LeaderEpoch
	}
	if s := p.Snapshot; s != nil {
		kp.SnapshotID.EndOffset, kp.SnapshotID.Epoch = s.EndOffset, s.Epoch
	}
	return kp
}

func flatten(t interface{ Fatal(...any) }, spans []Span) []byte {
	out := []byte{}
	for _, s := range spans {
		var err error
		if out, err = s.AppendTo(out); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestFetchResponseAgainstKmsg draws responses and demands the very bytes that
// kmsg writes, and that kmsg reads them back to the same bytes.
func TestFetchResponseAgainstKmsg(t *testing.T) {
	r, _ := RangeOf(KeyFetch)
	rapid.Check(t, func(t *rapid.T) {
		version := rapid.Int16Range(r.Min, r.Max).Draw(t, "version")
		resp := drawFetchResponse(t)
		spans := AppendFetchResponse(resp, version, 99)
		frame := flatten(t, spans)
		if int64(len(frame)) != SpansLen(spans) || int(binary.BigEndian.Uint32(frame)) != len(frame)-4 {
			t.Fatalf("frame of %d bytes says % x", len(frame), frame[:4])
		}
		head := AppendResponseHeader(nil, KeyFetch, version, 99)
		body, ok := bytes.CutPrefix(frame[4:], head)
		if !ok {
			t.Fatalf("frame begins with % x", frame[:12])
		}
		want := asKmsg(t, resp, version).AppendTo(nil)
		if !bytes.Equal(body, want) {
			t.Fatalf("version %d\n got % x\nwant % x", version, body, want)
		}
		back := kmsg.NewPtrFetchResponse()
		back.Version = version
		if err := back.ReadFrom(body); err != nil {
			t.Fatal(err)
		}
		if again := back.AppendTo(nil); !bytes.Equal(again, body) {
			t.Fatalf("version %d\n got back % x\nwant % x", version, again, body)
		}
	})
}

func TestFetchResponsePassesSpansThrough(t *testing.T) {
	released := 0
	file := Span{File: memFile{bytes.NewReader(make([]byte, 100))}, Off: 10, Len: 50, Release: func() { released++ }}
	p := NewFetchPartition(0)
	p.Records = []Span{file}
	resp := &FetchResponse{Topics: []FetchTopic{{Topic: "t", Partitions: []FetchPartition{p, p}}}}
	spans := AppendFetchResponse(resp, 12, 1)
	files := 0
	for _, s := range spans {
		if s.File != nil {
			files++
			if s.Off != 10 || s.Len != 50 {
				t.Errorf("span %+v", s)
			}
		}
	}
	if files != 2 || spans[0].File != nil || released != 0 {
		t.Fatalf("%d file spans, %d releases before any", files, released)
	}
	ReleaseSpans(spans)
	ReleaseSpans(spans)
	if released != 2 {
		t.Errorf("%d releases", released)
	}
}

type brokenFile struct{ err error }

func (f brokenFile) ReadAt(p []byte, _ int64) (int, error) { return len(p) / 2, f.err }
func (brokenFile) Fd() uintptr                             { return ^uintptr(0) }

func TestSpanOfShortFile(t *testing.T) {
	var corrupt *CorruptionError
	got, err := Span{File: brokenFile{io.EOF}, Len: 10}.AppendTo([]byte("x"))
	if !errors.As(err, &corrupt) || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := (Span{File: brokenFile{io.ErrClosedPipe}, Len: 10}).AppendTo(nil); err != io.ErrClosedPipe {
		t.Error(err)
	}
}

func BenchmarkFetchResponse(b *testing.B) {
	resp := &FetchResponse{}
	for range 10 {
		p := NewFetchPartition(1)
		p.Records = []Span{MemSpan(make([]byte, 10))}
		resp.Topics = append(resp.Topics, FetchTopic{Topic: "some-topic", Partitions: []FetchPartition{p}})
	}
	b.ReportAllocs()
	for b.Loop() {
		AppendFetchResponse(resp, 12, 1)
	}
}
