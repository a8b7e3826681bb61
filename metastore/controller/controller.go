package controller

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"varve/metastore"
	"varve/protocol"
)

// Controller runs the steps on the node that leads the metadata quorum. On other nodes all its methods answer NotController.
type Controller struct {
	store *metastore.Store
	opts  Options

	mu    sync.Mutex // one event at a time
	heard map[int32]session
}

// session is when a registration was last heard of by this controller.
type session struct {
	epoch int64
	at    time.Time
	beat  bool // heard of, not only granted
}

// New makes a controller; Run lets it watch sessions.
func New(store *metastore.Store, o Options) *Controller {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.SessionTimeout <= 0 {
		o.SessionTimeout = DefaultSessionTimeout
	}
	if o.TopicPolicy == nil {
		o.TopicPolicy = func(map[string]string) TopicPolicy { return TopicPolicy{MinISR: 1} }
	}
	return &Controller{store: store, opts: o, heard: map[int32]session{}}
}

// Run follows leadership until ctx ends: it settles what an earlier controller left, and fences brokers that are not heard of.
func (c *Controller) Run(ctx context.Context) error {
	for {
		lost, err := c.store.WaitController(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if err := c.term(ctx, lost); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// term is the time in which this node is the controller.
func (c *Controller) term(ctx context.Context, lost <-chan struct{}) error {
	c.grantSessions()
	if err := c.do(ctx, func(img *metastore.Image) (plan, error) { return stepSettle(img, c.opts.TopicPolicy), nil }); stops(err) {
		return err
	}
	tick := time.NewTicker(c.opts.SessionTimeout / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-lost:
			return nil
		case <-tick.C:
			if err := c.fenceSilent(ctx); stops(err) {
				return err
			}
		}
	}
}

// stops tells errors that end the controller from those that the next tick or the next leader deals with.
func stops(err error) bool {
	switch protocol.CodeOf(err) {
	case protocol.UnknownServerError, protocol.KafkaStorageError:
		return true
	}
	return false
}

func (c *Controller) grantSessions() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = map[int32]session{}
	now := c.opts.Now()
	for _, b := range c.store.Image().Brokers() {
		c.heard[b.ID] = session{epoch: b.Epoch, at: now}
	}
}

// fenceSilent fences brokers whose session is over. The broker of this very process needs no heartbeats.
func (c *Controller) fenceSilent(ctx context.Context) error {
	now := c.opts.Now()
	for _, b := range c.store.Image().Brokers() {
		if b.Fenced || b.ID == c.store.NodeID() {
			continue
		}
		c.mu.Lock()
		s, ok := c.heard[b.ID]
		if !ok || s.epoch != b.Epoch {
			s = session{epoch: b.Epoch, at: now}
			c.heard[b.ID] = s
		}
		c.mu.Unlock()
		if now.Sub(s.at) < c.opts.SessionTimeout {
			continue
		}
		err := c.do(ctx, func(img *metastore.Image) (plan, error) { return stepFence(img, b.ID, b.Epoch, c.opts.TopicPolicy) })
		if err != nil {
			return err
		}
		c.opts.Events.Emit(BrokerFenceChanged{ID: b.ID, Epoch: b.Epoch, Fenced: true})
	}
	return nil
}

// do runs a step on the newest image and proposes what it decides; a command that turns out stale runs the step again.
func (c *Controller) do(ctx context.Context, step func(*metastore.Image) (plan, error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.locked(ctx, step)
	return err
}

func (c *Controller) locked(ctx context.Context, step func(*metastore.Image) (plan, error)) (r metastore.Result, err error) {
	for range maxAttempts {
		if !c.store.IsController() {
			return r, protocol.Errorf(protocol.NotController, "this node is not the controller")
		}
		p, stepErr := step(c.store.Image())
		if stepErr != nil {
			return r, stepErr
		}
		r, err = c.propose(ctx, &p)
		if protocol.CodeOf(err) != protocol.InvalidUpdateVersion {
			return r, err
		}
	}
	return r, err
}

// propose commits the commands of a plan in order and returns the last one's result.
func (c *Controller) propose(ctx context.Context, p *plan) (r metastore.Result, err error) {
	for _, cmd := range p.cmds {
		if r, err = c.store.Propose(ctx, cmd); err != nil {
			return r, err
		}
	}
	for _, tp := range p.unclean {
		c.opts.Events.Emit(UncleanElection{Partition: tp})
	}
	return r, nil
}

// RegisterBroker registers a broker, fenced, and returns its epoch. A repetition with the same incarnation gets the same epoch.
//
// Errors: DuplicateBrokerRegistration while another incarnation is heard of; InvalidRegistration; NotController.
func (c *Controller) RegisterBroker(ctx context.Context, reg Registration) (epoch int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.heard[reg.ID]
	live := ok && s.beat && reg.ID != c.store.NodeID() && c.opts.Now().Sub(s.at) < c.opts.SessionTimeout
	var same int64
	var erased []TopicPartition
	clean := false
	r, err := c.locked(ctx, func(img *metastore.Image) (p plan, err error) {
		if b, ok := img.Broker(reg.ID); ok {
			clean = b.Epoch == reg.PrevEpoch
		}
		p, same, err = stepRegister(img, reg, c.opts.TopicPolicy, live)
		erased = p.erased
		return p, err
	})
	if err != nil {
		return 0, err
	}
	epoch = max(r.Epoch, same)
	c.heard[reg.ID] = session{epoch: epoch, at: c.opts.Now(), beat: true}
	if same == 0 {
		c.opts.Events.Emit(BrokerRegistered{ID: reg.ID, Epoch: epoch, Clean: clean})
		c.tellErased(reg.ID, erased)
	}
	return epoch, nil
}

func (c *Controller) tellErased(broker int32, erased []TopicPartition) {
	for _, tp := range erased {
		c.opts.Events.Emit(ReplicaErased{Partition: tp, Broker: broker})
	}
}

// Pulse answers a heartbeat.
type Pulse struct {
	Fenced bool
	Now    time.Time // by the controller's wall clock
}

// Heartbeat keeps the session of a registration and reports whether it is fenced, and the controller's time, which the
// broker's clock guard wants.
//
// Errors: BrokerIDNotRegistered, StaleBrokerEpoch, NotController.
func (c *Controller) Heartbeat(_ context.Context, broker int32, epoch int64) (p Pulse, err error) {
	if !c.store.IsController() {
		return p, protocol.Errorf(protocol.NotController, "this node is not the controller")
	}
	img := c.store.Image()
	if err := checkEpoch(img, broker, epoch); err != nil {
		return p, err
	}
	now := c.opts.Now()
	c.mu.Lock()
	c.heard[broker] = session{epoch: epoch, at: now, beat: true}
	c.mu.Unlock()
	b, _ := img.Broker(broker)
	return Pulse{Fenced: b.Fenced, Now: now}, nil
}

// Unfence lets a broker serve. When it returns, the broker has been elected wherever it could be.
//
// Errors: BrokerIDNotRegistered, StaleBrokerEpoch, NotController.
func (c *Controller) Unfence(ctx context.Context, broker int32, epoch int64) error {
	err := c.do(ctx, func(img *metastore.Image) (plan, error) { return stepUnfence(img, broker, epoch, c.opts.TopicPolicy) })
	if err == nil {
		c.opts.Events.Emit(BrokerFenceChanged{ID: broker, Epoch: epoch})
	}
	return err
}

// AssignDirs notes in which directories a broker keeps its replicas. Deleted topics are passed over.
//
// Errors: BrokerIDNotRegistered, StaleBrokerEpoch, InvalidRequest for a directory that was not registered, NotController.
func (c *Controller) AssignDirs(ctx context.Context, broker int32, epoch int64, as []DirAssignment) error {
	return c.do(ctx, func(img *metastore.Image) (plan, error) { return stepAssignDirs(img, broker, epoch, as) })
}

// ReplicaLost tells that the folder of an assigned replica is missing. The only replica of a tiered partition stays electable and leads again
// with a new epoch when its broker is unfenced; any other leaves ISR and ELR, and where none is left the partition has no leader
// until ElectLeaders accepts the loss. A second report changes nothing.
//
// Errors: BrokerIDNotRegistered, StaleBrokerEpoch, UnknownTopicID, UnknownTopicOrPartition, InvalidRequest, NotController.
func (c *Controller) ReplicaLost(ctx context.Context, topic protocol.UUID, partition, broker int32, epoch int64) error {
	var erased []TopicPartition
	err := c.do(ctx, func(img *metastore.Image) (p plan, err error) {
		p, err = stepReplicaLost(img, topic, partition, broker, epoch, c.opts.TopicPolicy)
		erased = p.erased
		return p, err
	})
	if err != nil {
		return err
	}
	c.tellErased(broker, erased)
	if b, ok := c.store.Image().Broker(broker); !ok || b.Fenced {
		return nil // unfencing elects
	}
	return c.do(ctx, func(img *metastore.Image) (plan, error) { return stepSettle(img, c.opts.TopicPolicy), nil })
}

// CreateTopics creates each topic or says why not (CreateTopics in ReplicationControlManager.java). With validateOnly nothing is created.
func (c *Controller) CreateTopics(ctx context.Context, topics []CreateTopic, validateOnly bool) []CreateResult {
	out := make([]CreateResult, len(topics))
	for i, t := range topics {
		seed := rand.Uint32()
		id := protocol.NewUUID()
		err := c.do(ctx, func(img *metastore.Image) (p plan, err error) {
			p, out[i] = stepCreateTopic(img, t, &c.opts, id, seed)
			if validateOnly {
				p, out[i].ID = plan{}, protocol.UUID{}
			}
			return p, out[i].Err
		})
		out[i].Name, out[i].Err = t.Name, err
		if err == nil && !validateOnly {
			c.opts.Events.Emit(TopicCreated{Topic: t.Name, ID: id, Partitions: out[i].Partitions})
		}
	}
	return out
}

// DeleteTopics deletes each topic or says why not.
func (c *Controller) DeleteTopics(ctx context.Context, topics []DeleteTopic) []DeleteResult {
	out := make([]DeleteResult, len(topics))
	for i, t := range topics {
		err := c.do(ctx, func(img *metastore.Image) (p plan, err error) {
			p, out[i] = stepDeleteTopic(img, t)
			return p, out[i].Err
		})
		out[i].Err = err
		if err == nil {
			c.opts.Events.Emit(TopicDeleted{Topic: out[i].Name, ID: out[i].ID})
		}
	}
	return out
}

// CreatePartitions adds partitions to each topic or says why not.
func (c *Controller) CreatePartitions(ctx context.Context, topics []CreatePartitions, validateOnly bool) []TopicResult {
	out := make([]TopicResult, len(topics))
	for i, t := range topics {
		seed := rand.Uint32()
		out[i].Topic = t.Topic
		out[i].Err = c.do(ctx, func(img *metastore.Image) (p plan, err error) {
			p, err = stepCreatePartitions(img, t, seed)
			if validateOnly {
				p = plan{}
			}
			return p, err
		})
	}
	return out
}

// ElectLeaders elects the preferred leaders, or with unclean any live replica where there is no leader: that accepts the loss of
// what only absent replicas have. nil asks for all partitions, of which those that need no election are not answered.
func (c *Controller) ElectLeaders(ctx context.Context, parts []TopicPartition, unclean bool) ([]ElectResult, error) {
	var out []ElectResult
	err := c.do(ctx, func(img *metastore.Image) (p plan, err error) {
		p, out = stepElect(img, parts, unclean, c.opts.TopicPolicy)
		return p, nil
	})
	return out, err
}

// AlterPartition takes a leader's proposals of new in-sync sets (KIP-497).
//
// Errors of the whole: BrokerIDNotRegistered, StaleBrokerEpoch, NotController. Of one partition: NotController, FencedLeaderEpoch,
// InvalidUpdateVersion, InvalidRequest, IneligibleReplica, UnknownTopicID, UnknownTopicOrPartition.
func (c *Controller) AlterPartition(ctx context.Context, broker int32, epoch int64, parts []AlterPartition) ([]AlterPartitionResult, error) {
	if err := c.do(ctx, func(img *metastore.Image) (plan, error) { return plan{}, checkEpoch(img, broker, epoch) }); err != nil {
		return nil, err
	}
	out := make([]AlterPartitionResult, len(parts))
	for i, a := range parts {
		out[i] = AlterPartitionResult{TopicID: a.TopicID, Partition: a.Partition}
		out[i].Err = c.do(ctx, func(img *metastore.Image) (plan, error) {
			return stepAlterPartition(img, broker, a, c.opts.TopicPolicy)
		})
		if out[i].Err == nil {
			out[i].State, _ = c.store.Image().Partition(a.TopicID, a.Partition)
		}
	}
	return out, nil
}

// AlterConfigs changes overrides of a topic, or the dynamic values of brokers. What leaves them as they are succeeds.
//
// Errors: what change.Edit says; UnknownTopicOrPartition, what ValidateTopicConfig says, PolicyViolation while the journal outbox is full, NotController.
func (c *Controller) AlterConfigs(ctx context.Context, change ConfigChange, validateOnly bool) error {
	return c.do(ctx, func(img *metastore.Image) (p plan, err error) {
		p, err = stepAlterConfigs(img, change, &c.opts)
		if validateOnly {
			p = plan{}
		}
		return p, err
	})
}
