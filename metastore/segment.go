package metastore

import (
	"encoding/binary"
	"fmt"

	"varve/metastore/metapb"
	"varve/protocol"
)

// SegmentState is the state of a remote segment. Names and order follow Kafka's RemoteLogSegmentState (KIP-405).
type SegmentState uint8

// The states of a row. A segment whose row is gone has SegUnknown.
const (
	SegUnknown SegmentState = iota
	SegStarted
	SegFinished
	SegDeleteStarted
)

// String is Kafka's name of the state.
func (s SegmentState) String() string {
	switch s {
	case SegStarted:
		return "COPY_SEGMENT_STARTED"
	case SegFinished:
		return "COPY_SEGMENT_FINISHED"
	case SegDeleteStarted:
		return "DELETE_SEGMENT_STARTED"
	}
	return "UNKNOWN"
}

// DefaultUploadDeadlineMs is added to the start time when SegmentStart is given no deadline.
const DefaultUploadDeadlineMs = 3_600_000

// EpochStart says that records from Start on were written under Epoch, up to the start of the next one.
type EpochStart struct {
	Epoch int32
	Start int64
}

// RemoteSegment is one object in the tier, or an attempt to make one.
type RemoteSegment struct {
	ID, TopicID    protocol.UUID
	Partition      int32
	Base, Next     int64 // claims [Base, Next), whatever records are in it
	FirstTimestamp int64 // ms
	MaxTimestamp   int64 // ms
	LeaderEpoch    int32 // of the writer
	Generation     uint32
	State          SegmentState
	ObjectBytes    int64
	LogBytes       int64
	IndexOff       int64  // where indexes, table and footer begin in the object
	IndexLen       int32  // bytes
	Location       string // canonical URL and prefix; interned on disk
	HasTxns        bool
	StartTimeMs    int64
	StateTimeMs    int64  // when it came into State
	DeadlineMs     int64  // no PUT of this attempt reaches the store later; at SegmentStart it counts from the writer's StartTimeMs; 0 = DefaultUploadDeadlineMs after the start
	Broker         int32  // the writer
	NeverFinished  bool   // in DELETE_STARTED: its object may still be on its way until DeadlineMs
	DeleteIndex    uint64 // in DELETE_STARTED: raft index of the journal entry that announced it

	// Epochs is the lineage that covers [Base, Next): the last epoch that starts at or below Base and all up to Next. SegmentFinish
	// and SegmentReplace need it; it is not stored in the row, but joined to TierState.Epochs.
	Epochs []EpochStart
}

// TierState is what the metastore knows of one partition in the tier.
type TierState struct {
	LogStart int64
	End      int64        // of what is in the tier: FINISHED segments cover [LogStart, End). It falls only while the topic is taken out of the tier
	Settled  int64        // first offset that never was in the tier; never falls
	Epochs   []EpochStart // lineage of [LogStart, End), ascending
	Bytes    int64        // log bytes of all FINISHED segments
	Count    int64        // FINISHED segments
}

// Row of a remote segment, version 1, little-endian:
//
//	 0  1  version (1)
//	 1  1  bits 0-1 state, 2 has transactions, 3 never finished
//	 2 16  segment id
//	18  8  base
//	26  8  next base
//	34  8  first timestamp, ms
//	42  8  max timestamp, ms
//	50  4  leader epoch
//	54  4  generation
//	58  8  object bytes
//	66  8  log bytes
//	74  8  index offset in the object
//	82  4  index length
//	86  4  location number
//	90  4  broker
//	94  8  state time, ms
//	102 8  start time, ms
//	110 4  upload deadline, ms after the start time
//	114 8  delete index; absent unless the state is DELETE_STARTED
//
// With its 29 bytes of key a FINISHED row takes 143 bytes.
const (
	segRowVersion   = 1
	segRowLen       = 114
	segRowLenDelete = 122
	segStateMask    = 3
	segHasTxns      = 4
	segNever        = 8
)

// maxDeadlineDeltaMs is the longest upload deadline that a row can hold, about 24 days.
const maxDeadlineDeltaMs = 1<<31 - 1

func appendSegment(dst []byte, s *RemoteSegment, location uint32) []byte {
	flags := byte(s.State) & segStateMask
	if s.HasTxns {
		flags |= segHasTxns
	}
	if s.NeverFinished {
		flags |= segNever
	}
	le := binary.LittleEndian
	dst = append(dst, segRowVersion, flags)
	dst = append(dst, s.ID[:]...)
	for _, v := range [4]int64{s.Base, s.Next, s.FirstTimestamp, s.MaxTimestamp} {
		dst = le.AppendUint64(dst, uint64(v))
	}
	dst = le.AppendUint32(dst, uint32(s.LeaderEpoch))
	dst = le.AppendUint32(dst, s.Generation)
	for _, v := range [3]int64{s.ObjectBytes, s.LogBytes, s.IndexOff} {
		dst = le.AppendUint64(dst, uint64(v))
	}
	dst = le.AppendUint32(dst, uint32(s.IndexLen))
	dst = le.AppendUint32(dst, location)
	dst = le.AppendUint32(dst, uint32(s.Broker))
	dst = le.AppendUint64(dst, uint64(s.StateTimeMs))
	dst = le.AppendUint64(dst, uint64(s.StartTimeMs))
	dst = le.AppendUint32(dst, uint32(s.DeadlineMs-s.StartTimeMs))
	if s.State == SegDeleteStarted {
		dst = le.AppendUint64(dst, s.DeleteIndex)
	}
	return dst
}

