package tiering

import (
	"context"
	"errors"
	"time"

	"varve/broker/commitlog"
	"varve/metastore"
	"varve/protocol"
)

// RetainSoon wakes the loop of retention: there is something to do before its next round.
func (m *Manager) RetainSoon() {
	select {
	case m.retain <- struct{}{}:
	default:
	}
}

// retainLoop runs retention in rounds, and whenever it is woken, until ctx ends.
func (m *Manager) retainLoop(ctx context.Context) {
	t := time.NewTicker(time.Duration(m.o.TaskIntervalMs) * time.Millisecond)
	defer t.Stop()
	for {
		m.retainAll(ctx)
		select {
		case <-t.C:
		case <-m.retain:
		case <-ctx.Done():
			return
		}
	}
}

// retainAll walks over the led partitions: seals by age, moves log starts, frees
// local segments. It only talks to the local log and the metastore; when the
// latter does not answer, the rest waits for the next round.
func (m *Manager) retainAll(ctx context.Context) {
	m.mu.Lock()
	parts := make([]*part, 0, len(m.parts))
	for _, pt := range m.parts {
		parts = append(parts, pt)
	}
	m.mu.Unlock()
	m.freeEarly(ctx, parts) // before what waits for the metastore, which needs the disk too
	for _, pt := range parts {
		if ctx.Err() != nil {
			return
		}
		err := m.retainPart(ctx, pt)
		if err != nil && ctx.Err() == nil {
			m.noteRetain(pt, err)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
	}
}

func (m *Manager) noteRetain(pt *part, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pt.lastErr, pt.lastErrAt = err, m.o.Now()
}

// retainPart does one partition.
func (m *Manager) retainPart(ctx context.Context, pt *part) error {
	if pt.TierConfig().Left && !m.held(pt) {
		return m.leave(ctx, pt)
	}
	if err := m.seal(pt); err != nil {
		return err
	}
	if err := m.retainTotal(ctx, pt); err != nil {
		return err
	}
	return m.retainLocal(pt)
}

// limits is a partition's config without limits of age while the clock is not to be believed, and the time to hold them against. Those
// of size go on. A restored topic has no limits until it is released. A round may take long, so that each partition asks anew; the
// time is read first, so that it is from before a jump, or the jump shows.
func (m *Manager) limits(pt *part) (cfg TierConfig, now time.Time) {
	cfg, now = pt.TierConfig(), m.o.Now()
	if m.held(pt) {
		cfg.RetentionMs, cfg.RetentionBytes = -1, -1
	}
	if m.readClock() != nil {
		cfg.RetentionMs, cfg.LocalRetentionMs = -1, -1
	}
	return cfg, now
}

// seal rolls the active segment so that the tier does not lag by more than
// varve.tier.upload.max.lag.ms, the time between two rounds included, and when
// all of it is past local retention, so that it can be freed.
func (m *Manager) seal(pt *part) error {
	log := pt.Log()
	cfg, now := m.limits(pt)
	segs := log.Segments()
	if len(segs) == 0 {
		return nil
	}
	active := segs[len(segs)-1]
	if active.Next == active.Base {
		return nil
	}
	rolled := false
	if cfg.UploadMaxLagMs > 0 && !cfg.CopyDisable {
		maxAge := max(cfg.UploadMaxLagMs-m.o.TaskIntervalMs, cfg.UploadMaxLagMs/2)
		if now.UnixMilli()-active.CreatedMs > maxAge {
			if err := m.fail(fpRollAge); err != nil {
				return err
			}
			var err error
			if rolled, err = log.MaybeRoll(now, maxAge); err != nil {
				return err
			}
		}
	}
	if ms, _ := localLimits(cfg); !rolled && ms >= 0 && newest(active) < now.UnixMilli()-ms {
		if err := m.fail(fpLocalRoll); err != nil {
			return err
		}
		if err := log.Roll(); err != nil {
			return err
		}
		rolled = true
	}
	if rolled {
		m.Nudge(pt.key.topic, pt.key.partition)
	}
	return nil
}

// newest is the time of a local segment's newest record, or of its creation when no
// record has one.
func newest(s commitlog.SegmentInfo) int64 {
	if s.MaxTimestamp < 0 {
		return s.CreatedMs
	}
	return s.MaxTimestamp
}

// localLimits are the bounds of the local log: total retention's when nothing is
// copied any more (KIP-950).
func localLimits(cfg TierConfig) (ms, bytes int64) {
	if cfg.CopyDisable {
		return cfg.RetentionMs, cfg.RetentionBytes
	}
	return cfg.LocalRetentionMs, cfg.LocalRetentionBytes
}

// retainLocal frees local segments that are in the tier, or below log start, and
// past local retention.
func (m *Manager) retainLocal(pt *part) error {
	st, err := m.o.Meta.Tier(pt.key.topic, pt.key.partition)
	if err != nil {
		return err
	}
	cfg, now := m.limits(pt)
	settled := max(st.End, st.LogStart)
	if cfg.CopyDisable {
		settled = -1
	}
	m.tellSettled(pt, settled)
	ms, bytes := localLimits(cfg)
	cut := localCut(pt.Log().Segments(), st, ms, bytes, now.UnixMilli())
	switch {
	case cut > 0:
		_, err = m.free(pt, cut, false)
	case m.diskIsShort():
		_, err = m.freeOldest(pt) // what was uploaded just now makes room at once
	}
	return err
}

// tellSettled tells the log up to where it is in the tier, unless the partition was let go meanwhile: its log then knows that it goes
// nowhere, and nobody would tell it again.
func (m *Manager) tellSettled(pt *part, settled int64) {
	log := pt.Log()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.parts[pt.key] == pt {
		log.Settled(settled)
	}
}

// free removes local segments below cut. early: local retention would keep them.
func (m *Manager) free(pt *part, cut int64, early bool) (bytes int64, err error) {
	if err := m.fail(fpLocalFree); err != nil {
		return 0, err
	}
	bytes, err = m.freeBelow(pt, cut)
	if bytes == 0 || err != nil {
		return bytes, err
	}
	m.o.Events.Emit(LocalFreed{Topic: pt.name, Partition: pt.key.partition, Below: cut, Bytes: bytes, Early: early})
	return bytes, m.fail(fpLocalDone)
}

// freeBelow frees nothing of a topic that leaves the tier: what is local is the only copy from then on.
func (m *Manager) freeBelow(pt *part, cut int64) (bytes int64, err error) {
	m.freeMu.Lock()
	defer m.freeMu.Unlock()
	if pt.TierConfig().Left {
		return 0, nil
	}
	return pt.Log().FreeBelow(cut)
}

// freeEarly frees what is in the tier ahead of local retention while the disk is short, a segment of each partition in turn,
// oldest first (invariant 12).
func (m *Manager) freeEarly(ctx context.Context, parts []*part) {
	for progress := true; progress && m.diskIsShort() && ctx.Err() == nil; {
		progress = false
		for _, pt := range parts {
			if pt.TierConfig().Left {
				continue
			}
			bytes, err := m.freeOldest(pt)
			if err != nil {
				m.noteRetain(pt, err)
			}
			if progress = progress || bytes > 0; !m.diskIsShort() || ctx.Err() != nil {
				break
			}
		}
	}
}

// freeOldest frees the oldest local segment if the tier has it.
func (m *Manager) freeOldest(pt *part) (bytes int64, err error) {
	st, err := m.o.Meta.Tier(pt.key.topic, pt.key.partition)
	if err != nil {
		return 0, err
	}
	oldest := pt.Log().Segments()[0]
	if !oldest.Sealed || oldest.Next > max(st.End, st.LogStart) {
		return 0, nil
	}
	return m.free(pt, oldest.Next, true)
}

func (m *Manager) diskIsShort() bool { return m.o.DiskShort != nil && m.o.DiskShort() > 0 }

// localCut says below which offset local segments go. It is 0 when none does.
func localCut(segs []commitlog.SegmentInfo, st metastore.TierState, ms, bytes, nowMs int64) (cut int64) {
	var total int64
	for _, s := range segs {
		total += s.SizeBytes
	}
	for _, s := range segs {
		switch {
		case !s.Sealed:
			return cut
		case s.Next <= st.LogStart:
		case s.Next > st.End:
			return cut
		case ms >= 0 && newest(s) < nowMs-ms:
		case bytes >= 0 && total-bytes >= s.SizeBytes:
		default:
			return cut
		}
		total -= s.SizeBytes
		cut = s.Next
	}
	return cut
}

// retainTotal moves log start past segments that total retention gives up, first
// in the metastore, and then their rows to DELETE_STARTED. Objects go later, by
// collect.
func (m *Manager) retainTotal(ctx context.Context, pt *part) error {
	epoch := pt.LeaderEpoch()
	st, err := m.o.Meta.Tier(pt.key.topic, pt.key.partition)
	if err != nil {
		return err
	}
	if pt.Log().LogStart() < st.LogStart {
		pt.LogStartMoved(st.LogStart) // it stopped between the two
	}
	segs := pt.Log().Segments()
	cfg, now := m.limits(pt)
	plan := newRetentionPlan(st, segs, cfg, now.UnixMilli())
	err = m.o.Meta.SegmentsFrom(pt.key.topic, pt.key.partition, 0, plan.remote)
	if err != nil {
		return err
	}
	plan.local(segs, pt.LastStable())
	if plan.start > st.LogStart {
		if err := m.advance(ctx, pt, epoch, plan.start); err != nil {
			return err
		}
	}
	if len(plan.ids) == 0 {
		return nil
	}
	if err := m.fail(fpSegsDelete); err != nil {
		return err
	}
	if err := m.segmentsDelete(ctx, pt, epoch, plan.ids); err != nil {
		return err
	}
	return m.fail(fpSegsDone)
}

// advance moves log start: in the metastore, then at the replica.
func (m *Manager) advance(ctx context.Context, pt *part, epoch int32, off int64) error {
	if err := m.fail(fpStartAdvance); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, metaDeadline)
	defer cancel()
	if err := m.o.Meta.AdvanceLogStart(ctx, pt.key.topic, pt.key.partition, epoch, off); err != nil {
		return err
	}
	if err := m.fail(fpStartApply); err != nil {
		return err
	}
	pt.LogStartMoved(off)
	m.o.Events.Emit(LogStartMoved{Topic: pt.name, Partition: pt.key.partition, Offset: off})
	return nil
}

