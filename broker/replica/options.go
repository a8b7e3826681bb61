package replica

import (
	"context"
	"time"

	"varve/broker/commitlog"
	"varve/broker/config"
	"varve/metastore"
	"varve/protocol"
	"varve/protocol/event"
	"varve/tiering"
)

// Options configure a Manager.
type Options struct {
	NodeID  int32
	Logs    *commitlog.Manager // opened, its logs not loaded yet: Run does that
	Tier    Tier               // nil when there is no tier; must not be an interface around a nil pointer
	Meta    Meta
	Control ControlPlane
	Config  *config.Config
	Now     func() time.Time // time.Now
	Events  event.Sink       // may be nil

	// ClockAgrees says whether retention may act (DESIGN invariant 13); nil is always.
	ClockAgrees func() bool
	// InternalTopic says whether a topic is one of the broker's own; nil knows Kafka's names (Topic.isInternal).
	InternalTopic func(name string) bool
}

// Tier is what *tiering.Manager does for a replica.
type Tier interface {
	Lead(p tiering.Partition)
	Unlead(topicID protocol.UUID, partition int32)
	Nudge(topicID protocol.UUID, partition int32)
	Read(ctx context.Context, r tiering.ReadRequest) (tiering.ReadResult, error)
	ReadReady(r tiering.ReadRequest) (res tiering.ReadResult, ok bool)
	OffsetForTimestamp(ctx context.Context, topicID protocol.UUID, partition int32, ts int64) (commitlog.TimestampOffset, bool, error)
	MaxTimestamp(ctx context.Context, topicID protocol.UUID, partition int32) (commitlog.TimestampOffset, bool, error)
	Tail(ctx context.Context, topicID protocol.UUID, partition int32) (next int64, epochs []commitlog.EpochStart, producerSnapshot []byte, err error)
}

// Meta is what *metastore.Store does for a replica.
type Meta interface {
	Image() *metastore.Image
	Subscribe(fn func(metastore.Delta)) (cancel func())
	Tier(topicID protocol.UUID, partition int32) (metastore.TierState, error)
	AdvanceLogStart(ctx context.Context, topicID protocol.UUID, partition, leaderEpoch int32, off int64) error
}

// ControlPlane tells the controller what only this broker knows. Both calls return once the answer is committed; they
// are repeated until they succeed, so they must be idempotent.
type ControlPlane interface {
	// AssignDirs says in which log folder replicas are. Nothing is served from a folder before.
	AssignDirs(ctx context.Context, broker int32, brokerEpoch int64, dirs []DirAssignment) error
	// ReplicaLost says that the folder of a replica vanished, with all that was in it.
	ReplicaLost(ctx context.Context, topicID protocol.UUID, partition, broker int32, brokerEpoch int64) error
}

// DirAssignment says that this broker's replica of a partition is in log folder Dir.
type DirAssignment struct {
	TopicID   protocol.UUID
	Partition int32
	Dir       protocol.UUID
}
