package replica

import (
	"varve/broker/commitlog"
	"varve/protocol"
	"varve/tiering"
)

// led is a partition at one leader epoch, as the tier sees it. When the epoch ends the metastore refuses what is done
// in its name, and the tier is told to let go.
type led struct {
	p     *partition
	log   *commitlog.Log
	epoch int32
}

var _ tiering.Partition = (*led)(nil)

// TopicID implements tiering.Partition.
func (l *led) TopicID() protocol.UUID { return l.p.id }

// Topic implements tiering.Partition.
func (l *led) Topic() string { return l.p.topic }

// Index implements tiering.Partition.
func (l *led) Index() int32 { return l.p.index }

// LeaderEpoch implements tiering.Partition.
func (l *led) LeaderEpoch() int32 { return l.epoch }

// Log implements tiering.Partition.
func (l *led) Log() *commitlog.Log { return l.log }

// LastStable implements tiering.Partition: the end of committed, decided records.
func (l *led) LastStable() int64 { return l.log.LastStable(l.p.hw.Load()) }

// TierConfig implements tiering.Partition.
func (l *led) TierConfig() tiering.TierConfig {
	r := l.p.role.Load()
	return tiering.TierConfig{
		RetentionMs: r.conf.RetentionMs, RetentionBytes: r.conf.RetentionBytes,
		LocalRetentionMs: r.conf.LocalRetentionMs, LocalRetentionBytes: r.conf.LocalRetentionBytes,
		CopyDisable: r.conf.RemoteCopyDisable || r.leaves, Left: r.leaves,
		CopyLagMs: r.conf.RemoteCopyLagMs, CopyLagBytes: r.conf.RemoteCopyLagBytes,
		UploadMaxLagMs: l.p.m.uploadMaxLagMs, SegmentBytes: int64(r.conf.SegmentBytes), IndexIntervalBytes: r.conf.IndexIntervalBytes,
		Configs: r.configs,
	}
}

// LogStartMoved implements tiering.Partition. An error leaves the local start behind the metastore's, which the next
// move or election mends; readers are turned away by the tier meanwhile.
func (l *led) LogStartMoved(off int64) {
	if off <= l.log.LogStart() {
		return
	}
	if err := l.log.SetLogStart(off); err != nil {
		l.p.m.events.Emit(PartitionFailed{Topic: l.p.topic, Partition: l.p.index, Doing: "move log start", Err: err})
		return
	}
	l.p.fetches.wake(true, true)
}

// sealed counts appended bytes and tells the tier when a segment must have been sealed. The count follows the active
// segment's size; when it says that the next segment has begun, the log is asked once.
func (p *partition) sealed(r *role, bytes int64) {
	if !r.tiered || p.segmentBytes.Add(bytes) < int64(r.conf.SegmentBytes) {
		return
	}
	if !p.asking.CompareAndSwap(false, true) {
		return
	}
	defer p.asking.Store(false)
	p.lookAtSegment(r)
}

// lookAtSegment takes the active segment's size, and nudges the tier when it is another segment than before.
func (p *partition) lookAtSegment(r *role) {
	segments := r.log.Segments()
	active := segments[len(segments)-1]
	p.segmentBytes.Store(active.SizeBytes)
	if p.segmentBase.Swap(active.Base) != active.Base {
		p.m.tier.Nudge(p.id, p.index)
	}
}
