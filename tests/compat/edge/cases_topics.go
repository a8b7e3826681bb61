package edge

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func newTopic(name string, partitions int32, replicas int16) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, replicas
	return t
}

// create makes a CreateTopics request. Topics are only checked, not made.
func create(topics ...kmsg.CreateTopicsRequestTopic) func(*env) (kmsg.Request, error) {
	r := kmsg.NewPtrCreateTopicsRequest()
	r.Version, r.TimeoutMillis, r.ValidateOnly, r.Topics = 7, 10_000, true, topics
	return plain(r)
}

func withConfig(t kmsg.CreateTopicsRequestTopic, key string, value *string) kmsg.CreateTopicsRequestTopic {
	t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: key, Value: value})
	return t
}

// placed is a topic whose partitions from first on are placed by hand, on the broker itself where an id is 0.
func placed(name string, first int32, brokers ...[]int32) func(*env) (kmsg.Request, error) {
	return func(e *env) (kmsg.Request, error) {
		t := newTopic(name, -1, -1)
		for i, ids := range brokers {
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Partition = first + int32(i)
			for _, id := range ids {
				if id == 0 {
					id = e.node
				}
				a.Replicas = append(a.Replicas, id)
			}
			t.ReplicaAssignment = append(t.ReplicaAssignment, a)
		}
		return create(t)(e)
	}
}

func topicCases() []Case {
	x := kmsg.StringPtr("x")
	one := newTopic("edge-new", 1, 1)
	partly := newTopic("edge-new", 1, 1)
	partly.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{0}}}
	cases := []Case{
		{Name: "create a topic", request: create(one)},
		{Name: "create with the broker's defaults", request: create(newTopic("edge-new", -1, -1))},
		{Name: "create what exists", request: create(newTopic(topicA, 1, 1))},
		{Name: "create the same twice", request: create(one, one)},
		{Name: "create a good and a bad one", request: create(one, newTopic("edge-other", 0, 1))},
		{Name: "create without a name", request: create(newTopic("", 1, 1))},
		{Name: "create a dot", request: create(newTopic(".", 1, 1))},
		{Name: "create two dots", request: create(newTopic("..", 1, 1))},
		{Name: "create a name with a space", request: create(newTopic("a b", 1, 1))},
		{Name: "create a name with a letter beyond ASCII", request: create(newTopic("ä", 1, 1))},
		{Name: "create a name of 250", request: create(newTopic(strings.Repeat("x", 250), 1, 1))},
		{Name: "create a name that collides", request: create(newTopic("edge.x", 1, 1), newTopic("edge_x", 1, 1))},
		{Name: "create no partitions", request: create(newTopic("edge-new", 0, 1))},
		{Name: "create -2 partitions", request: create(newTopic("edge-new", -2, 1))},
		{Name: "create without replicas", request: create(newTopic("edge-new", 1, 0))},
		{Name: "create -2 replicas", request: create(newTopic("edge-new", 1, -2))},
		{Name: "create more replicas than brokers", request: create(newTopic("edge-new", 1, 3))},
		{Name: "create with an unknown config", request: create(withConfig(one, "no.such.key", x))},
		{Name: "create with a bad value", request: create(withConfig(one, "retention.ms", x))},
		{Name: "create with a value out of range", request: create(withConfig(one, "retention.ms", kmsg.StringPtr("-2")))},
		{Name: "create with a null value", request: create(withConfig(one, "retention.ms", nil))},
		{Name: "create with values at odds", request: create(withConfig(withConfig(one, "min.compaction.lag.ms", kmsg.StringPtr("9")), "max.compaction.lag.ms", kmsg.StringPtr("8")))},
		{Name: "create placed by hand", request: placed("edge-new", 0, []int32{0})},
		{Name: "create on an unknown broker", request: placed("edge-new", 0, []int32{77})},
		{Name: "create on one broker twice", request: placed("edge-new", 0, []int32{0, 0})},
		{Name: "create on nobody", request: placed("edge-new", 0, []int32{})},
		{Name: "create from partition 1 on", request: placed("edge-new", 1, []int32{0})},
		{Name: "create placed unevenly", request: placed("edge-new", 0, []int32{0}, []int32{0, 77})},
		{Name: "create placed, with a number of partitions", request: create(partly)},
	}
	return append(cases, changeTopicCases()...)
}

