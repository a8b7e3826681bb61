package tiering

import (
	"cmp"
	"context"
	"slices"

	"varve/metastore"
	"varve/protocol"
)

// TopicOfKey returns the id of the topic that a segment's key belongs to, as text, and "" for other keys. It groups what
// objstore.Counters count.
func TopicOfKey(key string) string {
	if k, err := ParseSegmentKey(key); err == nil {
		return k.TopicID.String()
	}
	return ""
}

// StoredTopic is what one topic takes in the bucket, by the metastore.
type StoredTopic struct {
	TopicID         protocol.UUID
	Topic           string // "" when it is deleted
	Segments        int64  // that can be read
	Bytes           int64  // of their log bytes; indexes add about a hundredth
	DeletingObjects int64  // that wait for their deletion, or were attempts
	DeletingBytes   int64
}

// Stored tells what all topics take in the bucket, ordered by name and id.
func (m *Manager) Stored(ctx context.Context) ([]StoredTopic, error) {
	byID := map[protocol.UUID]*StoredTopic{}
	for t := range m.o.Meta.Image().Topics() {
		st := &StoredTopic{TopicID: t.ID, Topic: t.Name}
		for p := range t.Partitions {
			tier, err := m.o.Meta.Tier(t.ID, int32(p))
			if err != nil && protocol.CodeOf(err) != protocol.UnknownTopicID {
				return nil, err
			}
			st.Segments, st.Bytes = st.Segments+tier.Count, st.Bytes+tier.Bytes
		}
		byID[t.ID] = st
	}
	var at metastore.Cursor
	for more := true; more; {
		rows, next, err := m.o.Meta.PendingSegments(at, maxVerifyPageRows)
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return nil, err
		}
		for _, r := range rows {
			st := byID[r.TopicID]
			if st == nil {
				st = &StoredTopic{TopicID: r.TopicID}
				byID[r.TopicID] = st
			}
			st.DeletingObjects++
			st.DeletingBytes += r.ObjectBytes
		}
		at, more = next, len(rows) == maxVerifyPageRows
	}
	out := make([]StoredTopic, 0, len(byID))
	for _, st := range byID {
		if st.Segments+st.DeletingObjects > 0 {
			out = append(out, *st)
		}
	}
	slices.SortFunc(out, func(a, b StoredTopic) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.TopicID.String(), b.TopicID.String()))
	})
	return out, nil
}
