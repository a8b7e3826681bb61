package controller

import (
	"slices"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
)

// election says who may become leader.
type election int

const (
	online    election = iota // the leader stays if it can; else the first in-sync or eligible replica
	preferred                 // the first replica, if it is in sync
	unclean                   // as online, else any live replica, at the price of losing records
)

// edit is a change of one partition under way: the target sets and what is known about its replicas.
type edit struct {
	topic  *metastore.Topic
	p      *metastore.Partition
	isr    []int32
	dirs   []protocol.UUID
	lost   []int32 // must be in neither ISR nor ELR
	alive  func(int32) bool
	policy TopicPolicy
	mode   election
}

func newEdit(t *metastore.Topic, p *metastore.Partition, policy TopicPolicy, alive func(int32) bool) *edit {
	e := &edit{topic: t, p: p, isr: slices.Clone(p.ISR), dirs: slices.Clone(p.Dirs), alive: alive, policy: policy}
	if policy.Unclean {
		e.mode = unclean
	}
	return e
}

// leave takes a broker out of the in-sync set. It stays eligible if too few others are in sync.
func (e *edit) leave(broker int32) { e.isr = without(e.isr, broker) }

// lose takes a broker out of both sets: it may have lost acknowledged records.
func (e *edit) lose(broker int32) {
	e.leave(broker)
	e.lost = append(e.lost, broker)
}

// setDir assigns the broker's replica to a directory.
func (e *edit) setDir(broker int32, dir protocol.UUID) {
	if n := slices.Index(e.p.Replicas, broker); n >= 0 && n < len(e.dirs) {
		e.dirs[n] = dir
	}
}

// build returns the change, nil when there is nothing to change, and whether the election was unclean.
func (e *edit) build() (c *metapb.PartitionChange, wasUnclean bool) {
	next := &metastore.Partition{
		Index: e.p.Index, Replicas: e.p.Replicas, Dirs: e.dirs, ISR: e.isr, ELR: e.eligible(), Leader: e.p.Leader,
		LeaderEpoch: e.p.LeaderEpoch, PartitionEpoch: e.p.PartitionEpoch,
	}
	next.Leader, wasUnclean = e.elect(next)
	switch {
	case wasUnclean:
		next.ISR, next.ELR = []int32{next.Leader}, nil
	case next.Leader >= 0 && slices.Contains(next.ELR, next.Leader):
		next.ISR, next.ELR = []int32{next.Leader}, without(next.ELR, next.Leader)
		if len(next.ISR) >= e.minISR() {
			next.ELR = nil
		}
	}
	if next.Leader != e.p.Leader {
		next.LeaderEpoch++
	}
	if next.Leader == e.p.Leader && slices.Equal(next.ISR, e.p.ISR) && slices.Equal(next.ELR, e.p.ELR) && slices.Equal(next.Dirs, e.p.Dirs) {
		return nil, false
	}
	return &metapb.PartitionChange{
		TopicId: e.topic.ID[:], Partition: e.p.Index, ExpectPartitionEpoch: e.p.PartitionEpoch, ExpectLeaderEpoch: e.p.LeaderEpoch,
		State: metastore.PartitionState(next),
	}, wasUnclean
}

// eligible is the new ELR: who was in sync or eligible, while the ISR is below min.insync.replicas (KIP-966). Beside an ISR that was not below it
// nobody was eligible, whatever stands there from a time of other configs: it took records without them.
func (e *edit) eligible() []int32 {
	if len(e.isr) >= e.minISR() {
		return nil
	}
	var out []int32
	for _, id := range e.p.Replicas {
		was := slices.Contains(e.p.ISR, id) || len(e.p.ISR) < e.minISR() && slices.Contains(e.p.ELR, id)
		if was && !slices.Contains(e.isr, id) && !slices.Contains(e.lost, id) {
			out = append(out, id)
		}
	}
	return out
}

func (e *edit) minISR() int { return max(e.policy.MinISR, 1) }

func (e *edit) elect(next *metastore.Partition) (leader int32, wasUnclean bool) {
	valid := func(id int32) bool {
		in := slices.Contains(next.ISR, id) || len(next.ISR) == 0 && slices.Contains(next.ELR, id)
		return in && e.alive(id)
	}
	if e.mode == preferred && valid(next.Replicas[0]) {
		return next.Replicas[0], false
	}
	if next.Leader >= 0 && valid(next.Leader) {
		return next.Leader, false
	}
	for _, id := range next.Replicas {
		if valid(id) {
			return id, false
		}
	}
	if e.mode == unclean {
		for _, id := range next.Replicas {
			if e.alive(id) {
				return id, true
			}
		}
	}
	return -1, false
}

func without(ids []int32, id int32) []int32 {
	var out []int32
	for _, x := range ids {
		if x != id {
			out = append(out, x)
		}
	}
	return out
}

// unfenced returns who may lead: brokers that are registered and unfenced, but for `except`, and `also`; -1 names nobody.
func unfenced(img *metastore.Image, also, except int32) func(int32) bool {
	return func(id int32) bool {
		if id == except {
			return false
		}
		if id == also {
			return true
		}
		b, ok := img.Broker(id)
		return ok && !b.Fenced
	}
}
