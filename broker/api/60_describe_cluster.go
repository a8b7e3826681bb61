package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

// Endpoint types of DescribeCluster (EndpointType.java).
const (
	endpointBrokers     int8 = 1
	endpointControllers int8 = 2
)

// DescribeCluster, key 60, versions 0 to 2 (DescribeClusterRequest.json).
//
// Brokers are those with an endpoint on the listener the request came by; fenced
// ones only from version 2 when asked for. A request for controllers is
// MismatchedEndpointType on a broker's listener (KIP-919).
func (d *Dispatcher) describeCluster(c call, req *kmsg.DescribeClusterRequest) kmsg.Response {
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.ClusterAuthorizedOperations = noOperations
	resp.ControllerID = -1
	if req.Version >= 1 && req.EndpointType != endpointBrokers {
		err := protocol.Errorf(protocol.UnsupportedEndpointType, "Unsupported endpoint type %d", req.EndpointType)
		if req.EndpointType == endpointControllers {
			err = protocol.Errorf(protocol.MismatchedEndpointType, "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER")
		}
		resp.ErrorCode, resp.ErrorMessage = code(err), message(err)
		return resp
	}
	cl := d.o.Cluster()
	resp.ClusterID = cl.ClusterID()
	resp.ControllerID = controllerOf(cl, nodes(cl, c.conn.Listener, false))
	for _, n := range nodes(cl, c.conn.Listener, req.Version >= 2 && req.IncludeFencedBrokers) {
		b := kmsg.NewDescribeClusterResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack, b.IsFenced = n.id, n.host, n.port, n.rack, n.fenced
		resp.Brokers = append(resp.Brokers, b)
	}
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	return resp
}
