package api

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/commitlog"
	"varve/broker/config"
	"varve/broker/netio"
	"varve/broker/replica"
	"varve/metastore"
	"varve/metastore/controller"
	"varve/protocol"
	"varve/protocol/event"
)

// fakeCluster is metadata by hand.
type fakeCluster struct {
	id         string
	controller int32
	brokers    []*metastore.Broker
	topics     map[string]*metastore.Topic
}

func (f *fakeCluster) ClusterID() string            { return f.id }
func (f *fakeCluster) Controller() int32            { return f.controller }
func (f *fakeCluster) Brokers() []*metastore.Broker { return f.brokers }

func (f *fakeCluster) Broker(id int32) (*metastore.Broker, bool) {
	for _, b := range f.brokers {
		if b.ID == id {
			return b, true
		}
	}
	return nil, false
}

func (f *fakeCluster) Topic(name string) (*metastore.Topic, bool) {
	t, ok := f.topics[name]
	return t, ok
}

func (f *fakeCluster) TopicByID(id protocol.UUID) (*metastore.Topic, bool) {
	for _, t := range f.topics {
		if t.ID == id {
			return t, true
		}
	}
	return nil, false
}

func (f *fakeCluster) Topics() iter.Seq[*metastore.Topic] {
	return func(yield func(*metastore.Topic) bool) {
		for _, n := range slices.Sorted(maps.Keys(f.topics)) {
			if !yield(f.topics[n]) {
				return
			}
		}
	}
}

var (
	idA = protocol.UUID{0xa}
	idB = protocol.UUID{0xb}
)

// testCluster has brokers 1 (this one), 2 and the fenced 3, which lacks the
// listener, and topics "a" with two partitions and "b" with every kind of trouble.
func testCluster() *fakeCluster {
	at := func(port int32) []metastore.Endpoint {
		return []metastore.Endpoint{{Name: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "h", Port: port}, {Name: "OTHER", Host: "o", Port: port + 1}}
	}
	part := func(i, leader int32, replicas ...int32) *metastore.Partition {
		return &metastore.Partition{Index: i, Replicas: replicas, ISR: replicas, Leader: leader, LeaderEpoch: 7}
	}
	return &fakeCluster{
		id: "cluster-id", controller: 2,
		brokers: []*metastore.Broker{
			{ID: 1, Endpoints: at(9001), Rack: "r1"},
			{ID: 2, Endpoints: at(9002)},
			{ID: 3, Endpoints: []metastore.Endpoint{{Name: "OTHER", Host: "o", Port: 1}}, Fenced: true},
		},
		topics: map[string]*metastore.Topic{
			"a": {Name: "a", ID: idA, Configs: map[string]string{"retention.ms": "5000"}, Partitions: []*metastore.Partition{part(0, 1, 1, 2), part(1, 2, 2, 1)}},
			"b": {Name: "b", ID: idB, Configs: map[string]string{"compression.type": "zstd"}, Partitions: []*metastore.Partition{part(0, -1, 1, 3), part(1, 3, 3, 1), part(2, 9, 9, 1)}},
		},
	}
}

// fakeReplicas answers with functions; nil ones succeed with fixed values.
type fakeReplicas struct {
	append     func(*replica.AppendRequest) []replica.AppendResult
	async      bool // answer from another goroutine, after Append returned
	fetch      func(context.Context, *replica.FetchRequest) []replica.FetchResult
	listOffset func(context.Context, replica.OffsetQuery) (replica.OffsetResult, error)

	wg       sync.WaitGroup
	mu       sync.Mutex
	appends  []*replica.AppendRequest
	fetches  []*replica.FetchRequest
	released int
	made     int
	sessions int // open ones
	deleted  []string
	offline  error
}

