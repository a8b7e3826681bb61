package api

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
	"varve/protocol/record"
)

// sampleRequests are one typical request of each key, for any version.
func sampleRequests(t testing.TB) map[int16]func() kmsg.Request {
	records := testBatch(t, record.None)
	all := map[int16]func() kmsg.Request{
		0: func() kmsg.Request {
			return produceRequest(9, 1, records)
		},
		1: func() kmsg.Request { return fetchRequest(9) },
		2: func() kmsg.Request {
			r := kmsg.NewPtrListOffsetsRequest()
			r.ReplicaID = -1
			r.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "a", Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Partition: 0, Timestamp: -1}, {Partition: 1, Timestamp: 99}}}}
			return r
		},
		3: func() kmsg.Request {
			r := kmsg.NewPtrMetadataRequest()
			r.IncludeTopicAuthorizedOperations, r.IncludeClusterAuthorizedOperations = true, true
			r.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("a")}, {Topic: kmsg.StringPtr("b")}, {Topic: kmsg.StringPtr("nope")}}
			return r
		},
		8:  sampleOffsetCommit,
		9:  sampleOffsetFetch,
		10: sampleFindCoordinator,
		11: sampleJoinGroup,
		12: func() kmsg.Request { return kmsg.NewPtrHeartbeatRequest() },
		13: sampleLeaveGroup,
		14: sampleSyncGroup,
		15: sampleDescribeGroups,
		16: func() kmsg.Request { return kmsg.NewPtrListGroupsRequest() },
		42: sampleDeleteGroups,
		47: sampleOffsetDelete,
		18: func() kmsg.Request {
			r := kmsg.NewPtrApiVersionsRequest()
			r.ClientSoftwareName, r.ClientSoftwareVersion = "test", "1.0-x"
			return r
		},
		19: func() kmsg.Request {
			r := kmsg.NewPtrCreateTopicsRequest()
			r.TimeoutMillis = 1000
			r.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "new", NumPartitions: 3, ReplicationFactor: 1,
				Configs: []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms", Value: kmsg.StringPtr("1")}}}}
			return r
		},
		20: func() kmsg.Request {
			r := kmsg.NewPtrDeleteTopicsRequest()
			r.TopicNames = []string{"a", "zz"}
			r.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: kmsg.StringPtr("a")}, {TopicID: idB}}
			return r
		},
		22: func() kmsg.Request { return kmsg.NewPtrInitProducerIDRequest() },
		37: func() kmsg.Request {
			r := kmsg.NewPtrCreatePartitionsRequest()
			r.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "a", Count: 5, Assignment: []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{1}}}}}
			return r
		},
		43: func() kmsg.Request {
			r := kmsg.NewPtrElectLeadersRequest()
			r.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "a", Partitions: []int32{0, 1}}}
			return r
		},
		60: func() kmsg.Request { return kmsg.NewPtrDescribeClusterRequest() },
	}
	maps.Copy(all, adminSamples())
	maps.Copy(all, aclSamples())
	return all
}

// Every advertised version of every key is served, and its answer is exactly
// what kmsg says the version's layout is. Produce 0 to 2 are advertised only.
func TestEveryVersion(t *testing.T) {
	b := newBench(t)
	samples := sampleRequests(t)
	for _, r := range protocol.APIs() {
		for v := r.Min; v <= r.Max; v++ {
			t.Run(fmt.Sprintf("%s/%d", r.Name, v), func(t *testing.T) {
				req := samples[r.Key]()
				req.SetVersion(v)
				reply := b.serve(plainConn(), frameOf(req, "client"))
				if !protocol.Supported(r.Key, v) {
					if !reply.Close || protocol.CodeOf(reply.Cause) != protocol.UnsupportedVersion {
						t.Fatalf("%+v", reply)
					}
					return
				}
				if reply.Close || reply.None || reply.Cause != nil {
					t.Fatalf("%+v", reply)
				}
				decode(t, req, wire(t, reply))
			})
		}
	}
}

func TestUnservedKeysAndVersionsClose(t *testing.T) {
	b := newBench(t)
	for _, h := range [][2]int16{{0, 14}, {1, 3}, {1, 19}, {2, 0}, {3, 14}, {24, 0}, {11, 10}, {999, 0}, {-1, 0}, {0, -1}, {19, 1}, {60, 3}} {
		frame := binary.BigEndian.AppendUint16(nil, uint16(h[0]))
		frame = binary.BigEndian.AppendUint16(frame, uint16(h[1]))
		frame = append(frame, 0, 0, 0, 77, 0, 3, 'c', 'l', 'i', 0, 0, 0, 0)
		r := b.serve(plainConn(), frame)
		if !r.Close || r.Spans != nil || protocol.CodeOf(r.Cause) != protocol.UnsupportedVersion {
			t.Errorf("%v: %+v", h, r)
		}
	}
}

