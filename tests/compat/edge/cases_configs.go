package edge

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	kindTopic  = kmsg.ConfigResourceTypeTopic
	kindBroker = kmsg.ConfigResourceTypeBroker
)

// self stands for the broker's own id.
const self = "\x00self"

func (e *env) resource(name string) string {
	if name == self {
		return fmt.Sprint(e.node)
	}
	return name
}

func describeConfigs(kind kmsg.ConfigResourceType, name string) func(*env) (kmsg.Request, error) {
	return func(e *env) (kmsg.Request, error) {
		r := kmsg.NewPtrDescribeConfigsRequest()
		r.Version = 4
		r.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kind, ResourceName: e.resource(name), ConfigNames: []string{"no.such.key"}}}
		return r, nil
	}
}

func describeConfigCases() []Case {
	return []Case{
		{Name: "describe a topic's configs", request: describeConfigs(kindTopic, topicA)},
		{Name: "describe an unknown topic's configs", request: describeConfigs(kindTopic, "edge-nobody")},
		{Name: "describe an illegal topic's configs", request: describeConfigs(kindTopic, "no spaces")},
		{Name: "describe the empty topic's configs", request: describeConfigs(kindTopic, "")},
		{Name: "describe the broker's configs", request: describeConfigs(kindBroker, self)},
		{Name: "describe all brokers' configs", request: describeConfigs(kindBroker, "")},
		{Name: "describe another broker's configs", request: describeConfigs(kindBroker, "77")},
		{Name: "describe configs of a broker that is no number", request: describeConfigs(kindBroker, "x")},
		{Name: "describe configs of kind 3", request: describeConfigs(3, topicA)},
		{Name: "describe loggers of nobody", request: describeConfigs(kmsg.ConfigResourceTypeBrokerLogger, "")},
	}
}

// alter is one IncrementalAlterConfigs request of one resource; changes are key, operation, value, and a missing value is
// null.
func alter(kind kmsg.ConfigResourceType, name string, validateOnly bool, changes ...[]any) func(*env) (kmsg.Request, error) {
	return func(e *env) (kmsg.Request, error) {
		r := kmsg.NewPtrIncrementalAlterConfigsRequest()
		r.Version, r.ValidateOnly = 1, validateOnly
		res := kmsg.IncrementalAlterConfigsRequestResource{ResourceType: kind, ResourceName: e.resource(name)}
		for _, c := range changes {
			kv := kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: c[0].(string), Op: kmsg.IncrementalAlterConfigOp(c[1].(int))}
			if len(c) > 2 {
				kv.Value = kmsg.StringPtr(c[2].(string))
			}
			res.Configs = append(res.Configs, kv)
		}
		r.Resources = append(r.Resources, res)
		return r, nil
	}
}