func (f *fakeReplicas) Append(req *replica.AppendRequest, done func([]replica.AppendResult)) {
	kept := &replica.AppendRequest{Acks: req.Acks, Timeout: req.Timeout, InternalTopics: req.InternalTopics}
	for _, p := range req.Partitions {
		p.Records = bytes.Clone(p.Records)
		kept.Partitions = append(kept.Partitions, p)
	}
	f.mu.Lock()
	f.appends = append(f.appends, kept)
	f.mu.Unlock()
	var results []replica.AppendResult
	if f.append != nil {
		results = f.append(kept)
	} else {
		for i := range req.Partitions {
			results = append(results, replica.AppendResult{BaseOffset: 100 + int64(i), LogAppendTime: -1, LogStart: 3, Leader: -1, LeaderEpoch: -1})
		}
	}
	if !f.async {
		done(results)
		return
	}
	f.wg.Go(func() {
		time.Sleep(time.Millisecond)
		done(results)
	})
}

func (f *fakeReplicas) lastAppend() *replica.AppendRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.appends) == 0 {
		return nil
	}
	return f.appends[len(f.appends)-1]
}

func (f *fakeReplicas) span(b []byte) protocol.Span {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made++
	return protocol.Span{Bytes: b, Len: int64(len(b)), Release: func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.released++
	}}
}

func (f *fakeReplicas) Fetch(ctx context.Context, req *replica.FetchRequest) []replica.FetchResult {
	f.mu.Lock()
	f.fetches = append(f.fetches, req)
	f.mu.Unlock()
	if f.fetch != nil {
		return f.fetch(ctx, req)
	}
	out := make([]replica.FetchResult, len(req.Partitions))
	for i := range out {
		out[i] = replica.FetchResult{HighWatermark: 20, LastStable: 19, LogStart: 1, Leader: -1, LeaderEpoch: -1, PreferredReplica: -1,
			Spans: []protocol.Span{f.span([]byte("first")), f.span([]byte("second"))}}
	}
	return out
}

// NewSession returns a session that reads everything each time.
func (f *fakeReplicas) NewSession() replica.FetchSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sessions++
	return &fakeSession{of: f, parts: map[int]replica.FetchPartition{}}
}

type fakeSession struct {
	of     *fakeReplicas
	next   int
	parts  map[int]replica.FetchPartition
	closed bool
}

func (s *fakeSession) Add(q replica.FetchPartition) int {
	s.next++
	s.parts[s.next] = q
	return s.next
}

func (s *fakeSession) Change(place int, q replica.FetchPartition) { s.parts[place] = q }
func (s *fakeSession) Remove(place int)                           { delete(s.parts, place) }
func (s *fakeSession) Redo()                                      {}

func (s *fakeSession) Close() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if !s.closed {
		s.of.sessions--
	}
	s.closed = true
}

func (s *fakeSession) Fetch(ctx context.Context, req *replica.FetchRequest) []replica.SessionResult {
	places := slices.Sorted(maps.Keys(s.parts))
	full := *req
	for _, place := range places {
		full.Partitions = append(full.Partitions, s.parts[place])
	}
	out := make([]replica.SessionResult, len(places))
	for i, r := range s.of.Fetch(ctx, &full) {
		out[i] = replica.SessionResult{Place: places[i], FetchResult: r}
	}
	return out
}

func (f *fakeReplicas) ListOffset(ctx context.Context, q replica.OffsetQuery) (replica.OffsetResult, error) {
	if f.listOffset != nil {
		return f.listOffset(ctx, q)
	}
	return replica.OffsetResult{Timestamp: 5, Offset: 6, LeaderEpoch: 7}, nil
}

func (f *fakeReplicas) OffsetForEpoch(q replica.EpochQuery) (replica.EpochEnd, error) {
	if q.Epoch > 7 {
		return replica.EpochEnd{Epoch: -1, End: -1}, protocol.UnknownLeaderEpoch
	}
	return replica.EpochEnd{Epoch: q.Epoch - 1, End: 50}, nil
}

func (f *fakeReplicas) DeleteRecords(_ context.Context, topic string, partition int32, offset int64) (int64, error) {
	f.deleted = append(f.deleted, fmt.Sprintf("%s-%d %d", topic, partition, offset))
	if offset > 20 {
		return 3, protocol.OffsetOutOfRange
	}
	return max(offset, 3), nil
}

