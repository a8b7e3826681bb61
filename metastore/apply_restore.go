package metastore

import (
	"errors"
	"maps"

	"varve/metastore/metapb"
	"varve/protocol"
)

// Bounds of one step of a restore.
const (
	maxRestoreRows     = 4096
	maxRestoreClaims   = 1000
	maxReleasedTopics  = 10_000
	maxRestoringTopics = 1_000_000
)

var errIDLength = errors.New("an id has not 16 bytes")

// restore takes a step. What concerns no restore comes first.
func (t *tx) restore(c *metapb.RestoreCommand) (Result, error) {
	switch b := c.GetBody().(type) {
	case *metapb.RestoreCommand_Release:
		return t.releaseTopics(b.Release)
	case *metapb.RestoreCommand_Snapshot:
		return t.snapshotTaken(b.Snapshot)
	case *metapb.RestoreCommand_Begin:
		return t.restoreBegin(b.Begin)
	}
	id, ok := uuidOf(c.GetRestoreId())
	if !ok {
		return Result{}, malformed("restore id")
	}
	state := t.img.restoring.state
	if state == nil || state.ID != id {
		if _, ends := c.Body.(*metapb.RestoreCommand_End); ends {
			return Result{}, nil
		}
		return Result{}, protocol.Errorf(protocol.InvalidRequest, "restore %s is not under way", id)
	}
	switch b := c.Body.(type) {
	case *metapb.RestoreCommand_Advance:
		return t.restoreAdvance(state, b.Advance)
	case *metapb.RestoreCommand_Topic:
		return t.restoreTopic(state, b.Topic)
	case *metapb.RestoreCommand_Rows:
		return t.restoreRows(state, b.Rows)
	case *metapb.RestoreCommand_Publish:
		return t.restorePublish(state, b.Publish)
	case *metapb.RestoreCommand_Wipe:
		return t.restoreWipe(state, b.Wipe)
	case *metapb.RestoreCommand_End:
		return t.restoreEnd(state)
	}
	return Result{}, malformed("restore step without a body this version knows")
}

func wrongPhase(s *RestoreState) error {
	return protocol.Errorf(protocol.InvalidRequest, "the restore of %s is in %s", s.Source, s.Phase)
}

func (t *tx) restoreBegin(c *metapb.RestoreBegin) (Result, error) {
	next, ok := restoreStateOf(c.GetRow())
	if !ok || next.ID.IsZero() || next.Source == "" || len(next.Source) > maxLocationBytes || len(next.Topics) > maxLocationBytes {
		return Result{}, malformed("restore without id or source")
	}
	if have := t.img.restoring.state; have != nil {
		if have.ID == next.ID {
			return Result{}, nil
		}
		return Result{}, protocol.Errorf(protocol.InvalidRequest, "a restore of %s is under way: let it end, or abort it", have.Source)
	}
	if next.Source == t.img.cluster.ID {
		return Result{}, protocol.Errorf(protocol.InvalidRequest, "%s is this cluster itself: a restore goes into a new one", next.Source)
	}
	next.Phase, next.StartedMs = metapb.RestorePhase_RESTORE_CLAIM, t.timeMs
	t.putRestore(next)
	return Result{}, nil
}

func (t *tx) putRestore(s *RestoreState) {
	t.setProto([]byte{nsRestore}, s.toProto())
	t.img.restoring.state = s
}

// mayFollow says which phase comes after which. The import begins again after a crash, from nothing.
func mayFollow(from, to metapb.RestorePhase) bool {
	if to == metapb.RestorePhase_RESTORE_ABORT {
		return from < metapb.RestorePhase_RESTORE_PUBLISH
	}
	return to == from+1
}

func (t *tx) restoreAdvance(s *RestoreState, c *metapb.RestoreAdvance) (Result, error) {
	if len(c.GetClaims()) > maxRestoreClaims {
		return Result{}, malformed("%d owner claims", len(c.Claims))
	}
	if c.Next == s.Phase {
		return Result{}, nil
	}
	if !mayFollow(s.Phase, c.Next) || c.Next == metapb.RestorePhase_RESTORE_SNAPSHOT && t.img.restoring.topics.Len() > 0 {
		return Result{}, wrongPhase(s)
	}
	next := *s
	next.Phase = c.Next
	t.putRestore(&next)
	claims := maps.Clone(t.img.restoring.claims)
	for _, cl := range c.Claims {
		if claims == nil {
			claims = map[string]int64{}
		}
		claims[cl.GetClusterId()] = cl.GetEpoch()
		t.setProto(append([]byte{nsClaim}, cl.GetClusterId()...), cl)
	}
	t.img.restoring.claims = claims
	if c.NextProducerId > t.img.cluster.NextProducerID {
		t.img.cluster.NextProducerID = c.NextProducerId
		t.recordProducerIDs(c.NextProducerId)
	}
	for _, bc := range c.Configs {
		if have, ok := t.img.configs.Get(bc.GetBroker()); ok && len(have.Configs) > 0 || len(bc.GetConfigs()) == 0 {
			continue
		}
		t.setProto(append([]byte{nsBrokerConfig}, bc.Broker...), &metapb.BrokerConfigRow{Configs: bc.Configs, Version: t.index})
		t.img.configs = t.img.configs.Set(bc.Broker, &BrokerConfig{Configs: notNil(bc.Configs), Version: t.index})
		t.changed.configs[bc.Broker] = struct{}{}
		t.record(brokerConfigRecord(bc.Broker, bc.Configs))
	}
	return Result{}, nil
}

