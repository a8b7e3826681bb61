package metastore

import (
	"fmt"
	"slices"
	"strings"

	"varve/metastore/metapb"
	"varve/protocol"
)

// MaxSegmentIDs bounds the ids in one command.
const MaxSegmentIDs = 1000

// segmentStart writes the row that must stand before the first byte of the object does.
func (t *tx) segmentStart(c *metapb.SegmentStart) (Result, error) {
	seg, err := segmentOf(c.GetSegment())
	if err != nil {
		return Result{}, err
	}
	if len(seg.Location) == 0 || len(seg.Location) > maxLocationBytes {
		return Result{}, malformed("location of %d bytes", len(seg.Location))
	}
	if row, ok := t.findRow(&seg); ok {
		if row.seg.State == SegStarted && sameClaim(&row.seg, &seg) {
			return Result{State: SegStarted}, nil
		}
		return Result{State: row.seg.State}, protocol.Errorf(protocol.InvalidRequest, "segment %s is in %s", seg.ID, row.seg.State)
	}
	if t.get(topicKey(nsByID, seg.ID)) != nil {
		return Result{}, protocol.Errorf(protocol.InvalidRequest, "segment %s belongs to another partition", seg.ID)
	}
	if err := t.leads(&seg); err != nil {
		return Result{}, err
	}
	if t.leftTier(seg.TopicID) {
		return Result{}, protocol.Errorf(protocol.InvalidRequest, "topic %s was taken out of the tier", seg.TopicID)
	}
	if seg.DeadlineMs > 0 && seg.StartTimeMs > 0 {
		seg.DeadlineMs += t.timeMs - seg.StartTimeMs // as long after the start as by the writer's clock, which may be wrong
	}
	seg.State, seg.StartTimeMs, seg.StateTimeMs = SegStarted, t.timeMs, t.timeMs
	if seg.DeadlineMs == 0 {
		seg.DeadlineMs = seg.StartTimeMs + DefaultUploadDeadlineMs
	}
	if d := seg.DeadlineMs - seg.StartTimeMs; d < 0 || d > maxDeadlineDeltaMs {
		return Result{}, protocol.Errorf(protocol.InvalidRequest, "upload deadline %d ms after the start", d)
	}
	loc, err := t.intern(seg.Location)
	if err != nil {
		return Result{}, err
	}
	t.putRow(segRow{seg: seg, loc: loc})
	return Result{State: SegStarted}, nil
}

// leads checks that the writer leads the partition at its leader epoch.
func (t *tx) leads(seg *RemoteSegment) error {
	p, ok := t.img.Partition(seg.TopicID, seg.Partition)
	if !ok {
		return protocol.Errorf(protocol.UnknownTopicID, "no partition %s-%d", seg.TopicID, seg.Partition)
	}
	if p.Leader != seg.Broker || p.LeaderEpoch != seg.LeaderEpoch {
		return protocol.Errorf(protocol.FencedLeaderEpoch, "broker %d at leader epoch %d; the leader is %d at %d", seg.Broker, seg.LeaderEpoch, p.Leader, p.LeaderEpoch)
	}
	return nil
}

// started finds the row that a FINISHED or REPLACE is about. done says that there is nothing to do but to answer r, err.
func (t *tx) started(seg *RemoteSegment) (row segRow, r Result, err error, done bool) {
	row, ok := t.findRow(seg)
	switch {
	case !ok:
		return row, Result{}, protocol.Errorf(protocol.ResourceNotFound, "no segment %s in %s-%d", seg.ID, seg.TopicID, seg.Partition), true
	case row.seg.State != SegStarted:
		return row, Result{State: row.seg.State}, nil, true
	case !sameClaim(&row.seg, seg):
		return row, Result{State: SegStarted}, protocol.Errorf(protocol.InvalidRequest, "segment %s differs from what was started", seg.ID), true
	case !lineageWellFormed(seg):
		return row, Result{State: SegStarted}, protocol.Errorf(protocol.InvalidRequest, "leader epochs of segment %s do not cover it", seg.ID), true
	}
	if err := t.journalTakesSegments(); err != nil {
		return row, Result{State: SegStarted}, err, true
	}
	return row, Result{}, nil, false
}

