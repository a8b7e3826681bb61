package tiering

import (
	"container/heap"
	"time"

	"varve/broker/commitlog"
	"varve/metastore"
)

// backlog is what of a partition waits to be uploaded: sealed, committed, and not held
// back by remote.copy.lag.
type backlog struct {
	Segments int64
	Bytes    int64
	Since    time.Time // when the oldest of them was sealed
	MaxLagMs int64     // varve.tier.upload.max.lag.ms
}

// What a backlog buys in the queue. A partition is served as if it had come that much
// earlier; so one with less waits for at most maxHeadStart of others, and none for ever.
const (
	bytesPerSecondOfHeadStart = 4 << 20
	maxHeadStart              = 10 * time.Minute
)

func (b backlog) headStart(now time.Time) time.Duration {
	d := time.Duration(b.Bytes/bytesPerSecondOfHeadStart) * time.Second
	if b.Segments > 0 {
		d += max(0, now.Sub(b.Since))
	}
	return min(d, maxHeadStart)
}

// uploadQueue is a heap of partitions, the one that is due first on top.
type uploadQueue []*part

func (q uploadQueue) Len() int           { return len(q) }
func (q uploadQueue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q uploadQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].slot, q[j].slot = i, j
}

// Push implements heap.Interface.
func (q *uploadQueue) Push(x any) {
	pt := x.(*part)
	pt.slot = len(*q)
	*q = append(*q, pt)
}

// Pop implements heap.Interface.
func (q *uploadQueue) Pop() any {
	last := len(*q) - 1
	pt := (*q)[last]
	(*q)[last] = nil
	*q, pt.slot = (*q)[:last], -1
	return pt
}

func (m *Manager) enqueueLocked(pt *part) {
	now := m.o.Now()
	switch {
	case pt.task != nil:
		pt.again = true
		return
	case pt.slot >= 0: // its backlog may have grown
	case now.Before(pt.notBefore):
		return
	default:
		pt.since = now
		heap.Push(&m.queue, pt)
	}
	pt.due = pt.since.Add(-pt.waits.headStart(now))
	heap.Fix(&m.queue, pt.slot)
	m.wakeUp()
}

// lookForWork measures what waits in each led partition and queues those in which
// something does.
func (m *Manager) lookForWork() {
	for _, pt := range m.led() {
		b, err := m.measure(pt)
		m.mu.Lock()
		pt.waits = b
		if m.parts[pt.key] == pt && (err != nil || b.Segments > 0 || pt.swept != pt.doubts) {
			m.enqueueLocked(pt)
		}
		m.lookForMergeLocked(pt)
		told := m.lagLocked(pt)
		m.mu.Unlock()
		if told != nil {
			m.o.Events.Emit(*told)
		}
	}
}

// lagFactor is how many times varve.tier.upload.max.lag.ms a sealed segment may wait
// before the partition is said to lag.
const lagFactor = 2

// lagLocked returns the event to tell when a partition has come to lag, or has caught up.
func (m *Manager) lagLocked(pt *part) *UploadLag {
	e := UploadLag{Topic: pt.name, Partition: pt.key.partition, Segments: pt.waits.Segments, Bytes: pt.waits.Bytes}
	if pt.waits.Segments > 0 {
		e.ForMs = m.o.Now().Sub(pt.waits.Since).Milliseconds()
	}
	e.Lagging = pt.waits.MaxLagMs > 0 && e.ForMs > lagFactor*pt.waits.MaxLagMs
	if e.Lagging == pt.lagging || m.parts[pt.key] != pt {
		return nil
	}
	pt.lagging = e.Lagging
	return &e
}

// led returns the partitions led now.
func (m *Manager) led() []*part {
	m.mu.Lock()
	defer m.mu.Unlock()
	parts := make([]*part, 0, len(m.parts))
	for _, pt := range m.parts {
		parts = append(parts, pt)
	}
	return parts
}

// measure adds up what waits. The error is the metastore's.
func (m *Manager) measure(pt *part) (backlog, error) {
	st, err := m.o.Meta.Tier(pt.key.topic, pt.key.partition)
	if err != nil {
		return backlog{}, err
	}
	return waiting(pt.Log().Segments(), st, pt.TierConfig(), pt.LastStable(), m.o.Now()), nil
}

// waiting is measure without the asking.
func waiting(segs []commitlog.SegmentInfo, st metastore.TierState, cfg TierConfig, lastStable int64, now time.Time) (b backlog) {
	b.MaxLagMs = cfg.UploadMaxLagMs
	if cfg.CopyDisable {
		return b
	}
	after := bytesFrom(segs)
	for i, s := range segs {
		after -= s.SizeBytes
		if s.Next <= max(st.End, st.LogStart) {
			continue
		}
		if !s.Sealed || s.Next > lastStable || !cfg.copyDue(s, after, now.UnixMilli()) {
			break
		}
		if b.Segments == 0 {
			b.Since = now
			if i+1 < len(segs) && segs[i+1].CreatedMs > 0 {
				b.Since = time.UnixMilli(segs[i+1].CreatedMs)
			}
		}
		b.Segments++
		b.Bytes += s.SizeBytes
	}
	return b
}

func bytesFrom(segs []commitlog.SegmentInfo) (n int64) {
	for _, s := range segs {
		n += s.SizeBytes
	}
	return n
}

// copyDue says whether a sealed segment, with so many local bytes after it, is to be
// uploaded now (KIP-1241, RemoteLogManager.candidateLogSegments): when one of the two
// lags is 0, or one is reached, or its newest record claims to be from the future.
// Negative ones are without bound: two such mean never.
func (c TierConfig) copyDue(s commitlog.SegmentInfo, bytesAfter, nowMs int64) bool {
	if c.CopyLagMs == 0 || c.CopyLagBytes == 0 {
		return true
	}
	if age := nowMs - newest(s); c.CopyLagMs > 0 && (age >= c.CopyLagMs || age < 0) {
		return true
	}
	return c.CopyLagBytes > 0 && bytesAfter >= c.CopyLagBytes
}
