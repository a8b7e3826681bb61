package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/metastore/controller"
	"varve/protocol"
)

// CreatePartitions, key 37, versions 0 to 3 (CreatePartitionsRequest.json).
//
// Count is the number of partitions that the topic shall have in all. A name that
// occurs twice is InvalidRequest and nothing is done for it. An assignment, if
// given, holds one list of brokers for each new partition. More than
// maxPartitionsPerRequest new ones in all are PolicyViolation. Time that is not
// enough is RequestTimedOut.
func (d *Dispatcher) createPartitions(c call, req *kmsg.CreatePartitionsRequest) kmsg.Response {
	resp := kmsg.NewPtrCreatePartitionsResponse()
	single, twice := once(req.Topics, func(t *kmsg.CreatePartitionsRequestTopic) string { return t.Topic })
	add := func(name string, err error) {
		out := kmsg.NewCreatePartitionsResponseTopic()
		out.Topic, out.ErrorCode, out.ErrorMessage = name, code(err), message(err)
		resp.Topics = append(resp.Topics, out)
	}
	for _, name := range twice {
		add(name, protocol.Errorf(protocol.InvalidRequest, "Duplicate topic name."))
	}
	var ask []controller.CreatePartitions
	for i := range req.Topics {
		t := &req.Topics[i]
		if !single[t.Topic] {
			continue
		}
		p := controller.CreatePartitions{Topic: t.Topic, Count: t.Count}
		if t.Assignment != nil {
			p.Assignments = make([][]int32, len(t.Assignment))
			for j, a := range t.Assignment {
				p.Assignments[j] = a.Replicas
			}
		}
		ask = append(ask, p)
	}
	if d.additional(ask) > maxPartitionsPerRequest {
		for _, t := range ask {
			add(t.Topic, tooManyPartitions)
		}
		return resp
	}
	if len(ask) > 0 {
		ctx, cancel := timeout(c, req.TimeoutMillis)
		defer cancel()
		for _, r := range d.o.Controller.CreatePartitions(ctx, ask, req.ValidateOnly) {
			add(r.Topic, r.Err)
		}
	}
	return resp
}

// additional is how many partitions a request would add, to topics that exist.
func (d *Dispatcher) additional(ask []controller.CreatePartitions) (n int) {
	cl := d.o.Cluster()
	for _, a := range ask {
		if t, ok := cl.Topic(a.Topic); ok {
			n += max(0, int(a.Count)-len(t.Partitions))
		}
	}
	return n
}
