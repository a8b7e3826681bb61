package api

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/replica"
	"varve/metastore/controller"
	"varve/protocol"
)

func createRequest(version int16, names ...string) *kmsg.CreateTopicsRequest {
	r := kmsg.NewPtrCreateTopicsRequest()
	r.Version, r.TimeoutMillis = version, 5000
	for _, n := range names {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = n, 3, 1
		r.Topics = append(r.Topics, t)
	}
	return r
}

func TestCreateTopics(t *testing.T) {
	b := newBench(t)
	b.control.err = func(topic string) error {
		if topic == "exists" {
			return protocol.Errorf(protocol.TopicAlreadyExists, "Topic 'exists' already exists.")
		}
		return nil
	}
	for v := int16(2); v <= 7; v++ {
		b.control.created = nil
		req := createRequest(v, "new", "exists", "twice", "twice", "__cluster_metadata")
		req.Topics[0].Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms", Value: kmsg.StringPtr("77")}}
		req.Topics[0].ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{1, 2}}}
		resp := ask[*kmsg.CreateTopicsResponse](b, req)
		codes := map[string]int16{}
		for _, topic := range resp.Topics {
			codes[topic.Topic] = topic.ErrorCode
			if (topic.ErrorMessage != nil) != (topic.ErrorCode != 0) {
				t.Fatalf("version %d: %+v", v, topic)
			}
			if topic.Topic == "new" && v >= 5 && (topic.NumPartitions != 3 || topic.ReplicationFactor != 1 || !hasConfig(topic.Configs, "retention.ms", "77")) {
				t.Fatalf("version %d: %+v", v, topic)
			}
			if topic.Topic == "new" && v >= 7 && topic.TopicID != idA {
				t.Fatalf("version %d: %+v", v, topic)
			}
		}
		if len(codes) != 4 || len(resp.Topics) != 4 || codes["new"] != 0 || codes["exists"] != 36 || codes["twice"] != 42 || codes["__cluster_metadata"] != 42 {
			t.Fatalf("version %d: %v", v, codes)
		}
		if got := b.control.names(); !slices.Equal(got, []string{"exists", "new"}) {
			t.Fatalf("asked for %v", got)
		}
		made := b.control.created[0]
		if made.Configs["retention.ms"] != "77" || len(made.Configs) != 1 || made.Assignments[0].Brokers[1] != 2 {
			t.Fatalf("%+v", made)
		}
	}
}

func TestCreateTopicsNullConfigs(t *testing.T) {
	b := newBench(t)
	null := []kmsg.CreateTopicsRequestTopicConfig{{Name: "segment.ms"}}
	for name, want := range map[string]bool{"new": false, "a": true, "no!": true} { // the controller knows better reasons for the others
		b.control.created = nil
		req := createRequest(7, name)
		req.Topics[0].Configs = null
		resp := ask[*kmsg.CreateTopicsResponse](b, req).Topics[0]
		if asked := len(b.control.created) == 1; asked != want || !asked && resp.ErrorCode != int16(protocol.InvalidConfig) {
			t.Errorf("%s: asked %v, %d", name, asked, resp.ErrorCode)
		}
	}
}

// One request makes at most ten thousand partitions; the controller does not hear of more.
func TestTooManyPartitions(t *testing.T) {
	b := newBench(t)
	for partitions, want := range map[int32]protocol.ErrorCode{5000: protocol.None, 5001: protocol.PolicyViolation, 1 << 30: protocol.PolicyViolation} {
		b.control.created = nil
		req := createRequest(7, "new", "newer")
		req.Topics[0].NumPartitions, req.Topics[1].NumPartitions = partitions, partitions
		for _, got := range ask[*kmsg.CreateTopicsResponse](b, req).Topics {
			if got.ErrorCode != int16(want) || len(b.control.created) > 0 != (want == protocol.None) {
				t.Errorf("%d partitions: %+v", partitions, got)
			}
		}
	}
	grow := kmsg.NewPtrCreatePartitionsRequest()
	grow.Version = 3
	grow.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "a", Count: 1 << 30}, {Topic: "b", Count: 4}}
	for _, got := range ask[*kmsg.CreatePartitionsResponse](b, grow).Topics {
		if got.ErrorCode != int16(protocol.PolicyViolation) {
			t.Errorf("%+v", got)
		}
	}
}

