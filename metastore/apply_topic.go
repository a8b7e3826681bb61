package metastore

import (
	"maps"
	"slices"

	"varve/metastore/metapb"
	"varve/protocol"
)

// Bounds of one topic and one command.
const (
	MaxPartitionsPerTopic = 100_000
	MaxReplicas           = 128
	maxTopicNameBytes     = 249 // Topic.java
	sweepRowsInline       = 1000
	maxSweepRows          = 4096
)

func (t *tx) createTopic(c *metapb.CreateTopic) (Result, error) {
	id, ok := uuidOf(c.GetTopicId())
	if !ok || id.IsZero() || c.Name == "" || len(c.Name) > maxTopicNameBytes || len(c.Partitions) == 0 || len(c.Partitions) > MaxPartitionsPerTopic {
		return Result{}, malformed("topic id, name or partition count")
	}
	parts, err := newPartitions(c.Partitions, 0)
	if err != nil {
		return Result{}, err
	}
	if old, ok := t.img.TopicByID(id); ok {
		if old.Name != c.Name {
			return Result{}, malformed("topic id used twice")
		}
		return Result{}, nil
	}
	if _, ok := t.img.Topic(c.Name); ok {
		return Result{}, protocol.Errorf(protocol.TopicAlreadyExists, "Topic '%s' already exists.", c.Name)
	}
	if _, ok := t.img.restoring.names.Get(c.Name); ok {
		return Result{}, protocol.Errorf(protocol.TopicAlreadyExists, "Topic '%s' is being restored.", c.Name)
	}
	if c.ImageIndex < t.img.cluster.LastTopicDelete {
		return Result{}, protocol.Errorf(protocol.InvalidUpdateVersion, "a topic was deleted at index %d, after %d", t.img.cluster.LastTopicDelete, c.ImageIndex)
	}
	if err := t.journalHasRoom(); err != nil {
		return Result{}, err
	}
	topic := &Topic{Name: c.Name, ID: id, Configs: maps.Clone(c.Configs), ConfigVersion: t.index, Partitions: parts}
	if topic.Configs == nil {
		topic.Configs = map[string]string{}
	}
	for _, p := range parts {
		t.setProto(partKey(nsPartition, id, p.Index), p.toProto())
	}
	t.putTopic(topic)
	t.img.partitions += len(parts)
	t.record(topicRecord(topic))
	return Result{}, nil
}

func topicRecord(t *Topic) *metapb.JournalRecord {
	return &metapb.JournalRecord{Body: &metapb.JournalRecord_TopicCreated{TopicCreated: &metapb.TopicCreated{
		TopicId: t.ID[:], Name: t.Name, Configs: t.Configs, Partitions: int32(len(t.Partitions)),
	}}}
}

// putTopic writes the topic's own row and puts it in the image; partition rows are the caller's.
func (t *tx) putTopic(topic *Topic) {
	t.setProto(topicKey(nsTopic, topic.ID), &metapb.TopicRow{
		Name: topic.Name, Configs: topic.Configs, Partitions: int32(len(topic.Partitions)), ConfigVersion: topic.ConfigVersion, Held: topic.Held,
	})
	t.showTopic(topic)
}

func (t *tx) showTopic(topic *Topic) {
	t.img.topics = t.img.topics.Set(topic.Name, topic)
	t.img.byID = t.img.byID.Set(string(topic.ID[:]), topic)
	t.changed.topics[topic.ID] = struct{}{}
}

// deleteTopic removes the topic at once. Its segment rows, which nobody can read any more, go to DELETE_STARTED here as far as they are
// few, else in the SweepTopic commands that follow for as long as the tombstone stands.
func (t *tx) deleteTopic(c *metapb.DeleteTopic) (Result, error) {
	id, ok := uuidOf(c.GetTopicId())
	if !ok {
		return Result{}, malformed("topic id")
	}
	topic, ok := t.img.TopicByID(id)
	if !ok {
		return Result{}, protocol.Errorf(protocol.UnknownTopicID, "no topic with id %s", id)
	}
	if err := t.journalHasRoom(); err != nil {
		return Result{}, err
	}
	t.del(topicKey(nsTopic, id))
	for _, ns := range []byte{nsPartition, nsTier, nsLatest} {
		t.delPrefix(topicKey(ns, id))
	}
	t.img.topics = t.img.topics.Delete(topic.Name)
	t.img.byID = t.img.byID.Delete(string(id[:]))
	t.img.partitions -= len(topic.Partitions)
	t.img.cluster.LastTopicDelete = t.index
	t.changed.topics[id] = struct{}{}
	t.record(&metapb.JournalRecord{Body: &metapb.JournalRecord_TopicDeleted{TopicDeleted: &metapb.TopicDeleted{TopicId: id[:], Name: topic.Name}}})
	swept, more := t.sweep(id, sweepRowsInline)
	if more {
		t.putTombstone(id, &metapb.TombstoneRow{Name: topic.Name, DeleteIndex: t.index, Swept: int64(swept)})
	}
	return Result{More: more}, nil
}

