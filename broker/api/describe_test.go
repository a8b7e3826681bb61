package api

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/metastore"
	"varve/protocol"
)

func TestDeleteRecords(t *testing.T) {
	for v := int16(0); v <= 2; v++ {
		b := newBench(t)
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Version = v
		part := func(i int32, off int64) kmsg.DeleteRecordsRequestTopicPartition {
			return kmsg.DeleteRecordsRequestTopicPartition{Partition: i, Offset: off}
		}
		req.Topics = []kmsg.DeleteRecordsRequestTopic{
			{Topic: "a", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{part(0, 9), part(1, 30), part(0, 5)}},
			{Topic: "b", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{part(0, -1)}},
			{Topic: "a", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{part(2, 4)}},
		}
		resp := ask[*kmsg.DeleteRecordsResponse](b, req)
		var got []string
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				got = append(got, fmt.Sprint(topic.Topic, p.Partition, p.LowWatermark, p.ErrorCode))
			}
		}
		if want := []string{"a0 5 0", "a1 -1 1", "a2 4 0", "b0 3 0"}; !slices.Equal(got, want) {
			t.Errorf("version %d: %q", v, got)
		}
		if want := []string{"a-0 5", "a-1 30", "a-2 4", "b-0 -1"}; !slices.Equal(b.replicas.deleted, want) {
			t.Errorf("version %d: %q", v, b.replicas.deleted)
		}
	}
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	b := newBench(t)
	for v := int16(2); v <= 4; v++ {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.Version = v
		req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "a", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{
			{Partition: 3, CurrentLeaderEpoch: 7, LeaderEpoch: 4}, {Partition: 4, CurrentLeaderEpoch: -1, LeaderEpoch: 8}}}}
		p := ask[*kmsg.OffsetForLeaderEpochResponse](b, req).Topics[0].Partitions
		if p[0].Partition != 3 || p[0].ErrorCode != 0 || p[0].LeaderEpoch != 3 || p[0].EndOffset != 50 {
			t.Errorf("version %d: %+v", v, p[0])
		}
		if p[1].ErrorCode != int16(protocol.UnknownLeaderEpoch) || p[1].LeaderEpoch != -1 || p[1].EndOffset != -1 {
			t.Errorf("version %d: %+v", v, p[1])
		}
	}
}

func TestDescribeLogDirs(t *testing.T) {
	b := newBench(t)
	for v := int16(1); v <= 5; v++ {
		for _, c := range []struct {
			ask  []kmsg.DescribeLogDirsRequestTopic
			want string
		}{
			{nil, "a-0=8 a-1=9 b-0=7 "},
			{[]kmsg.DescribeLogDirsRequestTopic{}, ""},
			{[]kmsg.DescribeLogDirsRequestTopic{{Topic: "a", Partitions: []int32{1, 5}}, {Topic: "none", Partitions: []int32{0}}, {Topic: "b"}}, "a-1=9 "},
		} {
			req := kmsg.NewPtrDescribeLogDirsRequest()
			req.Version, req.Topics = v, c.ask
			resp := ask[*kmsg.DescribeLogDirsResponse](b, req)
			dir, got := resp.Dirs[0], ""
			for _, topic := range dir.Topics {
				for _, p := range topic.Partitions {
					got += fmt.Sprintf("%s-%d=%d ", topic.Topic, p.Partition, p.Size)
					if p.OffsetLag != 0 || p.IsFuture {
						t.Errorf("%+v", p)
					}
				}
			}
			if got != c.want || dir.Dir != "/logs" || dir.ErrorCode != 0 || len(resp.Dirs) != 1 || v >= 4 != (dir.TotalBytes == 100 && dir.UsableBytes == 60) {
				t.Errorf("version %d: %+v", v, resp)
			}
		}
	}
	b.replicas.offline = errors.New("broken")
	req := kmsg.NewPtrDescribeLogDirsRequest()
	req.Version = 5
	if resp := ask[*kmsg.DescribeLogDirsResponse](b, req); resp.Dirs[0].ErrorCode != int16(protocol.KafkaStorageError) {
		t.Errorf("%+v", resp)
	}
}

