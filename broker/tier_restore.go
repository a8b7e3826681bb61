package broker

import (
	"context"

	"varve/broker/group"
	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
)

// tierGroups are the group offsets as the tier sees them: it runs before there is a coordinator, and ends after it.
type tierGroups struct{ b *Broker }

func (g tierGroups) coordinator() *group.Coordinator { return g.b.coordinator.Load() }

// Partitions implements tiering.GroupOffsets.
func (g tierGroups) Partitions() int32 {
	if t, ok := g.b.meta.Image().Topic(group.OffsetsTopic); ok {
		return int32(len(t.Partitions))
	}
	return 0
}

// Offsets implements tiering.GroupOffsets.
func (g tierGroups) Offsets(ctx context.Context, partition int32) ([]*metapb.GroupOffset, bool) {
	c := g.coordinator()
	if c == nil {
		return nil, false
	}
	return c.Offsets(ctx, partition)
}

// PutOffsets implements tiering.GroupOffsets.
func (g tierGroups) PutOffsets(ctx context.Context, offsets []*metapb.GroupOffset) error {
	c := g.coordinator()
	if c == nil {
		return protocol.Errorf(protocol.CoordinatorNotAvailable, "groups are not coordinated yet")
	}
	return c.PutOffsets(ctx, offsets)
}

// publishRestored makes a restored topic visible.
func (b *Broker) publishRestored(ctx context.Context, t *metastore.RestoringTopic) error {
	return b.control.PublishRestored(ctx, t)
}
