package replica

import (
	"context"
	"errors"
	"time"

	"varve/broker/commitlog"
	"varve/metastore"
	"varve/protocol"
)

// Bounds of elections that wait for the tier.
const (
	maxTierElections   = 4 // reading from the store at one time
	tierTailDeadline   = 30 * time.Second
	minElectionBackoff = 100 * time.Millisecond
	maxElectionBackoff = 10 * time.Second
)

// stayLeader takes over what changed inside a leader epoch: configs, the in-sync set.
func (p *partition) stayLeader(r, was *role) {
	before := p.hw.Load()
	p.setRole(r)
	p.roleMu.RLock()
	p.advance(r)
	p.roleMu.RUnlock()
	p.settle(false, before)
	if r.settles() && (r.tiered != was.tiered || r.leaves != was.leaves) {
		p.m.tier.Lead(&led{p: p, log: r.log, epoch: r.leaderEpoch})
	}
}

// elect starts a leader epoch. The tier wins (DESIGN invariant 9): a log that names another epoch than the tier for an
// offset that has settled, or that ends below what has, is replaced by the tier's end, and that waits for the store.
// Since a divergence below the tier's end leaves a log that ends below it, both are one case.
func (p *partition) elect(r *role) {
	r.state, r.problem = StateElecting, ""
	p.setRole(r)
	if _, said := r.configs[remoteStorageKey]; p.count.internal || !r.conf.RemoteStorage && !said {
		p.startEpoch(r, 0, false)
		return
	}
	st, err := p.m.meta.Tier(p.id, p.index)
	if err == nil {
		err = startAboveSettled(r.log, st)
	}
	if !r.conf.RemoteStorage {
		if err != nil {
			p.fail(r, "elect", err)
			return
		}
		p.startEpoch(r, 0, false)
		return
	}
	if p.m.tier == nil {
		p.electWithoutTier(r, st, err)
		return
	}
	if err == nil && tierAgrees(r.log, st) {
		if err := takeLogStart(r.log, st); err != nil {
			p.fail(r, "elect", err)
			return
		}
		p.startEpoch(r, st.End, false)
		return
	}
	if p.life.fromTier {
		return // the one under way sees the new epoch
	}
	p.life.fromTier = true
	p.m.wg.Go(func() { p.electFromTier() })
}

// remoteStorageKey is the override that says whether a topic is tiered. It is there once a topic has been, or has left.
const remoteStorageKey = "remote.storage.enable"

// startAboveSettled lets an empty log of a topic that has left the tier begin where the tier once ended: offsets that settled
// are not given to other records, although theirs are gone.
func startAboveSettled(log *commitlog.Log, st metastore.TierState) error {
	floor := max(st.Settled, st.LogStart)
	if st.Count > 0 || log.LocalStart() < log.End() || log.End() >= floor {
		return nil
	}
	return log.StartFromTier(floor, floor, nil, nil)
}

// electWithoutTier leads a topic that is to be tiered on a broker without a tier: while nothing has settled it is like any
// other. What has settled is not to be forgotten because a line of the configuration is: the partition is not served.
func (p *partition) electWithoutTier(r *role, st metastore.TierState, err error) {
	if err == nil && st.End > st.LogStart {
		err = protocol.Errorf(protocol.KafkaStorageError, "offsets %d to %d are in a tier: set varve.tier.url to where it is", st.LogStart, st.End-1)
	}
	if err != nil {
		r.retry = true // it may be told to leave the tier
		p.fail(r, "elect", err)
		return
	}
	p.startEpoch(r, 0, false)
}

// tierAgrees says whether the log continues what has settled. An empty log that starts above the tier's log start is what
// a crash in the midst of an election from the tier leaves.
func tierAgrees(log *commitlog.Log, st metastore.TierState) bool {
	if log.End() < max(st.End, st.LogStart) {
		return false
	}
	if st.LogStart < st.End && st.LogStart < log.LogStart() && log.End() == st.End && log.LocalStart() == log.End() {
		return false
	}
	from, to := max(st.LogStart, log.LocalStart()), min(st.End, log.End())
	_, differs := diverges(tierLineage(st), log.Epochs(), from, to)
	return !differs
}

// takeLogStart makes the metastore's log start the log's. A higher one of the log counts unless it is the local start and what
// lies below is in the tier: then its checkpoint was lost.
func takeLogStart(log *commitlog.Log, st metastore.TierState) error {
	switch have := log.LogStart(); {
	case st.LogStart > have:
		return log.SetLogStart(st.LogStart)
	case st.LogStart < have && have == log.LocalStart() && have <= st.End:
		return log.LowerLogStart(st.LogStart)
	}
	return nil
}

