package tiering

import (
	"context"
	"fmt"

	"varve/metastore"
)

// heal stores a segment whose object is missing or damaged anew, from the leader's local log where that still holds exactly its
// offsets. The new object takes the old one's place as a merged one would: by a REPLACE, which is refused unless the
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
	exp, err := pt.Log().Export(r.Base, r.Next)
	switch {
	case err != nil:
		return "left: " + err.Error(), false
	case exp == nil:
		return "left: the local log has no segment of its own with these offsets", false
	}
	defer exp.Close()
	if exp.Next != r.Next {
		return fmt.Sprintf("left: the local segment ends at %d", exp.Next), false
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
