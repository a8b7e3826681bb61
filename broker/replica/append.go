package replica

import (
	"context"
	"errors"
	"io"
	"time"

	"varve/broker/commitlog"
	"varve/protocol"
	"varve/protocol/record"
)

// Append writes the batches of a produce request and calls done exactly once: before it returns where nothing has to be
// waited for, else from whatever ends the wait; see startGrace for the one case in which it blocks. done must be quick and must not block; results belong to it.
//
// Errors in results are Kafka's, in ReplicaManager.appendRecords' order: InvalidRequiredAcks, InvalidTopicException,
// those of find, NotLeaderOrFollower, NotEnoughReplicas, the batch's own (InvalidRecord, CorruptMessage,
// RecordListTooLarge ... from package commitlog), KafkaStorageError; after a wait RequestTimedOut,
// NotEnoughReplicasAfterAppend, NotLeaderOrFollower or UnknownTopicOrPartition, though the batch is in the log then.
func (m *Manager) Append(req *AppendRequest, done func([]AppendResult)) {
	results := make([]AppendResult, len(req.Partitions))
	var waits []appended
	var until time.Time
	for i := range req.Partitions {
		q := &req.Partitions[i]
		a := m.appendOne(req, q, &results[i])
		if results[i].Err == protocol.NotLeaderOrFollower {
			if until.IsZero() {
				until = m.now().Add(min(req.Timeout, startGrace))
			}
			if m.awaitLead(context.Background(), until, q.Topic, q.TopicID, q.Partition) {
				a = m.appendOne(req, q, &results[i])
			}
		}
		if a.p != nil {
			a.index = i
			waits = append(waits, a)
		}
	}
	if len(waits) == 0 {
		done(results)
		return
	}
	m.delay(req, results, waits, done)
}

// appended is a batch that was written and has not yet reached what its producer asked for.
type appended struct {
	p     *partition
	index int
	next  int64 // offset after the batch
	epoch int32
	disk  bool
}

// appendOne writes one batch and fills its result; what it returns has a partition if there is something to wait for.
func (m *Manager) appendOne(req *AppendRequest, q *AppendPartition, res *AppendResult) (wait appended) {
	*res = AppendResult{BaseOffset: -1, LogAppendTime: -1, LogStart: -1, Leader: -1, LeaderEpoch: -1}
	if req.Acks < AcksAll || req.Acks > AcksLeader {
		res.fail(protocol.InvalidRequiredAcks)
		return wait
	}
	p, err := m.find(q.Topic, q.TopicID, q.Partition)
	if err != nil {
		res.fail(err)
		if res.Err == protocol.NotLeaderOrFollower {
			res.Leader, res.LeaderEpoch = m.leaderOf(q.Topic, q.TopicID, q.Partition)
		}
		return wait
	}
	p.count.produces.Add(1)
	if p.count.internal && !req.InternalTopics {
		res.fail(protocol.Errorf(protocol.InvalidTopicException, "cannot append to internal topic %s", p.topic))
		return wait
	}
	b, err := oneBatch(q.Records)
	if err != nil {
		p.appendFailed(res, p.role.Load(), err)
		return wait
	}
	before := p.hw.Load()
	info, r, err := p.append(b, req.Acks)
	if err != nil {
		res.RecordErrors = info.RecordErrors
		p.appendFailed(res, r, err)
		return wait
	}
	res.BaseOffset, res.LogAppendTime, res.LogStart = info.FirstOffset, info.LogAppendTime, info.LogStart
	if !info.Duplicate {
		p.count.bytesIn.Add(int64(len(b)))
		p.count.messagesIn.Add(int64(b.Count()))
		p.sealed(r, int64(len(b)))
	}
	p.settle(!info.Duplicate, before)
	return p.owed(r, req.Acks, info)
}

// owed says what an append still has to wait for: under acks=all the high watermark, under acks=1 the disk where
// flush.messages=1 makes the durable end lag. Kafka flushes inside the append then, so that acks=1 has the same meaning.
func (p *partition) owed(r *role, acks int16, info commitlog.AppendInfo) appended {
	next := info.LastOffset + 1
	a := appended{p: p, next: next, epoch: r.leaderEpoch}
	switch {
	case acks == AcksAll && p.hw.Load() < next:
		return a
	case acks == AcksAll && p.role.Load().underMinISR():
		return a // settle answers NotEnoughReplicasAfterAppend
	case acks == AcksLeader && r.log.DurableEnd() < next:
		a.disk = true
		return a
	}
	return appended{}
}

// oneBatch takes exactly one batch, as Produce v3 and later demand (ProduceRequest.validateRecords).
func oneBatch(records []byte) (record.Batch, error) {
	if len(records) == 0 {
		return nil, protocol.Errorf(protocol.InvalidRecord, "a partition without a record batch")
	}
	b, rest, err := record.Next(records)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		// Kafka's iterator sees no batch at all where it is not whole (ByteBufferLogInputStream).
		return nil, protocol.Errorf(protocol.InvalidRecord, "a partition without a whole record batch")
	case err != nil:
		return nil, err
	case len(rest) > 0:
		return nil, protocol.Errorf(protocol.InvalidRecord, "more than one record batch for one partition")
	}
	return b, nil
}

func (res *AppendResult) fail(err error) {
	res.Err = protocol.CodeOf(err)
	res.Message = protocol.MessageOf(err)
}

// appendFailed fills a result and counts what Kafka counts as failed: errors that are not the client's.
func (p *partition) appendFailed(res *AppendResult, r *role, err error) {
	res.fail(err)
	switch res.Err {
	case protocol.NotLeaderOrFollower, protocol.FencedLeaderEpoch:
		res.Leader, res.LeaderEpoch = r.leader, r.leaderEpoch
	case protocol.UnknownTopicOrPartition, protocol.MessageTooLarge, protocol.RecordListTooLarge, protocol.CorruptMessage:
	case protocol.KafkaStorageError:
		if room := (*commitlog.NoRoomError)(nil); !r.noRoom && !errors.As(err, &room) {
			p.storageFailed(err)
		}
	default:
		p.count.failedProduces.Add(1)
		if r.log != nil {
			res.LogStart = r.log.LogStart()
		}
	}
	if res.Err == protocol.UnknownServerError {
		var inv *protocol.InvariantError
		if errors.As(err, &inv) {
			p.m.events.Emit(PartitionFailed{Topic: p.topic, Partition: p.index, Doing: "append", Err: err})
		}
	}
}

// delay makes the request wait. It holds one share of the request itself, so that done is not called before all entries
// stand in their queues.
func (m *Manager) delay(req *AppendRequest, results []AppendResult, waits []appended, done func([]AppendResult)) {
	d := &delayedAppend{
		queue: m.deadlines, done: done, results: results, place: -1,
		deadline: m.now().Add(req.Timeout), open: len(waits) + 1,
	}
	d.entries = make([]*waitEntry, len(waits))
	for i, a := range waits {
		d.entries[i] = &waitEntry{req: d, index: a.index, p: a.p, offset: a.next, disk: a.disk, open: true}
	}
	if m.deadlines.add(d) {
		for i, a := range waits {
			a.p.await(d.entries[i], a.epoch)
		}
	} else {
		d.expire(protocol.RequestTimedOut)
	}
	d.mu.Lock()
	d.closeOne()
}
