package edge

import "github.com/twmb/franz-go/pkg/kmsg"

func deleteRecords(topic string, partition int32, offset int64) func(*env) (kmsg.Request, error) {
	r := kmsg.NewPtrDeleteRecordsRequest()
	r.Version, r.TimeoutMillis = 2, 10_000
	r.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: partition, Offset: offset}}}}
	return plain(r)
}

func recordCases() []Case {
	return []Case{
		{Name: "delete records", request: deleteRecords(topicA, 0, 1)},
		{Name: "delete records that are gone", request: deleteRecords(topicA, 0, 1)},
		{Name: "delete records beyond the end", request: deleteRecords(topicA, 0, 4)},
		{Name: "delete records below -1", request: deleteRecords(topicA, 0, -2)},
		{Name: "delete records of an unknown topic", request: deleteRecords("edge-nobody", 0, 0)},
		{Name: "delete records of an illegal name", request: deleteRecords("no spaces", 0, 0)},
		{Name: "delete records of an unknown partition", request: deleteRecords(topicA, 9, 0)},
		{Name: "delete records of a negative partition", request: deleteRecords(topicA, -1, 0)},
		{Name: "delete records of a compacted topic", request: deleteRecords(topicCompact, 0, 0)},
		{Name: "fetch a deleted record", request: fetches(12, topicA, 0, at(0))},
		{Name: "delete all records", request: deleteRecords(topicA, 0, -1)},
		{Name: "fetch after all were deleted", request: fetches(12, topicA, 0, at(3))},
	}
}

func quotas(components ...kmsg.DescribeClientQuotasRequestComponent) func(*env) (kmsg.Request, error) {
	r := kmsg.NewPtrDescribeClientQuotasRequest()
	r.Version, r.Components = 1, components
	return plain(r)
}

func producersOf(topic string, partition int32) func(*env) (kmsg.Request, error) {
	r := kmsg.NewPtrDescribeProducersRequest()
	r.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: topic, Partitions: []int32{partition}}}
	return plain(r)
}

func resources(version int16, kinds ...int8) func(*env) (kmsg.Request, error) {
	r := kmsg.NewPtrListConfigResourcesRequest()
	r.Version, r.ResourceTypes = version, kinds
	return plain(r)
}

func partitionsOf(limit int32, cursor *kmsg.DescribeTopicPartitionsRequestCursor, topics ...string) func(*env) (kmsg.Request, error) {
	r := kmsg.NewPtrDescribeTopicPartitionsRequest()
	r.ResponsePartitionLimit, r.Cursor = limit, cursor
	for _, t := range topics {
		r.Topics = append(r.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: t})
	}
	return plain(r)
}

func logDirs(version int16, topics []kmsg.DescribeLogDirsRequestTopic) func(*env) (kmsg.Request, error) {
	r := kmsg.NewPtrDescribeLogDirsRequest()
	r.Version, r.Topics = version, topics
	return plain(r)
}

func describeCases() []Case {
	type comp = kmsg.DescribeClientQuotasRequestComponent
	x := kmsg.StringPtr("x")
	from := func(topic string, partition int32) *kmsg.DescribeTopicPartitionsRequestCursor {
		return &kmsg.DescribeTopicPartitionsRequestCursor{Topic: topic, Partition: partition}
	}
	return []Case{
		{Name: "quotas", request: quotas()},
		{Name: "quotas of a user", request: quotas(comp{EntityType: "user", Match: x})},
		{Name: "quotas of no entity type", request: quotas(comp{EntityType: "", Match: x})},
		{Name: "quotas of an unknown entity type", request: quotas(comp{EntityType: "planet", Match: x})},
		{Name: "quotas of users twice", request: quotas(comp{EntityType: "user", Match: x}, comp{EntityType: "user", Match: x})},
		{Name: "quotas of exactly nobody", request: quotas(comp{EntityType: "user"})},
		{Name: "quotas of the default with a name", request: quotas(comp{EntityType: "user", MatchType: 1, Match: x})},
		{Name: "quotas by an unknown match", request: quotas(comp{EntityType: "user", MatchType: 7})},
		{Name: "quotas of an address and a user", request: quotas(comp{EntityType: "user", MatchType: 1}, comp{EntityType: "ip", MatchType: 1})},
		{Name: "producers", request: producersOf(topicA, 1)},
		{Name: "producers of an unknown topic", request: producersOf("edge-nobody", 0)},
		{Name: "producers of an unknown partition", request: producersOf(topicA, 9)},
		{Name: "producers of an illegal name", request: producersOf("no spaces", 0)},
		{Name: "config resources 0", request: resources(0)},
		{Name: "config resources", request: resources(1)},
		{Name: "config resources of kind 3", request: resources(1, 3)},
		{Name: "config resources of kind 0", request: resources(1, 2, 0)},
		{Name: "log dirs", request: logDirs(4, nil)},
		{Name: "log dirs of an unknown topic", request: logDirs(4, []kmsg.DescribeLogDirsRequestTopic{{Topic: "edge-nobody", Partitions: []int32{0}}})},
		{Name: "partitions of a topic", request: partitionsOf(10, nil, topicA)},
		{Name: "partitions of an unknown topic", request: partitionsOf(10, nil, "edge-nobody")},
		{Name: "partitions of an illegal name", request: partitionsOf(10, nil, "no spaces")},
		{Name: "partitions up to 0", request: partitionsOf(0, nil, topicA)},
		{Name: "partitions from a negative one", request: partitionsOf(10, from(topicA, -1), topicA)},
		{Name: "partitions from another topic", request: partitionsOf(10, from(topicCompact, 0), topicA)},
		{Name: "partitions from beyond the last", request: partitionsOf(10, from(topicA, 9), topicA)},
	}
}
