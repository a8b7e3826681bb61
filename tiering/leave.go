package tiering

import (
	"context"

	"varve/metastore"
	"varve/protocol"
)

// leave takes what is left of a partition out of the tier, after remote.storage.enable was turned off (KIP-950): log start jumps
// to the first local offset, attempts and segments go to DELETE_STARTED, those with readable offsets from the end on, and
// their objects go after the delete delay like all others. Local data is the only copy from then on, so it is made durable
// first. Each step may be the last before a crash: whoever leads then begins again from what the metastore says. Once nothing
// is left the partition is no longer looked after.
func (m *Manager) leave(ctx context.Context, pt *part) error {
	epoch, log := pt.LeaderEpoch(), pt.Log()
	m.freeMu.Lock() // what was freed before is seen, and nothing is freed after
	start := max(log.LogStart(), log.LocalStart())
	left := pt.TierConfig().Left
	m.freeMu.Unlock()
	if !left {
		return nil // it came back: the local start may have moved with what went up since
	}
	st, err := m.o.Meta.Tier(pt.key.topic, pt.key.partition)
	if err != nil {
		return err
	}
	if st.Count > 0 {
		if err := log.Flush(); err != nil {
			return err
		}
	}
	if start > st.LogStart {
		err = m.advance(ctx, pt, epoch, start)
	} else {
		pt.LogStartMoved(st.LogStart) // it stopped between the two
	}
	if err != nil {
		return err
	}
	if err := m.retire(ctx, pt); err != nil {
		return err
	}
	for {
		ids, err := m.leaving(pt)
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			break
		}
		if err := m.fail(fpSegsDelete); err != nil {
			return err
		}
		if err := m.segmentsDelete(ctx, pt, epoch, ids); err != nil {
			return err
		}
		if err := m.fail(fpSegsDone); err != nil {
			return err
		}
	}
	if st.Count > 0 {
		m.o.Events.Emit(TierLeft{Topic: pt.name, Partition: pt.key.partition})
	}
	m.left(pt)
	return nil
}

// leaving returns the segments that go next: those below log start, oldest first, then the others from the end.
func (m *Manager) leaving(pt *part) (ids []protocol.UUID, err error) {
	st, err := m.o.Meta.Tier(pt.key.topic, pt.key.partition)
	if err != nil || st.Count == 0 {
		return nil, err
	}
	var last []protocol.UUID // a ring of the newest
	n := 0
	err = m.o.Meta.SegmentsFrom(pt.key.topic, pt.key.partition, 0, func(r metastore.RemoteSegment) bool {
		if r.Next <= st.LogStart {
			ids = append(ids, r.ID)
			return len(ids) < metastore.MaxSegmentIDs
		}
		if len(ids) > 0 {
			return false
		}
		if len(last) < metastore.MaxSegmentIDs {
			last = append(last, r.ID)
		} else {
			last[n%metastore.MaxSegmentIDs] = r.ID
		}
		n++
		return true
	})
	if len(ids) == 0 {
		ids = last
	}
	return ids, err
}

// left lets go of a partition that has left the tier, unless it is led anew or has come back meanwhile.
func (m *Manager) left(pt *part) {
	if !pt.TierConfig().Left {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.parts[pt.key] == pt {
		m.dropLocked(pt)
	}
}
