package api

import (
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

// Types of configuration resources that kmsg has no names for (ConfigResource.java).
const (
	configClientMetrics kmsg.ConfigResourceType = 16
	configGroup         kmsg.ConfigResourceType = 32
)

// ListConfigResources, key 74, versions 0 and 1 (ListConfigResourcesRequest.json).
//
// Version 0 asks for subscriptions of client metrics, of which there are none. Version 1 names types; none mean all.
// Listed are topics and brokers, brokers also as loggers; there are no configurations of groups. A type that does not
// exist is UnsupportedVersion.
func (d *Dispatcher) listConfigResources(req *kmsg.ListConfigResourcesRequest) kmsg.Response {
	resp := kmsg.NewPtrListConfigResourcesResponse()
	if req.Version == 0 {
		return resp
	}
	known := []kmsg.ConfigResourceType{kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger, configClientMetrics, configGroup}
	want := map[kmsg.ConfigResourceType]bool{}
	for _, t := range req.ResourceTypes {
		kind := kmsg.ConfigResourceType(t)
		if !slices.Contains(known, kind) {
			resp.ErrorCode = int16(protocol.UnsupportedVersion)
			return resp
		}
		want[kind] = true
	}
	add := func(kind kmsg.ConfigResourceType, name string) {
		if len(want) > 0 && !want[kind] {
			return
		}
		r := kmsg.NewListConfigResourcesResponseConfigResource()
		r.Name, r.Type = name, int8(kind)
		resp.ConfigResources = append(resp.ConfigResources, r)
	}
	cl := d.o.Cluster()
	for _, b := range cl.Brokers() {
		add(kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(b.ID)))
		add(kmsg.ConfigResourceTypeBrokerLogger, strconv.Itoa(int(b.ID)))
	}
	for t := range cl.Topics() {
		add(kmsg.ConfigResourceTypeTopic, t.Name)
	}
	return resp
}
