package api

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/config"
	"varve/metastore/controller"
	"varve/protocol"
)

// CreateTopics, key 19, versions 2 to 7 (CreateTopicsRequest.json).
//
// A name that occurs twice is InvalidRequest, and none of its entries is made;
// so is __cluster_metadata. -1 partitions or replicas mean the broker's defaults.
// A config without a value is InvalidConfig, more than maxPartitionsPerRequest
// partitions in all are PolicyViolation. Version 5 answers with
// what was made: partitions, replicas, configs; version 7 with the topic's id.
// The controller decides the rest; what it has not done when the request's
// timeout is over is RequestTimedOut, though it may still be done.
func (d *Dispatcher) createTopics(c call, req *kmsg.CreateTopicsRequest) kmsg.Response {
	resp := kmsg.NewPtrCreateTopicsResponse()
	single, twice := once(req.Topics, func(t *kmsg.CreateTopicsRequestTopic) string { return t.Topic })
	var ask []controller.CreateTopic
	for i := range req.Topics {
		t := &req.Topics[i]
		switch {
		case !single[t.Topic]:
		case t.Topic == clusterMetadataTopic:
			err := protocol.Errorf(protocol.InvalidRequest, "Creation of internal topic %s is prohibited.", t.Topic)
			resp.Topics = append(resp.Topics, d.createdTopic(&controller.CreateResult{Name: t.Topic, Err: err}))
		default:
			if err := d.nullConfigs(t); err != nil {
				resp.Topics = append(resp.Topics, d.createdTopic(&controller.CreateResult{Name: t.Topic, Err: err}))
				continue
			}
			ask = append(ask, newTopic(t))
		}
	}
	for _, r := range d.create(c, req, ask) {
		resp.Topics = append(resp.Topics, d.createdTopic(&r))
	}
	for _, name := range twice {
		err := protocol.Errorf(protocol.InvalidRequest, "Duplicate topic name.")
		resp.Topics = append(resp.Topics, d.createdTopic(&controller.CreateResult{Name: name, Err: err}))
	}
	return resp
}

// maxPartitionsPerRequest bounds what one request may create (ReplicationControlManager.MAX_PARTITIONS_PER_BATCH).
const maxPartitionsPerRequest = 10_000

// create asks the controller for the topics, unless they have too many partitions together.
func (d *Dispatcher) create(c call, req *kmsg.CreateTopicsRequest, ask []controller.CreateTopic) []controller.CreateResult {
	if len(ask) == 0 {
		return nil
	}
	all := 0
	for i := range ask {
		switch t := &ask[i]; {
		case len(t.Assignments) > 0:
			all += len(t.Assignments)
		case t.Partitions == -1:
			all += d.o.Config.Int("num.partitions")
		default:
			all += int(max(t.Partitions, 0))
		}
	}
	if all > maxPartitionsPerRequest {
		out := make([]controller.CreateResult, len(ask))
		for i := range ask {
			out[i] = controller.CreateResult{Name: ask[i].Name, Err: tooManyPartitions}
		}
		return out
	}
	ctx, cancel := timeout(c, req.TimeoutMillis)
	defer cancel()
	return d.o.Controller.CreateTopics(ctx, ask, req.ValidateOnly)
}

var tooManyPartitions = protocol.Errorf(protocol.PolicyViolation, "Excessively large number of partitions per request: at most %d.", maxPartitionsPerRequest)

// clusterMetadataTopic is the name of Kafka's own metadata log (Topic.java).
const clusterMetadataTopic = "__cluster_metadata"

// nullConfigs refuses configs without a value, unless there is something about the name to tell first
// (ReplicationControlManager.computeConfigChanges).
func (d *Dispatcher) nullConfigs(t *kmsg.CreateTopicsRequestTopic) error {
	var nulls []string
	for _, kv := range t.Configs {
		if kv.Value == nil {
			nulls = append(nulls, kv.Name)
		}
	}
	if _, exists := d.o.Cluster().Topic(t.Topic); len(nulls) == 0 || exists || checkTopicName(t.Topic) != nil {
		return nil
	}
	return protocol.Errorf(protocol.InvalidConfig, "Null value not supported for topic configs: %s", strings.Join(nulls, ","))
}

func newTopic(t *kmsg.CreateTopicsRequestTopic) controller.CreateTopic {
	out := controller.CreateTopic{Name: t.Topic, Partitions: t.NumPartitions, ReplicationFactor: t.ReplicationFactor}
	for _, a := range t.ReplicaAssignment {
		out.Assignments = append(out.Assignments, controller.Assignment{Partition: a.Partition, Brokers: a.Replicas})
	}
	for _, kv := range t.Configs {
		if kv.Value == nil {
			continue
		}
		if out.Configs == nil {
			out.Configs = map[string]string{}
		}
		out.Configs[kv.Name] = *kv.Value
	}
	return out
}

func (d *Dispatcher) createdTopic(r *controller.CreateResult) kmsg.CreateTopicsResponseTopic {
	out := kmsg.NewCreateTopicsResponseTopic()
	out.Topic, out.ErrorCode, out.ErrorMessage = r.Name, code(r.Err), message(r.Err)
	out.NumPartitions, out.ReplicationFactor = -1, -1
	if r.Err != nil {
		return out
	}
	out.TopicID, out.NumPartitions, out.ReplicationFactor = r.ID, r.Partitions, r.ReplicationFactor
	out.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
	for _, e := range d.o.Config.DescribeTopic(r.Configs) {
		out.Configs = append(out.Configs, createdConfig(e))
	}
	return out
}

func createdConfig(e config.Described) kmsg.CreateTopicsResponseTopicConfig {
	out := kmsg.NewCreateTopicsResponseTopicConfig()
	out.Name, out.Value = e.Name, configValue(e.Value, e.Null)
	out.ReadOnly, out.IsSensitive, out.Source = e.ReadOnly, e.Sensitive, int8(e.Source)
	return out
}