func TestDescribeClientQuotas(t *testing.T) {
	b := newBench(t)
	type comp = kmsg.DescribeClientQuotasRequestComponent
	name := kmsg.StringPtr("x")
	for _, c := range []struct {
		filter []comp
		want   protocol.ErrorCode
	}{
		{nil, 0},
		{[]comp{{EntityType: "user", Match: name}, {EntityType: "client-id", MatchType: 2}}, 0},
		{[]comp{{EntityType: "ip", MatchType: 1}}, 0},
		{[]comp{{EntityType: "", Match: name}}, protocol.InvalidRequest},
		{[]comp{{EntityType: "user", Match: name}, {EntityType: "user", Match: name}}, protocol.InvalidRequest},
		{[]comp{{EntityType: "group", Match: name}}, protocol.UnsupportedVersion},
		{[]comp{{EntityType: "user"}}, protocol.InvalidRequest},
		{[]comp{{EntityType: "user", MatchType: 1, Match: name}}, protocol.InvalidRequest},
		{[]comp{{EntityType: "user", MatchType: 2, Match: name}}, protocol.InvalidRequest},
		{[]comp{{EntityType: "user", MatchType: 3}}, protocol.InvalidRequest},
		{[]comp{{EntityType: "user", MatchType: 1}, {EntityType: "ip", MatchType: 1}}, protocol.InvalidRequest},
	} {
		for v := int16(0); v <= 1; v++ {
			req := kmsg.NewPtrDescribeClientQuotasRequest()
			req.Version, req.Components = v, c.filter
			resp := ask[*kmsg.DescribeClientQuotasResponse](b, req)
			if resp.ErrorCode != int16(c.want) || (resp.Entries == nil) != (c.want != 0) || (resp.ErrorMessage == nil) != (c.want == 0) {
				t.Errorf("%+v: %+v", c.filter, resp)
			}
		}
	}
}

func TestDescribeProducers(t *testing.T) {
	b := newBench(t)
	req := kmsg.NewPtrDescribeProducersRequest()
	req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "a", Partitions: []int32{0}}, {Topic: "b", Partitions: []int32{1}}, {Topic: "no!", Partitions: []int32{2}}}
	topics := ask[*kmsg.DescribeProducersResponse](b, req).Topics
	for i, want := range []protocol.ErrorCode{0, protocol.NotLeaderOrFollower, protocol.InvalidTopicException} {
		p := topics[i].Partitions[0]
		if p.ErrorCode != int16(want) || p.Partition != int32(i) || (p.ErrorMessage == nil) != (want == 0) {
			t.Errorf("%+v", p)
		}
	}
	if p := topics[0].Partitions[0].ActiveProducers; len(p) != 1 || p[0].ProducerID != 5 || p[0].LastSequence != 2 || p[0].CurrentTxnStartOffset != -1 {
		t.Errorf("%+v", p)
	}
}

func TestListConfigResources(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		version int16
		types   []int8
		want    string
		err     protocol.ErrorCode
	}{
		{0, nil, "", 0},
		{1, nil, "4:1 8:1 4:2 8:2 4:3 8:3 2:a 2:b ", 0},
		{1, []int8{2}, "2:a 2:b ", 0},
		{1, []int8{4, 16}, "4:1 4:2 4:3 ", 0},
		{1, []int8{32, 16}, "", 0},
		{1, []int8{2, 3}, "", protocol.UnsupportedVersion},
		{1, []int8{0}, "", protocol.UnsupportedVersion},
	} {
		req := kmsg.NewPtrListConfigResourcesRequest()
		req.Version, req.ResourceTypes = c.version, c.types
		resp := ask[*kmsg.ListConfigResourcesResponse](b, req)
		got := ""
		for _, r := range resp.ConfigResources {
			got += fmt.Sprintf("%d:%s ", r.Type, r.Name)
		}
		if got != c.want || resp.ErrorCode != int16(c.err) {
			t.Errorf("%+v: %s %d", c, got, resp.ErrorCode)
		}
	}
}