// retentionPlan decides, oldest first, what total retention gives up. Each byte
// counts once: the tier's, plus those of local segments that begin at or above its
// end. A segment goes by size only when what remains is still at least
// retention.bytes. The first segment that stays ends the plan.
type retentionPlan struct {
	start   int64 // new log start
	ids     []protocol.UUID
	excess  int64 // bytes above retention.bytes
	bySize  bool
	before  int64 // ms; segments whose newest record is older go
	byTime  bool
	tierEnd int64
	full    bool // reached a segment that stays, or the bound of one round
}

func newRetentionPlan(st metastore.TierState, segs []commitlog.SegmentInfo, cfg TierConfig, nowMs int64) *retentionPlan {
	p := &retentionPlan{start: st.LogStart, tierEnd: st.End, bySize: cfg.RetentionBytes >= 0, byTime: cfg.RetentionMs >= 0}
	p.before = nowMs - cfg.RetentionMs
	p.excess = st.Bytes - cfg.RetentionBytes
	for _, s := range segs {
		if s.Base >= st.End && s.Next > st.LogStart { // what lies below log start is given up already, though not yet freed
			p.excess += s.SizeBytes
		}
	}
	return p
}

// takes says whether a segment goes, and books it.
func (p *retentionPlan) takes(bytes, maxTimestamp int64) bool {
	if !(p.byTime && maxTimestamp < p.before) && !(p.bySize && p.excess >= bytes) {
		return false
	}
	p.excess -= bytes
	return true
}