func (f *fakeReplicas) Producers(topic string, _ int32) ([]commitlog.ProducerInfo, error) {
	if topic == "b" {
		return nil, protocol.NotLeaderOrFollower
	}
	return []commitlog.ProducerInfo{{ProducerID: 5, Epoch: 1, LastSequence: 2, LastTimestamp: 3, CoordinatorEpoch: -1, TxnStart: -1}}, nil
}

func (f *fakeReplicas) LogDir() replica.LogDir {
	d := replica.LogDir{Path: "/logs", Offline: f.offline, TotalBytes: 100, UsableBytes: 60}
	if f.offline == nil {
		d.Logs = []replica.LogSize{{Topic: "b", Partition: 0, Bytes: 7}, {Topic: "a", Partition: 1, Bytes: 9}, {Topic: "a", Partition: 0, Bytes: 8}}
	}
	return d
}

// fakeController records what it is asked and succeeds unless told otherwise.
type fakeController struct {
	err   func(topic string) error
	block bool // wait for ctx, then fail with its error

	mu       sync.Mutex
	created  []controller.CreateTopic
	deleted  []controller.DeleteTopic
	grown    []controller.CreatePartitions
	elected  []controller.TopicPartition
	unclean  bool
	allParts bool
	cluster  *fakeCluster
	dynamic  map[int32]map[string]string // of brokers, -1 of all
}

func (f *fakeController) fail(ctx context.Context, topic string) error {
	if f.block {
		<-ctx.Done()
		return ctx.Err()
	}
	if f.err != nil {
		return f.err(topic)
	}
	return nil
}

func (f *fakeController) CreateTopics(ctx context.Context, topics []controller.CreateTopic, _ bool) (out []controller.CreateResult) {
	for _, t := range topics {
		err := f.fail(ctx, t.Name)
		f.mu.Lock()
		f.created = append(f.created, t)
		f.mu.Unlock()
		out = append(out, controller.CreateResult{Name: t.Name, ID: idA, Partitions: 3, ReplicationFactor: 1, Configs: t.Configs, Err: err})
	}
	return out
}

func (f *fakeController) DeleteTopics(ctx context.Context, topics []controller.DeleteTopic) (out []controller.DeleteResult) {
	for _, t := range topics {
		f.deleted = append(f.deleted, t)
		out = append(out, controller.DeleteResult{ID: t.ID, Err: f.fail(ctx, t.Name)})
	}
	return out
}

func (f *fakeController) CreatePartitions(ctx context.Context, topics []controller.CreatePartitions, _ bool) (out []controller.TopicResult) {
	for _, t := range topics {
		f.grown = append(f.grown, t)
		out = append(out, controller.TopicResult{Topic: t.Topic, Err: f.fail(ctx, t.Topic)})
	}
	return out
}

func (f *fakeController) ElectLeaders(ctx context.Context, parts []controller.TopicPartition, unclean bool) (out []controller.ElectResult, err error) {
	f.unclean, f.allParts = unclean, parts == nil
	if f.block {
		return nil, f.fail(ctx, "")
	}
	for _, p := range parts {
		f.elected = append(f.elected, p)
		out = append(out, controller.ElectResult{Topic: p.Topic, Partition: p.Partition, Err: f.fail(ctx, p.Topic)})
	}
	return out, nil
}

// AlterConfigs edits what the cluster has.
func (f *fakeController) AlterConfigs(ctx context.Context, change controller.ConfigChange, validateOnly bool) error {
	if err := f.fail(ctx, change.Topic); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var old map[string]string
	topic := f.cluster.topics[change.Topic]
	switch {
	case change.Topic == "":
		old = f.dynamic[change.Broker]
	case topic != nil:
		old = topic.Configs
	}
	next, err := change.Edit(old)
	switch {
	case err != nil:
		return err
	case change.Topic != "" && topic == nil:
		return protocol.UnknownTopicOrPartition
	case validateOnly:
	case topic != nil:
		topic.Configs = next
	default:
		f.dynamic[change.Broker] = next
	}
	return nil
}

func (f *fakeController) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, t := range f.created {
		out = append(out, t.Name)
	}
	slices.Sort(out)
	return out
}

