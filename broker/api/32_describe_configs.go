package api

import (
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/config"
	"varve/protocol"
)

// DescribeConfigs, key 32, versions 1 to 4 (DescribeConfigsRequest.json).
//
// Resources are topics and this broker. A broker's name is its node id; another
// node's is InvalidRequest: clients send such requests to the node itself. The
// empty name means the dynamic values of all brokers.
// No names, or a null list, means all keys; names that do not exist are left out.
// Sensitive values are null. Types and documentation go out from version 3, the
// latter only when asked for, like synonyms. Other resource types are
// InvalidRequest.
func (d *Dispatcher) describeConfigs(req *kmsg.DescribeConfigsRequest) kmsg.Response {
	resp := kmsg.NewPtrDescribeConfigsResponse()
	for _, r := range req.Resources {
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		all, err := d.describe(r)
		out.ErrorCode, out.ErrorMessage = code(err), message(err)
		for _, e := range all {
			if len(r.ConfigNames) == 0 || slices.Contains(r.ConfigNames, e.Name) {
				out.Configs = append(out.Configs, describedEntry(req, e))
			}
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func (d *Dispatcher) describe(r kmsg.DescribeConfigsRequestResource) ([]config.Described, error) {
	switch r.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		if err := checkTopicName(r.ResourceName); err != nil {
			return nil, err
		}
		t, ok := d.o.Cluster().Topic(r.ResourceName)
		if !ok {
			return nil, protocol.UnknownTopicOrPartition
		}
		return d.o.Config.DescribeTopic(t.Configs), nil
	case kmsg.ConfigResourceTypeBroker:
		if r.ResourceName == "" {
			return d.o.Config.DescribeDynamicDefaults(), nil
		}
		if err := d.isThisNode(r.ResourceName); err != nil {
			return nil, err
		}
		return d.o.Config.DescribeBroker(), nil
	}
	return nil, protocol.Errorf(protocol.InvalidRequest, "Unsupported resource type: %d", r.ResourceType)
}

// isThisNode says why a resource's name is not this broker's.
func (d *Dispatcher) isThisNode(name string) error {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return protocol.Errorf(protocol.InvalidRequest, "Broker id must be an integer, but it is: %s", name)
	}
	if int32(id) != d.o.NodeID {
		return protocol.Errorf(protocol.InvalidRequest, "Unexpected broker id, expected %d or empty string, but received %s", d.o.NodeID, name)
	}
	return nil
}

func describedEntry(req *kmsg.DescribeConfigsRequest, e config.Described) kmsg.DescribeConfigsResponseResourceConfig {
	out := kmsg.NewDescribeConfigsResponseResourceConfig()
	out.Name, out.Value = e.Name, configValue(e.Value, e.Null)
	out.ReadOnly, out.IsSensitive = e.ReadOnly, e.Sensitive
	out.Source, out.ConfigType = kmsg.ConfigSource(e.Source), kmsg.ConfigType(e.Type)
	if req.IncludeSynonyms {
		for _, s := range e.Synonyms {
			syn := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			syn.Name, syn.Value, syn.Source = s.Name, configValue(s.Value, s.Null), kmsg.ConfigSource(s.Source)
			out.ConfigSynonyms = append(out.ConfigSynonyms, syn)
		}
	}
	if req.IncludeDocumentation && e.Doc != "" {
		out.Documentation = ptr(e.Doc)
	}
	return out
}

func configValue(v string, null bool) *string {
	if null {
		return nil
	}
	return &v
}
