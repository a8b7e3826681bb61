package api

import "github.com/twmb/franz-go/pkg/kmsg"

// adminSamples are the sampleRequests of the keys that administer.
func adminSamples() map[int16]func() kmsg.Request {
	return map[int16]func() kmsg.Request{
		21: func() kmsg.Request {
			r := kmsg.NewPtrDeleteRecordsRequest()
			r.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "a", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 0, Offset: 9}, {Partition: 1, Offset: -1}}}}
			return r
		},
		23: func() kmsg.Request {
			r := kmsg.NewPtrOffsetForLeaderEpochRequest()
			r.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "a", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{Partition: 0, CurrentLeaderEpoch: -1, LeaderEpoch: 4}}}}
			return r
		},
		35: func() kmsg.Request {
			r := kmsg.NewPtrDescribeLogDirsRequest()
			r.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: "a", Partitions: []int32{0, 1}}}
			return r
		},
		48: func() kmsg.Request {
			r := kmsg.NewPtrDescribeClientQuotasRequest()
			r.Components = []kmsg.DescribeClientQuotasRequestComponent{{EntityType: "user", Match: kmsg.StringPtr("x")}, {EntityType: "client-id", MatchType: 1}}
			return r
		},
		61: func() kmsg.Request {
			r := kmsg.NewPtrDescribeProducersRequest()
			r.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "a", Partitions: []int32{0, 1}}}
			return r
		},
		74: func() kmsg.Request {
			r := kmsg.NewPtrListConfigResourcesRequest()
			r.ResourceTypes = []int8{2, 4}
			return r
		},
		75: func() kmsg.Request {
			r := kmsg.NewPtrDescribeTopicPartitionsRequest()
			r.ResponsePartitionLimit = 1
			r.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "a"}, {Topic: "nope"}}
			r.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: "a"}
			return r
		},
		32: func() kmsg.Request {
			r := kmsg.NewPtrDescribeConfigsRequest()
			r.IncludeDocumentation, r.IncludeSynonyms = true, true
			r.Resources = []kmsg.DescribeConfigsRequestResource{
				{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "a"},
				{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1"},
			}
			return r
		},
		33: func() kmsg.Request {
			r := kmsg.NewPtrAlterConfigsRequest()
			r.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "a",
				Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: kmsg.StringPtr("77")}}}}
			return r
		},
		44: func() kmsg.Request {
			r := kmsg.NewPtrIncrementalAlterConfigsRequest()
			r.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1",
				Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "log.retention.ms", Value: kmsg.StringPtr("77")}, {Name: "log.roll.ms", Op: 1}}}}
			return r
		},
	}
}

// aclSamples are those about access rules.
func aclSamples() map[int16]func() kmsg.Request {
	return map[int16]func() kmsg.Request{
		29: func() kmsg.Request {
			r := kmsg.NewPtrDescribeACLsRequest()
			r.ResourceType, r.ResourcePatternType, r.Operation, r.PermissionType = 1, 1, 1, 1
			return r
		},
		30: func() kmsg.Request {
			r := kmsg.NewPtrCreateACLsRequest()
			r.Creations = []kmsg.CreateACLsRequestCreation{{ResourceType: 2, ResourceName: "a", ResourcePatternType: 3, Principal: "User:u", Host: "*", Operation: 3, PermissionType: 3}}
			return r
		},
		31: func() kmsg.Request {
			r := kmsg.NewPtrDeleteACLsRequest()
			r.Filters = []kmsg.DeleteACLsRequestFilter{
				{ResourceType: 2, ResourcePatternType: 1, Operation: 1, PermissionType: 1},
				{ResourceType: 4, ResourcePatternType: 1, Host: kmsg.StringPtr("*"), Operation: 1, PermissionType: 1},
			}
			return r
		},
	}
}
