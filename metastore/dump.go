package metastore

import (
	"bytes"
	"context"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"varve/metastore/metapb"
	"varve/protocol"
)

// dumpRows is how many segment rows one record of a Dump holds at most.
const dumpRows = 1000

// Dump calls emit with the whole state, as of the Raft index that it returns, in the order that metapb.SnapshotRecord names; group offsets
// are not the metastore's. Writes go on meanwhile. The image, and a thousand rows, are in memory at a time. Nothing is emitted while a
// restore has hidden topics: their rows are no state of this cluster yet.
//
// Errors: emit's, ctx's, NotController when the store is closed; ReassignmentInProgress while a restore is under way.
func (s *Store) Dump(ctx context.Context, emit func(*metapb.SnapshotRecord) error) (index uint64, err error) {
	h, err := s.fsm.acquire()
	if err != nil {
		return 0, err
	}
	defer h.release()
	view := h.db.NewSnapshot()
	defer view.Close()
	l, err := load(view)
	if err != nil {
		return 0, err
	}
	if r := l.img.Restore(); r != nil && r.Phase != metapb.RestorePhase_RESTORE_SNAPSHOT {
		return 0, protocol.Errorf(protocol.ReassignmentInProgress, "a restore of %s is under way", r.Source)
	}
	for _, r := range imageRecords(&l) {
		if err := emit(r); err != nil {
			return 0, err
		}
	}
	d := &rowDump{ctx: ctx, emit: emit}
	defer d.close()
	if err := d.open(view); err != nil {
		return 0, err
	}
	return l.img.index, d.run()
}

func imageRecords(l *loaded) (out []*metapb.SnapshotRecord) {
	out = append(out,
		&metapb.SnapshotRecord{Body: &metapb.SnapshotRecord_Cluster{Cluster: &metapb.SnapshotCluster{
			ClusterId: l.img.cluster.ID, Index: l.img.index, NextProducerId: l.img.cluster.NextProducerID, Claims: l.img.Claims(),
		}}},
		&metapb.SnapshotRecord{Body: &metapb.SnapshotRecord_Locations{Locations: &metapb.SnapshotLocations{Locations: l.locations}}},
	)
	for it := l.img.configs.Iterator(); !it.Done(); {
		name, c, _ := it.Next()
		out = append(out, &metapb.SnapshotRecord{Body: &metapb.SnapshotRecord_BrokerConfigs{
			BrokerConfigs: &metapb.SnapshotBrokerConfigs{Broker: name, Configs: c.Configs},
		}})
	}
	for t := range l.img.Topics() {
		st := &metapb.SnapshotTopic{TopicId: t.ID[:], Name: t.Name, Configs: t.Configs}
		for _, p := range t.Partitions {
			st.LeaderEpochs = append(st.LeaderEpochs, p.LeaderEpoch)
			st.Replication = int32(len(t.Partitions[0].Replicas))
		}
		out = append(out, &metapb.SnapshotRecord{Body: &metapb.SnapshotRecord_Topic{Topic: st}})
	}
	return out
}

// rowDump walks over tier states and rows in all states at once, partition by partition.
type rowDump struct {
	ctx  context.Context
	emit func(*metapb.SnapshotRecord) error
	its  []*pebble.Iterator // in the order of dumpSpaces
}

var dumpSpaces = []byte{nsTier, nsFinished, nsStarted, nsDeleting}

func (d *rowDump) open(r pebble.Reader) error {
	for _, ns := range dumpSpaces {
		it, err := r.NewIter(prefixOptions([]byte{ns}))
		if err != nil {
			return err
		}
		it.First()
		d.its = append(d.its, it)
	}
	return nil
}

func (d *rowDump) close() {
	for _, it := range d.its {
		it.Close()
	}
}

func (d *rowDump) run() error {
	for {
		part := d.least()
		if part == nil {
			break
		}
		if err := d.partition(part); err != nil {
			return err
		}
	}
	for _, it := range d.its {
		if err := it.Error(); err != nil {
			return err
		}
	}
	return nil
}

// least is the first partition that any of the iterators stands at: topic and number, as in the keys.
func (d *rowDump) least() (part []byte) {
	for _, it := range d.its {
		if !it.Valid() || len(it.Key()) < partKeyLen {
			continue
		}
		if p := it.Key()[1:partKeyLen]; part == nil || bytes.Compare(p, part) < 0 {
			part = bytes.Clone(p)
		}
	}
	return part
}