// remote takes the FINISHED segments in order; false ends the walk.
func (p *retentionPlan) remote(r metastore.RemoteSegment) bool {
	ts := r.MaxTimestamp
	if ts < 0 {
		ts = r.StartTimeMs // no record has a time: the upload's
	}
	switch {
	case len(p.ids) == metastore.MaxSegmentIDs:
		p.full = true
	case r.Next <= p.start: // below log start already, by an earlier round or DeleteRecords
		p.excess -= r.LogBytes
		p.ids = append(p.ids, r.ID)
	case p.takes(r.LogBytes, ts):
		p.start = r.Next
		p.ids = append(p.ids, r.ID)
	default:
		p.full = true
	}
	return !p.full
}

// local goes on with sealed, committed segments that are not in the tier.
func (p *retentionPlan) local(segs []commitlog.SegmentInfo, lastStable int64) {
	for _, s := range segs {
		if p.full || !s.Sealed || s.Next > lastStable {
			return
		}
		if s.Next <= p.start || s.Next <= p.tierEnd {
			continue
		}
		bytes := s.SizeBytes
		if s.Base < p.tierEnd {
			bytes = 0 // partly in the tier and counted there; the other part, in nobody's count, is kept as long as can be
		}
		if !p.takes(bytes, newest(s)) {
			return
		}
		p.start = s.Next
	}
}
