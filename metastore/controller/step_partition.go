package controller

import (
	"maps"
	"slices"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
)

// stepElect answers an ElectLeaders request; nil asks for all partitions, of which those that need no election are not answered.
func stepElect(img *metastore.Image, parts []TopicPartition, wantUnclean bool, policy func(map[string]string) TopicPolicy) (p plan, out []ElectResult) {
	all := parts == nil
	if all {
		for t := range img.Topics() {
			for _, part := range t.Partitions {
				parts = append(parts, TopicPartition{t.Name, part.Index})
			}
		}
	}
	var changes []*metapb.PartitionChange
	seen := map[TopicPartition]bool{}
	for _, tp := range parts {
		if seen[tp] {
			continue
		}
		seen[tp] = true
		before := len(changes)
		err := electOne(img, tp, wantUnclean, policy, &p, &changes)
		if all && protocol.CodeOf(err) == protocol.ElectionNotNeeded {
			changes = changes[:before]
			continue
		}
		out = append(out, ElectResult{Topic: tp.Topic, Partition: tp.Partition, Err: err})
	}
	p.change(p.chunk(changes))
	return p, out
}

func electOne(img *metastore.Image, tp TopicPartition, wantUnclean bool, policy func(map[string]string) TopicPolicy, p *plan, changes *[]*metapb.PartitionChange) error {
	t, ok := img.Topic(tp.Topic)
	if !ok {
		return protocol.Errorf(protocol.UnknownTopicOrPartition, "No such topic as %s", tp.Topic)
	}
	if tp.Partition < 0 || int(tp.Partition) >= len(t.Partitions) {
		return protocol.Errorf(protocol.UnknownTopicOrPartition, "No such partition as %s-%d", tp.Topic, tp.Partition)
	}
	part := t.Partitions[tp.Partition]
	if wantUnclean && part.Leader >= 0 || !wantUnclean && part.Leader == part.Replicas[0] {
		return protocol.ElectionNotNeeded
	}
	e := newEdit(t, part, policy(t.Configs), unfenced(img, -1, -1))
	e.mode = preferred
	if wantUnclean {
		e.mode = unclean
	}
	before := len(*changes)
	*changes = p.add(t, e, *changes)
	elected := len(*changes) > before && (*changes)[before].State.Leader != part.Leader
	switch {
	case elected:
		return nil
	case wantUnclean:
		*changes = (*changes)[:before]
		return protocol.EligibleLeadersNotAvailable
	}
	*changes = (*changes)[:before]
	return protocol.PreferredLeaderNotAvailable
}

// stepAlterPartition decides about one proposal of a leader (validateAlterPartitionData of ReplicationControlManager.java).
func stepAlterPartition(img *metastore.Image, broker int32, a AlterPartition, policy func(map[string]string) TopicPolicy) (p plan, err error) {
	t, part, err := find(img, a.TopicID, a.Partition)
	switch {
	case err != nil:
		return p, err
	case a.LeaderEpoch > part.LeaderEpoch || a.PartitionEpoch > part.PartitionEpoch:
		return p, protocol.NotController
	case a.LeaderEpoch < part.LeaderEpoch:
		return p, protocol.FencedLeaderEpoch
	case broker != part.Leader:
		return p, protocol.InvalidRequest
	case a.PartitionEpoch < part.PartitionEpoch:
		return p, protocol.InvalidUpdateVersion
	case !validISR(part, a.NewISR):
		return p, protocol.InvalidRequest
	}
	alive := unfenced(img, -1, -1)
	for _, id := range a.NewISR {
		if !alive(id) {
			return p, protocol.IneligibleReplica
		}
	}
	e := newEdit(t, part, policy(t.Configs), alive)
	e.isr = slices.Clone(a.NewISR)
	p.change(p.add(t, e, nil))
	return p, nil
}

func validISR(p *metastore.Partition, isr []int32) bool {
	for i, id := range isr {
		if !p.HasReplica(id) || slices.Contains(isr[:i], id) {
			return false
		}
	}
	return slices.Contains(isr, p.Leader)
}

// stepAlterConfigs changes overrides of a topic or broker.
func stepAlterConfigs(img *metastore.Image, c ConfigChange, o *Options) (p plan, err error) {
	var changes []*metapb.ConfigChange
	for _, key := range slices.Sorted(maps.Keys(c.Set)) {
		value := c.Set[key]
		changes = append(changes, &metapb.ConfigChange{Key: key, Value: &value})
	}
	for _, key := range c.Remove {
		changes = append(changes, &metapb.ConfigChange{Key: key})
	}
	if c.Topic == "" {
		p.cmds = []*metapb.Command{{Body: &metapb.Command_AlterBrokerConfigs{AlterBrokerConfigs: &metapb.AlterBrokerConfigs{
			Broker: metastore.BrokerConfigName(c.Broker), ExpectVersion: img.BrokerConfig(c.Broker).Version, Changes: changes,
		}}}}
		return p, nil
	}
	t, ok := img.Topic(c.Topic)
	if !ok {
		return p, protocol.Errorf(protocol.UnknownTopicOrPartition, "The topic '%s' does not exist.", c.Topic)
	}
	next := maps.Clone(t.Configs)
	maps.Copy(next, c.Set)
	for _, key := range c.Remove {
		delete(next, key)
	}
	if o.ValidateTopicConfig != nil {
		if err := o.ValidateTopicConfig(next); err != nil {
			return p, err
		}
	}
	p.cmds = []*metapb.Command{{Body: &metapb.Command_AlterTopicConfigs{AlterTopicConfigs: &metapb.AlterTopicConfigs{
		TopicId: t.ID[:], ExpectVersion: t.ConfigVersion, Changes: changes,
	}}}}
	return p, nil
}
