package api

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/replica"
	"varve/protocol"
)

// Fetch, key 1, versions 4 to 18 (FetchRequest.json).
//
// Every request is a full one and answered with session id 0, which tells the
// client that there is no session (KIP-227); a request that continues a session
// is FetchSessionIDNotFound. Topics go by id from version 13. Before version 6
// KafkaStorageError is told as NotLeaderOrFollower; before version 10 a topic
// whose compression.type is zstd is UnsupportedCompressionType. The leader to try
// instead is told from version 16 (KIP-951). The aborted list is null unless the
// client reads committed records only.
//
// The call blocks the connection's reader until there is something to say; that
// wait ends early when the connection does or the server drains.
func (d *Dispatcher) fetch(c call, req *kmsg.FetchRequest) []protocol.Span {
	resp := &protocol.FetchResponse{}
	if req.Version >= 7 && req.SessionEpoch > 0 {
		resp.ErrorCode = protocol.FetchSessionIDNotFound
		return protocol.AppendFetchResponse(resp, req.Version, c.header.CorrelationID)
	}
	results := d.o.Replicas.Fetch(c.conn.Drain(), d.fetchRequest(req))
	resp.Topics = make([]protocol.FetchTopic, len(req.Topics))
	next := 0
	for i := range req.Topics {
		t := &req.Topics[i]
		out := &resp.Topics[i]
		out.Topic, out.TopicID = t.Topic, t.TopicID
		out.Partitions = make([]protocol.FetchPartition, len(t.Partitions))
		refuse := req.Version < 10 && d.storesZstd(t.Topic)
		for j := range t.Partitions {
			r := &results[next]
			next++
			if refuse && r.Err == protocol.None {
				protocol.ReleaseSpans(r.Spans)
				*r = replica.FetchResult{Err: protocol.UnsupportedCompressionType, HighWatermark: -1, LastStable: -1, LogStart: -1, PreferredReplica: -1, Leader: -1}
			}
			out.Partitions[j] = fetchAnswer(req, t.Partitions[j].Partition, r)
			if req.Version >= 16 && r.Leader >= 0 {
				out.Partitions[j].CurrentLeader = &protocol.FetchLeader{LeaderID: r.Leader, LeaderEpoch: r.LeaderEpoch}
				resp.Nodes = d.addFetchNode(resp.Nodes, r.Leader, c.conn.Listener)
			}
		}
	}
	return protocol.AppendFetchResponse(resp, req.Version, c.header.CorrelationID)
}

// fetchRequest is the request in the replicas' terms.
func (d *Dispatcher) fetchRequest(req *kmsg.FetchRequest) *replica.FetchRequest {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	replicaID := req.ReplicaID
	if req.Version >= 15 {
		replicaID = req.ReplicaState.ID
	}
	out := &replica.FetchRequest{
		ReplicaID:     max(replicaID, replica.ConsumerID),
		MaxWait:       min(time.Duration(max(req.MaxWaitMillis, 0))*time.Millisecond, d.fetchMaxWait),
		MaxBytes:      min(max(int(req.MaxBytes), 0), d.fetchMaxBytes),
		ReadCommitted: req.IsolationLevel == 1,
		Partitions:    make([]replica.FetchPartition, 0, n),
	}
	out.MinBytes = min(max(int(req.MinBytes), 0), out.MaxBytes)
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			q := replica.FetchPartition{
				Topic: t.Topic, TopicID: t.TopicID, Partition: p.Partition,
				CurrentLeaderEpoch: replica.NoEpoch, LastFetchedEpoch: replica.NoEpoch,
				Offset: p.FetchOffset, LogStart: -1, MaxBytes: max(p.PartitionMaxBytes, 0),
			}
			if req.Version >= 5 {
				q.LogStart = p.LogStartOffset
			}
			if req.Version >= 9 {
				q.CurrentLeaderEpoch = p.CurrentLeaderEpoch
			}
			if req.Version >= 12 {
				q.LastFetchedEpoch = p.LastFetchedEpoch
			}
			out.Partitions = append(out.Partitions, q)
		}
	}
	return out
}

// fetchAnswer is one partition's answer; the spans pass into it.
func fetchAnswer(req *kmsg.FetchRequest, partition int32, r *replica.FetchResult) protocol.FetchPartition {
	out := protocol.NewFetchPartition(partition)
	out.ErrorCode = r.Err
	if r.Err == protocol.KafkaStorageError && req.Version <= 5 {
		out.ErrorCode = protocol.NotLeaderOrFollower
	}
	out.HighWatermark, out.LastStableOffset, out.LogStartOffset = r.HighWatermark, r.LastStable, r.LogStart
	out.PreferredReplica = r.PreferredReplica
	out.Records = r.Spans
	if req.IsolationLevel == 1 {
		out.Aborted = make([]protocol.FetchAborted, len(r.Aborted))
		for i, a := range r.Aborted {
			out.Aborted[i] = protocol.FetchAborted{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset}
		}
	}
	if r.Diverging != nil {
		out.Diverging = &protocol.FetchEpochEnd{Epoch: r.Diverging.Epoch, EndOffset: r.Diverging.End}
	}
	return out
}

// addFetchNode tells where a leader is, once.
func (d *Dispatcher) addFetchNode(have []protocol.FetchNode, id int32, listener string) []protocol.FetchNode {
	for _, n := range have {
		if n.NodeID == id {
			return have
		}
	}
	n, ok := nodeOf(d.o.Cluster(), id, listener)
	if !ok {
		return have
	}
	out := protocol.FetchNode{NodeID: n.id, Host: n.host, Port: n.port}
	if n.rack != nil {
		out.Rack = *n.rack
	}
	return append(have, out)
}

// storesZstd reports whether a topic's records are kept as zstd whatever the
// producer sent.
func (d *Dispatcher) storesZstd(topic string) bool {
	t, ok := d.o.Cluster().Topic(topic)
	if !ok {
		return false
	}
	if v, ok := t.Configs["compression.type"]; ok {
		return v == "zstd"
	}
	return d.o.Config.String("compression.type") == "zstd"
}