func TestMalformedBodiesClose(t *testing.T) {
	b := newBench(t)
	for key, sample := range sampleRequests(t) {
		req := sample()
		r, _ := protocol.RangeOf(key)
		req.SetVersion(r.Max)
		frame := frameOf(req, "client")
		for _, bad := range [][]byte{frame[:len(frame)-1], frame[:9]} {
			if got := b.serve(plainConn(), bad); !got.Close || got.Cause == nil {
				t.Errorf("key %d: %d of %d bytes: %+v", key, len(bad), len(frame), got)
			}
		}
	}
}

func TestAPIVersions(t *testing.T) {
	b := newBench(t)
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "kafka-cli", "4.4.0"
	for v := int16(0); v <= 5; v++ {
		req.Version = v
		resp := ask[*kmsg.ApiVersionsResponse](b, req)
		if resp.ErrorCode != 0 || len(resp.ApiKeys) != len(protocol.APIs()) || !isRange(resp.ApiKeys[0], 0, 13) {
			t.Fatalf("version %d: %+v", v, resp)
		}
	}
	req.ClientSoftwareName = "-bad name"
	if resp := ask[*kmsg.ApiVersionsResponse](b, req); resp.ErrorCode != int16(protocol.InvalidRequest) {
		t.Fatalf("%+v", resp)
	}
}

func TestAPIVersionsOfAnotherCluster(t *testing.T) {
	b := newBench(t)
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 5, "x", "1"
	for _, tc := range []struct {
		cluster *string
		node    int32
		want    protocol.ErrorCode
	}{
		{nil, -1, protocol.None},
		{kmsg.StringPtr("cluster-id"), 1, protocol.None},
		{kmsg.StringPtr("cluster-id"), -1, protocol.InvalidRequest},
		{kmsg.StringPtr("other"), -1, protocol.InvalidRequest},
		{nil, 1, protocol.InvalidRequest},
		{kmsg.StringPtr("other"), 1, protocol.RebootstrapRequired},
		{kmsg.StringPtr("cluster-id"), 2, protocol.RebootstrapRequired},
	} {
		req.ClusterID, req.NodeID = tc.cluster, tc.node
		if resp := ask[*kmsg.ApiVersionsResponse](b, req); resp.ErrorCode != int16(tc.want) {
			t.Errorf("%+v: %d", tc, resp.ErrorCode)
		}
	}
}

// Whatever follows the correlation id of an unknown version is not looked at,
// and the answer has version 0's layout.
func TestUnknownAPIVersionsVersion(t *testing.T) {
	b := newBench(t)
	for _, v := range []int16{6, 99, -1, 32767} {
		for _, rest := range [][]byte{nil, {0xff}, []byte("some future layout")} {
			frame := binary.BigEndian.AppendUint16(nil, 18)
			frame = binary.BigEndian.AppendUint16(frame, uint16(v))
			frame = append(append(frame, 0, 0, 0, 77), rest...)
			r := b.serve(plainConn(), frame)
			if r.Close {
				t.Fatalf("closed: %v", r.Cause)
			}
			req := kmsg.NewPtrApiVersionsRequest()
			resp := decode(t, req, wire(t, r)).(*kmsg.ApiVersionsResponse)
			if resp.ErrorCode != 35 || len(resp.ApiKeys) != 1 || !isRange(resp.ApiKeys[0], 18, 5) {
				t.Fatalf("%+v", resp)
			}
		}
	}
}

// isRange reports whether k is a key with versions 0 to max.
func isRange(k kmsg.ApiVersionsResponseApiKey, key, max int16) bool {
	return k.ApiKey == key && k.MinVersion == 0 && k.MaxVersion == max
}

// What a peer calls itself does not fill our log.
func TestCloseReasonIsBounded(t *testing.T) {
	r := closeFor(protocol.Header{ClientID: string(make([]byte, 30_000))}, errors.New("x"))
	if n := len(r.Cause.Error()); n > 1000 {
		t.Fatalf("%d bytes", n)
	}
}

func TestListOffsets(t *testing.T) {
	b := newBench(t)
	first := map[int64]int16{-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11, -7: 99, 0: 1, 12345: 1}
	for ts, since := range first {
		for v := int16(1); v <= 11; v++ {
			req := kmsg.NewPtrListOffsetsRequest()
			req.Version, req.ReplicaID = v, -1
			req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "a", Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Partition: 1, CurrentLeaderEpoch: -1, Timestamp: ts}}}}
			p := ask[*kmsg.ListOffsetsResponse](b, req).Topics[0].Partitions[0]
			if want := v < since; want != (p.ErrorCode == 35) || !want && p.Offset != 6 || want && p.Offset != -1 {
				t.Errorf("timestamp %d version %d: %+v", ts, v, p)
			}
		}
	}
}