func (t *tx) putTombstone(id protocol.UUID, row *metapb.TombstoneRow) {
	t.setProto(topicKey(nsTombstone, id), row)
	t.img.tombstones = t.img.tombstones.Set(string(id[:]), row)
}

// sweepTopic goes on with what deleteTopic began.
func (t *tx) sweepTopic(c *metapb.SweepTopic) (Result, error) {
	id, ok := uuidOf(c.GetTopicId())
	if !ok || c.MaxRows == 0 || c.MaxRows > maxSweepRows {
		return Result{}, malformed("topic sweep")
	}
	tomb, ok := t.img.tombstones.Get(string(id[:]))
	if !ok {
		return Result{}, nil
	}
	if tomb.Swept != c.ExpectSwept {
		return Result{}, protocol.Errorf(protocol.InvalidUpdateVersion, "%d rows swept, not %d", tomb.Swept, c.ExpectSwept)
	}
	if err := t.journalTakesSegments(); err != nil {
		return Result{}, err
	}
	swept, more := t.sweep(id, int(c.MaxRows))
	if more {
		t.putTombstone(id, &metapb.TombstoneRow{Name: tomb.Name, DeleteIndex: tomb.DeleteIndex, Swept: tomb.Swept + int64(swept)})
		return Result{More: true}, nil
	}
	t.del(topicKey(nsTombstone, id))
	t.img.tombstones = t.img.tombstones.Delete(string(id[:]))
	return Result{}, nil
}

// sweep moves up to maxRows rows of a deleted topic to DELETE_STARTED and reports how many, and whether others are left.
func (t *tx) sweep(id protocol.UUID, maxRows int) (swept int, more bool) {
	var rows []segRow
	for _, ns := range []byte{nsStarted, nsFinished} {
		t.scan(topicKey(ns, id), nil, func(key, value []byte) bool {
			if len(rows) == maxRows {
				more = true
				return false
			}
			row, err := t.decode(key, value)
			t.fail(err)
			rows = append(rows, row)
			return err == nil
		})
	}
	if t.broken == nil {
		t.startDelete(rows, -1)
	}
	return len(rows), more
}

func (t *tx) createPartitions(c *metapb.CreatePartitions) (Result, error) {
	topic, err := t.topicOf(c.GetTopicId())
	if err != nil {
		return Result{}, err
	}
	have := len(topic.Partitions)
	if len(c.Partitions) == 0 || int(c.ExpectCount)+len(c.Partitions) > MaxPartitionsPerTopic {
		return Result{}, malformed("%d new partitions", len(c.Partitions))
	}
	if have != int(c.ExpectCount) {
		return Result{}, protocol.Errorf(protocol.InvalidUpdateVersion, "topic %s has %d partitions, not %d", topic.Name, have, c.ExpectCount)
	}
	parts, err := newPartitions(c.Partitions, int32(have))
	if err != nil {
		return Result{}, err
	}
	if err := t.journalHasRoom(); err != nil {
		return Result{}, err
	}
	next := *topic
	next.Partitions = append(slices.Clone(topic.Partitions), parts...)
	for _, p := range parts {
		t.setProto(partKey(nsPartition, topic.ID, p.Index), p.toProto())
	}
	t.putTopic(&next)
	t.img.partitions += len(parts)
	t.record(&metapb.JournalRecord{Body: &metapb.JournalRecord_PartitionsCreated{PartitionsCreated: &metapb.PartitionsCreated{
		TopicId: topic.ID[:], Partitions: int32(len(next.Partitions)),
	}}})
	return Result{}, nil
}

func (t *tx) topicOf(id []byte) (*Topic, error) {
	u, ok := uuidOf(id)
	if !ok {
		return nil, malformed("topic id of %d bytes", len(id))
	}
	topic, ok := t.img.TopicByID(u)
	if !ok {
		return nil, protocol.Errorf(protocol.UnknownTopicID, "no topic with id %s", u)
	}
	return topic, nil
}

// change is one checked partition change.
type change struct {
	topic *Topic
	state *Partition
}

func (t *tx) changePartitions(c *metapb.ChangePartitions) (Result, error) {
	plan, err := t.planChanges(c.GetChanges())
	if err != nil {
		return Result{}, err
	}
	t.writeChanges(plan)
	return Result{}, nil
}

