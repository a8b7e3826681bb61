package metastore

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"varve/metastore/metapb"
	"varve/protocol"
)

// Bounds of interned locations.
const (
	maxLocationBytes = 2048
	maxLocations     = 65536
)

// segRow is a segment as it stands in Pebble; Location is in loc only.
type segRow struct {
	seg RemoteSegment
	loc uint32
}

// segmentOf checks what every command about a segment must get right.
func segmentOf(p *metapb.Segment) (RemoteSegment, error) {
	s, ok := SegmentFromProto(p)
	if !ok || s.ID.IsZero() {
		return s, malformed("segment or topic id")
	}
	if s.Partition < 0 || s.Base < 0 || s.Next <= s.Base || s.LeaderEpoch < 0 || s.Broker < 0 {
		return s, malformed("segment %s-%d [%d, %d) at leader epoch %d", s.TopicID, s.Partition, s.Base, s.Next, s.LeaderEpoch)
	}
	if s.ObjectBytes < 0 || s.LogBytes < 0 || s.IndexOff < 0 || s.IndexLen < 0 || s.DeadlineMs < 0 {
		return s, malformed("sizes of segment %s", s.ID)
	}
	return s, nil
}

// sameClaim compares what the object's key says, which is fixed when the upload starts.
func sameClaim(a, b *RemoteSegment) bool {
	return a.Base == b.Base && a.Next == b.Next && a.MaxTimestamp == b.MaxTimestamp && a.LeaderEpoch == b.LeaderEpoch && a.Generation == b.Generation
}

func stateNamespace(s SegmentState) byte {
	switch s {
	case SegFinished:
		return nsFinished
	case SegDeleteStarted:
		return nsDeleting
	}
	return nsStarted
}

func (t *tx) decode(key, value []byte) (segRow, error) {
	topic, partition, ok := splitPartKey(key)
	if !ok {
		return segRow{}, &protocol.CorruptionError{Where: "metastore segment key", What: "too short"}
	}
	seg, loc, err := decodeSegment(value, topic, partition)
	if err == nil && int(loc) >= len(t.locations) {
		err = &protocol.CorruptionError{Where: "metastore segment row", What: "unknown location"}
	}
	return segRow{seg: seg, loc: loc}, err
}

func (t *tx) row(key []byte) (segRow, bool) {
	value := t.get(key)
	if value == nil {
		return segRow{}, false
	}
	row, err := t.decode(key, value)
	t.fail(err)
	return row, err == nil
}

// findPending finds a segment in STARTED or DELETE_STARTED.
func (t *tx) findPending(s *RemoteSegment) (segRow, bool) {
	if row, ok := t.row(segmentKey(nsStarted, s)); ok {
		return row, true
	}
	return t.row(segmentKey(nsDeleting, s))
}

// findRow finds a segment in any state.
func (t *tx) findRow(s *RemoteSegment) (segRow, bool) {
	if row, ok := t.findPending(s); ok {
		return row, true
	}
	row, ok := t.row(segmentKey(nsFinished, s))
	if !ok || row.seg.ID != s.ID {
		return segRow{}, false
	}
	return row, true
}

func (t *tx) putRow(r segRow) {
	ns := stateNamespace(r.seg.State)
	if ns == nsFinished {
		t.groupAdd(&r.seg)
	}
	t.set(segmentKey(ns, &r.seg), appendSegment(nil, &r.seg, r.loc))
	if ns != nsFinished {
		t.set(topicKey(nsByID, r.seg.ID), partKey(ns, r.seg.TopicID, r.seg.Partition))
	}
}

// putRows writes many rows of one partition. FINISHED ones that come in order and behind all that is there, as they do in a restore,
// go into their groups without a look at Pebble for each.
func (t *tx) putRows(rows []segRow) {
	var g *groupTail
	for i := range rows {
		r := &rows[i]
		if r.seg.State != SegFinished {
			t.putRow(*r)
			continue
		}
		if g == nil {
			g = t.tailGroup(&r.seg)
		}
		if !g.takes(&r.seg) {
			t.closeTail(g)
			t.putRow(*r)
			g = nil
			continue
		}
		t.addToTail(g, &r.seg)
		t.set(segmentKey(nsFinished, &r.seg), appendSegment(nil, &r.seg, r.loc))
	}
	t.closeTail(g)
}

func (t *tx) dropRow(r segRow) {
	ns := stateNamespace(r.seg.State)
	t.del(segmentKey(ns, &r.seg))
	if ns == nsFinished {
		t.groupDrop(&r.seg)
	} else {
		t.del(topicKey(nsByID, r.seg.ID))
	}
}

