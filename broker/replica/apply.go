package replica

import (
	"context"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"varve/broker/commitlog"
	"varve/broker/config"
	"varve/metastore"
	"varve/protocol"
	"varve/protocol/record"
)

// maxAppliers bounds the partitions whose roles change at one time.
const maxAppliers = 8

// target is what the Image says of one replica.
type target struct {
	part    *metastore.Partition
	dir     protocol.UUID     // the log folder the Image names for it; zero = none yet
	configs map[string]string // the topic's overrides
}

func (t target) leadsAt(node int32) (epoch int32, leads bool) {
	return t.part.LeaderEpoch, t.part.Leader == node
}

// life is what is known of a replica beyond its role.
type life struct {
	told      bool  // the controller hears that its folder is gone
	vanished  bool  // the folder that should be here is not: what it held beyond the tier is lost, known or not
	lostBelow int64 // high-watermark checkpoint at the first look, until the first election; -1 unknown
	fromTier  bool  // an election that waits for the tier is under way
}

// load recovers all logs with the configs that the Image has for their topics.
func (m *Manager) load(ctx context.Context) error {
	img := m.meta.Image()
	return m.logs.LoadAll(ctx, func(topic string, id protocol.UUID, _ int32) commitlog.Config {
		var overrides map[string]string
		if t, ok := img.TopicByID(id); ok {
			overrides = t.Configs
		}
		conf, err := m.topicConf(overrides)
		if err != nil {
			conf, _ = m.conf.Topic(nil)
		}
		return m.logConfig(conf)
	})
}

// topicConf is the topic's effective config. That of a tiered topic cannot be had on a broker without a tier: here it is as
// if there were one, and elect decides what becomes of it.
func (m *Manager) topicConf(overrides map[string]string) (config.Topic, error) {
	conf, err := m.conf.Topic(overrides)
	if err == nil || m.tier != nil || !strings.EqualFold(strings.TrimSpace(overrides[remoteStorageKey]), "true") {
		return conf, err
	}
	without := maps.Clone(overrides)
	without[remoteStorageKey] = "false"
	if conf, err = m.conf.Topic(without); err == nil {
		conf.RemoteStorage = true
	}
	return conf, err
}

// logConfig is the part of a topic's config that its logs follow.
func (m *Manager) logConfig(t config.Topic) commitlog.Config {
	c := commitlog.Config{
		SegmentBytes: t.SegmentBytes, SegmentMs: t.SegmentMs, SegmentJitterMs: t.SegmentJitterMs,
		SegmentIndexBytes: t.SegmentIndexBytes, IndexIntervalBytes: t.IndexIntervalBytes,
		FlushMessages: t.FlushMessages, FlushMs: t.FlushMs, MaxMessageBytes: t.MaxMessageBytes,
		LogAppendTime: t.LogAppendTime, TimestampBeforeMaxMs: t.TimestampBeforeMaxMs, TimestampAfterMaxMs: t.TimestampAfterMaxMs,
		Codec: commitlog.CodecProducer, RequireKeys: t.CleanupCompact,
		FileDeleteDelayMs: t.FileDeleteDelayMs, Preallocate: t.Preallocate,
		ProducerIDExpirationMs: m.conf.Int64("producer.id.expiration.ms"),
	}
	c.Codec, c.CodecLevel = codecOf(t)
	return c
}

// codecOf is the codec that a topic's batches are stored with, and its level.
func codecOf(t config.Topic) (record.Codec, int) {
	codec, ok := record.ParseCodec(t.CompressionType)
	if !ok {
		return commitlog.CodecProducer, 0 // "producer"
	}
	level := 0
	switch codec {
	case record.Gzip:
		level = max(t.CompressionGzipLevel, 0) // -1 is the default, which is 0 here
	case record.LZ4:
		level = t.CompressionLZ4Level
	case record.Zstd:
		level = t.CompressionZstdLevel
	}
	return codec, level
}

// apply brings this broker's replicas to what a Delta says: first what goes, so that a topic made again under the same
// name finds its folders free, then what comes and changes.
func (m *Manager) apply(d metastore.Delta, first bool) {
	next := &hosted{names: maps.Clone(m.hosted.Load().names), ids: maps.Clone(m.hosted.Load().ids)}
	var gone, work []*partition
	targets := map[*partition]target{}
	for _, c := range d.Topics {
		if c.New == nil {
			gone = append(gone, next.drop(c.Old.ID)...)
			continue
		}
		left, here := m.place(next, c, targets)
		gone = append(gone, left...)
		work = append(work, here...)
	}
	m.hosted.Store(next)
	m.turns.changed()
	m.counters.forget(next.names)
	each(gone, func(p *partition) { p.remove() })
	if first {
		m.removeStrays(d.New)
	}
	each(work, func(p *partition) { p.reconcile(targets[p]) })
}

