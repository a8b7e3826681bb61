package api

import "github.com/twmb/franz-go/pkg/kmsg"

// DescribeProducers, key 61, version 0 (DescribeProducersRequest.json).
//
// Told are the producers whose state this broker's replica keeps, leader or not. An illegal name is
// InvalidTopicException.
func (d *Dispatcher) describeProducers(req *kmsg.DescribeProducersRequest) kmsg.Response {
	resp := kmsg.NewPtrDescribeProducersResponse()
	for _, t := range req.Topics {
		out := kmsg.NewDescribeProducersResponseTopic()
		out.Topic = t.Topic
		illegal := checkTopicName(t.Topic)
		for _, index := range t.Partitions {
			p := kmsg.NewDescribeProducersResponseTopicPartition()
			p.Partition = index
			if err := illegal; err != nil {
				p.ErrorCode, p.ErrorMessage = code(err), message(err)
			} else {
				d.activeProducers(t.Topic, &p)
			}
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (d *Dispatcher) activeProducers(topic string, out *kmsg.DescribeProducersResponseTopicPartition) {
	producers, err := d.o.Replicas.Producers(topic, out.Partition)
	out.ErrorCode, out.ErrorMessage = code(err), message(err)
	for _, x := range producers {
		p := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		p.ProducerID, p.ProducerEpoch, p.LastSequence = x.ProducerID, int32(x.Epoch), x.LastSequence
		p.LastTimestamp, p.CoordinatorEpoch, p.CurrentTxnStartOffset = x.LastTimestamp, x.CoordinatorEpoch, x.TxnStart
		out.ActiveProducers = append(out.ActiveProducers, p)
	}
}
