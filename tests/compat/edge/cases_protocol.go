package edge

import (
	"encoding/binary"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// rawFrame is a request header of version 1 or 2, and a body.
func rawFrame(key, version int16, body ...byte) []byte {
	f := binary.BigEndian.AppendUint16(nil, uint16(key))
	f = binary.BigEndian.AppendUint16(f, uint16(version))
	f = append(f, 0, 0, 0, 7, 0, 4, 'e', 'd', 'g', 'e')
	return append(f, body...)
}

func apiVersions(version int16, edit func(*kmsg.ApiVersionsRequest)) func(*env) (kmsg.Request, error) {
	r := kmsg.NewPtrApiVersionsRequest()
	r.Version, r.ClientSoftwareName, r.ClientSoftwareVersion = version, "edge", "1.0"
	edit(r)
	return plain(r)
}

// meantFor is an ApiVersions request that names the broker's own cluster and a node.
func meantFor(node int32) func(*env) (kmsg.Request, error) {
	return func(e *env) (kmsg.Request, error) {
		return apiVersions(5, func(r *kmsg.ApiVersionsRequest) { r.NodeID, r.ClusterID = node, &e.cluster })(e)
	}
}

// protocolCases are keys, versions and frames that nobody serves.
func protocolCases() []Case {
	ok := func(*kmsg.ApiVersionsRequest) {}
	return []Case{
		{Name: "api versions 0", request: apiVersions(0, ok)},
		{Name: "api versions 4", request: apiVersions(4, ok)},
		{Name: "api versions of a version to come", raw: rawFrame(18, 99, 0, 1, 2, 3)},
		{Name: "api versions of a version to come with another header", raw: rawFrame(18, 99, 1, 2, 3)},
		{Name: "api versions of a negative version", raw: rawFrame(18, -1)},
		{Name: "api versions with an illegal software name", request: apiVersions(3, func(r *kmsg.ApiVersionsRequest) { r.ClientSoftwareName = "-x y" })},
		{Name: "api versions with an empty software version", request: apiVersions(3, func(r *kmsg.ApiVersionsRequest) { r.ClientSoftwareVersion = "" })},
		{Name: "api versions meant for another cluster", request: apiVersions(5, func(r *kmsg.ApiVersionsRequest) { r.ClusterID = kmsg.StringPtr("nobody") })},
		{Name: "api versions meant for another node", request: apiVersions(5, func(r *kmsg.ApiVersionsRequest) { r.NodeID = 77 })},
		{Name: "api versions meant for another node of another cluster", request: apiVersions(5, func(r *kmsg.ApiVersionsRequest) { r.NodeID, r.ClusterID = 77, kmsg.StringPtr("nobody") })},
		{Name: "api versions meant for this node of another cluster", request: apiVersions(5, func(r *kmsg.ApiVersionsRequest) { r.NodeID, r.ClusterID = 1, kmsg.StringPtr("nobody") })},
		{Name: "api versions meant for another node of this cluster", request: meantFor(77)},
		{Name: "api versions meant for this node of this cluster", request: meantFor(1)},
		{Name: "unknown key", raw: rawFrame(999, 0)},
		{Name: "negative key", raw: rawFrame(-1, 0)},
		{Name: "produce 2", raw: rawFrame(0, 2, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0)},
		{Name: "produce of a version to come", raw: rawFrame(0, 14)},
		{Name: "fetch 3", raw: rawFrame(1, 3)},
		{Name: "fetch of a version to come", raw: rawFrame(1, 19)},
		{Name: "list offsets 0", raw: rawFrame(2, 0)},
		{Name: "metadata of a version to come", raw: rawFrame(3, 14)},
		{Name: "create topics 1", raw: rawFrame(19, 1)},
		{Name: "delete topics 0", raw: rawFrame(20, 0)},
		{Name: "delete records of a version to come", raw: rawFrame(21, 3)},
		{Name: "offset for leader epoch 1", raw: rawFrame(23, 1)},
		{Name: "describe configs 0", raw: rawFrame(32, 0)},
		{Name: "alter configs of a version to come", raw: rawFrame(33, 3)},
		{Name: "describe log dirs 0", raw: rawFrame(35, 0)},
		{Name: "incremental alter configs of a version to come", raw: rawFrame(44, 2)},
		{Name: "describe cluster of a version to come", raw: rawFrame(60, 3)},
		{Name: "metadata cut short", raw: rawFrame(3, 1, 0, 0)},
		{Name: "metadata with a negative number of topics", raw: rawFrame(3, 1, 0xff, 0xff, 0xff, 0xf0)},
		{Name: "list offsets with a negative length", raw: rawFrame(2, 1, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0xff, 0xf0)},
	}
}

func metadata(version int16, topics ...kmsg.MetadataRequestTopic) func(*env) (kmsg.Request, error) {
	r := kmsg.NewPtrMetadataRequest()
	r.Version, r.Topics = version, topics
	return plain(r)
}

func named(name string) kmsg.MetadataRequestTopic {
	return kmsg.MetadataRequestTopic{Topic: &name}
}

func byID(name string) func(*env) (kmsg.Request, error) {
	return func(e *env) (kmsg.Request, error) {
		return metadata(12, kmsg.MetadataRequestTopic{TopicID: e.ids[name]})(e)
	}
}

func describeCluster(version int16, endpoint int8) func(*env) (kmsg.Request, error) {
	r := kmsg.NewPtrDescribeClusterRequest()
	r.Version, r.EndpointType = version, endpoint
	return plain(r)
}

func metadataCases() []Case {
	return []Case{
		{Name: "metadata of a topic", request: metadata(4, named(topicA))},
		{Name: "metadata of an unknown topic", request: metadata(4, named("edge-nobody"))},
		{Name: "metadata of a topic twice", request: metadata(4, named("edge-nobody"), named("edge-nobody"))},
		{Name: "metadata of an illegal name", request: metadata(4, named("no spaces"))},
		{Name: "metadata of the empty name", request: metadata(4, named(""))},
		{Name: "metadata of a dot", request: metadata(4, named("."))},
		{Name: "metadata of a name too long", request: metadata(4, named(strings.Repeat("x", 250)))},
		{Name: "metadata of the longest name", request: metadata(4, named(strings.Repeat("x", 249)))},
		{Name: "metadata by id", request: byID(topicA)},
		{Name: "metadata by the id of a deleted topic", request: byID(topicGone)},
		{Name: "describe cluster", request: describeCluster(1, 1)},
		{Name: "describe cluster's controllers", request: describeCluster(1, 2)},
		{Name: "describe an unknown kind of endpoint", request: describeCluster(2, 9)},
		{Name: "describe endpoint kind 0", request: describeCluster(1, 0)},
	}
}
