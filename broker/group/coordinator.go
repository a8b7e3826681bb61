package group

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"varve/broker/config"
	"varve/broker/replica"
	"varve/metastore"
	"varve/metastore/controller"
	"varve/protocol"
	"varve/protocol/event"
	"varve/protocol/record"
)

// Replicas are this broker's partitions; *replica.Manager.
type Replicas interface {
	AppendCoordinator(w replica.CoordinatorAppend, done func(replica.AppendResult))
	ReadCoordinator(topicID protocol.UUID, partition, leaderEpoch int32, offset int64, maxBytes int) (replica.CoordinatorRead, error)
}

// Meta is the cluster's metadata; *metastore.Store.
type Meta interface {
	Image() *metastore.Image
	Subscribe(fn func(metastore.Delta)) (cancel func())
}

// Options of a Coordinator.
type Options struct {
	NodeID      int32
	Config      *config.Config
	Replicas    Replicas
	Meta        Meta
	CreateTopic func(ctx context.Context, t controller.CreateTopic) error // returns once Meta shows it
	ClockAgrees func() bool                                               // whether retention may act (DESIGN invariant 13); nil is always
	Now         func() time.Time                                          // time.Now
	Events      event.Sink
}

// Coordinator holds the groups that this broker coordinates.
type Coordinator struct {
	o        Options
	settings Settings
	codec    record.Codec
	timeout  time.Duration // of appends: offsets.commit.timeout.ms
	loadSize int           // bytes of one read: offsets.load.buffer.size

	start time.Time

	shards  atomic.Pointer[map[int32]*shard] // by partition; replaced under mu, never changed
	loading chan struct{}                    // places of loads at one time
	kick    chan struct{}                    // work for the loop; capacity 1

	mu       sync.Mutex
	handed   []*shard         // whose events wait for the loop
	released bool             // nothing is coordinated any more
	final    map[int32]*shard // what was, until it was released
	ended    bool             // the loop takes no more
	ctx      context.Context
	wg       sync.WaitGroup

	creating chan struct{} // holds one token: whoever has it may create the topic
}

// maxLoads bounds the partitions that are loaded at one time.
const maxLoads = 4

// batchMarginBytes is what a batch takes beyond its records.
const batchMarginBytes = 1024

// New returns a Coordinator that answers NotCoordinator until Run.
func New(o Options) *Coordinator {
	c := o.Config
	co := &Coordinator{
		o: o,
		settings: Settings{
			MinSession: c.Duration("group.min.session.timeout.ms"), MaxSession: c.Duration("group.max.session.timeout.ms"),
			InitialDelay:      max(c.Duration("group.initial.rebalance.delay.ms"), 0),
			MaxSize:           c.Int("group.max.size"),
			MaxOffsetMetadata: c.Int("offset.metadata.max.bytes"),
			Retention:         time.Duration(c.Int64("offsets.retention.minutes")) * time.Minute,
			RetentionCheck:    c.Duration("offsets.retention.check.interval.ms"),
			MaxAppendBytes:    max(c.Int("message.max.bytes")-batchMarginBytes, 1),
		},
		codec:    record.Codec(c.Int("offsets.topic.compression.codec")),
		timeout:  c.Duration("offsets.commit.timeout.ms"),
		loadSize: c.Int("offsets.load.buffer.size"),
		loading:  make(chan struct{}, maxLoads),
		kick:     make(chan struct{}, 1),
		creating: make(chan struct{}, 1),
	}
	co.creating <- struct{}{}
	if co.o.Now == nil {
		co.o.Now = time.Now
	}
	if co.o.ClockAgrees == nil {
		co.o.ClockAgrees = func() bool { return true }
	}
	co.start = co.o.Now()
	co.shards.Store(&map[int32]*shard{})
	return co
}

// Run follows leadership until ctx ends. It returns after all that waits was answered. It can be called once.
func (c *Coordinator) Run(ctx context.Context) error {
	c.mu.Lock()
	c.ctx = ctx
	c.mu.Unlock()
	unsubscribe := c.o.Meta.Subscribe(c.follow)
	c.loop(ctx)
	unsubscribe()
	c.Release()
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	for _, s := range c.takeHanded() {
		s.drive()
	}
	c.wg.Wait()
	return nil
}

// Release answers all that waits with NotCoordinator and coordinates nothing from then on, so that a broker that goes
// down need not wait for rebalances to end.
func (c *Coordinator) Release() {
	c.mu.Lock()
	c.released = true
	all := *c.shards.Load()
	if len(all) > 0 {
		c.final = all
	}
	c.shards.Store(&map[int32]*shard{})
	c.mu.Unlock()
	for _, s := range all {
		s.stop()
	}
}

// follow takes a change of the metadata: leadership of the offsets topic, and topics that went.
func (c *Coordinator) follow(d metastore.Delta) {
	var gone []string
	for _, t := range d.Topics {
		if t.Old != nil && t.New == nil {
			gone = append(gone, t.Old.Name)
		}
		switch {
		case t.New != nil && t.New.Name == OffsetsTopic:
			c.lead(t.New)
		case t.New == nil && t.Old.Name == OffsetsTopic:
			c.lead(&metastore.Topic{})
		}
	}
	if len(gone) > 0 {
		for _, s := range *c.shards.Load() {
			s.tell(TopicsGone{Topics: gone})
		}
	}
}

// lead brings the shards to what a topic's partitions say: one for each that this broker leads, at its leader epoch.
func (c *Coordinator) lead(t *metastore.Topic) {
	c.mu.Lock()
	if c.released {
		c.mu.Unlock()
		return
	}
	old, next := *c.shards.Load(), map[int32]*shard{}
	for _, p := range t.Partitions {
		if p.Leader != c.o.NodeID {
			continue
		}
		s := old[p.Index]
		if s == nil || s.topicID != t.ID || s.epoch != p.LeaderEpoch {
			s = newShard(c, t.ID, p.Index, p.LeaderEpoch)
			c.wg.Go(s.load)
		}
		next[p.Index] = s
	}
	c.shards.Store(&next)
	c.mu.Unlock()
	for index, s := range old {
		if next[index] != s {
			s.stop()
		}
	}
}

// loop runs timers and what was handed to it.
func (c *Coordinator) loop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		for _, s := range c.takeHanded() {
			s.drive()
		}
		var tick <-chan time.Time
		if wait, some := c.tickDue(); some {
			timer.Reset(wait)
			tick = timer.C
		}
		select {
		case <-c.kick:
		case <-tick:
		case <-ctx.Done():
			return
		}
	}
}

// tickDue lets the shards act whose time has come, and returns the time until the next one's.
func (c *Coordinator) tickDue() (wait time.Duration, some bool) {
	now := c.o.Now().Sub(c.start)
	earliest := never
	for _, s := range *c.shards.Load() {
		if due := s.due.Load(); due <= int64(now) {
			s.due.Store(never)
			s.tell(Tick{Expire: c.o.ClockAgrees()})
		} else {
			earliest = min(earliest, due)
		}
	}
	return max(time.Duration(earliest)-now, 0), earliest != never
}

// hand lets the loop drive a shard; false when there is no loop any more.
func (c *Coordinator) hand(s *shard) bool {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return false
	}
	c.handed = append(c.handed, s) // each shard at most once: it is running then
	c.mu.Unlock()
	c.wake()
	return true
}

func (c *Coordinator) takeHanded() []*shard {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.handed
	c.handed = nil
	return out
}

func (c *Coordinator) wake() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}
