package replica

import (
	"context"
	"time"

	"varve/broker/commitlog"
)

// maxRollCheckInterval is the longest time between two looks at segments that age.
const maxRollCheckInterval = 30 * time.Second

// localStartDeadline bounds one command to the metastore.
const localStartDeadline = 10 * time.Second

// retryInterval is the time between two tries to serve what could not be served for lack of room.
const retryInterval = time.Second

// wantRetry has housekeeping look soon at replicas that may be tried again.
func (m *Manager) wantRetry() {
	select {
	case m.retry <- struct{}{}:
	default:
	}
}

// retryAll tries those again, and says whether some are left.
func (m *Manager) retryAll() (left bool) {
	for _, p := range m.replicas() {
		if r := p.role.Load(); r.noRoom && m.logs.Offline() == nil {
			p.reconfigure()
			left = left || p.role.Load().noRoom
		}
	}
	return left
}

// housekeep rolls segments by age and deletes by retention, for all partitions in turn, until ctx ends.
func (m *Manager) housekeep(ctx context.Context) {
	retentionEvery := m.conf.Duration("log.retention.check.interval.ms")
	ticker := time.NewTicker(min(retentionEvery, maxRollCheckInterval))
	defer ticker.Stop()
	again := time.NewTimer(retryInterval)
	defer again.Stop()
	last := m.now()
	for {
		select {
		case <-ticker.C:
		case <-m.retry:
			again.Reset(retryInterval)
			continue
		case <-again.C:
			if m.retryAll() {
				m.wantRetry()
			}
			continue
		case <-ctx.Done():
			return
		}
		now := m.now()
		retain := now.Sub(last) >= retentionEvery
		if retain {
			last = now
		}
		for _, p := range m.replicas() {
			if ctx.Err() != nil {
				return
			}
			p.tidy(now, retain)
		}
	}
}

// replicas returns all replicas of this broker.
func (m *Manager) replicas() []*partition {
	var out []*partition
	for _, t := range m.hosted.Load().ids {
		for _, p := range t.partitions {
			if p != nil {
				out = append(out, p)
			}
		}
	}
	return out
}

// tidy looks after one replica. The role may change meanwhile: what is rolled or deleted is right for any role.
func (p *partition) tidy(now time.Time, retain bool) {
	r := p.role.Load()
	if r.log == nil || r.state == StateOffline {
		return
	}
	rolled, err := r.log.MaybeRoll(now, 0)
	if err == nil && rolled && r.leads() && r.tiered {
		p.lookAtSegment(r)
	}
	if err == nil && !r.tiered {
		err = p.startLocally(r)
	}
	if err == nil && retain && !r.tiered {
		err = p.retain(r, now)
	}
	if err != nil {
		p.m.events.Emit(PartitionFailed{Topic: p.topic, Partition: p.index, Doing: "retention", Err: err})
	}
}

// startLocally tells the metastore where the log of a topic starts that has left the tier on a broker without one: what is
// there does not come back with the tier. Where there is a tier it does that itself.
func (p *partition) startLocally(r *role) error {
	if _, said := r.configs[remoteStorageKey]; !said || !r.leads() || p.m.tier != nil || r.conf.RemoteStorage {
		return nil
	}
	start := r.log.LogStart()
	if st, err := p.m.meta.Tier(p.id, p.index); err != nil || st.LogStart >= start || st.Count == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(p.m.runCtx, localStartDeadline)
	defer cancel()
	return p.m.meta.AdvanceLogStart(ctx, p.id, p.index, r.leaderEpoch, start)
}

// retain deletes what is past retention from a log that is not tiered: whole segments, oldest first, below the high
// watermark, up to the first that stays (UnifiedLog.deleteOldSegments). With an active segment that is past its time it
// rolls first.
func (p *partition) retain(r *role, now time.Time) error {
	segments := r.log.Segments()
	e := expiry{nowMs: now.UnixMilli(), logStart: r.log.LogStart(), hw: p.hw.Load(), timeMs: -1, bytes: -1}
	if r.conf.CleanupDelete {
		e.bytes = r.conf.RetentionBytes
		if p.m.clockAgrees() {
			e.timeMs = r.conf.RetentionMs
		}
	}
	cut, n := e.cut(segments)
	if n == 0 {
		return nil
	}
	if !segments[n-1].Sealed {
		if err := r.log.Roll(); err != nil {
			return err
		}
	}
	if cut > e.logStart {
		if err := r.log.SetLogStart(cut); err != nil {
			return err
		}
		p.fetches.wake(true, true)
	}
	freed, err := r.log.FreeBelow(cut)
	if err == nil {
		p.m.events.Emit(SegmentsExpired{Topic: p.topic, Partition: p.index, LogStart: cut, FreedBytes: freed})
	}
	return err
}

// expiry decides what retention deletes. Limits of -1 are none.
type expiry struct {
	nowMs        int64
	logStart, hw int64
	timeMs       int64
	bytes        int64
}

// cut returns how many segments go, and the offset after them.
func (e expiry) cut(segments []commitlog.SegmentInfo) (off int64, n int) {
	var size int64
	for _, s := range segments {
		size += s.SizeBytes
	}
	for _, s := range segments {
		if s.SizeBytes == 0 && !s.Sealed || s.Next > e.hw || !e.expired(s, size) {
			break
		}
		size -= s.SizeBytes
		off, n = s.Next, n+1
	}
	return off, n
}

func (e expiry) expired(s commitlog.SegmentInfo, size int64) bool {
	newest := s.MaxTimestamp
	if newest < 0 {
		newest = s.CreatedMs
	}
	switch {
	case s.Sealed && s.Next <= e.logStart:
		return true
	case e.timeMs >= 0 && e.nowMs-newest > e.timeMs:
		return true
	}
	return e.bytes >= 0 && size-e.bytes >= s.SizeBytes
}
