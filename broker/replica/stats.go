package replica

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// topicCounters count what happens to one topic. Partitions hold them, so that counting needs no lookup.
type topicCounters struct {
	topic    string
	internal bool

	bytesIn, bytesOut, messagesIn atomic.Int64
	produces, fetches             atomic.Int64
	failedProduces, failedFetches atomic.Int64
}

// counters holds the counters of all topics of which this broker has replicas.
type counters struct {
	mu     sync.Mutex
	topics map[string]*topicCounters
}

func (c *counters) of(topic string, internal bool) *topicCounters {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.topics == nil {
		c.topics = map[string]*topicCounters{}
	}
	t := c.topics[topic]
	if t == nil {
		t = &topicCounters{topic: topic, internal: internal}
		c.topics[topic] = t
	}
	return t
}

// forget drops the counters of topics that are not in keep.
func (c *counters) forget(keep map[string]*hostedTopic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.topics {
		if keep[name] == nil {
			delete(c.topics, name)
		}
	}
}

// Stats returns counters and sums.
func (m *Manager) Stats() Stats {
	offline := m.logs.Offline() != nil
	s := Stats{DelayedProduces: m.deadlines.waiting(), DelayedFetches: int(m.fetching.Load())}
	for _, t := range m.hosted.Load().ids {
		var row *TopicStats
		for _, p := range t.partitions {
			if p == nil {
				continue
			}
			if row == nil {
				s.Topics = append(s.Topics, p.count.stats())
				row = &s.Topics[len(s.Topics)-1]
			}
			row.LocalBytes += s.add(p, offline)
		}
	}
	slices.SortFunc(s.Topics, func(a, b TopicStats) int { return cmp.Compare(a.Topic, b.Topic) })
	return s
}

func (c *topicCounters) stats() TopicStats {
	return TopicStats{
		Topic: c.topic, BytesIn: c.bytesIn.Load(), BytesOut: c.bytesOut.Load(), MessagesIn: c.messagesIn.Load(),
		ProduceRequests: c.produces.Load(), FetchRequests: c.fetches.Load(),
		FailedProduces: c.failedProduces.Load(), FailedFetches: c.failedFetches.Load(),
	}
}

// add counts one replica and returns its local bytes. offline says that the log folder is.
func (s *Stats) add(p *partition, offline bool) int64 {
	r := p.role.Load()
	s.Partitions++
	if r.leads() {
		s.Leaders++
		if len(r.isr) < len(r.replicas) {
			s.UnderReplicated++
		}
		if r.underMinISR() {
			s.UnderMinISR++
		}
	}
	if offline || r.state == StateOffline || r.state == StateErased || r.leader < 0 {
		s.Offline++
	}
	if r.log == nil {
		return 0
	}
	return r.log.SizeBytes()
}

// HighWatermark is that of a partition that is led here; false when none is.
func (m *Manager) HighWatermark(topic string, index int32) (off int64, ok bool) {
	t := m.hosted.Load().names[topic]
	if t == nil || index < 0 || int(index) >= len(t.partitions) || t.partitions[index] == nil || !t.partitions[index].role.Load().leads() {
		return 0, false
	}
	return t.partitions[index].hw.Load(), true
}

// Describe describes one replica; false when this broker has none.
func (m *Manager) Describe(topic string, index int32) (PartitionInfo, bool) {
	t := m.hosted.Load().names[topic]
	if t == nil || index < 0 || int(index) >= len(t.partitions) || t.partitions[index] == nil {
		return PartitionInfo{}, false
	}
	return t.partitions[index].describe(), true
}

// DescribeAll describes all replicas of this broker, by topic and number.
func (m *Manager) DescribeAll() []PartitionInfo {
	var out []PartitionInfo
	for _, p := range m.replicas() {
		out = append(out, p.describe())
	}
	slices.SortFunc(out, func(a, b PartitionInfo) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out
}

func (p *partition) describe() PartitionInfo {
	r := p.role.Load()
	d := PartitionInfo{
		Topic: p.topic, TopicID: p.id, Partition: p.index, State: r.state, Leader: r.leader, LeaderEpoch: r.leaderEpoch,
		Replicas: r.replicas, ISR: r.isr, Tiered: r.tiered, TierEnd: -1, Problem: r.problem,
	}
	if err := p.m.logs.Offline(); err != nil {
		d.State, d.Problem = StateOffline, err.Error()
	}
	if r.log != nil {
		d.HighWatermark = p.hw.Load()
		d.LogStart, d.LocalStart, d.End = r.log.LogStart(), r.log.LocalStart(), r.log.End()
		d.LastStable, d.LocalBytes = r.log.LastStable(d.HighWatermark), r.log.SizeBytes()
	}
	if r.tiered {
		if st, err := p.m.meta.Tier(p.id, p.index); err == nil {
			d.TierEnd = st.End
		}
	}
	for _, l := range p.m.LostRanges() {
		if l.TopicID == p.id && l.Partition == p.index {
			d.Lost = append(d.Lost, l)
		}
	}
	return d
}

// LostRanges returns the offsets that were reported lost since the start, oldest first.
func (m *Manager) LostRanges() []LostRange {
	m.lostMu.Lock()
	defer m.lostMu.Unlock()
	return slices.Clone(m.lost)
}