func topicConfigCases() []Case {
	set := func(key, value string) []any { return []any{key, 0, value} }
	twice := func(e *env) (kmsg.Request, error) {
		r, err := alter(kindTopic, topicA, true, set("retention.ms", "1"))(e)
		in := r.(*kmsg.IncrementalAlterConfigsRequest)
		in.Resources = append(in.Resources, in.Resources[0])
		return in, err
	}
	on := func(topic string, changes ...[]any) func(*env) (kmsg.Request, error) {
		return alter(kindTopic, topic, true, changes...)
	}
	return []Case{
		{Name: "set a topic's config", request: alter(kindTopic, topicA, false, set("retention.ms", "1000000"))},
		{Name: "check a topic's config only", request: on(topicA, set("retention.ms", "1"))},
		{Name: "set an unknown config", request: on(topicA, set("no.such.key", "1"))},
		{Name: "set a bad value", request: on(topicA, set("retention.ms", "x"))},
		{Name: "set a value out of range", request: on(topicA, set("min.insync.replicas", "0"))},
		{Name: "set null", request: on(topicA, []any{"retention.ms", 0})},
		{Name: "append null", request: on(topicA, []any{"cleanup.policy", 2})},
		{Name: "set a key twice", request: on(topicA, set("retention.ms", "1"), set("retention.ms", "2"))},
		{Name: "alter a topic twice", request: twice},
		{Name: "delete a config", request: on(topicA, []any{"retention.ms", 1})},
		{Name: "delete a config that is not set", request: on(topicA, []any{"segment.ms", 1})},
		{Name: "delete an unknown config", request: on(topicA, []any{"no.such.key", 1})},
		{Name: "append to a list", request: on(topicA, []any{"cleanup.policy", 2, "compact"})},
		{Name: "append what a list cannot have", request: on(topicA, []any{"cleanup.policy", 2, "burn"})},
		{Name: "append to what is no list", request: on(topicA, []any{"retention.ms", 2, "1"})},
		{Name: "subtract from a list", request: on(topicCompact, []any{"cleanup.policy", 3, "delete"})},
		{Name: "subtract from what is no list", request: on(topicA, []any{"retention.ms", 3, "1"})},
		{Name: "an unknown operation on a topic", request: on(topicA, []any{"retention.ms", 9, "1"})},
		{Name: "alter an unknown topic", request: on("edge-nobody", set("retention.ms", "1"))},
		{Name: "alter an unknown topic wrongly", request: on("edge-nobody", set("retention.ms", "x"))},
		{Name: "alter an illegal topic", request: on("no spaces", set("retention.ms", "1"))},
		{Name: "alter the empty topic", request: on("", set("retention.ms", "1"))},
		{Name: "set values at odds", request: on(topicA, set("min.compaction.lag.ms", "9"), set("max.compaction.lag.ms", "8"))},
		{Name: "alter nothing", request: on(topicA)},
		{Name: "alter kind 3", request: alter(3, topicA, true, set("retention.ms", "1"))},
		{Name: "alter kind 0", request: alter(0, topicA, true, set("retention.ms", "1"))},
		{Name: "replace a topic's configs", request: replace(kindTopic, topicCompact, kmsg.StringPtr("1000000"))},
		{Name: "replace with null", request: replace(kindTopic, topicA, nil)},
		{Name: "replace an unknown topic's configs", request: replace(kindTopic, "edge-nobody", kmsg.StringPtr("1"))},
		{Name: "replace configs of loggers", request: replace(kmsg.ConfigResourceTypeBrokerLogger, self, kmsg.StringPtr("1"))},
	}
}

// replace is an AlterConfigs request that would leave retention.ms only.
func replace(kind kmsg.ConfigResourceType, name string, value *string) func(*env) (kmsg.Request, error) {
	return func(e *env) (kmsg.Request, error) {
		r := kmsg.NewPtrAlterConfigsRequest()
		r.Version, r.ValidateOnly = 2, true
		r.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: kind, ResourceName: e.resource(name),
			Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: value}}}}
		return r, nil
	}
}

func brokerConfigCases() []Case {
	on := func(name, key, value string) func(*env) (kmsg.Request, error) {
		return alter(kindBroker, name, true, []any{key, 0, value})
	}
	return []Case{
		{Name: "set the broker's config", request: alter(kindBroker, self, false, []any{"log.retention.ms", 0, "900000000"})},
		{Name: "delete the broker's config", request: alter(kindBroker, self, false, []any{"log.retention.ms", 1})},
		{Name: "set all brokers' config", request: alter(kindBroker, "", false, []any{"log.retention.ms", 0, "900000000"})},
		{Name: "delete all brokers' config", request: alter(kindBroker, "", false, []any{"log.retention.ms", 1})},
		{Name: "set another broker's config", request: on("77", "log.retention.ms", "1")},
		{Name: "set a config of a broker that is no number", request: on("x", "log.retention.ms", "1")},
		{Name: "set a config of broker -1", request: on("-1", "log.retention.ms", "1")},
		{Name: "set a broker config that is fixed", request: on(self, "num.partitions", "5")},
		{Name: "set a fixed config of all brokers", request: on("", "node.id", "5")},
		{Name: "set a bad broker config", request: on(self, "log.retention.ms", "x")},
		{Name: "set a broker config out of range", request: on(self, "min.insync.replicas", "0")},
		{Name: "set a retention of 0", request: on(self, "log.retention.ms", "0")},
		{Name: "set a broker's key store without a listener", request: on(self, "ssl.keystore.location", "/x")},
		{Name: "set an unknown broker config", request: on(self, "no.such.key", "1")},
		{Name: "append to a broker config that is no list", request: alter(kindBroker, self, true, []any{"log.retention.ms", 2, "1"})},
		{Name: "append to a broker's list", request: alter(kindBroker, "", true, []any{"log.cleanup.policy", 2, "compact"})},
		{Name: "an unknown operation on a broker", request: alter(kindBroker, self, true, []any{"log.retention.ms", 9, "1"})},
		{Name: "set local above total retention", request: on("", "log.local.retention.ms", "999999999999")},
	}
}