func (t *tx) segmentFinish(c *metapb.SegmentFinish) (Result, error) {
	seg, err := segmentOf(c.GetSegment())
	if err != nil {
		return Result{}, err
	}
	row, r, err, done := t.started(&seg)
	if done {
		return r, err
	}
	tier := t.tier(seg.TopicID, seg.Partition)
	if why := t.refuseFinish(&row.seg, &seg, &tier); why != "" {
		return t.refuse(row, &tier, why), nil
	}
	finished := t.finish(row, &seg, &tier)
	tier.Epochs = joinLineage(&tier, &seg)
	tier.End = seg.Next
	tier.Settled = max(tier.Settled, tier.End)
	t.putTier(seg.TopicID, seg.Partition, &tier)
	t.record(&metapb.JournalRecord{Body: &metapb.JournalRecord_Finished{Finished: finished}})
	return Result{State: SegFinished}, nil
}

// refuseFinish says why a segment cannot be finished, "" when it can (invariant 7).
func (t *tx) refuseFinish(row, seg *RemoteSegment, tier *TierState) string {
	if err := t.leads(row); err != nil {
		return protocol.MessageOf(err)
	}
	if t.leftTier(seg.TopicID) {
		return "the topic was taken out of the tier"
	}
	if seg.Base != tier.End && (seg.Base < tier.End || seg.Base > tier.LogStart) {
		return fmt.Sprintf("base %d, but the tier ends at %d and the log starts at %d", seg.Base, tier.End, tier.LogStart)
	}
	if !lineageAgrees(tier, seg) {
		return fmt.Sprintf("leader epochs %v contradict the tier's %v up to %d", seg.Epochs, tier.Epochs, tier.End)
	}
	return ""
}

func (t *tx) segmentReplace(c *metapb.SegmentReplace) (Result, error) {
	seg, err := segmentOf(c.GetSegment())
	if err != nil {
		return Result{}, err
	}
	ids, ok := uuidsOf(c.Old)
	if !ok || len(ids) == 0 || len(ids) > MaxSegmentIDs {
		return Result{}, malformed("%d segments to replace", len(c.Old))
	}
	row, r, err, done := t.started(&seg)
	if done {
		return r, err
	}
	tier := t.tier(seg.TopicID, seg.Partition)
	old := t.finishedIn(&seg)
	why := ""
	if err := t.leads(&row.seg); err != nil {
		why = protocol.MessageOf(err)
	} else if t.leftTier(seg.TopicID) {
		why = "the topic was taken out of the tier"
	} else if !equalCover(old, ids, &seg) {
		why = fmt.Sprintf("[%d, %d) is not exactly what the %d old segments cover", seg.Base, seg.Next, len(ids))
	}
	if why != "" {
		return t.refuse(row, &tier, why), nil
	}
	t.startDelete(old, tier.LogStart)
	for _, o := range old {
		tier.Bytes -= o.seg.LogBytes
		tier.Count--
	}
	finished := t.finish(row, &seg, &tier)
	t.putTier(seg.TopicID, seg.Partition, &tier)
	t.record(&metapb.JournalRecord{Body: &metapb.JournalRecord_Replaced{Replaced: &metapb.SegmentReplace{Old: c.Old, Segment: finished}}})
	return Result{State: SegFinished}, nil
}

// equalCover reports whether rows are exactly the segments ids and together cover what seg claims, without a gap.
func equalCover(rows []segRow, ids []protocol.UUID, seg *RemoteSegment) bool {
	if len(rows) != len(ids) {
		return false
	}
	at := seg.Base
	for _, r := range rows {
		if r.seg.Base != at || !slices.Contains(ids, r.seg.ID) || r.seg.Generation >= seg.Generation {
			return false
		}
		at = r.seg.Next
	}
	return at == seg.Next
}