// planChanges checks all changes. One that is already in place, by this very command applied before, is passed over.
func (t *tx) planChanges(changes []*metapb.PartitionChange) ([]change, error) {
	plan := make([]change, 0, len(changes))
	type place struct {
		topic protocol.UUID
		part  int32
	}
	seen := map[place]bool{}
	for _, c := range changes {
		topic, err := t.topicOf(c.GetTopicId())
		if err != nil {
			return nil, err
		}
		if c.Partition < 0 || int(c.Partition) >= len(topic.Partitions) || seen[place{topic.ID, c.Partition}] {
			return nil, malformed("partition %d of %s", c.Partition, topic.Name)
		}
		seen[place{topic.ID, c.Partition}] = true
		next, err := partitionOf(c.State, c.Partition)
		if err != nil {
			return nil, err
		}
		next.PartitionEpoch = c.ExpectPartitionEpoch + 1
		have := topic.Partitions[c.Partition]
		if have.equal(next) {
			continue
		}
		if have.PartitionEpoch != c.ExpectPartitionEpoch || have.LeaderEpoch != c.ExpectLeaderEpoch {
			return nil, protocol.Errorf(protocol.InvalidUpdateVersion, "%s-%d is at leader epoch %d, partition epoch %d; not %d, %d",
				topic.Name, c.Partition, have.LeaderEpoch, have.PartitionEpoch, c.ExpectLeaderEpoch, c.ExpectPartitionEpoch)
		}
		if next.LeaderEpoch < have.LeaderEpoch || next.Leader != have.Leader && next.LeaderEpoch == have.LeaderEpoch {
			return nil, malformed("leader epoch %d after %d", next.LeaderEpoch, have.LeaderEpoch)
		}
		plan = append(plan, change{topic: topic, state: next})
	}
	return plan, nil
}

func (t *tx) writeChanges(plan []change) {
	next := map[protocol.UUID]*Topic{}
	for _, c := range plan {
		topic := next[c.topic.ID]
		if topic == nil {
			copied := *c.topic
			copied.Partitions = slices.Clone(c.topic.Partitions)
			topic = &copied
			next[topic.ID] = topic
		}
		topic.Partitions[c.state.Index] = c.state
		t.setProto(partKey(nsPartition, topic.ID, c.state.Index), c.state.toProto())
	}
	for _, topic := range next {
		t.showTopic(topic)
	}
}

func newPartitions(ps []*metapb.Partition, first int32) ([]*Partition, error) {
	out := make([]*Partition, len(ps))
	for i, p := range ps {
		var err error
		if out[i], err = partitionOf(p, first+int32(i)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func partitionOf(p *metapb.Partition, index int32) (*Partition, error) {
	dirs, ok := uuidsOf(p.GetDirs())
	if !ok || p == nil || len(p.Replicas) == 0 || len(p.Replicas) > MaxReplicas || len(dirs) != len(p.Replicas) {
		return nil, malformed("replicas and directories of partition %d", index)
	}
	if !noDuplicates(p.Replicas) || !noDuplicates(p.Isr) || !noDuplicates(p.Elr) || p.LeaderEpoch < 0 || p.PartitionEpoch < 0 {
		return nil, malformed("broker ids or epochs of partition %d", index)
	}
	for _, id := range append(slices.Clone(p.Isr), p.Elr...) {
		if !slices.Contains(p.Replicas, id) {
			return nil, malformed("in-sync broker %d of partition %d holds no replica", id, index)
		}
	}
	for _, id := range p.Elr {
		if slices.Contains(p.Isr, id) {
			return nil, malformed("broker %d of partition %d is both in sync and eligible", id, index)
		}
	}
	if p.Leader < -1 || p.Leader >= 0 && !slices.Contains(p.Isr, p.Leader) {
		return nil, malformed("leader %d of partition %d is not in sync", p.Leader, index)
	}
	return &Partition{
		Index: index, Replicas: p.Replicas, Dirs: dirs, ISR: p.Isr, ELR: p.Elr,
		Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch,
	}, nil
}

func (p *Partition) toProto() *metapb.Partition {
	return &metapb.Partition{
		Replicas: p.Replicas, Dirs: idBytes(p.Dirs), Isr: p.ISR, Elr: p.ELR,
		Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch,
	}
}

// PartitionState turns a partition into the body of a command.
func PartitionState(p *Partition) *metapb.Partition { return p.toProto() }

func (p *Partition) equal(o *Partition) bool {
	return p.Index == o.Index && slices.Equal(p.Replicas, o.Replicas) && slices.Equal(p.Dirs, o.Dirs) && slices.Equal(p.ISR, o.ISR) &&
		slices.Equal(p.ELR, o.ELR) && p.Leader == o.Leader && p.LeaderEpoch == o.LeaderEpoch && p.PartitionEpoch == o.PartitionEpoch
}