// decodeSegment reads a row; topic and partition come from its key.
func decodeSegment(row []byte, topic protocol.UUID, partition int32) (s RemoteSegment, location uint32, err error) {
	if len(row) < segRowLen || row[0] != segRowVersion {
		return s, 0, &protocol.CorruptionError{Where: "metastore segment row", What: fmt.Sprintf("version or length wrong in %d bytes", len(row))}
	}
	le := binary.LittleEndian
	i64 := func(at int) int64 { return int64(le.Uint64(row[at:])) }
	i32 := func(at int) int32 { return int32(le.Uint32(row[at:])) }
	s = RemoteSegment{
		TopicID: topic, Partition: partition,
		Base: i64(18), Next: i64(26), FirstTimestamp: i64(34), MaxTimestamp: i64(42),
		LeaderEpoch: i32(50), Generation: le.Uint32(row[54:]),
		ObjectBytes: i64(58), LogBytes: i64(66), IndexOff: i64(74), IndexLen: i32(82),
		Broker: i32(90), StateTimeMs: i64(94), StartTimeMs: i64(102),
		State:         SegmentState(row[1] & segStateMask),
		HasTxns:       row[1]&segHasTxns != 0,
		NeverFinished: row[1]&segNever != 0,
	}
	copy(s.ID[:], row[2:18])
	s.DeadlineMs = s.StartTimeMs + int64(le.Uint32(row[110:]))
	want := segRowLen
	if s.State == SegDeleteStarted {
		want = segRowLenDelete
	}
	if len(row) != want || s.State == SegUnknown {
		return s, 0, &protocol.CorruptionError{Where: "metastore segment row", What: fmt.Sprintf("%d bytes in state %d", len(row), s.State)}
	}
	if s.State == SegDeleteStarted {
		s.DeleteIndex = le.Uint64(row[114:])
	}
	return s, le.Uint32(row[86:]), nil
}

func (s *RemoteSegment) toProto() *metapb.Segment {
	p := &metapb.Segment{
		Id: s.ID[:], TopicId: s.TopicID[:], Partition: s.Partition, Base: s.Base, Next: s.Next,
		FirstTimestamp: s.FirstTimestamp, MaxTimestamp: s.MaxTimestamp, LeaderEpoch: s.LeaderEpoch, Generation: s.Generation,
		ObjectBytes: s.ObjectBytes, LogBytes: s.LogBytes, IndexOff: s.IndexOff, IndexLen: s.IndexLen,
		Location: s.Location, HasTxns: s.HasTxns, StartTimeMs: s.StartTimeMs, DeadlineMs: s.DeadlineMs, Broker: s.Broker,
	}
	for _, e := range s.Epochs {
		p.Epochs = append(p.Epochs, &metapb.EpochStart{Epoch: e.Epoch, Start: e.Start})
	}
	return p
}

// SegmentToProto is a segment as commands and journal entries hold it.
func SegmentToProto(s *RemoteSegment) *metapb.Segment { return s.toProto() }

// SegmentFromProto reads a segment of a command or journal entry; false when an id has not 16 bytes.
func SegmentFromProto(p *metapb.Segment) (RemoteSegment, bool) {
	id, ok1 := uuidOf(p.GetId())
	topic, ok2 := uuidOf(p.GetTopicId())
	if !ok1 || !ok2 {
		return RemoteSegment{}, false
	}
	s := RemoteSegment{
		ID: id, TopicID: topic, Partition: p.Partition, Base: p.Base, Next: p.Next,
		FirstTimestamp: p.FirstTimestamp, MaxTimestamp: p.MaxTimestamp, LeaderEpoch: p.LeaderEpoch, Generation: p.Generation,
		ObjectBytes: p.ObjectBytes, LogBytes: p.LogBytes, IndexOff: p.IndexOff, IndexLen: p.IndexLen,
		Location: p.Location, HasTxns: p.HasTxns, StartTimeMs: p.StartTimeMs, DeadlineMs: p.DeadlineMs, Broker: p.Broker,
	}
	for _, e := range p.Epochs {
		s.Epochs = append(s.Epochs, EpochStart{Epoch: e.GetEpoch(), Start: e.GetStart()})
	}
	return s, true
}

func uuidOf(b []byte) (id protocol.UUID, ok bool) {
	if len(b) != len(id) {
		return id, false
	}
	copy(id[:], b)
	return id, true
}
