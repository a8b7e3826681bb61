package group

import (
	"cmp"
	"encoding/binary"
	"slices"

	"varve/metastore/metapb"
	"varve/protocol/record"
)

// ForeignOffsets gathers the offsets that another broker's partitions of OffsetsTopic hold, Apache Kafka's or ours. The zero value
// has none. Within a partition the later record in the log counts, whatever clock its leader had; offsets that were committed in a
// transaction count once its marker says so, in their own place (OffsetMetadataManager.replay and replayEndTransactionMarker). Of a
// partition's replicas the one that reaches further counts, alone: one that is behind would bring back or remove what was told anew since.
type ForeignOffsets struct {
	kept  map[int32]foreignReplica // by partition of OffsetsTopic: the fullest before the present one
	index int32
	now   foreignReplica
}

type foreignReplica struct {
	end     int64
	offsets map[foreignOffset]foreignCommit
	open    map[int64][]foreignRecord // by producer id: written in a transaction without a marker yet
}

type foreignOffset struct {
	group, topic string
	partition    int32
}

type foreignCommit struct {
	at     int64 // offset of its record
	offset *metapb.GroupOffset
}

type foreignRecord struct {
	Record
	at int64
}

// StartPartition says that the batches to come are those of a replica of a partition of OffsetsTopic.
func (f *ForeignOffsets) StartPartition(index int32) {
	f.keep()
	f.index, f.now = index, foreignReplica{offsets: map[foreignOffset]foreignCommit{}, open: map[int64][]foreignRecord{}}
}

func (f *ForeignOffsets) keep() {
	if f.kept == nil {
		f.kept = map[int32]foreignReplica{}
	}
	if f.now.end > f.kept[f.index].end {
		f.kept[f.index] = f.now
	}
}

// Take reads a batch of the replica that was started; they come in order. Records of other kinds are passed over. Errors are
// *protocol.CorruptionError.
func (f *ForeignOffsets) Take(b record.Batch) error {
	r := &f.now
	r.end = max(r.end, b.NextOffset())
	if b.Control() {
		c, err := b.ControlRecord()
		if err != nil {
			return corrupt("control batch: %v", err)
		}
		records := r.open[b.ProducerID()]
		delete(r.open, b.ProducerID())
		if c.Type != record.Commit {
			return nil
		}
		for _, rec := range records {
			if err := r.one(rec); err != nil {
				return err
			}
		}
		return nil
	}
	return b.Each(func(in *record.Record) error {
		rec := foreignRecord{Record{Key: slices.Clone(in.Key), Value: slices.Clone(in.Value)}, in.Offset}
		if b.Transactional() {
			r.open[b.ProducerID()] = append(r.open[b.ProducerID()], rec)
			return nil
		}
		return r.one(rec)
	})
}

func (r *foreignReplica) one(in foreignRecord) error {
	if len(in.Key) >= 2 && binary.BigEndian.Uint16(in.Key) > offsetKeyVersion {
		return nil // memberships
	}
	p, known, err := parse(in.Record)
	if err != nil || !known || !p.isOffset {
		return err
	}
	key := foreignOffset{p.group, p.topic, p.partition}
	had, ok := r.offsets[key]
	switch {
	case p.offset == nil:
		delete(r.offsets, key)
	case !ok || in.at > had.at:
		r.offsets[key] = foreignCommit{in.at, &metapb.GroupOffset{
			Group: p.group, Topic: p.topic, Partition: p.partition, Offset: p.offset.at, LeaderEpoch: p.offset.leaderEpoch,
			Metadata: p.offset.metadata, CommitMs: p.offset.commitMs,
		}}
	}
	return nil
}

// Offsets returns what was gathered, ordered by group, topic and partition.
func (f *ForeignOffsets) Offsets() (out []*metapb.GroupOffset) {
	f.keep()
	for _, r := range f.kept {
		for _, c := range r.offsets {
			out = append(out, c.offset)
		}
	}
	slices.SortFunc(out, func(a, b *metapb.GroupOffset) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out
}
