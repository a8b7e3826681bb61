package replica

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"varve/broker/commitlog"
	"varve/broker/config"
	"varve/metastore"
	"varve/protocol"
	"varve/protocol/event"
)

// Manager holds this broker's replicas.
type Manager struct {
	nodeID  int32
	logs    *commitlog.Manager
	tier    Tier
	meta    Meta
	control ControlPlane
	conf    *config.Config
	now     func() time.Time
	events  event.Sink

	clockAgrees    func() bool
	internalTopic  func(string) bool
	uploadMaxLagMs int64

	hosted    atomic.Pointer[hosted] // replaced by the applier only
	counters  counters
	deadlines *deadlines
	cold      coldReaders
	turns     turns
	fetching  atomic.Int64 // fetches that wait

	ready    chan struct{}
	retry    chan struct{} // poked when a replica could not be served for a reason that may pass
	stopping chan struct{} // closed when Run's context has ended
	deltas   chan metastore.Delta
	runCtx   context.Context // Run's
	tell     *teller
	wg       sync.WaitGroup
	workMu   sync.RWMutex
	ended    bool // under workMu: nothing is added to wg any more

	tierElections chan struct{} // places of elections that read from the tier

	lostMu sync.Mutex
	lost   []LostRange // newest maxLostRanges
}

// maxLostRanges bounds the history of lost ranges.
const maxLostRanges = 10_000

// New returns a Manager that does nothing until Run.
func New(o Options) (*Manager, error) {
	if o.Logs == nil || o.Meta == nil || o.Control == nil || o.Config == nil {
		return nil, errors.New("replica: Logs, Meta, Control and Config are needed")
	}
	m := &Manager{
		nodeID: o.NodeID, logs: o.Logs, tier: o.Tier, meta: o.Meta, control: o.Control, conf: o.Config,
		now: o.Now, events: o.Events, clockAgrees: o.ClockAgrees, internalTopic: o.InternalTopic,
		ready: make(chan struct{}), retry: make(chan struct{}, 1), stopping: make(chan struct{}), deltas: make(chan metastore.Delta),
		tierElections: make(chan struct{}, maxTierElections),
	}
	if m.now == nil {
		m.now = time.Now
	}
	if m.clockAgrees == nil {
		m.clockAgrees = func() bool { return true }
	}
	if m.internalTopic == nil {
		m.internalTopic = kafkaInternal
	}
	m.deadlines = newDeadlines(m.now)
	m.cold.init(o.Config.Int("remote.log.reader.threads"), o.Config.Int("remote.log.reader.max.pending.tasks"))
	m.uploadMaxLagMs = o.Config.Int64("varve.tier.upload.max.lag.ms")
	m.tell = newTeller(m)
	m.hosted.Store(newHosted())
	return m, nil
}

// remoteMaxWait is how long a fetch waits for the tier.
func (m *Manager) remoteMaxWait() time.Duration { return m.conf.Duration("remote.fetch.max.wait.ms") }

// kafkaInternal is Topic.isInternal of Apache Kafka.
func kafkaInternal(name string) bool {
	return name == "__consumer_offsets" || name == "__transaction_state" || name == "__share_group_state"
}

// Ready is closed once the first image was applied: every replica that the Image knows of is served, or waits for the
// controller or the tier, which readiness does not wait for.
func (m *Manager) Ready() <-chan struct{} { return m.ready }

// hosted finds this broker's replicas. It is replaced, never changed, once it can be seen.
type hosted struct {
	names map[string]*hostedTopic
	ids   map[protocol.UUID]*hostedTopic
}

// hostedTopic is a topic of which this broker has replicas. It is replaced, never changed, once it can be seen.
type hostedTopic struct {
	name       string
	id         protocol.UUID
	partitions []*partition // by index; nil where this broker has no replica
}

func newHosted() *hosted {
	return &hosted{names: map[string]*hostedTopic{}, ids: map[protocol.UUID]*hostedTopic{}}
}

// find returns the replica. Errors: UnknownTopicID, InconsistentTopicID, UnknownTopicOrPartition, NotLeaderOrFollower
// when the partition exists elsewhere only or is not applied yet (ReplicaManager.getPartitionOrException).
func (m *Manager) find(topic string, id protocol.UUID, index int32) (*partition, error) {
	h := m.hosted.Load()
	var t *hostedTopic
	if id.IsZero() {
		t = h.names[topic]
	} else if t = h.ids[id]; t != nil && topic != "" && t.name != topic {
		return nil, protocol.InconsistentTopicID
	}
	if t != nil && index >= 0 && int(index) < len(t.partitions) && t.partitions[index] != nil {
		return t.partitions[index], nil
	}
	img := m.meta.Image()
	known, ok := img.Topic(topic)
	if !id.IsZero() {
		if known, ok = img.TopicByID(id); !ok {
			return nil, protocol.UnknownTopicID
		}
	}
	if !ok || index < 0 || int(index) >= len(known.Partitions) {
		return nil, protocol.UnknownTopicOrPartition
	}
	return nil, protocol.NotLeaderOrFollower
}

// leaderOf is what a client is told to try instead (KIP-951); -1, -1 when unknown.
func (m *Manager) leaderOf(topic string, id protocol.UUID, index int32) (leader, epoch int32) {
	img := m.meta.Image()
	t, ok := img.Topic(topic)
	if !id.IsZero() {
		t, ok = img.TopicByID(id)
	}
	if !ok || index < 0 || int(index) >= len(t.Partitions) {
		return -1, -1
	}
	return t.Partitions[index].Leader, t.Partitions[index].LeaderEpoch
}

// Run loads the logs, follows the Image and does what has to be done in time, until ctx ends. It returns after
// everything that it started, and answers all that waits. It can be called once.
func (m *Manager) Run(ctx context.Context) error {
	if err := m.load(ctx); err != nil {
		return err
	}
	m.runCtx = ctx
	unsubscribe := m.meta.Subscribe(func(d metastore.Delta) {
		select {
		case m.deltas <- d:
		case <-ctx.Done():
		}
	})
	m.wg.Go(func() { m.deadlines.run(ctx) })
	m.wg.Go(func() { m.tell.run(ctx) })
	m.wg.Go(func() { m.housekeep(ctx) })
	m.follow(ctx)
	unsubscribe()
	close(m.stopping)
	m.workMu.Lock()
	m.ended = true
	m.workMu.Unlock()
	m.wg.Wait()
	return nil
}

// follow applies deltas until ctx ends.
func (m *Manager) follow(ctx context.Context) {
	first := true
	for {
		select {
		case d := <-m.deltas:
			m.apply(d, first)
		case <-ctx.Done():
			return
		}
		if first {
			// Folders of new replicas are assigned before the broker says that it is ready for leadership.
			m.tell.attempt(ctx)
			close(m.ready)
			first = false
		}
	}
}

// beginWork lets a goroutine be added to wg; false when Run is ending. endWork follows.
func (m *Manager) beginWork() bool {
	m.workMu.RLock()
	if m.ended {
		m.workMu.RUnlock()
		return false
	}
	return true
}

func (m *Manager) endWork() { m.workMu.RUnlock() }
