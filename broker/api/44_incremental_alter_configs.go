package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/config"
)

// IncrementalAlterConfigs, key 44, versions 0 and 1 (IncrementalAlterConfigsRequest.json).
//
// Keys are set, deleted, or as lists appended to and subtracted from; each resource wholly or not at all. Resources are
// topics, this broker, and with an empty name all brokers; another node's name and other types (loggers, client metrics,
// groups) are InvalidRequest. What a topic cannot have is InvalidConfig, told before UnknownTopicOrPartition; what a
// broker cannot have, or cannot change while it runs, is InvalidRequest, as in Kafka (KAFKA-13609). When the answer goes
// out this broker follows its new values; partitions follow their topic's within moments.
func (d *Dispatcher) incrementalAlterConfigs(c call, req *kmsg.IncrementalAlterConfigsRequest) kmsg.Response {
	resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
	resources := make([]resource, len(req.Resources))
	for i, r := range req.Resources {
		out := &resources[i]
		out.kind, out.name = r.ResourceType, r.ResourceName
		for _, kv := range r.Configs {
			ch := config.Change{Name: kv.Name, Op: config.Op(kv.Op)}
			switch {
			case kv.Value != nil:
				ch.Value = *kv.Value
			case ch.Op != config.OpDelete:
				out.nulls = append(out.nulls, kv.Name)
			}
			out.changes = append(out.changes, ch)
		}
	}
	for i, err := range d.alterConfigs(c.ctx, resources, false, req.ValidateOnly) {
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = resources[i].kind, resources[i].name
		out.ErrorCode, out.ErrorMessage = code(err), message(err)
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}
