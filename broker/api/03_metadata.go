package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/metastore"
	"varve/protocol"
)

// Metadata, key 3, versions 0 to 13 (MetadataRequest.json).
//
// Version 0 takes an empty list for all topics; later null is all and empty is
// none. Topics may be asked for by id from version 10 on, where only version 12
// and later may leave the name out; an id in an older request closes the
// connection, as in Kafka. If any id is given the names are not looked at. An
// unknown id is UnknownTopicID.
//
// An unknown name is UnknownTopicOrPartition, and is created in the background if
// auto.create.topics.enable and (from version 4) the request allow it; a name
// that cannot be is InvalidTopicException. A partition without a leader is
// LeaderNotAvailable; one whose leader has no endpoint on this listener is
// ListenerNotFound from version 6, LeaderNotAvailable before. Version 0 leaves
// brokers without an endpoint out of the replica lists and says ReplicaNotAvailable.
func (d *Dispatcher) metadata(c call, req *kmsg.MetadataRequest) (kmsg.Response, error) {
	cl := d.o.Cluster()
	m := metadataCall{d: d, cl: cl, req: req, listener: c.conn.Listener}
	if err := m.checkIDs(); err != nil {
		return nil, err
	}
	resp := kmsg.NewPtrMetadataResponse()
	resp.AuthorizedOperations = noOperations
	visible := nodes(cl, m.listener, false)
	for _, n := range visible {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = n.id, n.host, n.port, n.rack
		resp.Brokers = append(resp.Brokers, b)
	}
	if id := cl.ClusterID(); id != "" {
		resp.ClusterID = &id
	}
	resp.ControllerID = controllerOf(cl, visible)
	resp.Topics = m.topics()
	if req.Version >= 8 && req.Version <= 10 && req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = clusterOperations
	}
	return resp, nil
}

type metadataCall struct {
	d        *Dispatcher
	cl       Cluster
	req      *kmsg.MetadataRequest
	listener string
}

func (m *metadataCall) checkIDs() error {
	for _, t := range m.req.Topics {
		switch {
		case m.req.Version >= 12:
		case t.Topic == nil:
			return protocol.Errorf(protocol.InvalidRequest, "Topic name can not be null for version %d", m.req.Version)
		case t.TopicID != [16]byte{}:
			return protocol.Errorf(protocol.InvalidRequest, "Topic IDs are not supported in requests for version %d", m.req.Version)
		}
	}
	return nil
}

func (m *metadataCall) topics() []kmsg.MetadataResponseTopic {
	out := []kmsg.MetadataResponseTopic{}
	if m.req.Topics == nil || m.req.Version == 0 && len(m.req.Topics) == 0 {
		for t := range m.cl.Topics() {
			out = append(out, m.topic(t))
		}
		return out
	}
	byID, names, seen := m.wanted()
	if byID {
		for id := range seen {
			if t, ok := m.cl.TopicByID(id); ok {
				out = append(out, m.topic(t))
				continue
			}
			t := m.failed("", protocol.UnknownTopicID)
			t.Topic, t.TopicID = nil, id
			out = append(out, t)
		}
		return out
	}
	var missing []string
	for _, name := range names {
		if t, ok := m.cl.Topic(name); ok {
			out = append(out, m.topic(t))
			continue
		}
		err := checkTopicName(name)
		if err == nil {
			err = protocol.UnknownTopicOrPartition
			missing = append(missing, name)
		}
		out = append(out, m.failed(name, err))
	}
	if m.mayCreate() {
		m.d.autoCreate.want(missing)
	}
	return out
}

// wanted returns the distinct ids or names that were asked for.
func (m *metadataCall) wanted() (byID bool, names []string, ids map[protocol.UUID]struct{}) {
	ids = map[protocol.UUID]struct{}{}
	seen := make(map[string]struct{}, len(m.req.Topics))
	for _, t := range m.req.Topics {
		if t.TopicID != [16]byte{} {
			ids[t.TopicID] = struct{}{}
		}
		if t.Topic == nil {
			continue
		}
		if _, ok := seen[*t.Topic]; !ok {
			seen[*t.Topic] = struct{}{}
			names = append(names, *t.Topic)
		}
	}
	return len(ids) > 0, names, ids
}

// mayCreate reports whether unknown topics are made. Before version 4 clients
// had no say.
func (m *metadataCall) mayCreate() bool {
	return (m.req.Version < 4 || m.req.AllowAutoTopicCreation) && m.d.o.Config.Bool("auto.create.topics.enable")
}

func (m *metadataCall) failed(name string, err error) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.ErrorCode, out.Topic, out.IsInternal = code(err), &name, internalTopic(name)
	out.AuthorizedOperations = noOperations
	return out
}

func (m *metadataCall) topic(t *metastore.Topic) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID, out.IsInternal = &t.Name, t.ID, internalTopic(t.Name)
	out.AuthorizedOperations = noOperations
	if m.req.Version >= 8 && m.req.IncludeTopicAuthorizedOperations {
		out.AuthorizedOperations = topicOperations
	}
	out.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.Partitions))
	for i, p := range t.Partitions {
		m.partition(&out.Partitions[i], p)
	}
	return out
}

// partition is KRaftMetadataCache.getPartitionMetadata.
func (m *metadataCall) partition(out *kmsg.MetadataResponseTopicPartition, p *metastore.Partition) {
	out.Partition, out.Leader, out.LeaderEpoch = p.Index, p.Leader, p.LeaderEpoch
	out.Replicas, out.ISR = p.Replicas, p.ISR
	for _, id := range p.Replicas {
		if n, ok := nodeOf(m.cl, id, m.listener); !ok || n.fenced {
			out.OfflineReplicas = append(out.OfflineReplicas, id)
		}
	}
	if m.req.Version == 0 {
		out.Replicas, out.ISR = m.reachable(p.Replicas), m.reachable(p.ISR)
	}
	err := protocol.None
	switch _, known := m.cl.Broker(p.Leader); {
	case p.Leader < 0 || !known:
		err = protocol.LeaderNotAvailable
	case !m.hasEndpoint(p.Leader) && m.req.Version >= 6:
		err = protocol.ListenerNotFound
	case !m.hasEndpoint(p.Leader):
		err = protocol.LeaderNotAvailable
	case len(out.Replicas) < len(p.Replicas) || len(out.ISR) < len(p.ISR):
		err = protocol.ReplicaNotAvailable
	}
	out.ErrorCode = int16(err)
	if err == protocol.LeaderNotAvailable || err == protocol.ListenerNotFound {
		out.Leader = -1
	}
}

func (m *metadataCall) hasEndpoint(id int32) bool {
	_, ok := nodeOf(m.cl, id, m.listener)
	return ok
}

func (m *metadataCall) reachable(ids []int32) []int32 {
	out := make([]int32, 0, len(ids))
	for _, id := range ids {
		if m.hasEndpoint(id) {
			out = append(out, id)
		}
	}
	return out
}
