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

// stepAlterConfigs changes overrides of a topic or the dynamic values of brokers. What is wrong with the values is told before that the topic
// does not exist (ConfigurationControlManager.java, validateAlterConfig).
func stepAlterConfigs(img *metastore.Image, c ConfigChange, o *Options) (p plan, err error) {
	if c.Topic == "" {
		old := img.BrokerConfig(c.Broker)
		changes, err := configChanges(old.Configs, c.Edit)
		if len(changes) > 0 {
			p.cmds = []*metapb.Command{{Body: &metapb.Command_AlterBrokerConfigs{AlterBrokerConfigs: &metapb.AlterBrokerConfigs{
				Broker: metastore.BrokerConfigName(c.Broker), ExpectVersion: old.Version, Changes: changes,
			}}}}
		}
		return p, err
	}
	t, exists := img.Topic(c.Topic)
	if !exists {
		t = &metastore.Topic{}
	}
	var next map[string]string
	changes, err := configChanges(t.Configs, func(old map[string]string) (_ map[string]string, err error) {
		if next, err = c.Edit(old); err == nil && o.ValidateTopicConfig != nil {
			err = o.ValidateTopicConfig(next)
		}
		return next, err
	})
	if err != nil {
		return p, err
	}
	if !exists {
		return p, protocol.Errorf(protocol.UnknownTopicOrPartition, "The topic '%s' does not exist.", c.Topic)
	}
	if len(changes) > 0 {
		p.cmds = []*metapb.Command{{Body: &metapb.Command_AlterTopicConfigs{AlterTopicConfigs: &metapb.AlterTopicConfigs{
			TopicId: t.ID[:], ExpectVersion: t.ConfigVersion, Changes: changes,
		}}}}
		p.follow(img, t, o.TopicPolicy(next))
	}
	return p, nil
}

// follow brings a topic's partitions to its new policy: leaders are elected where it permits what the old one did not, and who was eligible by the
// old one alone is no longer, for good, whatever min.insync.replicas becomes later (createClearElrRecordsAsNeeded of
// ConfigurationControlManager.java).
func (p *plan) follow(img *metastore.Image, t *metastore.Topic, policy TopicPolicy) {
	var changes []*metapb.PartitionChange
	for _, part := range t.Partitions {
		if part.Leader < 0 || len(part.ELR) > 0 {
			changes = p.add(t, newEdit(t, part, policy, unfenced(img, -1, -1)), changes)
		}
	}
	p.change(p.chunk(changes))
}

// configChanges is what leads from the old values to the edited ones.
func configChanges(old map[string]string, edit func(map[string]string) (map[string]string, error)) (out []*metapb.ConfigChange, err error) {
	next, err := edit(old)
	if err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(next)) {
		value := next[key]
		if was, ok := old[key]; !ok || was != value {
			out = append(out, &metapb.ConfigChange{Key: key, Value: &value})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(old)) {
		if _, stays := next[key]; !stays {
			out = append(out, &metapb.ConfigChange{Key: key})
		}
	}
	return out, nil
}
