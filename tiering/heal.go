package tiering

import (
	"context"
	"fmt"

	"varve/broker/commitlog"
	"varve/metastore"
)

// heal stores a segment whose object is missing or damaged anew, from the leader's local log where that still holds all of its offsets,
// however it is cut into segments there. Batches are the same on every replica, so what is put together must have as many bytes as the
// object had. The new object takes the old one's place as a merged one would: by a REPLACE, which is refused unless the
// old segment still stands and this broker still leads. It returns what was done, in words.
func (m *Manager) heal(ctx context.Context, r metastore.RemoteSegment) (what string, done bool) {
	m.mu.Lock()
	pt := m.parts[partKey{r.TopicID, r.Partition}]
	m.mu.Unlock()
	if pt == nil {
		return "left: this broker does not lead its partition", false
	}
	if start := pt.Log().LocalStart(); r.Base < start {
		return fmt.Sprintf("left: the local log starts at %d, above its first offset", start), false
	}
	exp, err := m.gatherLocal(ctx, pt, r)
	if err != nil {
		return "left: " + err.Error(), false
	}
	defer exp.Close()
	if exp.Log.Len != r.LogBytes {
		return fmt.Sprintf("left: the local log has %d bytes of these offsets, the object had %d", exp.Log.Len, r.LogBytes), false
	}
	st, err := m.o.Meta.Tier(r.TopicID, r.Partition)
	u := &upload{m: m, pt: pt, epoch: pt.LeaderEpoch(), began: m.o.Now(), start: st.LogStart, old: []metastore.RemoteSegment{r}}
	if err == nil {
		err = u.store(ctx, exp)
	}
	if err == nil {
		if err = u.verify(ctx); err != nil {
			err = u.abandon(ctx, err)
		} else {
			err = u.conclude(ctx)
		}
	}
	if err != nil {
		m.doubt(pt)
		return "left: " + err.Error(), false
	}
	return "stored anew from the local log", true
}

// gatherLocal puts a segment's offsets together from the local log.
func (m *Manager) gatherLocal(ctx context.Context, pt *part, r metastore.RemoteSegment) (*commitlog.Export, error) {
	g, err := m.newGathering(r.Base, r.Next, r.FirstTimestamp, pt.TierConfig())
	if err != nil {
		return nil, err
	}
	for from := r.Base; err == nil && from < r.Next; {
		var exp *commitlog.Export
		if err = ctx.Err(); err != nil {
			break
		}
		if exp, err = pt.Log().ExportPart(from, r.Next); err != nil {
			break
		}
		err = g.takeLocal(exp)
		from = exp.Next
		exp.Close()
	}
	return g.done(err)
}
