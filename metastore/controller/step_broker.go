package controller

import (
	"slices"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
)

// plan is what a step decided.
type plan struct {
	cmds    []*metapb.Command
	unclean []TopicPartition // leaders chosen at the price of losing records
	erased  []TopicPartition // replicas that lost their folder
}

func (p *plan) add(t *metastore.Topic, e *edit, changes []*metapb.PartitionChange) []*metapb.PartitionChange {
	c, wasUnclean := e.build()
	if wasUnclean {
		p.unclean = append(p.unclean, TopicPartition{t.Name, e.p.Index})
	}
	if c != nil {
		changes = append(changes, c)
	}
	return changes
}

// chunk puts all but the last few changes into commands of their own and returns the rest.
func (p *plan) chunk(changes []*metapb.PartitionChange) []*metapb.PartitionChange {
	for len(changes) > maxChangesPerCommand {
		p.change(changes[:maxChangesPerCommand])
		changes = changes[maxChangesPerCommand:]
	}
	return changes
}

func (p *plan) change(changes []*metapb.PartitionChange) {
	if len(changes) > 0 {
		p.cmds = append(p.cmds, &metapb.Command{Body: &metapb.Command_ChangePartitions{ChangePartitions: &metapb.ChangePartitions{Changes: changes}}})
	}
}

// stepRegister takes the broker out of leadership everywhere, out of ISR and ELR where it may have lost records, and registers it, fenced. sameAs is
// the broker's epoch when this incarnation is registered already, else 0. live says that the registration that stands has been heard of
// by this controller within its session.
func stepRegister(img *metastore.Image, r Registration, policy func(map[string]string) TopicPolicy, live bool) (p plan, sameAs int64, err error) {
	old, known := img.Broker(r.ID)
	if known && old.Incarnation == r.Incarnation {
		return p, old.Epoch, nil
	}
	if known && live && !old.Fenced {
		return p, 0, protocol.Errorf(protocol.DuplicateBrokerRegistration, "Another broker is registered with that broker id.")
	}
	if r.ID < 0 || r.Incarnation.IsZero() || len(r.Dirs) == 0 {
		return p, 0, protocol.Errorf(protocol.InvalidRegistration, "a registration needs an id, an incarnation and at least one directory")
	}
	expect := int64(-1)
	if known {
		expect = old.Epoch
	}
	clean := known && r.PrevEpoch == old.Epoch
	var changes []*metapb.PartitionChange
	for t := range img.Topics() {
		pol := policy(t.Configs)
		for _, part := range t.Partitions {
			if part.HasReplica(r.ID) {
				changes = p.add(t, registerEdit(img, t, part, &r, clean, pol), changes)
				if dirGone(part, &r) {
					p.erased = append(p.erased, TopicPartition{t.Name, part.Index})
				}
			}
		}
	}
	rest := p.chunk(changes)
	p.cmds = append(p.cmds, &metapb.Command{Body: &metapb.Command_RegisterBroker{RegisterBroker: &metapb.RegisterBroker{
		Broker: metastore.Registration(&metastore.Broker{
			ID: r.ID, Incarnation: r.Incarnation, Dirs: r.Dirs, Endpoints: r.Endpoints, Rack: r.Rack,
		}),
		ExpectEpoch: expect, Changes: rest,
	}}})
	return p, 0, nil
}

// dirGone reports whether the replica is assigned to a directory that the registration does not have.
func dirGone(part *metastore.Partition, r *Registration) bool {
	dir, _ := part.DirOf(r.ID)
	return !dir.IsZero() && !slices.Contains(r.Dirs, dir)
}

func registerEdit(img *metastore.Image, t *metastore.Topic, part *metastore.Partition, r *Registration, clean bool, policy TopicPolicy) *edit {
	e := newEdit(t, part, policy, unfenced(img, -1, r.ID))
	gone := dirGone(part, r)
	if gone {
		e.setDir(r.ID, protocol.UUID{})
	}
	switch {
	case clean && !gone, !gone && alone(part, r.ID), gone && restartsFromTier(part, policy):
		e.leave(r.ID)
	default:
		e.lose(r.ID)
	}
	return e
}

// alone reports whether ISR and ELR hold no other broker.
func alone(p *metastore.Partition, broker int32) bool {
	return len(without(p.ISR, broker)) == 0 && len(without(p.ELR, broker)) == 0
}

// restartsFromTier reports whether an erased replica may lead nevertheless: there is no other, and what had settled is in the tier.
func restartsFromTier(p *metastore.Partition, policy TopicPolicy) bool {
	return policy.Tiered && len(p.Replicas) == 1
}

// stepUnfence lets the broker serve and elects it where it may lead and nobody does.
func stepUnfence(img *metastore.Image, id int32, epoch int64, policy func(map[string]string) TopicPolicy) (p plan, err error) {
	if err := checkEpoch(img, id, epoch); err != nil {
		return p, err
	}
	var changes []*metapb.PartitionChange
	for t := range img.Topics() {
		pol := policy(t.Configs)
		for _, part := range t.Partitions {
			if part.Leader < 0 && part.HasReplica(id) {
				changes = p.add(t, newEdit(t, part, pol, unfenced(img, id, -1)), changes)
			}
		}
	}
	first := changes[:min(len(changes), maxChangesPerCommand)]
	p.cmds = append(p.cmds, &metapb.Command{Body: &metapb.Command_UnfenceBroker{UnfenceBroker: &metapb.UnfenceBroker{Id: id, Epoch: epoch, Changes: first}}})
	p.change(p.chunk(changes[len(first):]))
	return p, nil
}