func deleteTopics(version int16, edit func(*kmsg.DeleteTopicsRequest)) func(*env) (kmsg.Request, error) {
	r := kmsg.NewPtrDeleteTopicsRequest()
	r.Version, r.TimeoutMillis = version, 10_000
	edit(r)
	return plain(r)
}

func grow(topics ...kmsg.CreatePartitionsRequestTopic) func(*env) (kmsg.Request, error) {
	r := kmsg.NewPtrCreatePartitionsRequest()
	r.Version, r.TimeoutMillis, r.ValidateOnly, r.Topics = 3, 10_000, true, topics
	return plain(r)
}

func to(topic string, count int32, brokers ...int32) kmsg.CreatePartitionsRequestTopic {
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = topic, count
	if len(brokers) > 0 {
		t.Assignment = []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: brokers}}
	}
	return t
}

func elect(kind int8, topic string, partitions ...int32) func(*env) (kmsg.Request, error) {
	r := kmsg.NewPtrElectLeadersRequest()
	r.Version, r.TimeoutMillis, r.ElectionType = 2, 10_000, kind
	r.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: topic, Partitions: partitions}}
	return plain(r)
}

func changeTopicCases() []Case {
	type topic = kmsg.DeleteTopicsRequestTopic
	names := func(names ...string) func(*kmsg.DeleteTopicsRequest) {
		return func(r *kmsg.DeleteTopicsRequest) { r.TopicNames = names }
	}
	topics := func(topics ...topic) func(*kmsg.DeleteTopicsRequest) {
		return func(r *kmsg.DeleteTopicsRequest) { r.Topics = topics }
	}
	nobody := kmsg.StringPtr("edge-nobody")
	return []Case{
		{Name: "delete an unknown topic", request: deleteTopics(5, names("edge-nobody"))},
		{Name: "delete an illegal name", request: deleteTopics(5, names("no spaces"))},
		{Name: "delete an unknown id", request: deleteTopics(6, topics(topic{TopicID: [16]byte{1}}))},
		{Name: "delete by name and id", request: deleteTopics(6, topics(topic{Topic: nobody, TopicID: [16]byte{1}}))},
		{Name: "delete by neither", request: deleteTopics(6, topics(topic{}))},
		{Name: "delete the same twice", request: deleteTopics(6, topics(topic{Topic: nobody}, topic{Topic: nobody}))},
		{Name: "grow a topic", request: grow(to(topicA, 3))},
		{Name: "grow to what it has", request: grow(to(topicA, 2))},
		{Name: "grow to less", request: grow(to(topicA, 1))},
		{Name: "grow to -1", request: grow(to(topicA, -1))},
		{Name: "grow an unknown topic", request: grow(to("edge-nobody", 3))},
		{Name: "grow the same twice", request: grow(to(topicA, 3), to(topicA, 4))},
		{Name: "grow on an unknown broker", request: grow(to(topicA, 3, 77))},
		{Name: "grow with too few placed", request: grow(to(topicA, 4, 77))},
		{Name: "elect where there is no need", request: elect(0, topicA, 0)},
		{Name: "elect uncleanly where there is no need", request: elect(1, topicA, 0)},
		{Name: "elect in an unknown topic", request: elect(0, "edge-nobody", 0)},
		{Name: "elect in an unknown partition", request: elect(0, topicA, 9)},
		{Name: "elect by a method that does not exist", request: elect(9, topicA, 0)},
	}
}
