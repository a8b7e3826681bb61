package replica

import (
	"context"

	"varve/broker/commitlog"
	"varve/metastore"
	"varve/protocol"
)

// noOffset is the answer when there is no such offset.
var noOffset = OffsetResult{Timestamp: -1, Offset: -1, LeaderEpoch: -1}

// ListOffset finds an offset by time or by one of the special timestamps (Partition.fetchOffsetForTimestamp). By time
// it is the first record at or after it, in the tier or in the local log. What a consumer may not see yet is no answer.
//
// Errors: those of find; FencedLeaderEpoch, UnknownLeaderEpoch, NotLeaderOrFollower; OffsetNotAvailable while the high
// watermark has not reached the start of the leader's epoch (KIP-207); RequestTimedOut when ctx, or without a deadline
// there remote.list.offsets.request.timeout.ms, ends first; InvalidRequest for an unknown special timestamp; the tier's.
func (m *Manager) ListOffset(ctx context.Context, q OffsetQuery) (OffsetResult, error) {
	at, err := m.listOffset(ctx, q)
	if protocol.CodeOf(err) == protocol.NotLeaderOrFollower &&
		m.awaitLead(ctx, m.now().Add(startGrace), q.Topic, q.TopicID, q.Partition) {
		return m.listOffset(ctx, q)
	}
	return at, err
}

func (m *Manager) listOffset(ctx context.Context, q OffsetQuery) (OffsetResult, error) {
	p, err := m.find(q.Topic, q.TopicID, q.Partition)
	if err != nil {
		return noOffset, err
	}
	r := p.role.Load()
	if err := r.fence(q.CurrentLeaderEpoch); err != nil {
		return noOffset, err
	}
	switch q.Timestamp {
	case TimestampEarliest:
		at := r.log.LogStart()
		return OffsetResult{-1, at, r.log.EpochAt(at)}, nil
	case TimestampEarliestLocal:
		at := r.log.LogStart()
		if r.tiered {
			at = max(at, r.log.LocalStart())
		}
		return OffsetResult{-1, at, r.log.EpochAt(at)}, nil
	case TimestampLatestTiered, TimestampEarliestPendingUpload:
		return p.tierOffset(r, q.Timestamp)
	}
	if _, bounded := ctx.Deadline(); !bounded && r.tiered {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, m.conf.Duration("remote.list.offsets.request.timeout.ms"))
		defer cancel()
	}
	return p.visibleOffset(ctx, r, q)
}

// visibleOffset answers what depends on how far the asker may see.
func (p *partition) visibleOffset(ctx context.Context, r *role, q OffsetQuery) (OffsetResult, error) {
	hw := p.hw.Load()
	visible := hw
	var lagging error
	switch {
	case q.ReplicaID != ConsumerID:
		visible = r.log.End()
	case r.epochStart > hw:
		lagging = protocol.Errorf(protocol.OffsetNotAvailable, "high watermark %d has not reached the start %d of leader epoch %d", hw, r.epochStart, r.leaderEpoch)
	}
	if q.ReplicaID == ConsumerID && q.ReadCommitted {
		visible = r.log.LastStable(hw)
	}
	if q.Timestamp == TimestampLatest {
		if lagging != nil {
			return noOffset, lagging
		}
		return OffsetResult{-1, visible, r.leaderEpoch}, nil
	}
	var at commitlog.TimestampOffset
	var ok bool
	var err error
	switch {
	case q.Timestamp == TimestampMax:
		at, ok, err = r.joined(func() (commitlog.TimestampOffset, bool, error) { return p.maxTimestamp(ctx, r) })
	case q.Timestamp >= 0:
		at, ok, err = r.joined(func() (commitlog.TimestampOffset, bool, error) { return p.byTimestamp(ctx, r, q.Timestamp) })
	default:
		err = protocol.Errorf(protocol.InvalidRequest, "timestamp %d", q.Timestamp)
	}
	switch {
	case err != nil:
		return noOffset, err
	case !ok || at.Offset >= visible:
		return noOffset, lagging
	}
	return OffsetResult(at), nil
}

// hasCold says whether part of the log is in the tier only.
func (r *role) hasCold() bool { return r.tiered && r.log.LocalStart() > r.log.LogStart() }

// maxJoinTries bounds how often a question to the tier and the local log is asked again because records went from the
// latter meanwhile. The last answer stands: between two tries whole segments have to settle and be freed.
const maxJoinTries = 8

// joined asks both the tier and the local log. What is freed between the two questions was in the tier too late for the
// first and is gone for the second: then both are asked again.
func (r *role) joined(ask func() (commitlog.TimestampOffset, bool, error)) (at commitlog.TimestampOffset, ok bool, err error) {
	for range maxJoinTries {
		local := r.log.LocalStart()
		if at, ok, err = ask(); err != nil || !r.tiered || r.log.LocalStart() == local {
			break
		}
	}
	return at, ok, err
}

// byTimestamp looks in the tier first: it holds the lower offsets, and where both hold a record they agree.
func (p *partition) byTimestamp(ctx context.Context, r *role, ts int64) (commitlog.TimestampOffset, bool, error) {
	if r.hasCold() {
		at, ok, err := p.m.tier.OffsetForTimestamp(ctx, p.id, p.index, ts)
		if err != nil || ok {
			return at, ok, err
		}
	}
	return r.log.OffsetForTimestamp(ts)
}