// bench is a Dispatcher among fakes.
type bench struct {
	*Dispatcher
	t        testing.TB
	cluster  *fakeCluster
	replicas *fakeReplicas
	control  *fakeController
	groups   *fakeGroups
	events   *event.Recorder
	nextID   int64
	idErr    error
}

func newBench(t testing.TB, sets ...string) *bench {
	t.Helper()
	cfg, _, err := config.Load(config.LoadOptions{Sets: append([]string{"node.id=1"}, sets...), Data: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, cluster: testCluster(), replicas: &fakeReplicas{}, control: &fakeController{}, groups: &fakeGroups{}, events: &event.Recorder{}}
	b.control.cluster, b.control.dynamic = b.cluster, map[int32]map[string]string{}
	b.Dispatcher = New(Options{
		Reconfigure: func() {
			if err := cfg.SetDynamic(b.control.dynamic[1], b.control.dynamic[-1]); err != nil {
				t.Error(err)
			}
		},
		NodeID: 1, Config: cfg, Cluster: func() Cluster { return b.cluster },
		Replicas: b.replicas, Controller: b.control, Groups: b.groups, Events: b.events.Emit,
		ProducerIDs: func(context.Context) (int64, int64, error) {
			if b.idErr != nil {
				return 0, 0, b.idErr
			}
			b.nextID += 3
			return b.nextID - 3, 3, nil
		},
	})
	t.Cleanup(func() {
		b.Close()
		b.replicas.wg.Wait()
	})
	return b
}

// frameOf is a request as it stands on the wire, without the size.
func frameOf(req kmsg.Request, clientID string) []byte {
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID))
	return f.AppendRequest(nil, req, 77)[4:]
}

// serve runs one frame and waits for its reply.
func (b *bench) serve(conn *netio.Conn, frame []byte) netio.Reply {
	b.t.Helper()
	got := make(chan netio.Reply, 2)
	b.Serve(b.t.Context(), conn, frame, func(r netio.Reply) { got <- r })
	select {
	case r := <-got:
		return r
	case <-time.After(5 * time.Second):
		b.t.Fatal("no reply")
		panic("unreachable")
	}
}

func plainConn() *netio.Conn { return &netio.Conn{ID: 1, Peer: "1.2.3.4:5", Listener: "PLAINTEXT"} }

// wire flattens a reply and releases it.
func wire(t testing.TB, r netio.Reply) []byte {
	t.Helper()
	var out []byte
	for _, s := range r.Spans {
		var err error
		if out, err = s.AppendTo(out); err != nil {
			t.Fatal(err)
		}
	}
	protocol.ReleaseSpans(r.Spans)
	return out
}

// ask sends a request and returns the decoded response, which must be exactly
// what stands on the wire.
func ask[R kmsg.Response](b *bench, req kmsg.Request) R {
	b.t.Helper()
	return askAs[R](b, req, "client")
}

func askAs[R kmsg.Response](b *bench, req kmsg.Request, clientID string) R {
	b.t.Helper()
	r := b.serve(plainConn(), frameOf(req, clientID))
	if r.Close || r.None {
		b.t.Fatalf("closed: %v", r.Cause)
	}
	return decode(b.t, req, wire(b.t, r)).(R)
}

// decode reads a whole response frame.
func decode(t testing.TB, req kmsg.Request, frame []byte) kmsg.Response {
	t.Helper()
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if len(frame) < 8 || int(be32(frame)) != len(frame)-4 || be32(frame[4:]) != 77 {
		t.Fatalf("bad frame % x", frame[:min(len(frame), 16)])
	}
	body := frame[8:]
	if resp.IsFlexible() && req.Key() != protocol.KeyAPIVersions {
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		t.Fatalf("key %d version %d: %v", req.Key(), req.GetVersion(), err)
	}
	if again := resp.AppendTo(nil); !bytes.Equal(again, body) {
		t.Fatalf("key %d version %d: the response has other bytes than its content", req.Key(), req.GetVersion())
	}
	return resp
}

func be32(b []byte) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}
