package api

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/replica"
	"varve/protocol"
)

// ListOffsets, key 2, versions 1 to 11 (ListOffsetsRequest.json).
//
// Special timestamps need the version that brought them: -3 (maximum) 7, -4
// (earliest local) 8, -5 (highest tiered) 9, -6 (earliest pending upload) 11;
// asked for earlier, and others below 0, they are UnsupportedVersion. Isolation
// counts from version 2, leader epochs from 4. OffsetNotAvailable is told from
// version 5, LeaderNotAvailable before. A partition that is named twice is
// InvalidRequest, once. Version 10 brings a timeout, which bounds what has to be
// looked up in the tier; without one listOffsetsTimeoutMs does.
func (d *Dispatcher) listOffsets(c call, req *kmsg.ListOffsetsRequest) kmsg.Response {
	resp := kmsg.NewPtrListOffsetsResponse()
	wait := listOffsetsTimeoutMs * time.Millisecond
	if req.Version >= 10 && req.TimeoutMillis > 0 {
		wait = time.Duration(req.TimeoutMillis) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(c.ctx, wait)
	defer cancel()
	seen := countPartitions(req)
	for _, t := range req.Topics {
		out := kmsg.NewListOffsetsResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			switch tp := (topicPartition{t.Topic, p.Partition}); {
			case seen[tp] > 1:
				seen[tp] = answered
				out.Partitions = append(out.Partitions, offsetAnswer(p.Partition, replica.OffsetResult{}, protocol.InvalidRequest))
				continue
			case seen[tp] == answered:
				continue
			}
			r, err := d.listOffset(ctx, req, t.Topic, p)
			out.Partitions = append(out.Partitions, offsetAnswer(p.Partition, r, err))
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// listOffsetsTimeoutMs bounds requests that name no timeout.
const listOffsetsTimeoutMs = 30_000

// answered stands in place of the count of a partition that was named several times and has its answer.
const answered = -1

type topicPartition struct {
	topic     string
	partition int32
}

// countPartitions counts how often each partition is named; nil when there is
// only one.
func countPartitions(req *kmsg.ListOffsetsRequest) map[topicPartition]int {
	n := 0
	for _, t := range req.Topics {
		n += len(t.Partitions)
	}
	if n < 2 {
		return nil
	}
	seen := make(map[topicPartition]int, n)
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			seen[topicPartition{t.Topic, p.Partition}]++
		}
	}
	return seen
}

// specialSince is the first version that knows a special timestamp
// (ReplicaManager.scala, timestampMinSupportedVersion).
var specialSince = map[int64]int16{
	replica.TimestampLatest:                1,
	replica.TimestampEarliest:              1,
	replica.TimestampMax:                   7,
	replica.TimestampEarliestLocal:         8,
	replica.TimestampLatestTiered:          9,
	replica.TimestampEarliestPendingUpload: 11,
}

func (d *Dispatcher) listOffset(ctx context.Context, req *kmsg.ListOffsetsRequest, topic string, p kmsg.ListOffsetsRequestTopicPartition) (replica.OffsetResult, error) {
	if p.Timestamp < 0 {
		if since, ok := specialSince[p.Timestamp]; !ok || req.Version < since {
			return replica.OffsetResult{}, protocol.UnsupportedVersion
		}
	}
	q := replica.OffsetQuery{
		Topic:              topic,
		Partition:          p.Partition,
		CurrentLeaderEpoch: replica.NoEpoch,
		ReplicaID:          max(req.ReplicaID, replica.ConsumerID),
		Timestamp:          p.Timestamp,
		ReadCommitted:      req.Version >= 2 && req.IsolationLevel == 1,
	}
	if req.Version >= 4 {
		q.CurrentLeaderEpoch = p.CurrentLeaderEpoch
	}
	r, err := d.o.Replicas.ListOffset(ctx, q)
	if errors.Is(err, protocol.OffsetNotAvailable) && req.Version < 5 {
		err = protocol.LeaderNotAvailable
	}
	return r, err
}

// offsetAnswer is one partition's answer; with an error it holds nothing else.
func offsetAnswer(partition int32, r replica.OffsetResult, err error) kmsg.ListOffsetsResponseTopicPartition {
	out := kmsg.NewListOffsetsResponseTopicPartition()
	out.Partition, out.ErrorCode = partition, code(err)
	out.Timestamp, out.Offset, out.LeaderEpoch = -1, -1, -1
	if err == nil {
		out.Timestamp, out.Offset, out.LeaderEpoch = r.Timestamp, r.Offset, r.LeaderEpoch
	}
	return out
}