// finish turns a STARTED row into a FINISHED one and returns what the journal says of it.
func (t *tx) finish(row segRow, seg *RemoteSegment, tier *TierState) *metapb.Segment {
	t.dropRow(row)
	s := row.seg
	s.State, s.StateTimeMs = SegFinished, t.timeMs
	s.FirstTimestamp, s.ObjectBytes, s.LogBytes = seg.FirstTimestamp, seg.ObjectBytes, seg.LogBytes
	s.IndexOff, s.IndexLen, s.HasTxns = seg.IndexOff, seg.IndexLen, seg.HasTxns
	t.putRow(segRow{seg: s, loc: row.loc})
	tier.Bytes += s.LogBytes
	tier.Count++
	s.Location, s.Epochs = t.locations[row.loc], coverFrom(seg.Epochs, seg.Base)
	return s.toProto()
}

func (t *tx) refuse(row segRow, tier *TierState, why string) Result {
	t.startDelete([]segRow{row}, tier.LogStart)
	return Result{State: SegDeleteStarted, Reason: why}
}

// startDelete moves rows to DELETE_STARTED and announces it.
func (t *tx) startDelete(rows []segRow, logStart int64) {
	if len(rows) == 0 {
		return
	}
	rec := &metapb.DeleteStarted{LogStart: logStart}
	for _, row := range rows {
		t.dropRow(row)
		row.seg.NeverFinished = row.seg.State == SegStarted
		row.seg.State, row.seg.StateTimeMs, row.seg.DeleteIndex = SegDeleteStarted, t.timeMs, t.index
		t.putRow(row)
		row.seg.Location = t.locations[row.loc]
		rec.Segments = append(rec.Segments, row.seg.toProto())
	}
	t.record(&metapb.JournalRecord{Body: &metapb.JournalRecord_DeleteStarted{DeleteStarted: rec}})
}

func (t *tx) segmentsDelete(c *metapb.SegmentsDelete) (Result, error) {
	topic, ok := uuidOf(c.GetTopicId())
	ids, ok2 := uuidsOf(c.GetIds())
	if !ok || !ok2 {
		return Result{}, malformed("ids of segments to delete")
	}
	if len(ids) > MaxSegmentIDs {
		return Result{}, protocol.Errorf(protocol.InvalidRequest, "%d segments in one command, at most %d", len(ids), MaxSegmentIDs)
	}
	if _, ok := t.img.TopicByID(topic); !ok {
		return Result{}, nil // its deletion takes care of all rows
	}
	p, ok := t.img.Partition(topic, c.Partition)
	if !ok {
		return Result{}, protocol.Errorf(protocol.UnknownTopicOrPartition, "no partition %s-%d", topic, c.Partition)
	}
	if p.LeaderEpoch != c.LeaderEpoch {
		return Result{}, protocol.Errorf(protocol.FencedLeaderEpoch, "leader epoch %d, not %d", p.LeaderEpoch, c.LeaderEpoch)
	}
	if err := t.journalTakesSegments(); err != nil {
		return Result{}, err
	}
	tier := t.tier(topic, c.Partition)
	left := t.leftTier(topic)
	rows, missing := t.deletable(topic, c.Partition, ids, tier.LogStart, left)
	if missing > 0 {
		return Result{}, protocol.Errorf(protocol.InvalidRequest, "%d of %d segments are unknown or hold offsets from log start %d on", missing, len(ids), tier.LogStart)
	}
	if len(rows) == 0 {
		return Result{}, nil
	}
	for _, row := range rows {
		if row.seg.State == SegFinished {
			tier.Bytes -= row.seg.LogBytes
			tier.Count--
			if row.seg.Next > tier.LogStart {
				tier.End = min(tier.End, max(row.seg.Base, tier.LogStart))
			}
		}
	}
	if left {
		tier.cutLineage()
	}
	t.startDelete(rows, tier.LogStart)
	t.putTier(topic, c.Partition, &tier)
	return Result{}, nil
}

// cutLineage drops the epochs of offsets that are no longer in the tier: what comes back later has its own.
func (s *TierState) cutLineage() {
	if s.Count == 0 {
		s.Epochs = nil
	}
	s.Epochs = slices.DeleteFunc(s.Epochs, func(e EpochStart) bool { return e.Start >= s.End })
}

