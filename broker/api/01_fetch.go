package api

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/replica"
	"varve/protocol"
)

// Fetch, key 1, versions 4 to 18 (FetchRequest.json).
//
// From version 7 a full request (epoch 0) begins a session if there is room for one; the following requests name only
// what changed and are answered with what is new (KIP-227, fetch_session.go). Topics go by id from version 13. A
// partition that a request names twice counts once, as named last. Before version 6 KafkaStorageError is told as
// NotLeaderOrFollower; before version 10 a topic whose compression.type is zstd is UnsupportedCompressionType. The
// leader to try instead is told from version 16 (KIP-951). The aborted list is null unless the client reads committed
// records only.
//
// The call blocks the connection's reader until there is something to say; that wait ends early when the connection
// does or the server drains.
func (d *Dispatcher) fetch(c call, req *kmsg.FetchRequest) []protocol.Span {
	id, epoch := int32(0), finalSessionEpoch
	if req.Version >= 7 {
		id, epoch = req.SessionID, req.SessionEpoch
	}
	switch epoch {
	case finalSessionEpoch:
		d.sessions.remove(id)
		return d.fetchFull(c, req, asksOf(req), false)
	case initialSessionEpoch:
		d.sessions.remove(id)
		return d.fetchFull(c, req, asksOf(req), true)
	}
	return d.fetchIncremental(c, req, id, epoch)
}

// fetchFull answers a request that names all it wants, and begins a session if that is wanted and possible.
func (d *Dispatcher) fetchFull(c call, req *kmsg.FetchRequest, asks []fetchAsk, session bool) []protocol.Span {
	q := d.fetchRequest(req)
	q.Partitions = make([]replica.FetchPartition, len(asks))
	for i := range asks {
		q.Partitions[i] = asks[i].q
	}
	results := d.o.Replicas.Fetch(c.conn.Drain(), q)
	out := fetchAnswer{d: d, c: c, req: req}
	var told []toldPartition
	if session {
		told = make([]toldPartition, len(asks))
	}
	for i := range asks {
		p := out.add(asks[i].key, &results[i])
		if session {
			told[i] = toldPartition{p.HighWatermark, p.LogStartOffset}
		}
	}
	if session {
		out.resp.SessionID = d.sessions.create(q.ReplicaID >= 0, req.Version >= 13, asks, told)
	}
	return out.spans()
}

// fetchKey is a partition as a request names it: by topic id from version 13, by topic name before.
type fetchKey struct {
	topic     string
	id        protocol.UUID
	partition int32
}

// fetchAsk is one partition that a request names.
type fetchAsk struct {
	key fetchKey
	q   replica.FetchPartition
}

// asksOf returns the partitions that a request names, each once.
func asksOf(req *kmsg.FetchRequest) []fetchAsk {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	out := make([]fetchAsk, 0, n)
	var at map[fetchKey]int
	if n > 1 {
		at = make(map[fetchKey]int, n)
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			a := fetchAsk{keyOf(req, t.Topic, t.TopicID, t.Partitions[j].Partition), partitionOf(req, t, &t.Partitions[j])}
			if k, twice := at[a.key]; twice {
				out[k] = a
				continue
			}
			if at != nil {
				at[a.key] = len(out)
			}
			out = append(out, a)
		}
	}
	return out
}

func keyOf(req *kmsg.FetchRequest, topic string, id protocol.UUID, partition int32) fetchKey {
	if req.Version >= 13 {
		return fetchKey{id: id, partition: partition}
	}
	return fetchKey{topic: topic, partition: partition}
}

// fetchRequest is the request in the replicas' terms, without partitions.
func (d *Dispatcher) fetchRequest(req *kmsg.FetchRequest) *replica.FetchRequest {
	replicaID := req.ReplicaID
	if req.Version >= 15 {
		replicaID = req.ReplicaState.ID
	}
	out := &replica.FetchRequest{
		ReplicaID:     max(replicaID, replica.ConsumerID),
		MaxWait:       min(time.Duration(max(req.MaxWaitMillis, 0))*time.Millisecond, d.fetchMaxWait),
		MaxBytes:      min(max(int(req.MaxBytes), 0), d.fetchMaxBytes),
		ReadCommitted: req.IsolationLevel == 1,
	}
	out.MinBytes = min(max(int(req.MinBytes), 0), out.MaxBytes)
	return out
}

func partitionOf(req *kmsg.FetchRequest, t *kmsg.FetchRequestTopic, p *kmsg.FetchRequestTopicPartition) replica.FetchPartition {
	q := replica.FetchPartition{
		Topic: t.Topic, TopicID: t.TopicID, Partition: p.Partition,
		CurrentLeaderEpoch: replica.NoEpoch, LastFetchedEpoch: replica.NoEpoch,
		Offset: p.FetchOffset, LogStart: -1, MaxBytes: max(p.PartitionMaxBytes, 0),
	}
	if req.Version >= 5 {
		q.LogStart = p.LogStartOffset
	}
	if req.Version >= 9 {
		q.CurrentLeaderEpoch = max(p.CurrentLeaderEpoch, replica.NoEpoch) // any below 0 is none (FetchRequest.optionalEpoch)
	}
	if req.Version >= 12 {
		q.LastFetchedEpoch = max(p.LastFetchedEpoch, replica.NoEpoch)
	}
	return q
}