func hasConfig(all []kmsg.CreateTopicsResponseTopicConfig, name, value string) bool {
	return slices.ContainsFunc(all, func(c kmsg.CreateTopicsResponseTopicConfig) bool {
		return c.Name == name && c.Value != nil && *c.Value == value && c.Source == 1
	})
}

// What the controller has not done in the request's time is REQUEST_TIMED_OUT.
func TestTimeouts(t *testing.T) {
	b := newBench(t)
	b.control.block = true
	create := createRequest(7, "new")
	create.TimeoutMillis = 30
	if got := ask[*kmsg.CreateTopicsResponse](b, create).Topics[0].ErrorCode; got != 7 {
		t.Error("create", got)
	}
	del := kmsg.NewPtrDeleteTopicsRequest()
	del.Version, del.TimeoutMillis, del.TopicNames = 5, -1, []string{"a"}
	if got := ask[*kmsg.DeleteTopicsResponse](b, del).Topics[0]; got.ErrorCode != 7 || *got.Topic != "a" {
		t.Error("delete", got)
	}
	parts := kmsg.NewPtrCreatePartitionsRequest()
	parts.Version, parts.TimeoutMillis = 3, 10
	parts.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "a", Count: 9}}
	if got := ask[*kmsg.CreatePartitionsResponse](b, parts).Topics[0].ErrorCode; got != 7 {
		t.Error("partitions", got)
	}
	elect := kmsg.NewPtrElectLeadersRequest()
	elect.Version, elect.TimeoutMillis = 2, 10
	elect.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "a", Partitions: []int32{0}}}
	if got := ask[*kmsg.ElectLeadersResponse](b, elect); got.ErrorCode != 7 || got.Topics[0].Partitions[0].ErrorCode != 7 {
		t.Error("elect", got)
	}
}

func TestDeleteTopicsByName(t *testing.T) {
	b := newBench(t)
	for v := int16(1); v <= 5; v++ {
		b.control.deleted = nil
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.Version, req.TimeoutMillis, req.TopicNames = v, 1000, []string{"a", "none", "b", "b"}
		codes := map[string]int16{}
		for _, topic := range ask[*kmsg.DeleteTopicsResponse](b, req).Topics {
			codes[*topic.Topic] = topic.ErrorCode
		}
		if len(codes) != 3 || codes["a"] != 0 || codes["none"] != 3 || codes["b"] != 42 {
			t.Fatalf("version %d: %v", v, codes)
		}
		if len(b.control.deleted) != 1 || b.control.deleted[0].ID != idA {
			t.Fatalf("%+v", b.control.deleted)
		}
	}
}

func TestDeleteTopicsByID(t *testing.T) {
	name := kmsg.StringPtr
	for _, tc := range []struct {
		what   string
		topics []kmsg.DeleteTopicsRequestTopic
		codes  []int16
		gone   int
	}{
		{"by id", []kmsg.DeleteTopicsRequestTopic{{TopicID: idA}, {Topic: name("b")}}, []int16{0, 0}, 2},
		{"unknown id", []kmsg.DeleteTopicsRequestTopic{{TopicID: [16]byte{9}}}, []int16{100}, 0},
		{"neither", []kmsg.DeleteTopicsRequestTopic{{}}, []int16{42}, 0},
		{"both", []kmsg.DeleteTopicsRequestTopic{{Topic: name("a"), TopicID: idA}}, []int16{42}, 0},
		{"id twice", []kmsg.DeleteTopicsRequestTopic{{TopicID: idA}, {TopicID: idA}}, []int16{42}, 0},
		{"name and its id", []kmsg.DeleteTopicsRequestTopic{{TopicID: idA}, {Topic: name("a")}}, []int16{42}, 0},
	} {
		b := newBench(t)
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.Version, req.TimeoutMillis, req.Topics = 6, 1000, tc.topics
		var codes []int16
		for _, topic := range ask[*kmsg.DeleteTopicsResponse](b, req).Topics {
			codes = append(codes, topic.ErrorCode)
			if topic.ErrorCode == 0 && (topic.Topic == nil || topic.TopicID == [16]byte{}) {
				t.Errorf("%s: %+v", tc.what, topic)
			}
		}
		slices.Sort(codes)
		if !slices.Equal(codes, tc.codes) || len(b.control.deleted) != tc.gone {
			t.Errorf("%s: %v, deleted %v", tc.what, codes, b.control.deleted)
		}
	}
}