// electFromTier repeats the election until the tier has answered or the target has changed.
func (p *partition) electFromTier() {
	ctx := p.m.runCtx
	for wait := minElectionBackoff; ; wait = min(2*wait, maxElectionBackoff) {
		over, err := p.tryTier(ctx)
		if over {
			return
		}
		p.m.events.Emit(ElectionWaits{Topic: p.topic, Partition: p.index, Err: err})
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// tryTier asks the tier for its end and starts the epoch there.
func (p *partition) tryTier(ctx context.Context) (over bool, err error) {
	select {
	case p.m.tierElections <- struct{}{}:
		defer func() { <-p.m.tierElections }()
	case <-ctx.Done():
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, tierTailDeadline)
	defer cancel()
	next, epochs, snapshot, err := p.m.tier.Tail(ctx, p.id, p.index)
	p.applyMu.Lock()
	defer p.applyMu.Unlock()
	r := *p.role.Load()
	if _, leads := p.target.leadsAt(p.m.nodeID); !leads || r.state != StateElecting || r.gone || !r.tiered {
		p.life.fromTier = false
		return true, nil
	}
	if err == nil {
		err = p.startFromTier(&r, next, epochs, snapshot)
	}
	if err != nil {
		r.problem = "waits for the tier: " + err.Error()
		p.setRole(&r)
		return false, err
	}
	p.life.fromTier = false
	return true, nil
}

func (p *partition) startFromTier(r *role, next int64, epochs []commitlog.EpochStart, snapshot []byte) error {
	st, err := p.m.meta.Tier(p.id, p.index)
	if err != nil {
		return err
	}
	if next != st.End {
		return protocol.Errorf(protocol.NotLeaderOrFollower, "the tier's end moved from %d to %d", next, st.End) // asked again
	}
	if next < st.LogStart {
		next, snapshot = st.LogStart, nil // the state is that of an earlier offset: who goes on from there looks out of order
	}
	p.life.lostBelow = max(p.life.lostBelow, p.hw.Load()) // what was readable here and is not in the tier
	if err := r.log.StartFromTier(next, st.LogStart, epochs, snapshot); err != nil {
		return err
	}
	p.startEpoch(r, st.End, true)
	return nil
}

// startEpoch begins to serve. What has settled below settled is committed by definition.
func (p *partition) startEpoch(r *role, settled int64, fromTier bool) {
	end := r.log.End()
	if err := r.log.AssignEpoch(r.leaderEpoch, end); err != nil {
		p.fail(r, "elect", err)
		return
	}
	if p.life.lostBelow > end || p.life.vanished {
		p.m.report(LostRange{Topic: p.topic, TopicID: p.id, Partition: p.index, From: end, To: max(p.life.lostBelow, end), At: p.m.now()})
	}
	p.life.lostBelow, p.life.vanished = -1, false
	next := *r // r itself can be seen already
	r = &next
	r.state, r.problem, r.epochStart = StateLeader, "", end
	hw := max(min(p.hw.Load(), end), r.log.LogStart(), min(settled, end))
	p.setWatermark(r.log, hw)
	p.setRole(r)
	p.roleMu.RLock()
	p.advance(r)
	p.roleMu.RUnlock()
	p.settle(false, -1)
	if r.settles() {
		p.m.tier.Lead(&led{p: p, log: r.log, epoch: r.leaderEpoch})
	}
	p.m.events.Emit(LeaderStarted{
		Topic: p.topic, TopicID: p.id, Partition: p.index, LeaderEpoch: r.leaderEpoch,
		LogStart: r.log.LogStart(), Start: end, FromTier: fromTier,
	})
}

// fail takes a replica whose log does not work out of service, until the next start unless it may be tried again.
func (p *partition) fail(r *role, doing string, err error) {
	failed := *r
	p.off(&failed, doing, err)
	p.setRole(&failed)
}

// off makes a role that is not stored yet offline. What failed for lack of room is tried again by housekeeping; it is told of
// by whoever watches the disk.
func (p *partition) off(r *role, doing string, err error) {
	var room *commitlog.NoRoomError
	r.noRoom = errors.As(err, &room)
	if !r.noRoom {
		p.m.events.Emit(PartitionFailed{Topic: p.topic, Partition: p.index, Doing: doing, Err: err})
	} else {
		p.m.wantRetry()
	}
	r.state, r.problem = StateOffline, err.Error()
}

// report keeps a lost range for the status and tells of it.
func (m *Manager) report(l LostRange) {
	m.lostMu.Lock()
	if len(m.lost) == maxLostRanges {
		m.lost = m.lost[1:]
	}
	m.lost = append(m.lost, l)
	m.lostMu.Unlock()
	m.events.Emit(OffsetsLost{l})
}
