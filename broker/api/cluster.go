package api

import (
	"varve/metastore"
	"varve/protocol"
)

// endpoint returns where a broker is reached by those who came in by this
// listener; ok is false when it has no such endpoint.
func endpoint(b *metastore.Broker, listener string) (e metastore.Endpoint, ok bool) {
	for _, e := range b.Endpoints {
		if e.Name == listener {
			return e, true
		}
	}
	return metastore.Endpoint{}, false
}

// node is a broker as clients see it.
type node struct {
	id     int32
	host   string
	port   int32
	rack   *string
	fenced bool
}

// nodeOf finds a broker and its endpoint on a listener.
func nodeOf(cl Cluster, id int32, listener string) (node, bool) {
	b, ok := cl.Broker(id)
	if !ok {
		return node{}, false
	}
	e, ok := endpoint(b, listener)
	if !ok {
		return node{}, false
	}
	n := node{id: b.ID, host: e.Host, port: e.Port, fenced: b.Fenced}
	if b.Rack != "" {
		n.rack = &b.Rack
	}
	return n, true
}

// nodes returns the brokers with an endpoint on the listener, fenced ones only
// if asked for.
func nodes(cl Cluster, listener string, fenced bool) []node {
	var out []node
	for _, b := range cl.Brokers() {
		if n, ok := nodeOf(cl, b.ID, listener); ok && (fenced || !b.Fenced) {
			out = append(out, n)
		}
	}
	return out
}

// controllerOf is the broker that clients should send changes to: the controller
// if it is among those they can see, else any of these; -1 when there is none.
func controllerOf(cl Cluster, visible []node) int32 {
	id := cl.Controller()
	for _, n := range visible {
		if n.id == id {
			return id
		}
	}
	if len(visible) > 0 {
		return visible[0].id
	}
	return -1
}

// Operations of Kafka's AclOperation, as bits.
const (
	opRead            int32 = 1 << 3
	opWrite           int32 = 1 << 4
	opCreate          int32 = 1 << 5
	opDelete          int32 = 1 << 6
	opAlter           int32 = 1 << 7
	opDescribe        int32 = 1 << 8
	opClusterAction   int32 = 1 << 9
	opDescribeConfigs int32 = 1 << 10
	opAlterConfigs    int32 = 1 << 11
	opIdempotentWrite int32 = 1 << 12
)

// What everyone may do without an authorizer (AclEntry.supportedOperations), and
// the value that says nobody asked.
const (
	clusterOperations int32 = opCreate | opClusterAction | opDescribeConfigs | opAlterConfigs | opIdempotentWrite | opAlter | opDescribe
	topicOperations   int32 = opRead | opWrite | opCreate | opDescribe | opDelete | opAlter | opDescribeConfigs | opAlterConfigs
	noOperations      int32 = -1 << 31
)

// internalTopic reports whether the broker itself keeps its state in the topic
// (Topic.java, INTERNAL_TOPICS).
func internalTopic(name string) bool {
	return name == "__consumer_offsets" || name == "__transaction_state" || name == "__share_group_state"
}

const maxTopicNameBytes = 249

// checkTopicName returns InvalidTopicException with Kafka's reason for a name
// that no topic can have (Topic.java, detectInvalidTopic).
func checkTopicName(name string) error {
	switch {
	case name == "":
		return protocol.Errorf(protocol.InvalidTopicException, "Topic name is invalid: the empty string is not allowed")
	case name == "." || name == "..":
		return protocol.Errorf(protocol.InvalidTopicException, "Topic name is invalid: '%s' is not allowed", name)
	case len(name) > maxTopicNameBytes:
		return protocol.Errorf(protocol.InvalidTopicException, "Topic name is invalid: its length is %d bytes, the longest allowed is %d", len(name), maxTopicNameBytes)
	}
	for _, r := range name {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '_', r == '-':
		default:
			return protocol.Errorf(protocol.InvalidTopicException, "Topic name is invalid: %q contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", name)
		}
	}
	return nil
}