// finishedIn returns the FINISHED rows with a base in [seg.Base, seg.Next).
func (t *tx) finishedIn(seg *RemoteSegment) []segRow {
	var rows []segRow
	prefix := partKey(nsFinished, seg.TopicID, seg.Partition)
	t.scan(prefix, offsetKey(prefix, seg.Base), func(key, value []byte) bool {
		row, err := t.decode(key, value)
		t.fail(err)
		if err != nil || row.seg.Base >= seg.Next || len(rows) > MaxSegmentIDs {
			return false
		}
		rows = append(rows, row)
		return true
	})
	return rows
}

// intern gives a location its number.
func (t *tx) intern(location string) (uint32, error) {
	for i := len(t.locations) - 1; i >= 0; i-- {
		if t.locations[i] == location {
			return uint32(i), nil
		}
	}
	if len(t.locations) >= maxLocations {
		return 0, protocol.Errorf(protocol.InvalidRequest, "more than %d tier locations", maxLocations)
	}
	n := uint32(len(t.locations))
	t.set(u32Key(nsLocation, n), []byte(location))
	t.locations = append(t.locations[:n:n], location)
	return n, nil
}

func (t *tx) tier(topic protocol.UUID, partition int32) TierState {
	s, err := readTier(t.batch, topic, partition)
	t.fail(err)
	return s
}

func readTier(r pebble.Reader, topic protocol.UUID, partition int32) (TierState, error) {
	v, closer, err := r.Get(partKey(nsTier, topic, partition))
	if errors.Is(err, pebble.ErrNotFound) {
		return TierState{}, nil
	}
	if err != nil {
		return TierState{}, err
	}
	defer closer.Close()
	row := &metapb.TierRow{}
	if err := proto.Unmarshal(v, row); err != nil {
		return TierState{}, &protocol.CorruptionError{Where: "metastore tier row", What: err.Error()}
	}
	return TierStateFromProto(row), nil
}

func (t *tx) putTier(topic protocol.UUID, partition int32, s *TierState) {
	t.setProto(partKey(nsTier, topic, partition), s.Row())
}

// lineageWellFormed reports whether the segment's epochs ascend, begin at or below its base, end inside it and are not younger than its
// writer.
func lineageWellFormed(s *RemoteSegment) bool {
	if len(s.Epochs) == 0 || s.Epochs[0].Start > s.Base {
		return false
	}
	for i, e := range s.Epochs {
		if e.Epoch < 0 || e.Start < 0 || e.Start >= s.Next || e.Epoch > s.LeaderEpoch {
			return false
		}
		if i > 0 && (e.Epoch <= s.Epochs[i-1].Epoch || e.Start < s.Epochs[i-1].Start) {
			return false
		}
	}
	return true
}

// coverFrom cuts a lineage down to what covers the offsets from `base` on.
func coverFrom(epochs []EpochStart, base int64) []EpochStart {
	for len(epochs) > 1 && epochs[1].Start <= base {
		epochs = epochs[1:]
	}
	return epochs
}

// lineageAgrees reports whether the writer's log can be the continuation of what is in the tier: the epoch at its base is the tier's
// last one, or a younger one that begins where the tier ends or later.
func lineageAgrees(tier *TierState, s *RemoteSegment) bool {
	if len(tier.Epochs) == 0 {
		return true
	}
	last, at := tier.Epochs[len(tier.Epochs)-1], coverFrom(s.Epochs, s.Base)[0]
	if s.Base > tier.End { // all that is in the tier lies below log start
		return at.Epoch >= last.Epoch
	}
	return at.Epoch == last.Epoch || at.Epoch > last.Epoch && at.Start >= tier.End
}

// joinLineage appends the segment's epochs that the tier has not seen. After a gap, below which all is below log start, only
// the segment's count: an unclean election may have begun one of them at a lower offset than the tier's last.
func joinLineage(tier *TierState, s *RemoteSegment) []EpochStart {
	var out []EpochStart
	if s.Base <= tier.End {
		out = append(out, tier.Epochs...)
	}
	for _, e := range coverFrom(s.Epochs, s.Base) {
		if len(out) == 0 || e.Epoch > out[len(out)-1].Epoch {
			out = append(out, e)
		}
	}
	return out
}

// trimLineage drops the epochs that end at or below the log start. The last one stays: it is the tier's latest epoch.
func trimLineage(epochs []EpochStart, logStart int64) []EpochStart {
	return coverFrom(epochs, logStart)
}
