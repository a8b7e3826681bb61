package edge

import "github.com/twmb/franz-go/pkg/kmsg"

const (
	kindLogger  = kmsg.ConfigResourceTypeBrokerLogger
	kindMetrics = kmsg.ConfigResourceType(16) // client metrics (KIP-714)
	kindGroup   = kmsg.ConfigResourceType(32)
)

// otherResourceCases are configs of what is neither a topic nor a broker.
func otherResourceCases() []Case {
	set := func(kind kmsg.ConfigResourceType, name, key, value string) func(*env) (kmsg.Request, error) {
		return alter(kind, name, true, []any{key, 0, value})
	}
	return []Case{
		{Name: "describe loggers of the broker", request: describeConfigs(kindLogger, self)},
		{Name: "describe loggers of another broker", request: describeConfigs(kindLogger, "77")},
		{Name: "set a logger's level", request: set(kindLogger, self, "root", "INFO")},
		{Name: "set a logger's level to what is none", request: set(kindLogger, self, "root", "LOUD")},
		{Name: "set an unknown logger's level", request: set(kindLogger, self, "no.such.logger", "INFO")},
		{Name: "set a logger's level of another broker", request: set(kindLogger, "77", "root", "INFO")},
		{Name: "describe a group's configs", request: describeConfigs(kindGroup, "g")},
		{Name: "describe the empty group's configs", request: describeConfigs(kindGroup, "")},
		{Name: "set a group's config", request: set(kindGroup, "g", "consumer.session.timeout.ms", "50000")},
		{Name: "set an unknown config of a group", request: set(kindGroup, "g", "no.such.key", "1")},
		{Name: "describe a metrics subscription", request: describeConfigs(kindMetrics, "m")},
		{Name: "set a metrics subscription", request: set(kindMetrics, "m", "interval.ms", "5000")},
		{Name: "config resources of groups", request: resources(1, 32)},
		{Name: "config resources of metrics subscriptions", request: resources(1, 16)},
		{Name: "config resources of topics and brokers", request: resources(1, 2, 4, 8)},
		{Name: "config resources of topics twice", request: resources(1, 2, 2)},
	}
}

func moreMetadataCases() []Case {
	both := func(e *env) (kmsg.Request, error) {
		return metadata(12, kmsg.MetadataRequestTopic{Topic: kmsg.StringPtr(topicA), TopicID: e.ids[topicA]})(e)
	}
	other := func(e *env) (kmsg.Request, error) {
		return metadata(12, kmsg.MetadataRequestTopic{Topic: kmsg.StringPtr(topicCompact), TopicID: e.ids[topicA]})(e)
	}
	twice := func(e *env) (kmsg.Request, error) {
		return metadata(12, kmsg.MetadataRequestTopic{TopicID: e.ids[topicA]}, kmsg.MetadataRequestTopic{TopicID: e.ids[topicA]})(e)
	}
	idAndName := func(e *env) (kmsg.Request, error) {
		return metadata(12, kmsg.MetadataRequestTopic{TopicID: e.ids[topicA]}, named("edge-nobody"))(e)
	}
	none := kmsg.NewPtrMetadataRequest()
	none.Version, none.Topics = 9, []kmsg.MetadataRequestTopic{}
	fenced := kmsg.NewPtrDescribeClusterRequest()
	fenced.Version, fenced.EndpointType, fenced.IncludeFencedBrokers, fenced.IncludeClusterAuthorizedOperations = 2, 1, true, true
	return []Case{
		{Name: "metadata of no topics", request: plain(none)},
		{Name: "metadata by id and name", request: both},
		{Name: "metadata by id and another's name", request: other},
		{Name: "metadata by id twice", request: twice},
		{Name: "metadata by id, and by name", request: idAndName},
		{Name: "metadata by neither", request: metadata(12, kmsg.MetadataRequestTopic{})},
		{Name: "metadata of a topic, 0", request: metadata(0, named(topicA))},
		{Name: "metadata of a topic, 13", request: metadata(13, named(topicA))},
		{Name: "describe cluster, 0", request: describeCluster(0, 1)},
		{Name: "describe cluster with fenced brokers", request: plain(fenced)},
		{Name: "partitions up to -1", request: partitionsOf(-1, nil, topicA)},
		{Name: "partitions of a topic twice", request: partitionsOf(10, nil, topicA, topicA)},
		{Name: "partitions of the empty name", request: partitionsOf(10, nil, "")},
		{Name: "producers of a negative partition", request: producersOf(topicA, -1)},
	}
}

