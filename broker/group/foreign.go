package group

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"varve/metastore/metapb"
	"varve/protocol/record"
)

// ForeignOffsets gathers the offsets that another broker's partitions of OffsetsTopic hold, Apache Kafka's or ours. The zero value
// has none. Offsets that were committed in a transaction count once its marker says so (GroupMetadataManager.loadGroupsAndOffsets).
type ForeignOffsets struct {
	offsets map[foreignOffset]*metapb.GroupOffset
	open    map[int64][]Record // by producer id: written in a transaction without a marker yet
}

type foreignOffset struct {
	group, topic string
	partition    int32
}

// StartPartition forgets transactions that the partition before left open.
func (f *ForeignOffsets) StartPartition() { f.open = map[int64][]Record{} }

// Take reads a batch; those of one partition come in order. A partition's replicas may be read one after the other: the younger commit
// stays. Records of other kinds are passed over. Errors are *protocol.CorruptionError.
func (f *ForeignOffsets) Take(b record.Batch) error {
	if b.Control() {
		c, err := b.ControlRecord()
		if err != nil {
			return corrupt("control batch: %v", err)
		}
		records := f.open[b.ProducerID()]
		delete(f.open, b.ProducerID())
		if c.Type != record.Commit {
			return nil
		}
		for _, r := range records {
			if err := f.one(r); err != nil {
				return err
			}
		}
		return nil
	}
	return b.Each(func(r *record.Record) error {
		rec := Record{Key: slices.Clone(r.Key), Value: slices.Clone(r.Value)}
		if b.Transactional() {
			if f.open == nil {
				f.StartPartition()
			}
			f.open[b.ProducerID()] = append(f.open[b.ProducerID()], rec)
			return nil
		}
		return f.one(rec)
	})
}

func (f *ForeignOffsets) one(r Record) error {
	if len(r.Key) >= 2 && binary.BigEndian.Uint16(r.Key) > offsetKeyVersion {
		return nil // memberships
	}
	p, known, err := parse(r)
	if err != nil || !known || !p.isOffset {
		return err
	}
	if f.offsets == nil {
		f.offsets = map[foreignOffset]*metapb.GroupOffset{}
	}
	key := foreignOffset{p.group, p.topic, p.partition}
	had := f.offsets[key]
	switch {
	case p.offset == nil:
		delete(f.offsets, key)
	case had == nil || p.offset.commitMs >= had.CommitMs:
		f.offsets[key] = &metapb.GroupOffset{
			Group: p.group, Topic: p.topic, Partition: p.partition, Offset: p.offset.at, LeaderEpoch: p.offset.leaderEpoch,
			Metadata: p.offset.metadata, CommitMs: p.offset.commitMs,
		}
	}
	return nil
}

// Offsets returns what was gathered, ordered by group, topic and partition.
func (f *ForeignOffsets) Offsets() []*metapb.GroupOffset {
	return slices.SortedFunc(maps.Values(f.offsets), func(a, b *metapb.GroupOffset) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}
