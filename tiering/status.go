package tiering

import (
	"cmp"
	"slices"

	"varve/metastore"
)

// Status tells how all led partitions have settled, ordered by topic and partition.
func (m *Manager) Status() Status {
	s := Status{Location: m.o.Store.String(), Cache: m.cache.status()}
	if m.o.Counters != nil {
		s.Store = m.o.Counters.Snapshot()
	}
	s.Cache.MemoryBytes = m.mem.usedBytes()
	m.mu.Lock()
	parts := make([]PartitionStatus, 0, len(m.parts))
	leads := make([]*part, 0, len(m.parts))
	for _, pt := range m.parts {
		ps := PartitionStatus{Topic: pt.name, TopicID: pt.key.topic, Partition: pt.key.partition}
		ps.LagSegments = pt.waits.Segments
		if pt.waits.Segments > 0 {
			ps.LagMs = max(0, m.o.Now().Sub(pt.waits.Since).Milliseconds())
		}
		if pt.lastErr != nil {
			ps.LastError, ps.LastErrorMs = pt.lastErr.Error(), pt.lastErrAt.UnixMilli()
		}
		parts, leads = append(parts, ps), append(leads, pt)
	}
	for _, p := range m.scrubbed {
		if p.EndedMs != 0 {
			s.Scrub = append(s.Scrub, p)
		}
	}
	s.Errors = errorTexts(m.ownerErr, m.gate.problem(), m.sweepErr, m.clockErr, m.gcErr, m.journalErr, m.snapErr, m.restoreErr)
	m.mu.Unlock()
	for i, pt := range leads {
		m.describe(&parts[i], pt)
	}
	slices.SortFunc(parts, func(a, b PartitionStatus) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	s.Partitions = parts
	return s
}

func errorTexts(errs ...error) (out []string) {
	for _, err := range errs {
		if err != nil {
			out = append(out, err.Error())
		}
	}
	return out
}

// describe fills in what the log and the metastore know.
func (m *Manager) describe(ps *PartitionStatus, pt *part) {
	st, err := m.o.Meta.Tier(pt.key.topic, pt.key.partition)
	if err == nil {
		ps.LogStart, ps.TierStart, ps.TierEnd, ps.Segments, ps.Bytes = st.LogStart, st.End, st.End, st.Count, st.Bytes
		err = m.o.Meta.SegmentsFrom(pt.key.topic, pt.key.partition, st.LogStart, func(r metastore.RemoteSegment) bool {
			ps.TierStart = max(r.Base, st.LogStart)
			return false
		})
	}
	log := pt.Log()
	ps.LocalStart, ps.LocalEnd, ps.LocalBytes = log.LocalStart(), log.End(), log.SizeBytes()
	for _, s := range log.Segments() {
		if s.Next > ps.TierEnd {
			ps.LagBytes += s.SizeBytes
		}
	}
	ps.LagOffsets = max(0, ps.LocalEnd-max(ps.TierEnd, ps.LocalStart))
	if err != nil && ps.LastError == "" {
		ps.LastError, ps.LastErrorMs = err.Error(), m.o.Now().UnixMilli()
	}
}