func moreFetchCases() []Case {
	edit := func(fn func(*kmsg.FetchRequest)) func(*env) (kmsg.Request, error) { return fetches(12, topicA, 0, fn) }
	list := func(version int16, fn func(*kmsg.ListOffsetsRequest)) func(*env) (kmsg.Request, error) {
		r := listOffsets(version, topicA, 0, -1)
		fn(r)
		return plain(r)
	}
	epoch := func(version int16, replica int32) func(*env) (kmsg.Request, error) {
		return func(e *env) (kmsg.Request, error) {
			r, err := epochEnd(topicA, 0, -1, 0)(e)
			in := *r.(*kmsg.OffsetForLeaderEpochRequest)
			in.Version, in.ReplicaID = version, replica
			return &in, err
		}
	}
	return []Case{
		{Name: "fetch committed records", request: edit(func(r *kmsg.FetchRequest) { r.IsolationLevel = 1 })},
		{Name: "fetch at isolation level 9", request: edit(func(r *kmsg.FetchRequest) { r.IsolationLevel = 9 })},
		{Name: "fetch from a rack", request: edit(func(r *kmsg.FetchRequest) { r.Rack = "r" })},
		{Name: "fetch as the broker itself", request: edit(func(r *kmsg.FetchRequest) { r.ReplicaID = 1 })},
		{Name: "fetch as another broker", request: edit(func(r *kmsg.FetchRequest) { r.ReplicaID = 77 })},
		{Name: "fetch as a debugging consumer", request: edit(func(r *kmsg.FetchRequest) { r.ReplicaID = -2 })},
		{Name: "fetch as replica -7", request: edit(func(r *kmsg.FetchRequest) { r.ReplicaID = -7 })},
		{Name: "fetch after an epoch to come", request: edit(func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].LastFetchedEpoch = 99 })},
		{Name: "fetch of a negative log start", request: edit(func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].LogStartOffset = -9 })},
		{Name: "fetch at epoch -5", request: edit(atEpoch(-5))},
		{Name: "fetch after epoch -5", request: edit(func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].LastFetchedEpoch = -5 })},
		{Name: "latest offset at epoch -5", request: list(7, func(r *kmsg.ListOffsetsRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = -5 })},
		{Name: "end of an epoch at epoch -5", request: epochEnd(topicA, 0, -5, 0)},
		{Name: "fetch, 18", request: fetches(18, topicA, 0, nil)},
		{Name: "latest committed offset", request: list(7, func(r *kmsg.ListOffsetsRequest) { r.IsolationLevel = 1 })},
		{Name: "latest offset at isolation level 9", request: list(7, func(r *kmsg.ListOffsetsRequest) { r.IsolationLevel = 9 })},
		{Name: "latest offset as another broker", request: list(7, func(r *kmsg.ListOffsetsRequest) { r.ReplicaID = 77 })},
		{Name: "latest offset as a debugging consumer", request: list(7, func(r *kmsg.ListOffsetsRequest) { r.ReplicaID = -2 })},
		{Name: "latest offset within -1 milliseconds", request: list(11, func(r *kmsg.ListOffsetsRequest) { r.TimeoutMillis = -1 })},
		{Name: "latest offset of a partition of two topics", request: list(7, func(r *kmsg.ListOffsetsRequest) {
			r.Topics = append(r.Topics, listOffsets(7, topicCompact, 0, -1).Topics...)
		})},
		{Name: "offset of a partition twice and of another", request: list(7, func(r *kmsg.ListOffsetsRequest) {
			p := r.Topics[0].Partitions[0]
			other := p
			other.Partition = 1
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, other, p)
		})},
		{Name: "end of an epoch, 2", request: epoch(2, -1)},
		{Name: "end of an epoch as another broker", request: epoch(4, 77)},
		{Name: "end of an epoch as a debugging consumer", request: epoch(3, -2)},
	}
}