// each runs fn for all partitions, a few at a time.
func each(ps []*partition, fn func(*partition)) {
	var g errgroup.Group
	g.SetLimit(maxAppliers)
	for _, p := range ps {
		g.Go(func() error {
			fn(p)
			return nil
		})
	}
	_ = g.Wait() // fn returns no error
}

// drop takes a topic out and returns its replicas.
func (h *hosted) drop(id protocol.UUID) []*partition {
	t := h.ids[id]
	if t == nil {
		return nil
	}
	delete(h.ids, id)
	if h.names[t.name] == t {
		delete(h.names, t.name)
	}
	return slices.DeleteFunc(slices.Clone(t.partitions), func(p *partition) bool { return p == nil })
}

// place puts the replicas that the Image gives this broker of a topic into h. It returns those that are no longer here,
// and those that are and of which something changed, with their targets.
func (m *Manager) place(h *hosted, c metastore.TopicChange, targets map[*partition]target) (left, work []*partition) {
	t, old := c.New, h.ids[c.New.ID]
	now := &hostedTopic{name: t.Name, id: t.ID, partitions: make([]*partition, len(t.Partitions))}
	here := 0
	for i, part := range t.Partitions {
		var p *partition
		if old != nil && i < len(old.partitions) {
			p = old.partitions[i]
		}
		known := p != nil
		dir, mine := part.DirOf(m.nodeID)
		switch {
		case mine && !known:
			p = m.newPartition(t, part)
		case !mine && known:
			left = append(left, p)
			continue
		case !mine:
			continue
		}
		here++
		now.partitions[i] = p
		if known && c.Old != nil && c.Old.ConfigVersion == t.ConfigVersion && c.Old.Partitions[i] == part {
			continue
		}
		work = append(work, p)
		targets[p] = target{part: part, dir: dir, configs: t.Configs}
	}
	if here == 0 {
		h.drop(t.ID)
		return left, nil
	}
	h.ids[t.ID], h.names[t.Name] = now, now
	return left, work
}

func (m *Manager) newPartition(t *metastore.Topic, part *metastore.Partition) *partition {
	p := &partition{
		m: m, topic: t.Name, id: t.ID, index: part.Index,
		count: m.counters.of(t.Name, m.internalTopic(t.Name)),
		life:  life{lostBelow: -1},
	}
	p.role.Store(&role{
		state: StateElecting, leader: part.Leader, leaderEpoch: part.LeaderEpoch, partitionEpoch: part.PartitionEpoch,
		replicas: part.Replicas, isr: part.ISR, problem: "not opened yet",
	})
	return p
}

// removeStrays deletes the logs that the Image does not give to this broker: their topics were deleted while it was
// down. That the folder belongs to this cluster was checked when it was opened.
func (m *Manager) removeStrays(img *metastore.Image) {
	for _, l := range m.logs.All() {
		if part, ok := img.Partition(l.TopicID(), l.Partition()); ok && part.HasReplica(m.nodeID) {
			continue
		}
		m.removeLog(l.Topic(), l.TopicID(), l.Partition(), true)
	}
}

func (m *Manager) removeLog(topic string, id protocol.UUID, index int32, stray bool) {
	if err := m.logs.Delete(topic, index); err != nil {
		m.events.Emit(PartitionFailed{Topic: topic, Partition: index, Doing: "delete", Err: err})
		return
	}
	m.events.Emit(ReplicaRemoved{Topic: topic, TopicID: id, Partition: index, Stray: stray})
}

// remove ends a replica: its waiters are answered, the tier lets go of it, its folder goes.
func (p *partition) remove() {
	p.applyMu.Lock()
	defer p.applyMu.Unlock()
	r := *p.role.Load()
	log := r.log
	r.state, r.gone, r.log, r.problem = StateFollower, true, nil, "removed"
	p.setRole(&r)
	if log != nil {
		p.m.removeLog(p.topic, p.id, p.index, false)
	}
}

// setRole replaces the role and ends what the old one had going.
func (p *partition) setRole(r *role) {
	p.roleMu.Lock()
	old := p.role.Load()
	p.role.Store(r)
	p.m.turns.changed()
	p.roleMu.Unlock()
	same := old.leads() && r.leads() && old.leaderEpoch == r.leaderEpoch
	if old.leads() && old.settles() && !(same && r.tiered == old.tiered && r.leaves == old.leaves) {
		p.m.tier.Unlead(p.id, p.index)
		old.log.Settled(-1)
	}
	if !same {
		p.failWaiters(r.endCode())
	}
}

// reconcile brings a replica to its target.
func (p *partition) reconcile(t target) {
	p.applyMu.Lock()
	defer p.applyMu.Unlock()
	p.bring(t)
}