// maxTimestamp takes the larger of both, of equals the first.
func (p *partition) maxTimestamp(ctx context.Context, r *role) (commitlog.TimestampOffset, bool, error) {
	local, ok, err := r.log.MaxTimestamp()
	if err != nil || !r.hasCold() {
		return local, ok, err
	}
	cold, coldOK, err := p.m.tier.MaxTimestamp(ctx, p.id, p.index)
	if err != nil {
		return local, false, err
	}
	if coldOK && (!ok || cold.Timestamp >= local.Timestamp) {
		return cold, true, nil
	}
	return local, ok, nil
}

// tierOffset answers the two special timestamps about the tier; -1 where Kafka says so (KIP-1005, KIP-1023).
func (p *partition) tierOffset(r *role, timestamp int64) (OffsetResult, error) {
	if !r.tiered {
		return noOffset, nil
	}
	st, err := p.m.meta.Tier(p.id, p.index)
	if err != nil {
		return noOffset, err
	}
	if timestamp == TimestampEarliestPendingUpload {
		at := max(st.End, r.log.LogStart())
		return OffsetResult{-1, at, r.log.EpochAt(at)}, nil
	}
	if st.End == 0 {
		return noOffset, nil
	}
	return OffsetResult{-1, st.End - 1, p.epochAt(r, st, st.End-1)}, nil
}

// epochAt is the leader epoch of an offset, from the local lineage or else the tier's; -1 unknown.
func (p *partition) epochAt(r *role, st metastore.TierState, off int64) int32 {
	if e := r.log.EpochAt(off); e >= 0 {
		return e
	}
	e, _ := lineageAt(tierLineage(st), off)
	return e
}

// OffsetForEpoch says where a leader epoch ends: the largest epoch at or below the one asked for, with its end offset,
// -1 and -1 when none is known (Partition.lastOffsetForLeaderEpoch).
//
// Errors: those of find; FencedLeaderEpoch, UnknownLeaderEpoch, NotLeaderOrFollower.
func (m *Manager) OffsetForEpoch(q EpochQuery) (EpochEnd, error) {
	p, err := m.find(q.Topic, q.TopicID, q.Partition)
	if err != nil {
		return EpochEnd{-1, -1}, err
	}
	p.roleMu.RLock()
	defer p.roleMu.RUnlock()
	r := p.role.Load()
	if err := r.fence(q.CurrentLeaderEpoch); err != nil {
		return EpochEnd{-1, -1}, err
	}
	return p.epochEnd(r, q.Epoch), nil
}

// epochEnd looks into the local lineage. That reaches back to log start, also where records are in the tier only, unless
// its file was damaged: for epochs older than all of it the tier is asked.
func (p *partition) epochEnd(r *role, epoch int32) EpochEnd {
	found, end := r.log.EndOfEpoch(epoch)
	local := r.log.Epochs()
	if !r.tiered || len(local) == 0 || found < 0 || found >= local[0].Epoch || local[0].Start <= r.log.LogStart() {
		return EpochEnd{found, end}
	}
	st, err := p.m.meta.Tier(p.id, p.index)
	if err != nil {
		return EpochEnd{-1, -1}
	}
	return endIn(tierLineage(st), epoch, local[0])
}

// endIn finds the largest epoch at or below the one asked for in a lineage that next continues.
func endIn(lineage []commitlog.EpochStart, epoch int32, next commitlog.EpochStart) EpochEnd {
	out := EpochEnd{epoch, next.Start}
	for i, e := range lineage {
		if e.Epoch >= next.Epoch || e.Start >= next.Start {
			break
		}
		end := next.Start
		if i+1 < len(lineage) {
			end = min(end, lineage[i+1].Start)
		}
		if e.Epoch > epoch {
			if i == 0 {
				out.End = e.Start
			}
			break
		}
		out = EpochEnd{e.Epoch, end}
	}
	return out
}

// tierLineage is the tier's lineage in the log's type.
func tierLineage(st metastore.TierState) []commitlog.EpochStart {
	out := make([]commitlog.EpochStart, len(st.Epochs))
	for i, e := range st.Epochs {
		out[i] = commitlog.EpochStart{Epoch: e.Epoch, Start: e.Start}
	}
	return out
}

// lineageAt returns the epoch of an offset and where the next epoch starts; -1 when the lineage begins above it.
func lineageAt(lineage []commitlog.EpochStart, off int64) (epoch int32, next int64) {
	epoch, next = -1, int64(1<<63-1)
	for _, e := range lineage {
		if e.Start > off {
			return epoch, e.Start
		}
		epoch = e.Epoch
	}
	return epoch, next
}

// diverges says whether two lineages name different epochs for an offset in [from, to). An offset that one of them does
// not reach back to says nothing.
func diverges(a, b []commitlog.EpochStart, from, to int64) (at int64, differs bool) {
	for off := from; off < to; {
		ea, na := lineageAt(a, off)
		eb, nb := lineageAt(b, off)
		if ea >= 0 && eb >= 0 && ea != eb {
			return off, true
		}
		off = min(na, nb)
	}
	return 0, false
}
