package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/replica"
)

// OffsetForLeaderEpoch, key 23, versions 2 to 4 (OffsetForLeaderEpochRequest.json).
//
// The answer is the largest epoch at or below the one asked for, with the offset after its last record, also where that
// is in the tier; -1 and -1 when there is none, or an error.
func (d *Dispatcher) offsetForLeaderEpoch(req *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	for _, t := range req.Topics {
		out := kmsg.NewOffsetForLeaderEpochResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			end, err := d.o.Replicas.OffsetForEpoch(replica.EpochQuery{
				Topic: t.Topic, Partition: p.Partition, CurrentLeaderEpoch: p.CurrentLeaderEpoch, Epoch: p.LeaderEpoch,
			})
			part := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			part.Partition, part.ErrorCode = p.Partition, code(err)
			part.LeaderEpoch, part.EndOffset = end.Epoch, end.End
			out.Partitions = append(out.Partitions, part)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}
