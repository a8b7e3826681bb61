package api

import "github.com/twmb/franz-go/pkg/kmsg"

// DeleteRecords, key 21, versions 0 to 2 (DeleteRecordsRequest.json).
//
// Offset -1 means up to the high watermark; beyond it is OffsetOutOfRange. Internal topics are InvalidTopicException,
// topics that are compacted only PolicyViolation. A partition that is named twice is done once, as named last. The low
// watermark of the answer is the log start; it is durable, and stands in the metastore first where the tier holds
// records.
func (d *Dispatcher) deleteRecords(c call, req *kmsg.DeleteRecordsRequest) kmsg.Response {
	resp := kmsg.NewPtrDeleteRecordsResponse()
	ctx, cancel := timeout(c, req.TimeoutMillis)
	defer cancel()
	topics, offsets := deleteTargets(req)
	for _, t := range topics {
		out := kmsg.NewDeleteRecordsResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			low, err := d.o.Replicas.DeleteRecords(ctx, t.Topic, p.Partition, offsets[topicPartition{t.Topic, p.Partition}])
			if err != nil {
				low = -1
			}
			part := kmsg.NewDeleteRecordsResponseTopicPartition()
			part.Partition, part.LowWatermark, part.ErrorCode = p.Partition, low, code(err)
			out.Partitions = append(out.Partitions, part)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// deleteTargets returns each topic and each partition once, in the order in which they were first named, and the offsets
// that were named last.
func deleteTargets(req *kmsg.DeleteRecordsRequest) ([]kmsg.DeleteRecordsRequestTopic, map[topicPartition]int64) {
	var topics []kmsg.DeleteRecordsRequestTopic
	offsets := map[topicPartition]int64{}
	known := map[string]int{}
	for _, t := range req.Topics {
		at, ok := known[t.Topic]
		if !ok {
			at = len(topics)
			known[t.Topic] = at
			topics = append(topics, kmsg.DeleteRecordsRequestTopic{Topic: t.Topic})
		}
		for _, p := range t.Partitions {
			key := topicPartition{t.Topic, p.Partition}
			if _, twice := offsets[key]; !twice {
				topics[at].Partitions = append(topics[at].Partitions, p)
			}
			offsets[key] = p.Offset
		}
	}
	return topics, offsets
}