// fetchAnswer puts a response together.
type fetchAnswer struct {
	d      *Dispatcher
	c      call
	req    *kmsg.FetchRequest
	resp   protocol.FetchResponse
	topics map[fetchKey]int // places in resp, by key with partition 0; made for the second topic
	failed bool             // some partition has an error
	zstd   map[string]bool  // topics that are refused to clients which may not know zstd
}

func (a *fetchAnswer) spans() []protocol.Span {
	a.d.count(&a.c, a.failed || a.resp.ErrorCode != protocol.None)
	return protocol.AppendFetchResponse(&a.resp, a.req.Version, a.c.header.CorrelationID)
}

// add puts one partition in. The result's spans pass into the answer.
func (a *fetchAnswer) add(k fetchKey, r *replica.FetchResult) *protocol.FetchPartition {
	t := a.topic(k)
	t.Partitions = append(t.Partitions, a.partition(k, r))
	p := &t.Partitions[len(t.Partitions)-1]
	a.failed = a.failed || p.ErrorCode != protocol.None
	if a.req.Version >= 16 && r.Leader >= 0 {
		p.CurrentLeader = &protocol.FetchLeader{LeaderID: r.Leader, LeaderEpoch: r.LeaderEpoch}
		a.resp.Nodes = a.d.addFetchNode(a.resp.Nodes, r.Leader, a.c.conn.Listener)
	}
	return p
}

func (a *fetchAnswer) topic(k fetchKey) *protocol.FetchTopic {
	k.partition = 0
	n := len(a.resp.Topics)
	if n > 0 && a.resp.Topics[n-1].Topic == k.topic && a.resp.Topics[n-1].TopicID == k.id {
		return &a.resp.Topics[n-1]
	}
	if n == 1 {
		first := &a.resp.Topics[0]
		a.topics = map[fetchKey]int{{topic: first.Topic, id: first.TopicID}: 0}
	}
	if at, ok := a.topics[k]; ok {
		return &a.resp.Topics[at]
	}
	if n > 0 {
		a.topics[k] = n
	}
	a.resp.Topics = append(a.resp.Topics, protocol.FetchTopic{Topic: k.topic, TopicID: k.id})
	return &a.resp.Topics[n]
}

// partition is one partition's answer.
func (a *fetchAnswer) partition(k fetchKey, r *replica.FetchResult) protocol.FetchPartition {
	out := protocol.NewFetchPartition(k.partition)
	if a.req.Version < 10 && r.Err == protocol.None && a.storesZstd(k.topic) {
		protocol.ReleaseSpans(r.Spans)
		r.Spans, r.Leader = nil, -1
		out.ErrorCode = protocol.UnsupportedCompressionType
		return out
	}
	out.ErrorCode = a.errorCode(k, r.Err)
	out.HighWatermark, out.LastStableOffset, out.LogStartOffset = r.HighWatermark, r.LastStable, r.LogStart
	out.PreferredReplica = r.PreferredReplica
	out.Records = r.Spans
	if a.req.IsolationLevel == 1 {
		out.Aborted = make([]protocol.FetchAborted, len(r.Aborted))
		for i, t := range r.Aborted {
			out.Aborted[i] = protocol.FetchAborted{ProducerID: t.ProducerID, FirstOffset: t.FirstOffset}
		}
	}
	if r.Diverging != nil {
		out.Diverging = &protocol.FetchEpochEnd{Epoch: r.Diverging.Epoch, EndOffset: r.Diverging.End}
	}
	return out
}

// errorCode is an error in the words of the request's version. Nobody's topic id is zero.
func (a *fetchAnswer) errorCode(k fetchKey, err protocol.ErrorCode) protocol.ErrorCode {
	switch {
	case err == protocol.KafkaStorageError && a.req.Version <= 5:
		return protocol.NotLeaderOrFollower
	case err == protocol.UnknownTopicOrPartition && a.req.Version >= 13 && k.id.IsZero():
		return protocol.UnknownTopicID
	}
	return err
}

// storesZstd reports whether a topic's records are kept as zstd whatever the producer sent.
func (a *fetchAnswer) storesZstd(topic string) bool {
	stores, known := a.zstd[topic]
	if known {
		return stores
	}
	if t, ok := a.d.o.Cluster().Topic(topic); ok {
		stores = a.d.o.Config.String("compression.type") == "zstd"
		if v, ok := t.Configs["compression.type"]; ok {
			stores = v == "zstd"
		}
	}
	if a.zstd == nil {
		a.zstd = map[string]bool{}
	}
	a.zstd[topic] = stores
	return stores
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