// leftTier reports whether the topic's own configs say that it is not tiered. Topics that never were need not say so, but
// have no rows either.
func (t *tx) leftTier(id protocol.UUID) bool {
	topic, ok := t.img.TopicByID(id)
	if !ok {
		return false
	}
	v, said := topic.Configs["remote.storage.enable"]
	return said && !strings.EqualFold(strings.TrimSpace(v), "true")
}

// deletable finds the rows of ids that are STARTED, or FINISHED and wholly below log start; missing counts the ids that are neither of
// these nor already in DELETE_STARTED. Of a topic that left the tier all FINISHED ones may go, but from the end on, so that no gap is left.
func (t *tx) deletable(topic protocol.UUID, partition int32, ids []protocol.UUID, logStart int64, left bool) (rows []segRow, missing int) {
	want := map[protocol.UUID]bool{}
	for _, id := range ids {
		if want[id] {
			continue
		}
		row, ok := t.findPending(&RemoteSegment{ID: id, TopicID: topic, Partition: partition})
		switch {
		case !ok:
			want[id] = true
		case row.seg.State == SegStarted && !slices.ContainsFunc(rows, func(r segRow) bool { return r.seg.ID == id }):
			rows = append(rows, row)
		}
	}
	if len(want) == 0 {
		return rows, 0
	}
	above, gap := false, false // a row above log start goes; one after it would stay
	t.scan(partKey(nsFinished, topic, partition), nil, func(key, value []byte) bool {
		row, err := t.decode(key, value)
		if err != nil || row.seg.Next > logStart && !left {
			t.fail(err)
			return false
		}
		if want[row.seg.ID] {
			delete(want, row.seg.ID)
			rows = append(rows, row)
			above = above || row.seg.Next > logStart
		} else if above {
			gap = true
			return false
		}
		return len(want) > 0 || above
	})
	if gap {
		return nil, len(ids)
	}
	return rows, len(want)
}

func (t *tx) segmentsGone(c *metapb.SegmentsGone) (Result, error) {
	ids, ok := uuidsOf(c.GetIds())
	if !ok || len(ids) > MaxSegmentIDs {
		return Result{}, malformed("%d segments gone", len(c.GetIds()))
	}
	var r Result
	for _, id := range ids {
		at := t.get(topicKey(nsByID, id))
		if at == nil {
			continue
		}
		topic, partition, ok := splitPartKey(at)
		if !ok {
			t.fail(&protocol.CorruptionError{Where: "metastore segment index", What: "row too short"})
			break
		}
		row, ok := t.findPending(&RemoteSegment{ID: id, TopicID: topic, Partition: partition})
		if !ok || row.seg.State != SegDeleteStarted || row.seg.NeverFinished && t.timeMs <= row.seg.DeadlineMs {
			r.Kept++
			continue
		}
		t.dropRow(row)
	}
	return r, nil
}

func (t *tx) advanceLogStart(c *metapb.AdvanceLogStart) (Result, error) {
	topic, ok := uuidOf(c.GetTopicId())
	if !ok {
		return Result{}, malformed("topic id")
	}
	if c.Offset < 0 {
		return Result{}, protocol.Errorf(protocol.InvalidRequest, "log start %d", c.Offset)
	}
	p, ok := t.img.Partition(topic, c.Partition)
	if !ok {
		return Result{}, protocol.Errorf(protocol.UnknownTopicID, "no partition %s-%d", topic, c.Partition)
	}
	if p.LeaderEpoch != c.LeaderEpoch {
		return Result{}, protocol.Errorf(protocol.FencedLeaderEpoch, "leader epoch %d, not %d", p.LeaderEpoch, c.LeaderEpoch)
	}
	tier := t.tier(topic, c.Partition)
	if c.Offset <= tier.LogStart {
		return Result{}, nil
	}
	tier.LogStart = c.Offset
	tier.Epochs = trimLineage(tier.Epochs, c.Offset)
	t.putTier(topic, c.Partition, &tier)
	t.recordLogStart(topic, c.Partition, c.Offset)
	return Result{}, nil
}