// stepFence takes a broker that is not heard of any more out of leadership and ISRs.
func stepFence(img *metastore.Image, id int32, epoch int64, policy func(map[string]string) TopicPolicy) (p plan, err error) {
	if err := checkEpoch(img, id, epoch); err != nil {
		return p, err
	}
	var changes []*metapb.PartitionChange
	for t := range img.Topics() {
		pol := policy(t.Configs)
		for _, part := range t.Partitions {
			if part.IsLeader(id) || slices.Contains(part.ISR, id) {
				e := newEdit(t, part, pol, unfenced(img, -1, id))
				e.leave(id)
				changes = p.add(t, e, changes)
			}
		}
	}
	rest := p.chunk(changes)
	p.cmds = append(p.cmds, &metapb.Command{Body: &metapb.Command_FenceBroker{FenceBroker: &metapb.FenceBroker{Id: id, Epoch: epoch, Changes: rest}}})
	return p, nil
}

// stepSettle elects wherever a partition has no leader but could have one: what an earlier controller left half done.
func stepSettle(img *metastore.Image, policy func(map[string]string) TopicPolicy) (p plan) {
	var changes []*metapb.PartitionChange
	alive := unfenced(img, -1, -1)
	for t := range img.Topics() {
		pol := policy(t.Configs)
		for _, part := range t.Partitions {
			if part.Leader < 0 || !alive(part.Leader) {
				e := newEdit(t, part, pol, alive)
				if part.Leader >= 0 {
					e.leave(part.Leader)
				}
				changes = p.add(t, e, changes)
			}
		}
	}
	p.change(p.chunk(changes))
	return p
}

// stepReplicaLost treats one partition as if its directory had changed: its folder is missing though it was assigned.
func stepReplicaLost(img *metastore.Image, topic protocol.UUID, partition, broker int32, epoch int64, policy func(map[string]string) TopicPolicy) (p plan, err error) {
	if err := checkEpoch(img, broker, epoch); err != nil {
		return p, err
	}
	t, part, err := find(img, topic, partition)
	if err != nil {
		return p, err
	}
	dir, ok := part.DirOf(broker)
	if !ok {
		return p, protocol.Errorf(protocol.InvalidRequest, "broker %d holds no replica of %s-%d", broker, t.Name, partition)
	}
	if dir.IsZero() { // reported before, or never assigned
		return p, nil
	}
	e := newEdit(t, part, policy(t.Configs), unfenced(img, -1, broker))
	e.setDir(broker, protocol.UUID{})
	if restartsFromTier(part, e.policy) {
		e.leave(broker)
	} else {
		e.lose(broker)
	}
	p.erased = []TopicPartition{{t.Name, partition}}
	p.change(p.add(t, e, nil))
	return p, nil
}

// stepAssignDirs notes in which directories the broker's replicas are. What is noted already is passed over.
func stepAssignDirs(img *metastore.Image, broker int32, epoch int64, as []DirAssignment) (p plan, err error) {
	if err := checkEpoch(img, broker, epoch); err != nil {
		return p, err
	}
	b, _ := img.Broker(broker)
	var changes []*metapb.PartitionChange
	for _, a := range as {
		t, part, err := find(img, a.TopicID, a.Partition)
		if err != nil {
			continue // deleted meanwhile
		}
		dir, ok := part.DirOf(broker)
		if !ok || dir == a.Dir {
			continue
		}
		if !b.HasDir(a.Dir) {
			return p, protocol.Errorf(protocol.InvalidRequest, "directory %s is not among those that broker %d registered", a.Dir, broker)
		}
		next := *part
		next.Dirs = slices.Clone(part.Dirs)
		next.Dirs[slices.Index(part.Replicas, broker)] = a.Dir
		changes = append(changes, &metapb.PartitionChange{
			TopicId: t.ID[:], Partition: part.Index, ExpectPartitionEpoch: part.PartitionEpoch, ExpectLeaderEpoch: part.LeaderEpoch,
			State: metastore.PartitionState(&next),
		})
	}
	p.change(p.chunk(changes))
	return p, nil
}

func checkEpoch(img *metastore.Image, id int32, epoch int64) error {
	b, ok := img.Broker(id)
	if !ok {
		return protocol.Errorf(protocol.BrokerIDNotRegistered, "Broker ID %d is not currently registered", id)
	}
	if b.Epoch != epoch {
		return protocol.Errorf(protocol.StaleBrokerEpoch, "Expected broker epoch %d, but got broker epoch %d", b.Epoch, epoch)
	}
	return nil
}

func find(img *metastore.Image, topic protocol.UUID, partition int32) (*metastore.Topic, *metastore.Partition, error) {
	t, ok := img.TopicByID(topic)
	if !ok {
		return nil, nil, protocol.Errorf(protocol.UnknownTopicID, "no topic with id %s", topic)
	}
	if partition < 0 || int(partition) >= len(t.Partitions) {
		return nil, nil, protocol.Errorf(protocol.UnknownTopicOrPartition, "No such partition as %s-%d", t.Name, partition)
	}
	return t, t.Partitions[partition], nil
}
