package api

import (
	"regexp"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/netio"
	"varve/protocol"
)

// ApiVersions, key 18, versions 0 to 5.
//
// The response header is always version 0. An unknown version is answered with
// error 35 in a version 0 body that lists only this key (KIP-511), whatever the
// request's body is. Version 3 and later name the client's software, which must
// look like a name (InvalidRequest). Version 5 names the cluster and node that
// the client means to talk to: others are answered RebootstrapRequired (129)
// without the list. Of Kafka's features two are there, finalized in every cluster:
// metadata.version, and eligible leader replicas (KIP-966). Those with a lowest level of 0 are left out
// of supported features before version 4, whose clients fail on it (KIP-584).
func (d *Dispatcher) apiVersions(req *kmsg.ApiVersionsRequest) kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	switch {
	case req.Version >= 3 && !(softwareName.MatchString(req.ClientSoftwareName) && softwareName.MatchString(req.ClientSoftwareVersion)):
		resp.ErrorCode = int16(protocol.InvalidRequest)
		return resp
	case req.Version >= 5 && (req.ClusterID == nil) != (req.NodeID == -1): // a client that knows one of them knows both
		resp.ErrorCode = int16(protocol.InvalidRequest)
		return resp
	case req.Version >= 5 && d.elsewhere(req):
		resp.ErrorCode = int16(protocol.RebootstrapRequired)
		return resp
	}
	for _, r := range protocol.APIs() {
		resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: r.Key, MinVersion: r.Min, MaxVersion: r.Max})
	}
	resp.SupportedFeatures = []kmsg.ApiVersionsResponseSupportedFeature{{Name: featureMetadata, MinVersion: metadataLevel, MaxVersion: metadataLevel}}
	if req.Version >= 4 {
		resp.SupportedFeatures = append(resp.SupportedFeatures, kmsg.ApiVersionsResponseSupportedFeature{Name: featureELR, MinVersion: 0, MaxVersion: 1})
	}
	resp.FinalizedFeaturesEpoch = 0
	resp.FinalizedFeatures = []kmsg.ApiVersionsResponseFinalizedFeature{
		{Name: featureMetadata, MinVersionLevel: metadataLevel, MaxVersionLevel: metadataLevel},
		{Name: featureELR, MinVersionLevel: 1, MaxVersionLevel: 1},
	}
	return resp
}

// featureMetadata is MetadataVersion.java's name. The level is 4.0-IV3's: what a client sees of a cluster at it and can see
// here too. It cannot be changed, and says nothing of how metadata is stored.
const (
	featureMetadata = "metadata.version"
	metadataLevel   = 25
)

// featureELR is EligibleLeaderReplicasVersion.java's name.
const featureELR = "eligible.leader.replicas.version"

// softwareName is ApiVersionsRequest.java's pattern.
var softwareName = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)

// elsewhere reports whether the client means another cluster or node.
func (d *Dispatcher) elsewhere(req *kmsg.ApiVersionsRequest) bool {
	return req.ClusterID != nil && *req.ClusterID != d.o.Cluster().ClusterID() || req.NodeID >= 0 && req.NodeID != d.o.NodeID
}

// unsupportedAPIVersions answers a version that nobody knows yet.
func unsupportedAPIVersions(h protocol.Header) netio.Reply {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = int16(protocol.UnsupportedVersion)
	if r, ok := protocol.RangeOf(protocol.KeyAPIVersions); ok {
		resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: r.Key, MinVersion: r.Min, MaxVersion: r.Max}}
	}
	return netio.Reply{Spans: []protocol.Span{protocol.MemSpan(protocol.Encode(nil, resp, h.CorrelationID))}}
}
