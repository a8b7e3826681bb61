package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

// OffsetCommit, key 8, versions 2 to 10 (OffsetCommitRequest.json).
//
// Topics are named up to version 9 and given by id from version 10 on; an unknown one is UnknownTopicOrPartition, or
// UnknownTopicID, and does not keep the others from being stored. Versions 2 to 4 may carry a retention of their own. The
// rest is the group's: IllegalGeneration, UnknownMemberId, RebalanceInProgress, FencedInstanceId, OffsetMetadataTooLarge,
// from version 9 GroupIdNotFound, each of which stands on every partition.
func (d *Dispatcher) offsetCommit(c call, req *kmsg.OffsetCommitRequest, done func(kmsg.Response)) {
	resp := kmsg.NewPtrOffsetCommitResponse()
	known := *req
	known.Topics = nil
	var places []place // of the partitions that exist, in order
	cl := d.o.Cluster()
	for i := range req.Topics {
		t := req.Topics[i]
		out := kmsg.NewOffsetCommitResponseTopic()
		out.Topic, out.TopicID = t.Topic, t.TopicID
		name, err := named(cl, t.Topic, t.TopicID, req.Version >= 10)
		var parts []kmsg.OffsetCommitRequestTopicPartition
		for j, p := range t.Partitions {
			answer := kmsg.NewOffsetCommitResponseTopicPartition()
			answer.Partition, answer.ErrorCode = p.Partition, int16(err)
			switch {
			case err != protocol.None:
			case !hasPartition(cl, name, p.Partition):
				answer.ErrorCode = int16(protocol.UnknownTopicOrPartition)
			default:
				parts = append(parts, p)
				places = append(places, place{i, j})
			}
			out.Partitions = append(out.Partitions, answer)
		}
		resp.Topics = append(resp.Topics, out)
		if len(parts) > 0 {
			t.Topic, t.Partitions = name, parts
			known.Topics = append(known.Topics, t)
		}
	}
	if len(places) == 0 {
		done(resp)
		return
	}
	d.o.Groups.Commit(c.client(), &known, func(stored *kmsg.OffsetCommitResponse) {
		for _, t := range stored.Topics {
			for _, p := range t.Partitions {
				resp.Topics[places[0].topic].Partitions[places[0].partition].ErrorCode = p.ErrorCode
				places = places[1:]
			}
		}
		done(resp)
	})
}
