package api

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

func metadataRequest(version int16, topics ...string) *kmsg.MetadataRequest {
	r := kmsg.NewPtrMetadataRequest()
	r.Version = version
	r.Topics = []kmsg.MetadataRequestTopic{}
	for _, t := range topics {
		r.Topics = append(r.Topics, kmsg.MetadataRequestTopic{Topic: kmsg.StringPtr(t)})
	}
	return r
}

func topicNames(resp *kmsg.MetadataResponse) (out []string) {
	for _, t := range resp.Topics {
		if t.Topic == nil {
			out = append(out, "null")
		} else {
			out = append(out, *t.Topic)
		}
	}
	return out
}

// Null is all, empty is none; version 0 has no null and takes empty for all.
func TestMetadataAllAndNone(t *testing.T) {
	b := newBench(t)
	for v := int16(0); v <= 13; v++ {
		none := ask[*kmsg.MetadataResponse](b, metadataRequest(v))
		if got := topicNames(none); (len(got) == 0) != (v > 0) {
			t.Errorf("version %d, empty: %v", v, got)
		}
		if v == 0 {
			continue
		}
		req := metadataRequest(v)
		req.Topics = nil
		if got := topicNames(ask[*kmsg.MetadataResponse](b, req)); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("version %d, null: %v", v, got)
		}
	}
}

func TestMetadataOfCluster(t *testing.T) {
	b := newBench(t)
	for v := int16(0); v <= 13; v++ {
		req := metadataRequest(v, "a")
		req.IncludeClusterAuthorizedOperations, req.IncludeTopicAuthorizedOperations = true, true
		resp := ask[*kmsg.MetadataResponse](b, req)
		if len(resp.Brokers) != 2 || resp.Brokers[0].NodeID != 1 || resp.Brokers[0].Host != "h" || resp.Brokers[1].Port != 9002 {
			t.Fatalf("version %d: %+v", v, resp.Brokers)
		}
		if v >= 1 && (resp.ControllerID != 2 || *resp.Brokers[0].Rack != "r1" || resp.Brokers[1].Rack != nil) {
			t.Fatalf("version %d: %+v", v, resp)
		}
		if v >= 2 && *resp.ClusterID != "cluster-id" {
			t.Fatalf("version %d: %+v", v, resp)
		}
		if inRange := v >= 8 && v <= 10; inRange != (resp.AuthorizedOperations == 0b1111110100000) {
			t.Fatalf("version %d: %b", v, resp.AuthorizedOperations)
		}
		topic := resp.Topics[0]
		if v >= 8 && topic.AuthorizedOperations != 0b110111111000 || v >= 10 && topic.TopicID != idA {
			t.Fatalf("version %d: %+v", v, topic)
		}
	}
}

func TestMetadataPartitions(t *testing.T) {
	b := newBench(t)
	for v := int16(0); v <= 13; v++ {
		resp := ask[*kmsg.MetadataResponse](b, metadataRequest(v, "a", "b"))
		good, bad := resp.Topics[0].Partitions, resp.Topics[1].Partitions
		if good[1].Leader != 2 || good[1].ErrorCode != 0 || !slices.Equal(good[1].Replicas, []int32{2, 1}) || v >= 7 && good[1].LeaderEpoch != 7 {
			t.Fatalf("version %d: %+v", v, good)
		}
		wrongListener := protocol.LeaderNotAvailable
		if v >= 6 {
			wrongListener = protocol.ListenerNotFound
		}
		for i, want := range []protocol.ErrorCode{protocol.LeaderNotAvailable, wrongListener, protocol.LeaderNotAvailable} {
			if bad[i].ErrorCode != int16(want) || bad[i].Leader != -1 {
				t.Fatalf("version %d: b-%d %+v", v, i, bad[i])
			}
		}
		if wantReplicas := 2; v == 0 && len(bad[0].Replicas) != 1 || v > 0 && len(bad[0].Replicas) != wantReplicas {
			t.Fatalf("version %d: %+v", v, bad[0])
		}
		if v >= 5 && (!slices.Equal(bad[0].OfflineReplicas, []int32{3}) || len(good[0].OfflineReplicas) != 0) {
			t.Fatalf("version %d: %+v", v, bad[0])
		}
	}
	b.cluster.topics["b"].Partitions[0].Leader = 1
	p := ask[*kmsg.MetadataResponse](b, metadataRequest(0, "b")).Topics[0].Partitions[0]
	if p.ErrorCode != int16(protocol.ReplicaNotAvailable) || p.Leader != 1 {
		t.Fatalf("%+v", p)
	}
}

// Another listener shows other endpoints.
func TestMetadataListener(t *testing.T) {
	b := newBench(t)
	conn := plainConn()
	conn.Listener = "OTHER"
	req := metadataRequest(9, "a")
	resp := decode(t, req, wire(t, b.serve(conn, frameOf(req, "c")))).(*kmsg.MetadataResponse)
	if len(resp.Brokers) != 2 || resp.Brokers[0].Host != "o" || resp.Brokers[0].Port != 9002 {
		t.Fatalf("%+v", resp.Brokers)
	}
}

