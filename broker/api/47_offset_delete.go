package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

// OffsetDelete, key 47, version 0 (OffsetDeleteRequest.json, KIP-496).
//
// Offsets of topics that no member subscribes to: else GroupSubscribedToTopic. A group with members that are not
// consumers is NonEmptyGroup, an unknown one GroupIdNotFound, whatever is to be deleted. A partition that does not exist is UnknownTopicOrPartition.
func (d *Dispatcher) offsetDelete(c call, req *kmsg.OffsetDeleteRequest, done func(kmsg.Response)) {
	resp := kmsg.NewPtrOffsetDeleteResponse()
	known := *req
	known.Topics = nil
	var places []place
	cl := d.o.Cluster()
	for i := range req.Topics {
		t := req.Topics[i]
		out := kmsg.NewOffsetDeleteResponseTopic()
		out.Topic = t.Topic
		var parts []kmsg.OffsetDeleteRequestTopicPartition
		for j, p := range t.Partitions {
			answer := kmsg.NewOffsetDeleteResponseTopicPartition()
			answer.Partition = p.Partition
			if hasPartition(cl, t.Topic, p.Partition) {
				parts = append(parts, p)
				places = append(places, place{i, j})
			} else {
				answer.ErrorCode = int16(protocol.UnknownTopicOrPartition)
			}
			out.Partitions = append(out.Partitions, answer)
		}
		resp.Topics = append(resp.Topics, out)
		if len(parts) > 0 {
			t.Partitions = parts
			known.Topics = append(known.Topics, t)
		}
	}
	d.o.Groups.DeleteOffsets(c.client(), &known, func(got *kmsg.OffsetDeleteResponse) {
		if got.ErrorCode != 0 {
			resp.ErrorCode, resp.Topics = got.ErrorCode, nil
			done(resp)
			return
		}
		for _, t := range got.Topics {
			for _, p := range t.Partitions {
				resp.Topics[places[0].topic].Partitions[places[0].partition].ErrorCode = p.ErrorCode
				places = places[1:]
			}
		}
		done(resp)
	})
}