func moreTopicCases() []Case {
	create := func(version int16, ms int32, t kmsg.CreateTopicsRequestTopic) func(*env) (kmsg.Request, error) {
		r := kmsg.NewPtrCreateTopicsRequest()
		r.Version, r.TimeoutMillis, r.ValidateOnly, r.Topics = version, ms, true, []kmsg.CreateTopicsRequestTopic{t}
		return plain(r)
	}
	del := func(ms int32) func(*kmsg.DeleteTopicsRequest) {
		return func(r *kmsg.DeleteTopicsRequest) { r.TopicNames, r.TimeoutMillis = []string{"edge-nobody"}, ms }
	}
	twice := func(e *env) (kmsg.Request, error) {
		r, err := replace(kindTopic, topicA, kmsg.StringPtr("1"))(e)
		in := r.(*kmsg.AlterConfigsRequest)
		in.Resources = append(in.Resources, in.Resources[0])
		return in, err
	}
	return []Case{
		{Name: "create a topic, 2", request: create(2, 10_000, newTopic("edge-new", 1, 1))},
		{Name: "create with the broker's defaults, 4", request: create(4, 10_000, newTopic("edge-new", -1, -1))},
		{Name: "create with the broker's defaults, 3", request: create(3, 10_000, newTopic("edge-new", -1, -1))},
		{Name: "create a topic of the metadata log's name", request: create(7, 10_000, newTopic("__cluster_metadata", 1, 1))},
		{Name: "create a name that collides with one that exists", request: create(7, 10_000, newTopic("edge.a", 1, 1))},
		{Name: "create with a config twice", request: create(7, 10_000, withConfig(withConfig(newTopic("edge-new", 1, 1), "retention.ms", kmsg.StringPtr("1")), "retention.ms", kmsg.StringPtr("2")))},
		{Name: "create with a config of the broker", request: create(7, 10_000, withConfig(newTopic("edge-new", 1, 1), "log.retention.ms", kmsg.StringPtr("1")))},
		{Name: "create with a config without a name", request: create(7, 10_000, withConfig(newTopic("edge-new", 1, 1), "", kmsg.StringPtr("1")))},
		{Name: "delete an unknown topic, 1", request: deleteTopics(1, del(10_000))},
		{Name: "delete the metadata log", request: deleteTopics(5, func(r *kmsg.DeleteTopicsRequest) { r.TopicNames = []string{"__cluster_metadata"} })},
		{Name: "delete the empty name", request: deleteTopics(5, func(r *kmsg.DeleteTopicsRequest) { r.TopicNames = []string{""} })},
		{Name: "grow without a name", request: grow(to("", 3))},
		{Name: "grow placed on nobody", request: grow(kmsg.CreatePartitionsRequestTopic{Topic: topicA, Count: 3, Assignment: []kmsg.CreatePartitionsRequestTopicAssignment{{}}})},
		{Name: "grow placed on one broker twice", request: grow(to(topicA, 3, 1, 1))},
		{Name: "grow placed by hand", request: grow(to(topicA, 3, 1))},
		{Name: "elect nothing", request: elect(0, topicA)},
		{Name: "elect in a negative partition", request: elect(0, topicA, -1)},
		{Name: "elect in a partition twice", request: elect(0, topicA, 0, 0)},
		{Name: "replace a topic's configs twice", request: twice},
		{Name: "replace the broker's configs", request: replace(kindBroker, self, kmsg.StringPtr("1"))},
		{Name: "replace an illegal topic's configs", request: replace(kindTopic, "no spaces", kmsg.StringPtr("1"))},
		{Name: "log dirs of an unknown partition", request: logDirs(4, []kmsg.DescribeLogDirsRequestTopic{{Topic: topicA, Partitions: []int32{9}}})},
		{Name: "log dirs, 1", request: logDirs(1, nil)},
		{Name: "log dirs of nothing", request: logDirs(4, []kmsg.DescribeLogDirsRequestTopic{})},
		{Name: "delete records, 0, of an unknown topic", request: func(e *env) (kmsg.Request, error) {
			r, err := deleteRecords("edge-nobody", 0, 0)(e)
			in := *r.(*kmsg.DeleteRecordsRequest)
			in.Version = 0
			return &in, err
		}},
		{Name: "delete records of a partition twice", request: func(e *env) (kmsg.Request, error) {
			r, err := deleteRecords(topicA, 1, 0)(e)
			in := *r.(*kmsg.DeleteRecordsRequest)
			in.Topics = append(in.Topics, in.Topics[0])
			return &in, err
		}},
	}
}