func TestMetadataByID(t *testing.T) {
	b := newBench(t)
	req := metadataRequest(12, "ignored")
	req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{TopicID: idB}, kmsg.MetadataRequestTopic{TopicID: [16]byte{9}}, kmsg.MetadataRequestTopic{TopicID: idB})
	resp := ask[*kmsg.MetadataResponse](b, req)
	names := topicNames(resp)
	slices.Sort(names)
	if !slices.Equal(names, []string{"b", "null"}) {
		t.Fatal(names)
	}
	for _, topic := range resp.Topics {
		if topic.Topic == nil && (topic.ErrorCode != 100 || topic.TopicID != [16]byte{9}) {
			t.Fatalf("%+v", topic)
		}
	}
	for _, v := range []int16{10, 11} {
		req.Version = v
		if r := b.serve(plainConn(), frameOf(req, "c")); !r.Close || protocol.CodeOf(r.Cause) != protocol.InvalidRequest {
			t.Fatalf("version %d: %+v", v, r)
		}
	}
}

func TestAutoCreate(t *testing.T) {
	for _, tc := range []struct {
		name    string
		config  string
		version int16
		allow   bool
		creates bool
	}{
		{"allowed", "true", 9, true, true},
		{"request forbids", "true", 9, false, false},
		{"broker forbids", "false", 9, true, false},
		{"before version 4 nobody asks", "true", 1, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, "auto.create.topics.enable="+tc.config)
			req := metadataRequest(tc.version, "new", "a", "ill/egal", "new", "")
			req.AllowAutoTopicCreation = tc.allow
			resp := ask[*kmsg.MetadataResponse](b, req)
			if got := topicNames(resp); !slices.Equal(got, []string{"new", "a", "ill/egal", ""}) {
				t.Fatal(got)
			}
			for i, want := range []int16{3, 0, 17, 17} {
				if resp.Topics[i].ErrorCode != want {
					t.Fatalf("%+v", resp.Topics[i])
				}
			}
			for deadline := time.Now().Add(5 * time.Second); tc.creates && len(b.control.names()) == 0 && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			b.Close()
			if got := b.control.names(); (len(got) == 1) != tc.creates {
				t.Fatalf("created %v", got)
			}
			if tc.creates && (b.control.created[0].Partitions != -1 || b.control.created[0].ReplicationFactor != -1) {
				t.Fatalf("%+v", b.control.created)
			}
		})
	}
}

func TestAutoCreateIsBoundedAndTellsFailures(t *testing.T) {
	b := newBench(t)
	b.control.err = func(topic string) error {
		switch {
		case topic == "bad":
			return errors.New("nope")
		case strings.HasPrefix(topic, "t"):
			return protocol.TopicAlreadyExists
		}
		return nil
	}
	b.autoCreate.want([]string{"bad"})
	if _, err := b.events.Wait(t.Context(), "topic_auto_create_failed"); err != nil {
		t.Fatal(err)
	}
	b.control.block = true
	var many []string
	for i := range 3 * maxPendingAutoCreates {
		many = append(many, fmt.Sprint("t", i))
	}
	b.autoCreate.want(many)
	if n := len(b.autoCreate.pending); n > maxPendingAutoCreates {
		t.Fatalf("%d pending", n)
	}
	begun := time.Now()
	b.Close()
	if time.Since(begun) > 2*time.Second {
		t.Fatal("Close did not end what was under way")
	}
	b.autoCreate.want([]string{"after"})
	if slices.Contains(b.control.names(), "after") {
		t.Fatal("works after Close")
	}
}

func TestTopicNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "A.b_c-9": true, "...": true, strings.Repeat("x", 249): true,
		"": false, ".": false, "..": false, strings.Repeat("x", 250): false, "a b": false, "ä": false, "a/b": false, "a\x00": false,
	} {
		if err := checkTopicName(name); (err == nil) != ok || !ok && protocol.CodeOf(err) != protocol.InvalidTopicException {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestDescribeCluster(t *testing.T) {
	b := newBench(t)
	b.cluster.brokers[1].Fenced = true
	for v := int16(0); v <= 2; v++ {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.Version, req.IncludeClusterAuthorizedOperations, req.IncludeFencedBrokers = v, true, true
		resp := ask[*kmsg.DescribeClusterResponse](b, req)
		wantBrokers := 1
		if v >= 2 {
			wantBrokers = 2
		}
		if resp.ClusterID != "cluster-id" || resp.ControllerID != 1 || len(resp.Brokers) != wantBrokers || resp.ClusterAuthorizedOperations != clusterOperations {
			t.Fatalf("version %d: %+v", v, resp)
		}
		if v >= 2 && !resp.Brokers[1].IsFenced {
			t.Fatalf("%+v", resp.Brokers)
		}
	}
	for typ, want := range map[int8]protocol.ErrorCode{2: protocol.MismatchedEndpointType, 7: protocol.UnsupportedEndpointType} {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.Version, req.EndpointType = 1, typ
		if resp := ask[*kmsg.DescribeClusterResponse](b, req); resp.ErrorCode != int16(want) || resp.ErrorMessage == nil || len(resp.Brokers) != 0 {
			t.Fatalf("%+v", resp)
		}
	}
}

func TestControllerIDIsReachable(t *testing.T) {
	b := newBench(t)
	for controller, want := range map[int32]int32{1: 1, 2: 2, 3: 1, -1: 1} {
		b.cluster.controller = controller
		if got := ask[*kmsg.MetadataResponse](b, metadataRequest(9)).ControllerID; got != want {
			t.Errorf("controller %d: told %d", controller, got)
		}
	}
	b.cluster.brokers = nil
	if got := ask[*kmsg.MetadataResponse](b, metadataRequest(9)).ControllerID; got != -1 {
		t.Error(got)
	}
}