func (t *tx) restoreTopic(s *RestoreState, c *metapb.RestoreTopic) (Result, error) {
	id, ok := uuidOf(c.GetTopicId())
	row := c.GetRow()
	if !ok || id.IsZero() || len(row.GetName()) > maxTopicNameBytes || len(row.GetLeaderEpochs()) > MaxPartitionsPerTopic ||
		row.GetName() != "" && len(row.LeaderEpochs) == 0 {
		return Result{}, malformed("restored topic")
	}
	if s.Phase != metapb.RestorePhase_RESTORE_IMPORT {
		return Result{}, wrongPhase(s)
	}
	if have, ok := t.img.TopicByID(id); ok {
		return Result{}, protocol.Errorf(protocol.TopicAlreadyExists, "topic %s has the id %s here already", have.Name, id)
	}
	if other, taken := t.img.restoring.names.Get(row.Name); row.Name != "" && taken && other != id {
		return Result{}, protocol.Errorf(protocol.TopicAlreadyExists, "two restored topics are called %s", row.Name)
	}
	if _, ok := t.img.Topic(row.Name); ok {
		return Result{}, protocol.Errorf(protocol.TopicAlreadyExists, "Topic '%s' already exists.", row.Name)
	}
	if t.img.restoring.topics.Len() >= maxRestoringTopics {
		return Result{}, protocol.Errorf(protocol.PolicyViolation, "more than %d topics in one restore", maxRestoringTopics)
	}
	if _, ok := t.img.restoring.topics.Get(string(id[:])); ok {
		return Result{}, nil
	}
	t.setProto(topicKey(nsRestoring, id), row)
	t.img.restoring.show(restoringTopicOf(id, row))
	return Result{}, nil
}

func (t *tx) restoreRows(s *RestoreState, c *metapb.RestoreRows) (Result, error) {
	id, ok := uuidOf(c.GetTopicId())
	if !ok || c.Partition < 0 {
		return Result{}, malformed("restored rows")
	}
	if s.Phase != metapb.RestorePhase_RESTORE_IMPORT {
		return Result{}, wrongPhase(s)
	}
	if _, ok := t.img.restoring.topics.Get(string(id[:])); !ok {
		return Result{}, protocol.Errorf(protocol.UnknownTopicID, "no hidden topic with id %s", id)
	}
	var rows []segRow
	err := EachPacked(c.Rows, id, c.Partition, func(r RemoteSegment, loc uint32) error {
		if int64(loc) >= int64(len(c.Locations)) || len(rows) >= maxRestoreRows || r.State == SegStarted || r.Base < 0 || r.Next <= r.Base {
			return errIDLength
		}
		rows = append(rows, segRow{seg: r, loc: loc})
		return nil
	})
	if err != nil {
		return Result{}, malformed("restored rows: %v", err)
	}
	if len(t.locations)+len(c.Locations) > maxLocations {
		return Result{}, protocol.Errorf(protocol.InvalidRequest, "more than %d tier locations", maxLocations)
	}
	for _, l := range c.Locations { // all of them before the first is written
		if len(l) == 0 || len(l) > maxLocationBytes {
			return Result{}, malformed("location of %d bytes", len(l))
		}
	}
	numbers := make([]uint32, len(c.Locations))
	for i, l := range c.Locations {
		n, err := t.intern(l)
		if err != nil {
			return Result{}, err
		}
		numbers[i] = n
	}
	for i := range rows {
		rows[i].loc = numbers[rows[i].loc]
	}
	t.putRows(rows)
	if c.Tier != nil {
		state := TierStateFromProto(c.Tier)
		t.putTier(id, c.Partition, &state)
	}
	return Result{}, nil
}