// bring is reconcile for those that hold applyMu.
func (p *partition) bring(t target) {
	p.target = t
	r := p.nextRole(t)
	if r.log == nil && !p.open(t, r) {
		p.setRole(r)
		return
	}
	r.log.SetConfig(p.m.logConfig(r.conf))
	if start := r.log.LocalStart(); !r.conf.RemoteStorage && r.log.LogStart() < start {
		// The topic has left the tier: what is not local is not readable from now on (ConfigHandler.maybeUpdateRemoteLogComponents).
		if err := r.log.SetLogStart(start); err != nil {
			p.fail(r, "move log start", err)
			return
		}
		p.fetches.wake(true, true)
	}
	epoch, leads := t.leadsAt(p.m.nodeID)
	was := p.role.Load()
	switch {
	case r.state == StateOffline:
		p.setRole(r)
	case t.dir != p.m.logs.DirectoryID():
		r.state, r.problem = StateElecting, "its folder is not assigned yet"
		p.setRole(r)
		p.m.tell.assign(DirAssignment{TopicID: p.id, Partition: p.index, Dir: p.m.logs.DirectoryID()})
	case !leads:
		r.state, r.problem = StateFollower, ""
		if r.leader < 0 {
			r.problem = "no leader"
		}
		p.setRole(r)
	case was.leads() && was.leaderEpoch == epoch:
		p.stayLeader(r, was)
	default:
		p.elect(r)
	}
}

// Reconfigure takes over what the node's configuration now says of topics. When it returns, all replicas follow it.
func (m *Manager) Reconfigure() {
	if !m.beginWork() {
		return
	}
	defer m.endWork()
	each(m.replicas(), func(p *partition) { p.reconfigure() })
}

func (p *partition) reconfigure() {
	p.applyMu.Lock()
	defer p.applyMu.Unlock()
	if p.target.part != nil && !p.role.Load().gone {
		p.bring(p.target)
	}
}

// nextRole is the present role with the target's facts.
func (p *partition) nextRole(t target) *role {
	r := *p.role.Load()
	r.leader, r.leaderEpoch, r.partitionEpoch = t.part.Leader, t.part.LeaderEpoch, t.part.PartitionEpoch
	r.replicas, r.isr = t.part.Replicas, t.part.ISR
	conf, err := p.m.topicConf(t.configs)
	if err != nil {
		// Only a config that a newer version allowed can do that: the last good one stays.
		p.m.events.Emit(PartitionFailed{Topic: p.topic, Partition: p.index, Doing: "configure", Err: err})
		if r.configs == nil {
			conf, _ = p.m.conf.Topic(nil)
			r.conf = conf
		}
	} else {
		r.conf, r.configs = conf, t.configs
	}
	tier := p.m.tier != nil && !p.count.internal
	_, said := r.configs[remoteStorageKey]
	r.tiered, r.leaves = r.conf.RemoteStorage && tier, !r.conf.RemoteStorage && tier && said
	if r.state == StateOffline && (r.retry || r.noRoom) {
		r.state, r.retry, r.noRoom = StateElecting, false, false
	}
	return &r
}

// open finds or makes the replica's log. false: there is none, and r says why.
func (p *partition) open(t target, r *role) bool {
	m := p.m
	log, ok := m.logs.Get(p.topic, p.index)
	if ok && log.TopicID() != p.id {
		m.removeLog(p.topic, log.TopicID(), p.index, true)
		ok = false
	}
	// The checkpoint goes by name: it is this topic's only if its folder was there, or should have been.
	if ok || !t.dir.IsZero() {
		p.life.lostBelow = m.logs.HighWatermark(p.topic, p.index)
	}
	if !ok && !t.dir.IsZero() {
		p.erased(r)
		return false
	}
	if !ok {
		var err error
		if log, err = m.logs.Create(p.topic, p.id, p.index, m.logConfig(r.conf)); err != nil {
			p.off(r, "create", err)
			return false
		}
	}
	log.OnDurable(p.onDurable)
	r.log = log
	p.setWatermark(log, max(min(p.life.lostBelow, log.End()), log.LogStart()))
	return true
}

// erased tells the controller that the folder that should be here is not. Once it knows, the Image names no folder for
// the replica, and a new one is made.
func (p *partition) erased(r *role) {
	r.state, r.problem = StateErased, "its folder is gone"
	if p.life.told {
		return
	}
	p.life.told = true
	p.life.vanished = true
	p.m.events.Emit(ReplicaErased{Topic: p.topic, TopicID: p.id, Partition: p.index, HighWatermark: p.life.lostBelow})
	p.m.tell.lost(p.id, p.index)
}

// setWatermark sets the high watermark of a replica that does not lead yet.
func (p *partition) setWatermark(log *commitlog.Log, hw int64) {
	p.roleMu.Lock()
	p.hw.Store(hw)
	p.roleMu.Unlock()
	log.SetHighWatermark(hw)
}
