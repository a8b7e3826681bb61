package group

import (
	"context"
	"maps"
	"slices"

	"varve/metastore/metapb"
	"varve/protocol"
)

// allOffsets asks for every offset of the partition. The answer is a []*metapb.GroupOffset.
type allOffsets struct{}

// someOffsets asks for up to max offsets of the partition. The answer is a []Committed.
type someOffsets struct{ max int }

// Committed is an offset that a group has committed.
type Committed struct {
	Group, Topic string
	Partition    int32
	Offset       int64
}

// putOffsets stores offsets that come from another cluster, whatever state their groups are in. The answer is a
// protocol.ErrorCode.
type putOffsets struct{ offsets []*metapb.GroupOffset }

// Partitions is the number of partitions that offsets are spread over, 0 before the first group came.
func (c *Coordinator) Partitions() int32 {
	t, ok := c.o.Meta.Image().Topic(OffsetsTopic)
	if !ok {
		return 0
	}
	return int32(len(t.Partitions))
}

// Offsets returns all offsets that are stored in a partition, for the snapshot in the bucket. ok is false when the partition
// is not coordinated here, or still being loaded. After Release it answers with what was stored until then.
func (c *Coordinator) Offsets(ctx context.Context, partition int32) (out []*metapb.GroupOffset, ok bool) {
	s := (*c.shards.Load())[partition]
	if s == nil {
		c.mu.Lock()
		s = c.final[partition]
		c.mu.Unlock()
		return s.rest()
	}
	if out, ok = look[[]*metapb.GroupOffset](ctx, s, allOffsets{}); ok || ctx.Err() != nil {
		return out, ok
	}
	return s.rest()
}

// look steps a shard for what it holds; false when it is not active, or ctx ends first.
func look[T any](ctx context.Context, s *shard, body any) (out T, ok bool) {
	answer := make(chan T, 1)
	drive, err := s.post(&Request{Body: body, Ticket: &ticket{func(r any) { answer <- r.(T) }}})
	if err != protocol.None {
		return out, false
	}
	if drive {
		s.drive()
	}
	select {
	case out = <-answer:
		return out, true
	case <-s.ctx.Done():
	case <-ctx.Done():
	}
	return out, false
}

// Committed returns what groups that are coordinated here have committed, up to max offsets, by partition of the offsets topic
// and by group. Partitions that are still being loaded are left out.
func (c *Coordinator) Committed(ctx context.Context, max int) (out []Committed) {
	shards := *c.shards.Load()
	for _, index := range slices.Sorted(maps.Keys(shards)) {
		if len(out) >= max {
			break
		}
		some, _ := look[[]Committed](ctx, shards[index], someOffsets{max - len(out)})
		out = append(out, some...)
	}
	return out
}

func (m *Machine) someOffsets(max int) (out []Committed) {
	for _, g := range m.sorted() {
		for _, p := range g.all() { // in order, so that the bound leaves out the same ones each time
			if len(out) == max {
				return out
			}
			out = append(out, Committed{g.id, p.topic, p.partition, p.offset.at})
		}
	}
	return out
}

// rest returns the offsets of a shard that has stopped and that nobody drives any more.
func (s *shard) rest() ([]*metapb.GroupOffset, bool) {
	if s == nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != stopped || s.running || s.machine == nil {
		return nil, false
	}
	return s.machine.everyOffset(), true
}

// PutOffsets stores offsets of any groups, and returns once they are stored. The offsets topic is made if it is not there.
//
// Errors: CoordinatorNotAvailable, NotCoordinator for groups that another broker coordinates, those of an append, ctx's.
func (c *Coordinator) PutOffsets(ctx context.Context, offsets []*metapb.GroupOffset) error {
	byShard := map[*shard][]*metapb.GroupOffset{}
	for _, o := range offsets {
		if _, err := c.Locate(ctx, o.Group); err != protocol.None {
			return err
		}
		s, err := c.shardOf(o.Group)
		if s == nil {
			return err
		}
		byShard[s] = append(byShard[s], o)
	}
	for s, some := range byShard {
		answer := make(chan protocol.ErrorCode, 1)
		drive, err := s.post(&Request{Body: putOffsets{some}, Ticket: &ticket{func(r any) { answer <- r.(protocol.ErrorCode) }}})
		if err != protocol.None {
			return err
		}
		if drive {
			s.drive()
		}
		select {
		case err = <-answer:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err != protocol.None {
			return err
		}
	}
	return nil
}

func (m *Machine) everyOffset() (out []*metapb.GroupOffset) {
	for _, g := range m.sorted() {
		for _, p := range g.all() {
			out = append(out, &metapb.GroupOffset{
				Group: g.id, Topic: p.topic, Partition: p.partition, Offset: p.offset.at, LeaderEpoch: p.offset.leaderEpoch,
				Metadata: p.offset.metadata, CommitMs: p.offset.commitMs,
			})
		}
	}
	return out
}

// put stores offsets as committed now: their age begins with the cluster that they come into.
func (m *Machine) put(r *Request, offsets []*metapb.GroupOffset) {
	if len(m.groups)+len(offsets) > maxGroupsPerPartition {
		m.answer(r.Ticket, protocol.CoordinatorNotAvailable)
		return
	}
	stored := make([]parsed, 0, len(offsets))
	for _, in := range offsets {
		o := offset{at: in.Offset, leaderEpoch: in.LeaderEpoch, metadata: in.Metadata, commitMs: m.nowMs(), expireMs: noTimestamp}
		stored = append(stored, parsed{group: in.Group, topic: in.Topic, partition: in.Partition, offset: &o})
	}
	m.writeOffsets(stored, func(err protocol.ErrorCode) { m.answer(r.Ticket, err) })
}
