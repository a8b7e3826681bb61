package api

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/metastore"
	"varve/protocol"
)

// DescribeTopicPartitions, key 75, version 0 (DescribeTopicPartitionsRequest.json, KIP-966).
//
// Topics come in order of their names, from the cursor on, no names meaning all of them, until there are as many
// partitions as the request or max.request.partition.size.limit allows; then the answer's cursor says where to go on. A
// cursor with a negative partition, or that names a topic which is not among those asked for, is InvalidRequest, told for
// each topic. Unlike Metadata the answer holds the eligible leader replicas.
func (d *Dispatcher) describeTopicPartitions(c call, req *kmsg.DescribeTopicPartitionsRequest) kmsg.Response {
	resp := kmsg.NewPtrDescribeTopicPartitionsResponse()
	cl := d.o.Cluster()
	names, err := partitionTopics(cl, req)
	if err != nil {
		for _, t := range req.Topics {
			resp.Topics = append(resp.Topics, noTopicPartitions(t.Topic, err))
		}
		return resp
	}
	left := max(min(d.o.Config.Int("max.request.partition.size.limit"), int(req.ResponsePartitionLimit)), 1)
	all := len(req.Topics) == 0
	for _, name := range names {
		if left == 0 {
			resp.NextCursor = cursorAt(name, 0)
			return resp
		}
		t, ok := cl.Topic(name)
		if !ok && all {
			continue
		}
		if !ok {
			err := checkTopicName(name)
			if err == nil {
				err = protocol.UnknownTopicOrPartition
			}
			resp.Topics = append(resp.Topics, noTopicPartitions(name, err))
			continue
		}
		first := 0
		if req.Cursor != nil && req.Cursor.Topic == name {
			first = int(req.Cursor.Partition)
		}
		first = min(first, len(t.Partitions))
		last := min(first+left, len(t.Partitions))
		resp.Topics = append(resp.Topics, topicPartitions(cl, c.conn.Listener, t, t.Partitions[first:last]))
		left -= last - first
		if last < len(t.Partitions) {
			resp.NextCursor = cursorAt(name, int32(last))
			return resp
		}
	}
	return resp
}

// partitionTopics returns the names of the topics that are meant, each once, in order.
func partitionTopics(cl Cluster, req *kmsg.DescribeTopicPartitionsRequest) ([]string, error) {
	from := ""
	if req.Cursor != nil {
		from = req.Cursor.Topic
	}
	var names []string
	if len(req.Topics) == 0 {
		for t := range cl.Topics() {
			names = append(names, t.Name)
		}
	}
	for _, t := range req.Topics {
		names = append(names, t.Topic)
	}
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(n string) bool { return n < from })
	switch {
	case req.Cursor == nil:
	case len(req.Topics) > 0 && !slices.Contains(names, from):
		return nil, protocol.Errorf(protocol.InvalidRequest, "DescribeTopicPartitionsRequest topic list should contain the cursor topic: %s", from)
	case req.Cursor.Partition < 0:
		return nil, protocol.Errorf(protocol.InvalidRequest, "DescribeTopicPartitionsRequest cursor partition must be valid: %d", req.Cursor.Partition)
	}
	return names, nil
}

func cursorAt(topic string, partition int32) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = topic, partition
	return &c
}

func noTopicPartitions(name string, err error) kmsg.DescribeTopicPartitionsResponseTopic {
	out := kmsg.NewDescribeTopicPartitionsResponseTopic()
	out.ErrorCode, out.Topic, out.IsInternal = code(err), &name, internalTopic(name)
	out.AuthorizedOperations = noOperations
	return out
}

func topicPartitions(cl Cluster, listener string, t *metastore.Topic, parts []*metastore.Partition) kmsg.DescribeTopicPartitionsResponseTopic {
	out := kmsg.NewDescribeTopicPartitionsResponseTopic()
	out.Topic, out.TopicID, out.IsInternal = &t.Name, t.ID, internalTopic(t.Name)
	out.AuthorizedOperations = topicOperations
	out.Partitions = []kmsg.DescribeTopicPartitionsResponseTopicPartition{}
	for _, p := range parts {
		part := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		part.Partition, part.LeaderID, part.LeaderEpoch = p.Index, p.Leader, p.LeaderEpoch
		part.Replicas, part.ISR = p.Replicas, p.ISR
		part.EligibleLeaderReplicas, part.LastKnownELR = slices.Clone(p.ELR), []int32{}
		if part.EligibleLeaderReplicas == nil {
			part.EligibleLeaderReplicas = []int32{}
		}
		for _, id := range p.Replicas {
			if n, ok := nodeOf(cl, id, listener); !ok || n.fenced {
				part.OfflineReplicas = append(part.OfflineReplicas, id)
			}
		}
		if err := leaderProblem(cl, listener, p.Leader); err != protocol.None {
			part.ErrorCode, part.LeaderID = int16(err), -1
		}
		out.Partitions = append(out.Partitions, part)
	}
	return out
}

// leaderProblem says why clients cannot reach a leader.
func leaderProblem(cl Cluster, listener string, leader int32) protocol.ErrorCode {
	if _, known := cl.Broker(leader); leader < 0 || !known {
		return protocol.LeaderNotAvailable
	}
	if _, ok := nodeOf(cl, leader, listener); !ok {
		return protocol.ListenerNotFound
	}
	return protocol.None
}