func (d *rowDump) partition(part []byte) error {
	topic, partition, _ := splitPartKey(append([]byte{0}, part...))
	head := &metapb.SnapshotPartition{TopicId: topic[:], Partition: partition}
	if it := d.its[0]; it.Valid() && bytes.Equal(it.Key()[1:], part) {
		head.Tier = &metapb.TierRow{}
		if err := unmarshal(nsTier, it.Value(), head.Tier); err != nil {
			return err
		}
		it.Next()
	}
	if err := d.emit(&metapb.SnapshotRecord{Body: &metapb.SnapshotRecord_Partition{Partition: head}}); err != nil {
		return err
	}
	var rows []byte
	n := 0
	flush := func() error {
		if n == 0 {
			return nil
		}
		r := &metapb.SnapshotSegments{TopicId: topic[:], Partition: partition, Rows: bytes.Clone(rows)}
		rows, n = rows[:0], 0
		return d.emit(&metapb.SnapshotRecord{Body: &metapb.SnapshotRecord_Segments{Segments: r}})
	}
	for _, it := range d.its[1:] {
		for ; it.Valid() && bytes.HasPrefix(it.Key()[1:], part); it.Next() {
			if rows, n = append(rows, it.Value()...), n+1; n < dumpRows {
				continue
			}
			if err := flush(); err != nil {
				return err
			}
			if err := d.ctx.Err(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// PackSegments puts rows one after the other, by the byte table of a segment row; place gives a location its number.
func PackSegments(dst []byte, s *RemoteSegment, place func(location string) uint32) []byte {
	return appendSegment(dst, s, place(s.Location))
}

// UnpackSegments reads rows that stand one after the other.
//
// Errors: *protocol.CorruptionError.
func UnpackSegments(rows []byte, topic protocol.UUID, partition int32, locations []string) (out []RemoteSegment, err error) {
	err = EachPacked(rows, topic, partition, func(s RemoteSegment, loc uint32) error {
		if int64(loc) >= int64(len(locations)) {
			return &protocol.CorruptionError{Where: "packed segment row", What: "unknown location"}
		}
		s.Location = locations[loc]
		out = append(out, s)
		return nil
	})
	return out, err
}

// EachPacked calls fn with each of the rows that stand one after the other, and the number of its location.
//
// Errors: *protocol.CorruptionError, fn's.
func EachPacked(rows []byte, topic protocol.UUID, partition int32, fn func(RemoteSegment, uint32) error) error {
	for len(rows) > 0 {
		n := segRowLen
		if len(rows) > 1 && SegmentState(rows[1]&segStateMask) == SegDeleteStarted {
			n = segRowLenDelete
		}
		if len(rows) < n {
			return &protocol.CorruptionError{Where: "packed segment row", What: "cut short"}
		}
		s, loc, err := decodeSegment(rows[:n:n], topic, partition)
		if err != nil {
			return err
		}
		if err := fn(s, loc); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// TierStateFromProto reads the state of a partition.
func TierStateFromProto(row *metapb.TierRow) TierState {
	s := TierState{LogStart: row.GetLogStart(), End: row.GetEnd(), Settled: max(row.GetSettled(), row.GetEnd()), Bytes: row.GetBytes(), Count: row.GetCount()}
	for _, e := range row.GetEpochs() {
		s.Epochs = append(s.Epochs, EpochStart{Epoch: e.GetEpoch(), Start: e.GetStart()})
	}
	return s
}

// Extend is what FINISHED does to the state: s is at its end, with its lineage.
func (s *TierState) Extend(seg *RemoteSegment) {
	if len(seg.Epochs) > 0 {
		s.Epochs = joinLineage(s, seg)
	}
	s.End = seg.Next
	s.Settled = max(s.Settled, s.End)
}

// Trim drops the epochs of offsets that are not in the tier, but for the last one below its end.
func (s *TierState) Trim() {
	s.Epochs = slices.DeleteFunc(s.Epochs, func(e EpochStart) bool { return e.Start >= s.End })
	s.Epochs = trimLineage(s.Epochs, s.LogStart)
}

// Row is the state as it stands in the metastore.
func (s *TierState) Row() *metapb.TierRow {
	row := &metapb.TierRow{LogStart: s.LogStart, End: s.End, Bytes: s.Bytes, Count: s.Count}
	if s.Settled > s.End {
		row.Settled = s.Settled
	}
	for _, e := range s.Epochs {
		row.Epochs = append(row.Epochs, &metapb.EpochStart{Epoch: e.Epoch, Start: e.Start})
	}
	return row
}