func TestDeletionDisabled(t *testing.T) {
	b := newBench(t, "delete.topic.enable=false")
	for v := int16(1); v <= 6; v++ {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.Version, req.TopicNames, req.Topics = v, []string{"a"}, []kmsg.DeleteTopicsRequestTopic{{Topic: kmsg.StringPtr("a")}}
		want := protocol.TopicDeletionDisabled
		if v < 3 {
			want = protocol.InvalidRequest
		}
		got := ask[*kmsg.DeleteTopicsResponse](b, req).Topics
		if len(got) != 1 || got[0].ErrorCode != int16(want) || len(b.control.deleted) != 0 {
			t.Fatalf("version %d: %+v", v, got)
		}
	}
}

func TestCreatePartitions(t *testing.T) {
	b := newBench(t)
	b.control.err = func(topic string) error {
		if topic == "b" {
			return protocol.Errorf(protocol.InvalidPartitions, "fewer")
		}
		return nil
	}
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Version, req.TimeoutMillis = 3, 1000
	req.Topics = []kmsg.CreatePartitionsRequestTopic{
		{Topic: "a", Count: 4, Assignment: []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{2, 1}}}},
		{Topic: "b", Count: 1}, {Topic: "x", Count: 1}, {Topic: "x", Count: 2},
	}
	codes := map[string]int16{}
	for _, topic := range ask[*kmsg.CreatePartitionsResponse](b, req).Topics {
		codes[topic.Topic] = topic.ErrorCode
	}
	if len(codes) != 3 || codes["a"] != 0 || codes["b"] != 37 || codes["x"] != 42 {
		t.Fatal(codes)
	}
	if got := b.control.grown; len(got) != 2 || got[0].Count != 4 || got[0].Assignments[0][0] != 2 || got[1].Assignments != nil {
		t.Fatalf("%+v", got)
	}
}

func TestElectLeaders(t *testing.T) {
	b := newBench(t)
	b.control.err = func(topic string) error {
		if topic == "b" {
			return protocol.ElectionNotNeeded
		}
		return nil
	}
	for v := int16(0); v <= 2; v++ {
		b.control.elected = nil
		req := kmsg.NewPtrElectLeadersRequest()
		req.Version, req.TimeoutMillis, req.ElectionType = v, 1000, 1
		req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "a", Partitions: []int32{0, 1, 0}}, {Topic: "b", Partitions: []int32{2}}}
		resp := ask[*kmsg.ElectLeadersResponse](b, req)
		if len(resp.Topics) != 2 || len(resp.Topics[0].Partitions) != 2 || resp.Topics[1].Partitions[0].ErrorCode != 84 || b.control.unclean != (v >= 1) {
			t.Fatalf("version %d: %+v", v, resp)
		}
		if !slices.Equal(b.control.elected, []controller.TopicPartition{{Topic: "a", Partition: 0}, {Topic: "a", Partition: 1}, {Topic: "b", Partition: 2}}) {
			t.Fatalf("%+v", b.control.elected)
		}
		req.Topics = nil
		if ask[*kmsg.ElectLeadersResponse](b, req); !b.control.allParts {
			t.Fatal("null is not all")
		}
	}
	req := kmsg.NewPtrElectLeadersRequest()
	req.Version, req.ElectionType = 1, 5
	if resp := ask[*kmsg.ElectLeadersResponse](b, req); resp.ErrorCode != 42 {
		t.Fatalf("%+v", resp)
	}
}