// restorePublish makes a topic visible, whole, and holds its retention.
func (t *tx) restorePublish(s *RestoreState, c *metapb.RestorePublish) (Result, error) {
	id, ok := uuidOf(c.GetTopicId())
	if !ok {
		return Result{}, malformed("restored topic")
	}
	if s.Phase != metapb.RestorePhase_RESTORE_PUBLISH {
		return Result{}, wrongPhase(s)
	}
	hidden, ok := t.img.restoring.topics.Get(string(id[:]))
	if !ok {
		return Result{}, nil
	}
	if hidden.Name != "" {
		parts, err := newPartitions(c.Partitions, 0)
		if err != nil {
			return Result{}, err
		}
		if len(parts) != len(hidden.LeaderEpochs) {
			return Result{}, malformed("%d partitions of %d restored ones", len(parts), len(hidden.LeaderEpochs))
		}
		for i, p := range parts {
			if p.LeaderEpoch < hidden.LeaderEpochs[i] {
				return Result{}, malformed("partition %d restored at leader epoch %d, below %d", i, p.LeaderEpoch, hidden.LeaderEpochs[i])
			}
		}
		topic := &Topic{Name: hidden.Name, ID: id, Configs: hidden.Configs, ConfigVersion: t.index, Partitions: parts, Held: true}
		for _, p := range parts {
			t.setProto(partKey(nsPartition, id, p.Index), p.toProto())
		}
		t.putTopic(topic)
		t.img.partitions += len(parts)
		t.record(topicRecord(topic))
	}
	t.record(&metapb.JournalRecord{Body: &metapb.JournalRecord_Restored{Restored: &metapb.Restored{Source: s.Source, TopicId: id[:]}}})
	t.img.cluster.RestoredIndex = t.index
	t.del(topicKey(nsRestoring, id))
	t.img.restoring.hide(hidden)
	return Result{}, nil
}

// restoreWipe drops hidden topics. Their rows just go: the objects belong to the bucket, which nobody has taken them from yet.
func (t *tx) restoreWipe(s *RestoreState, c *metapb.RestoreWipe) (Result, error) {
	if c.GetMaxRows() == 0 || c.MaxRows > maxRestoreRows {
		return Result{}, malformed("wiping %d rows", c.GetMaxRows())
	}
	if s.Phase != metapb.RestorePhase_RESTORE_IMPORT && s.Phase != metapb.RestorePhase_RESTORE_ABORT {
		return Result{}, wrongPhase(s)
	}
	left := int(c.MaxRows)
	for left > 0 && t.img.restoring.topics.Len() > 0 {
		it := t.img.restoring.topics.Iterator()
		_, hidden, _ := it.Next()
		var rows []segRow
		t.scan(topicKey(nsDeleting, hidden.ID), nil, func(key, value []byte) bool {
			row, err := t.decode(key, value)
			t.fail(err)
			rows = append(rows, row)
			return err == nil && len(rows) < left
		})
		for _, r := range rows {
			t.dropRow(r)
		}
		if left -= len(rows); left == 0 {
			break // there may be more of this topic
		}
		for _, ns := range []byte{nsFinished, nsGroup, nsTier} {
			t.delPrefix(topicKey(ns, hidden.ID))
		}
		t.del(topicKey(nsRestoring, hidden.ID))
		t.img.restoring.hide(hidden)
		left--
	}
	return Result{More: t.img.restoring.topics.Len() > 0}, nil
}

func (t *tx) restoreEnd(s *RestoreState) (Result, error) {
	if s.Phase != metapb.RestorePhase_RESTORE_SNAPSHOT && s.Phase != metapb.RestorePhase_RESTORE_ABORT || t.img.restoring.topics.Len() > 0 {
		return Result{}, wrongPhase(s)
	}
	t.del([]byte{nsRestore})
	t.img.restoring.state = nil
	return Result{}, nil
}

// releaseTopics lets retention act again. Topics that are gone are passed over.
func (t *tx) releaseTopics(c *metapb.ReleaseTopics) (Result, error) {
	ids, ok := uuidsOf(c.GetTopicIds())
	if !ok || len(ids) > maxReleasedTopics {
		return Result{}, malformed("%d topics to release", len(c.GetTopicIds()))
	}
	for _, id := range ids {
		topic, ok := t.img.TopicByID(id)
		if !ok || !topic.Held {
			continue
		}
		next := *topic
		next.Held = false
		t.putTopic(&next)
	}
	return Result{}, nil
}

func (t *tx) snapshotTaken(c *metapb.SnapshotTaken) (Result, error) {
	if c.GetIndex() >= t.index {
		return Result{}, protocol.Errorf(protocol.InvalidRequest, "snapshot of index %d at index %d", c.GetIndex(), t.index)
	}
	t.img.cluster.SnapshotIndex = max(t.img.cluster.SnapshotIndex, c.Index)
	return Result{}, nil
}
