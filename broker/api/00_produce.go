package api

import (
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/netio"
	"varve/broker/replica"
	"varve/protocol"
	"varve/protocol/record"
)

// Produce, key 0, versions 3 to 13 (ProduceRequest.json; 0 to 2 are advertised
// because old librdkafka stops compressing otherwise, KAFKA-18659, and closed
// like any version that is not served).
//
// Each partition carries exactly one magic 2 batch, else InvalidRecord. Of a
// partition that is named twice the last batch counts and there is one answer,
// as Kafka's map has it. zstd needs version 7 (UnsupportedCompressionType). A
// transactional batch is InvalidTxnState: no transaction can have been begun
// here. acks=0 gets no answer; if anything failed the connection is closed
// instead. Record errors and messages go out from version 8, the leader to try
// instead from version 10 (KIP-951), topic ids instead of names from version 13.
func (d *Dispatcher) produce(c call, req *kmsg.ProduceRequest, done func(netio.Reply)) {
	p := newProduceCall()
	p.d, p.call, p.acks, p.done = d, c, req.Acks, done
	p.resp.Version = req.Version
	app := p.read(req, c.header.ClientID)
	if len(app.Partitions) == 0 {
		p.finish(nil)
		return
	}
	d.o.Replicas.Append(app, p.take)
}

// produceCall is one request while it is worked on. It is reused once its reply
// has been sent. What the replicas get is not part of it: they may look at that
// a moment longer.
type produceCall struct {
	d    *Dispatcher
	call call
	acks int16
	done func(netio.Reply)

	resp kmsg.ProduceResponse
	sent []place // of each partition that went to the replicas
	buf  []byte

	free func()                       // release, bound once
	take func([]replica.AppendResult) // finish, likewise
}

// place is where in the response a partition's answer stands.
type place struct{ topic, partition int }

// produceKey names a partition by whatever the request's version names it by.
type produceKey struct {
	topic     string
	id        protocol.UUID
	partition int32
}

var produceCalls sync.Pool

func newProduceCall() *produceCall {
	if p, ok := produceCalls.Get().(*produceCall); ok {
		return p
	}
	p := &produceCall{}
	p.free, p.take = p.release, p.finish
	return p
}

// maxReplyBufferBytes is the largest buffer that is kept for the next request.
const maxReplyBufferBytes = 64 << 10

func (p *produceCall) release() {
	clean := produceCall{free: p.free, take: p.take}
	if cap(p.buf) <= maxReplyBufferBytes {
		clean.buf, clean.sent, clean.resp.Topics = p.buf[:0], p.sent[:0], p.resp.Topics[:0]
	}
	*p = clean
	produceCalls.Put(p)
}

// read lays the response out in the request's order and collects what goes to
// the replicas.
func (p *produceCall) read(req *kmsg.ProduceRequest, clientID string) *replica.AppendRequest {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	app := &replica.AppendRequest{
		Acks:           req.Acks,
		Timeout:        time.Duration(max(req.TimeoutMillis, 0)) * time.Millisecond,
		InternalTopics: clientID == adminClientID,
		Partitions:     make([]replica.AppendPartition, 0, n),
	}
	var topics map[produceKey]int // partition 0 stands for the topic
	var twice map[produceKey]int  // place in app.Partitions
	if n > 1 {
		topics, twice = make(map[produceKey]int, len(req.Topics)), make(map[produceKey]int, n)
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		key := produceKey{topic: t.Topic, id: t.TopicID}
		at := p.topic(key, topics)
		for _, part := range t.Partitions {
			q := replica.AppendPartition{Topic: t.Topic, TopicID: t.TopicID, Partition: part.Partition, Records: part.Records}
			key.partition = part.Partition
			if before, ok := twice[key]; ok {
				app.Partitions[before] = q
				continue
			}
			if twice != nil {
				twice[key] = len(app.Partitions)
			}
			p.sent = append(p.sent, place{at, p.partition(at, part.Partition)})
			app.Partitions = append(app.Partitions, q)
		}
	}
	p.refuse(app)
	return app
}

// topic returns the place of a topic in the response, adding it if it is new.
func (p *produceCall) topic(key produceKey, topics map[produceKey]int) int {
	if at, ok := topics[key]; ok {
		return at
	}
	at := len(p.resp.Topics)
	if topics != nil {
		topics[key] = at
	}
	p.resp.Topics = grow(p.resp.Topics)
	t := &p.resp.Topics[at]
	*t = kmsg.ProduceResponseTopic{Topic: key.topic, TopicID: key.id, Partitions: t.Partitions[:0]}
	return at
}

// partition adds an answer to a topic and returns its place.
func (p *produceCall) partition(topic int, index int32) int {
	t := &p.resp.Topics[topic]
	t.Partitions = append(t.Partitions, kmsg.NewProduceResponseTopicPartition())
	out := &t.Partitions[len(t.Partitions)-1]
	out.Partition, out.BaseOffset = index, -1
	return len(t.Partitions) - 1
}

// grow lengthens a slice by one, keeping what an earlier use left in its place.
func grow[T any](s []T) []T {
	if len(s) < cap(s) {
		return s[:len(s)+1]
	}
	var zero T
	return append(s, zero)
}

