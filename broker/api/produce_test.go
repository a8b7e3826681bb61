package api

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/netio"
	"varve/broker/replica"
	"varve/protocol"
	"varve/protocol/record"
)

func testBatch(t testing.TB, codec record.Codec) []byte {
	t.Helper()
	bl := record.NewBuilder(record.Options{Codec: codec})
	if err := bl.Add(1000, []byte("key"), []byte("value")); err != nil {
		t.Fatal(err)
	}
	b, err := bl.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// produceRequest asks for one batch to a-0.
func produceRequest(version, acks int16, records []byte) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis = version, acks, 1500
	r.Topics = []kmsg.ProduceRequestTopic{{Topic: "a", TopicID: idA, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: 0, Records: records}}}}
	return r
}

func TestProduce(t *testing.T) {
	records := testBatch(t, record.Gzip)
	for _, async := range []bool{false, true} {
		b := newBench(t)
		b.replicas.async = async
		for v := int16(3); v <= 13; v++ {
			resp := ask[*kmsg.ProduceResponse](b, produceRequest(v, -1, records))
			p := resp.Topics[0].Partitions[0]
			if p.ErrorCode != 0 || p.BaseOffset != 100 || p.LogAppendTime != -1 || p.CurrentLeader.LeaderID != -1 {
				t.Fatalf("version %d: %+v", v, resp)
			}
			if v >= 5 && p.LogStartOffset != 3 {
				t.Fatalf("version %d: %+v", v, resp)
			}
			got := b.replicas.lastAppend()
			q := got.Partitions[0]
			if got.Acks != -1 || got.Timeout != 1500*time.Millisecond || got.InternalTopics || !bytes.Equal(q.Records, records) {
				t.Fatalf("%+v", got)
			}
			if v >= 13 && (q.TopicID != idA || resp.Topics[0].TopicID != idA) || v < 13 && (q.Topic != "a" || resp.Topics[0].Topic != "a") {
				t.Fatalf("version %d: %+v, %+v", v, q, resp)
			}
		}
	}
}

func TestProduceErrors(t *testing.T) {
	b := newBench(t)
	b.replicas.append = func(*replica.AppendRequest) []replica.AppendResult {
		return []replica.AppendResult{{
			Err: protocol.InvalidRecord, Message: "no", BaseOffset: -1, LogAppendTime: -1, LogStart: 4, Leader: -1,
			RecordErrors: []record.RecordError{{Index: 3, Message: "bad"}},
		}}
	}
	p := ask[*kmsg.ProduceResponse](b, produceRequest(13, 1, testBatch(t, record.None))).Topics[0].Partitions[0]
	if p.ErrorCode != 87 || *p.ErrorMessage != "no" || len(p.ErrorRecords) != 1 || p.ErrorRecords[0].RelativeOffset != 3 || *p.ErrorRecords[0].ErrorMessage != "bad" {
		t.Fatalf("%+v", p)
	}
	// What one request left behind does not show in the next.
	b.replicas.append = nil
	p = ask[*kmsg.ProduceResponse](b, produceRequest(13, 1, testBatch(t, record.None))).Topics[0].Partitions[0]
	if p.ErrorCode != 0 || p.ErrorMessage != nil || len(p.ErrorRecords) != 0 {
		t.Fatalf("%+v", p)
	}
}

// The leader to try instead is told from version 10 on, once for each node.
func TestProduceNamesTheLeader(t *testing.T) {
	b := newBench(t)
	b.replicas.append = func(req *replica.AppendRequest) (out []replica.AppendResult) {
		for range req.Partitions {
			out = append(out, replica.AppendResult{Err: protocol.NotLeaderOrFollower, BaseOffset: -1, LogAppendTime: -1, LogStart: -1, Leader: 2, LeaderEpoch: 7})
		}
		return out
	}
	for v := int16(9); v <= 12; v++ {
		req := produceRequest(v, 1, testBatch(t, record.None))
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, kmsg.ProduceRequestTopicPartition{Partition: 1, Records: testBatch(t, record.None)})
		resp := ask[*kmsg.ProduceResponse](b, req)
		p := resp.Topics[0].Partitions[0]
		if v < 10 {
			if p.CurrentLeader.LeaderID != -1 || len(resp.Brokers) != 0 {
				t.Fatalf("version %d: %+v", v, resp)
			}
			continue
		}
		if p.CurrentLeader.LeaderID != 2 || p.CurrentLeader.LeaderEpoch != 7 || len(resp.Brokers) != 1 || resp.Brokers[0].Port != 9002 {
			t.Fatalf("version %d: %+v", v, resp)
		}
	}
}