func TestInitProducerID(t *testing.T) {
	b := newBench(t)
	seen := map[int64]bool{}
	for v := int16(0); v <= 5; v++ {
		for range 4 {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.Version, req.ProducerID, req.ProducerEpoch = v, -1, -1
			if resp := ask[*kmsg.InitProducerIDResponse](b, req); resp.ErrorCode != 0 || resp.ProducerEpoch != 0 || seen[resp.ProducerID] {
				t.Fatalf("version %d: %+v", v, resp)
			} else {
				seen[resp.ProducerID] = true
			}
		}
	}
	for _, tc := range []struct {
		txn   *string
		id    int64
		epoch int16
		want  protocol.ErrorCode
	}{
		{nil, 5, 3, protocol.None},
		{nil, 5, -1, protocol.InvalidRequest},
		{nil, -1, 3, protocol.InvalidRequest},
		{kmsg.StringPtr(""), -1, -1, protocol.InvalidRequest},
		{kmsg.StringPtr("txn"), -1, -1, protocol.NotCoordinator},
	} {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch = 5, tc.txn, tc.id, tc.epoch
		resp := ask[*kmsg.InitProducerIDResponse](b, req)
		if resp.ErrorCode != int16(tc.want) || (resp.ProducerID == -1) != (tc.want != 0) || seen[resp.ProducerID] {
			t.Errorf("%+v: %+v", tc, resp)
		}
	}
	b.idErr = errors.New("no quorum")
	var last *kmsg.InitProducerIDResponse
	for range 4 {
		last = ask[*kmsg.InitProducerIDResponse](b, kmsg.NewPtrInitProducerIDRequest())
	}
	if last.ErrorCode != int16(protocol.CoordinatorLoadInProgress) {
		t.Fatalf("%+v", last)
	}
}

// Ids are never given out twice, and a waiting request gives up with its client.
func TestProducerIDsConcurrently(t *testing.T) {
	b := newBench(t)
	var mu sync.Mutex
	seen := map[int64]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				id, err := b.producerIDs.take(t.Context())
				mu.Lock()
				if err != nil || seen[id] {
					t.Errorf("id %d twice, %v", id, err)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	<-b.producerIDs.turn
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := b.producerIDs.take(ctx); err == nil {
		t.Fatal("no error")
	}
}

func describeConfigs(b *bench, version int16, typ kmsg.ConfigResourceType, name string, keys ...string) kmsg.DescribeConfigsResponseResource {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version, req.IncludeSynonyms, req.IncludeDocumentation = version, true, true
	req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: typ, ResourceName: name, ConfigNames: keys}}
	return ask[*kmsg.DescribeConfigsResponse](b, req).Resources[0]
}