// refuse answers the batches that are wrong in themselves and takes them out of
// what goes to the replicas.
func (p *produceCall) refuse(app *replica.AppendRequest) {
	kept := 0
	for i := range app.Partitions {
		if err := checkBatch(p.call.header.Version, &app.Partitions[i]); err != nil {
			p.answer(p.sent[i], &replica.AppendResult{
				Err: protocol.CodeOf(err), Message: protocol.MessageOf(err),
				BaseOffset: -1, LogAppendTime: -1, LogStart: -1, Leader: -1, LeaderEpoch: -1,
			})
			continue
		}
		app.Partitions[kept], p.sent[kept] = app.Partitions[i], p.sent[i]
		kept++
	}
	app.Partitions, p.sent = app.Partitions[:kept], p.sent[:kept]
}

// checkBatch is ProduceRequest.validateRecords, as far as it depends on the
// request's version; and there are no transactions yet.
func checkBatch(version int16, q *replica.AppendPartition) error {
	records := q.Records
	if version >= 13 && q.TopicID.IsZero() {
		return protocol.Errorf(protocol.UnknownTopicID, "Produce requests with version %d name topics by their ids", version)
	}
	if len(records) < record.HeaderLen {
		return protocol.Errorf(protocol.InvalidRecord, "Produce requests with version %d must have at least one record batch per partition", version)
	}
	switch magic := int8(records[16]); {
	case magic < 0 || magic > 2:
		return protocol.Errorf(protocol.CorruptMessage, "a record batch of magic version %d", magic)
	case magic != 2:
		return protocol.Errorf(protocol.InvalidRecord, "Produce requests with version %d are only allowed to contain record batches with magic version 2, not %d", version, magic)
	}
	b := record.Batch(records)
	if version < 7 && b.Codec() == record.Zstd {
		return protocol.Errorf(protocol.UnsupportedCompressionType, "Produce requests with version %d are not allowed to use ZStandard compression", version)
	}
	if b.Transactional() {
		return protocol.Errorf(protocol.InvalidTxnState, "transactions are not served")
	}
	return nil
}

// adminClientID is the client id that may write to internal topics (AdminUtils.ADMIN_CLIENT_ID).
const adminClientID = "__admin_client"

// answer writes one result into its place.
func (p *produceCall) answer(at place, r *replica.AppendResult) {
	out := &p.resp.Topics[at.topic].Partitions[at.partition]
	out.ErrorCode = int16(r.Err)
	out.BaseOffset, out.LogAppendTime, out.LogStartOffset = r.BaseOffset, r.LogAppendTime, r.LogStart
	if r.Err == protocol.None {
		return
	}
	if r.Message != "" {
		out.ErrorMessage = ptr(r.Message)
	}
	for _, e := range r.RecordErrors {
		bad := kmsg.NewProduceResponseTopicPartitionErrorRecord()
		bad.RelativeOffset, bad.ErrorMessage = e.Index, ptr(e.Message)
		out.ErrorRecords = append(out.ErrorRecords, bad)
	}
	if p.call.header.Version >= 10 && r.Leader >= 0 {
		out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = r.Leader, r.LeaderEpoch
		p.addNode(r.Leader)
	}
}

// addNode tells where a leader is, once.
func (p *produceCall) addNode(id int32) {
	for _, b := range p.resp.Brokers {
		if b.NodeID == id {
			return
		}
	}
	if n, ok := nodeOf(p.d.o.Cluster(), id, p.call.conn.Listener); ok {
		b := kmsg.NewProduceResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = n.id, n.host, n.port, n.rack
		p.resp.Brokers = append(p.resp.Brokers, b)
	}
}

// finish takes the replicas' results and sends the reply.
func (p *produceCall) finish(results []replica.AppendResult) {
	for i := range results {
		p.answer(p.sent[i], &results[i])
	}
	p.d.count(&p.call, p.failed())
	done := p.done
	if p.acks == 0 {
		reply := netio.Reply{None: true}
		if err := p.failure(); err != nil {
			reply = closeFor(p.call.header, err)
		}
		p.release()
		done(reply)
		return
	}
	p.buf = protocol.Encode(p.buf[:0], &p.resp, p.call.header.CorrelationID)
	// The vector itself is not reused: netio still looks at it after Release.
	done(netio.Reply{Spans: []protocol.Span{{Bytes: p.buf, Len: int64(len(p.buf)), Release: p.free}}})
}

func (p *produceCall) failed() bool {
	for i := range p.resp.Topics {
		for j := range p.resp.Topics[i].Partitions {
			if p.resp.Topics[i].Partitions[j].ErrorCode != 0 {
				return true
			}
		}
	}
	return false
}

// failure names the first error of the response.
func (p *produceCall) failure() error {
	for _, t := range p.resp.Topics {
		for _, part := range t.Partitions {
			if part.ErrorCode != 0 {
				return fmt.Errorf("acks=0 and partition %s-%d failed: %w", t.Topic, part.Partition, protocol.ErrorCode(part.ErrorCode))
			}
		}
	}
	return nil
}
