package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/metastore/controller"
	"varve/protocol"
)

// Election types (ElectionType.java).
const (
	electPreferred int8 = 0
	electUnclean   int8 = 1
)

// ElectLeaders, key 43, versions 0 to 2 (ElectLeadersRequest.json).
//
// Version 0 knows preferred elections only; another type than preferred and
// unclean is InvalidRequest. Null partitions mean all of them; the answer then
// leaves out those where no election was needed. What concerns the whole request
// (RequestTimedOut, NotController) is told for it and for each partition. An
// unclean election is the explicit command by which an operator accepts loss.
func (d *Dispatcher) electLeaders(c call, req *kmsg.ElectLeadersRequest) kmsg.Response {
	resp := kmsg.NewPtrElectLeadersResponse()
	election := electPreferred
	if req.Version >= 1 {
		election = req.ElectionType
	}
	ask := electionTargets(req)
	known := election == electPreferred || election == electUnclean
	if known && ask != nil && len(ask) == 0 {
		return resp
	}
	ctx, cancel := timeout(c, req.TimeoutMillis)
	defer cancel()
	var results []controller.ElectResult
	err := error(protocol.InvalidRequest)
	if known {
		results, err = d.o.Controller.ElectLeaders(ctx, ask, election == electUnclean)
	}
	if err != nil {
		resp.ErrorCode = code(err)
		results = results[:0]
		for _, tp := range ask {
			results = append(results, controller.ElectResult{Topic: tp.Topic, Partition: tp.Partition, Err: err})
		}
	}
	topics := map[string]int{}
	for _, r := range results {
		at, ok := topics[r.Topic]
		if !ok {
			at = len(resp.Topics)
			topics[r.Topic] = at
			t := kmsg.NewElectLeadersResponseTopic()
			t.Topic = r.Topic
			resp.Topics = append(resp.Topics, t)
		}
		out := kmsg.NewElectLeadersResponseTopicPartition()
		out.Partition, out.ErrorCode, out.ErrorMessage = r.Partition, code(r.Err), message(r.Err)
		resp.Topics[at].Partitions = append(resp.Topics[at].Partitions, out)
	}
	return resp
}

// electionTargets returns each partition that is meant, once; nil is all.
func electionTargets(req *kmsg.ElectLeadersRequest) []controller.TopicPartition {
	if req.Topics == nil {
		return nil
	}
	out := []controller.TopicPartition{}
	seen := map[controller.TopicPartition]struct{}{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			tp := controller.TopicPartition{Topic: t.Topic, Partition: p}
			if _, ok := seen[tp]; !ok {
				seen[tp] = struct{}{}
				out = append(out, tp)
			}
		}
	}
	return out
}