func TestProduceRefusesBatches(t *testing.T) {
	good := testBatch(t, record.None)
	zstd := testBatch(t, record.Zstd)
	oldMagic := bytes.Clone(good)
	oldMagic[16] = 1
	txn := bytes.Clone(good)
	txn[22] |= 0x10
	for _, tc := range []struct {
		name    string
		version int16
		records []byte
		want    protocol.ErrorCode
	}{
		{"null", 9, nil, protocol.InvalidRecord},
		{"empty", 9, []byte{}, protocol.InvalidRecord},
		{"half a header", 9, good[:40], protocol.InvalidRecord},
		{"magic 1", 9, oldMagic, protocol.InvalidRecord},
		{"transactional", 9, txn, protocol.InvalidTxnState},
		{"zstd before version 7", 6, zstd, protocol.UnsupportedCompressionType},
		{"zstd in version 7", 7, zstd, protocol.None},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			p := ask[*kmsg.ProduceResponse](b, produceRequest(tc.version, 1, tc.records)).Topics[0].Partitions[0]
			if p.ErrorCode != int16(tc.want) || (tc.want != 0) != (p.BaseOffset == -1) {
				t.Fatalf("%+v", p)
			}
			if tc.want != 0 && b.replicas.lastAppend() != nil {
				t.Fatal("passed on to the replicas")
			}
		})
	}
}

// One bad batch does not stop the others, and each answer stands in its place.
func TestProduceManyPartitions(t *testing.T) {
	b := newBench(t)
	good := testBatch(t, record.None)
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = 9, 1
	for ti := range 3 {
		topic := kmsg.ProduceRequestTopic{Topic: fmt.Sprint("t", ti)}
		for pi := range int32(4) {
			records := good
			if pi == int32(ti) {
				records = good[:10]
			}
			topic.Partitions = append(topic.Partitions, kmsg.ProduceRequestTopicPartition{Partition: pi, Records: records})
		}
		req.Topics = append(req.Topics, topic)
	}
	for range 3 { // the call's memory is reused
		resp := ask[*kmsg.ProduceResponse](b, req)
		offset := int64(100)
		for ti, topic := range resp.Topics {
			for pi, p := range topic.Partitions {
				want := offset
				if pi == ti {
					want = -1
				} else {
					offset++
				}
				if topic.Topic != fmt.Sprint("t", ti) || p.Partition != int32(pi) || p.BaseOffset != want || (p.ErrorCode == 87) != (pi == ti) {
					t.Fatalf("%s-%d: %+v", topic.Topic, pi, p)
				}
			}
		}
		if offset != 109 {
			t.Fatal(offset)
		}
	}
}

// Of a partition that is named twice the last batch counts, with one answer.
func TestProduceSamePartitionTwice(t *testing.T) {
	b := newBench(t)
	one, two := testBatch(t, record.None), testBatch(t, record.Gzip)
	req := produceRequest(9, 1, one)
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, kmsg.ProduceRequestTopicPartition{Partition: 5, Records: one})
	req.Topics = append(req.Topics, kmsg.ProduceRequestTopic{Topic: "a", Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: 0, Records: two}}})
	resp := ask[*kmsg.ProduceResponse](b, req)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 2 {
		t.Fatalf("%+v", resp)
	}
	got := b.replicas.lastAppend()
	if len(got.Partitions) != 2 || !bytes.Equal(got.Partitions[0].Records, two) || !bytes.Equal(got.Partitions[1].Records, one) {
		t.Fatalf("%+v", got)
	}
}

func TestProduceAcksZero(t *testing.T) {
	b := newBench(t)
	r := b.serve(plainConn(), frameOf(produceRequest(9, 0, testBatch(t, record.None)), "c"))
	if !r.None || r.Close || r.Spans != nil {
		t.Fatalf("%+v", r)
	}
	r = b.serve(plainConn(), frameOf(produceRequest(9, 0, nil), "c"))
	if !r.None || !r.Close || protocol.CodeOf(r.Cause) != protocol.InvalidRecord {
		t.Fatalf("%+v", r)
	}
}

func TestProduceInternalTopics(t *testing.T) {
	b := newBench(t)
	askAs[*kmsg.ProduceResponse](b, produceRequest(9, 1, testBatch(t, record.None)), "__admin_client")
	if !b.replicas.lastAppend().InternalTopics {
		t.Fatal("the admin client may not write to internal topics")
	}
}

func TestProduceNothing(t *testing.T) {
	b := newBench(t)
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = 9, 1
	if resp := ask[*kmsg.ProduceResponse](b, req); len(resp.Topics) != 0 {
		t.Fatalf("%+v", resp)
	}
}

// Calls are reused across connections and goroutines without mixing.
func TestProduceConcurrently(t *testing.T) {
	b := newBench(t)
	b.replicas.append = func(req *replica.AppendRequest) []replica.AppendResult {
		return []replica.AppendResult{{BaseOffset: int64(req.Partitions[0].Partition) * 1000, LogAppendTime: -1, LogStart: -1, Leader: -1}}
	}
	b.replicas.async = true
	records := testBatch(t, record.None)
	var wg sync.WaitGroup
	for w := range int32(8) {
		wg.Go(func() {
			for range 100 {
				req := produceRequest(9, 1, records)
				req.Topics[0].Partitions[0].Partition = w
				got := make(chan netio.Reply, 1)
				b.Serve(t.Context(), plainConn(), frameOf(req, "c"), func(r netio.Reply) { got <- r })
				r := <-got
				resp := decode(t, req, wire(t, r)).(*kmsg.ProduceResponse)
				if p := resp.Topics[0].Partitions[0]; p.Partition != w || p.BaseOffset != int64(w)*1000 {
					t.Errorf("%+v", p)
				}
			}
		})
	}
	wg.Wait()
}