// pages follows the cursor and returns each answer as text.
func (b *bench) pages(req *kmsg.DescribeTopicPartitionsRequest) (out []string) {
	for len(out) < 10 {
		resp := ask[*kmsg.DescribeTopicPartitionsResponse](b, req)
		page := ""
		for _, topic := range resp.Topics {
			page += fmt.Sprintf("%s:%d", *topic.Topic, topic.ErrorCode)
			for _, p := range topic.Partitions {
				page += fmt.Sprintf(" %d@%d", p.Partition, p.LeaderID)
				if p.ErrorCode != 0 {
					page += fmt.Sprintf("!%d", p.ErrorCode)
				}
			}
			page += ";"
		}
		out = append(out, page)
		if resp.NextCursor == nil {
			return out
		}
		req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: resp.NextCursor.Topic, Partition: resp.NextCursor.Partition}
	}
	return out
}

func TestDescribeTopicPartitions(t *testing.T) {
	for _, c := range []struct {
		limit  int32
		topics []string
		from   string
		index  int32
		want   []string
	}{
		{100, nil, "", 0, []string{"a:0 0@1 1@2;b:0 0@-1!5 1@-1!72 2@-1!5;"}},
		{2, nil, "", 0, []string{"a:0 0@1 1@2;", "b:0 0@-1!5 1@-1!72;", "b:0 2@-1!5;"}},
		{0, []string{"a"}, "", 0, []string{"a:0 0@1;", "a:0 1@2;"}},
		{3, []string{"b", "a", "b"}, "", 0, []string{"a:0 0@1 1@2;b:0 0@-1!5;", "b:0 1@-1!72 2@-1!5;"}},
		{10, []string{"zz", "a", "no!"}, "", 0, []string{"a:0 0@1 1@2;no!:17;zz:3;"}},
		{10, []string{"a"}, "a", 1, []string{"a:0 1@2;"}},
		{10, []string{"a"}, "a", 9, []string{"a:0;"}},
		{10, []string{"a"}, "a", -1, []string{"a:42;"}},
		{10, []string{"a"}, "b", 0, []string{"a:42;"}},
		{10, nil, "aa", 0, []string{"b:0 0@-1!5 1@-1!72 2@-1!5;"}},
	} {
		b := newBench(t)
		b.cluster.topics["a"].Partitions[0].ELR = []int32{2}
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.ResponsePartitionLimit = c.limit
		for _, name := range c.topics {
			req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: name})
		}
		if c.from != "" {
			req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: c.from, Partition: c.index}
		}
		if got := b.pages(req); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
	b := newBench(t, "max.request.partition.size.limit=1")
	b.cluster.topics["a"].Partitions[0].ELR = []int32{2}
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit = 100
	topic := ask[*kmsg.DescribeTopicPartitionsResponse](b, req).Topics[0]
	if len(topic.Partitions) != 1 || topic.TopicID != idA || topic.AuthorizedOperations != topicOperations || !slices.Equal(topic.Partitions[0].EligibleLeaderReplicas, []int32{2}) {
		t.Errorf("%+v", topic)
	}
	b.cluster.topics = map[string]*metastore.Topic{}
	if resp := ask[*kmsg.DescribeTopicPartitionsResponse](b, req); len(resp.Topics) != 0 || resp.NextCursor != nil {
		t.Errorf("%+v", resp)
	}
}

func TestFeatures(t *testing.T) {
	b := newBench(t)
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "x", "1"
	for v := int16(3); v <= 5; v++ {
		req.Version = v
		resp := ask[*kmsg.ApiVersionsResponse](b, req)
		// Features whose lowest level is 0 are kept from clients before version 4.
		if len(resp.SupportedFeatures) > 1 != (v >= 4) || resp.SupportedFeatures[0].Name != featureMetadata || resp.SupportedFeatures[0].MinVersion < 1 {
			t.Errorf("version %d supports %+v", v, resp.SupportedFeatures)
		}
		levels := map[string]int16{}
		for _, f := range resp.FinalizedFeatures {
			levels[f.Name] = f.MaxVersionLevel
		}
		if !maps.Equal(levels, map[string]int16{featureMetadata: metadataLevel, featureELR: 1}) || resp.FinalizedFeaturesEpoch != 0 {
			t.Errorf("version %d finalizes %v at epoch %d", v, levels, resp.FinalizedFeaturesEpoch)
		}
	}
}