func TestDescribeConfigs(t *testing.T) {
	b := newBench(t)
	topic := describeConfigs(b, 4, kmsg.ConfigResourceTypeTopic, "a")
	if topic.ErrorCode != 0 || len(topic.Configs) < 20 {
		t.Fatalf("%+v", topic)
	}
	one := describeConfigs(b, 4, kmsg.ConfigResourceTypeTopic, "a", "retention.ms", "no.such.key")
	c := one.Configs[0]
	if len(one.Configs) != 1 || *c.Value != "5000" || c.Source != kmsg.ConfigSourceDynamicTopicConfig || c.ConfigType != kmsg.ConfigTypeLong ||
		len(c.ConfigSynonyms) < 2 || c.ConfigSynonyms[0].Name != "retention.ms" || c.Documentation == nil || c.IsSensitive || c.ReadOnly {
		t.Fatalf("%+v", one)
	}
	if old := describeConfigs(b, 1, kmsg.ConfigResourceTypeTopic, "a", "retention.ms").Configs[0]; old.Documentation != nil || len(old.ConfigSynonyms) < 2 {
		t.Fatalf("%+v", old)
	}
	broker := describeConfigs(b, 4, kmsg.ConfigResourceTypeBroker, "1")
	if broker.ErrorCode != 0 || len(broker.Configs) < 50 {
		t.Fatalf("%d configs, error %d", len(broker.Configs), broker.ErrorCode)
	}
	for _, e := range broker.Configs {
		if e.IsSensitive && e.Value != nil {
			t.Fatalf("%s shows its value", e.Name)
		}
	}
	if d := describeConfigs(b, 4, kmsg.ConfigResourceTypeBroker, ""); d.ErrorCode != 0 || len(d.Configs) != 0 {
		t.Fatalf("%+v", d)
	}
	for _, tc := range []struct {
		typ  kmsg.ConfigResourceType
		name string
		want protocol.ErrorCode
	}{
		{kmsg.ConfigResourceTypeTopic, "none", protocol.UnknownTopicOrPartition},
		{kmsg.ConfigResourceTypeTopic, "no/ne", protocol.InvalidTopicException},
		{kmsg.ConfigResourceTypeBroker, "2", protocol.InvalidRequest},
		{kmsg.ConfigResourceTypeBroker, "x", protocol.InvalidRequest},
		{kmsg.ConfigResourceTypeBrokerLogger, "1", protocol.InvalidRequest},
		{99, "1", protocol.InvalidRequest},
	} {
		if r := describeConfigs(b, 4, tc.typ, tc.name); r.ErrorCode != int16(tc.want) || r.ErrorMessage == nil || r.ResourceName != tc.name || len(r.Configs) != 0 {
			t.Errorf("%+v: %+v", tc, r)
		}
	}
}

func TestListOffsetsRequest(t *testing.T) {
	b := newBench(t)
	var got replica.OffsetQuery
	var deadline time.Duration
	b.replicas.listOffset = func(ctx context.Context, q replica.OffsetQuery) (replica.OffsetResult, error) {
		got = q
		end, _ := ctx.Deadline()
		deadline = time.Until(end)
		if q.Partition == 9 {
			return replica.OffsetResult{Timestamp: -1, Offset: -1, LeaderEpoch: -1}, protocol.OffsetNotAvailable
		}
		return replica.OffsetResult{Timestamp: 5, Offset: 6, LeaderEpoch: 7}, nil
	}
	for v := int16(1); v <= 11; v++ {
		req := kmsg.NewPtrListOffsetsRequest()
		req.Version, req.ReplicaID, req.IsolationLevel, req.TimeoutMillis = v, -1, 1, 2000
		part := func(i int32) kmsg.ListOffsetsRequestTopicPartition {
			return kmsg.ListOffsetsRequestTopicPartition{Partition: i, CurrentLeaderEpoch: 4, Timestamp: 50}
		}
		req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "a", Partitions: []kmsg.ListOffsetsRequestTopicPartition{part(9), part(3), part(3), part(1)}}}
		p := ask[*kmsg.ListOffsetsResponse](b, req).Topics[0].Partitions
		want := int16(protocol.OffsetNotAvailable)
		if v < 5 {
			want = int16(protocol.LeaderNotAvailable)
		}
		if p[0].ErrorCode != want || p[1].ErrorCode != 42 || p[2].ErrorCode != 0 || p[2].Offset != 6 || len(p) != 3 {
			t.Fatalf("version %d: %+v", v, p)
		}
		if got.ReadCommitted != (v >= 2) || (got.CurrentLeaderEpoch == 4) != (v >= 4) || got.Timestamp != 50 || got.ReplicaID != -1 {
			t.Fatalf("version %d: %+v", v, got)
		}
		if (deadline < 3*time.Second) != (v >= 10) {
			t.Fatalf("version %d: deadline in %v", v, deadline)
		}
	}
}
