package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/config"
)

// AlterConfigs, key 33, versions 0 to 2 (AlterConfigsRequest.json).
//
// It replaces all overrides of a topic, or all dynamic values of this broker, or with an empty name of all brokers, by
// those of the request. Null values, keys or resources that occur twice are InvalidRequest. The rest is as with
// IncrementalAlterConfigs.
func (d *Dispatcher) replaceConfigs(c call, req *kmsg.AlterConfigsRequest) kmsg.Response {
	resp := kmsg.NewPtrAlterConfigsResponse()
	resources := make([]resource, len(req.Resources))
	for i, r := range req.Resources {
		out := &resources[i]
		out.kind, out.name = r.ResourceType, r.ResourceName
		for _, kv := range r.Configs {
			ch := config.Change{Name: kv.Name, Op: config.OpSet}
			if kv.Value == nil {
				out.nulls = append(out.nulls, kv.Name)
			} else {
				ch.Value = *kv.Value
			}
			out.changes = append(out.changes, ch)
		}
	}
	for i, err := range d.alterConfigs(c.ctx, resources, true, req.ValidateOnly) {
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = resources[i].kind, resources[i].name
		out.ErrorCode, out.ErrorMessage = code(err), message(err)
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}
