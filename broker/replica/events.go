package replica

import (
	"log/slog"

	"varve/protocol"
)

// LeaderStarted says that this broker serves a partition as leader, from a new leader epoch on.
type LeaderStarted struct {
	Topic       string
	TopicID     protocol.UUID
	Partition   int32
	LeaderEpoch int32
	LogStart    int64
	Start       int64 // log end at the election
	FromTier    bool  // the local log was replaced by the tier's end
}

// Name implements event.Event.
func (LeaderStarted) Name() string { return "leader_started" }

// Level implements event.Event.
func (LeaderStarted) Level() slog.Level { return slog.LevelDebug }

// Attrs implements event.Event.
func (e LeaderStarted) Attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("topic", e.Topic), slog.Int("partition", int(e.Partition)), slog.Int("leader_epoch", int(e.LeaderEpoch)),
		slog.Int64("log_start", e.LogStart), slog.Int64("start", e.Start), slog.Bool("from_tier", e.FromTier),
	}
}

// ReplicaErased says that the folder of a replica is gone, which the metadata says was here.
type ReplicaErased struct {
	Topic         string
	TopicID       protocol.UUID
	Partition     int32
	HighWatermark int64 // its checkpoint; -1 unknown
}

// Name implements event.Event.
func (ReplicaErased) Name() string { return "replica_erased" }

// Level implements event.Event.
func (ReplicaErased) Level() slog.Level { return slog.LevelError }

// Attrs implements event.Event.
func (e ReplicaErased) Attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("topic", e.Topic), slog.Int("partition", int(e.Partition)), slog.Int64("high_watermark", e.HighWatermark),
	}
}

// OffsetsLost says that a partition goes on without the offsets [From, To), which were readable once: up to the
// high-watermark checkpoint of the replica that lost them.
type OffsetsLost struct{ LostRange }

// Name implements event.Event.
func (OffsetsLost) Name() string { return "offsets_lost" }

// Level implements event.Event.
func (OffsetsLost) Level() slog.Level { return slog.LevelError }

// Attrs implements event.Event.
func (e OffsetsLost) Attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("topic", e.Topic), slog.Int("partition", int(e.Partition)), slog.Int64("from", e.From), slog.Int64("to", e.To),
	}
}

// PartitionFailed says that something went wrong with a partition that its clients cannot mend.
type PartitionFailed struct {
	Topic     string
	Partition int32
	Doing     string
	Err       error
}

// Name implements event.Event.
func (PartitionFailed) Name() string { return "partition_failed" }

// Level implements event.Event.
func (PartitionFailed) Level() slog.Level { return slog.LevelError }

// Attrs implements event.Event.
func (e PartitionFailed) Attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("topic", e.Topic), slog.Int("partition", int(e.Partition)), slog.String("doing", e.Doing), slog.Any("error", e.Err),
	}
}

// TierReadFailed says that a fetch could not be answered from the tier.
type TierReadFailed struct {
	Topic     string
	Partition int32
	Offset    int64
	Err       error
}

// Name implements event.Event.
func (TierReadFailed) Name() string { return "tier_read_failed" }

// Level implements event.Event.
func (TierReadFailed) Level() slog.Level { return slog.LevelError }

// Attrs implements event.Event.
func (e TierReadFailed) Attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("topic", e.Topic), slog.Int("partition", int(e.Partition)), slog.Int64("offset", e.Offset), slog.Any("error", e.Err),
	}
}

// ElectionWaits says that a partition that this broker is to lead is not served, because its log ends below the tier's
// end and the tier does not answer. It is repeated.
type ElectionWaits struct {
	Topic     string
	Partition int32
	Err       error
}

// Name implements event.Event.
func (ElectionWaits) Name() string { return "election_waits" }

// Level implements event.Event.
func (ElectionWaits) Level() slog.Level { return slog.LevelWarn }

// Attrs implements event.Event.
func (e ElectionWaits) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("topic", e.Topic), slog.Int("partition", int(e.Partition)), slog.Any("error", e.Err)}
}

// ReplicaRemoved says that a replica and its local log were removed: the topic or the assignment is gone.
type ReplicaRemoved struct {
	Topic     string
	TopicID   protocol.UUID
	Partition int32
	Stray     bool // found at start without an entry in the metadata
}

// Name implements event.Event.
func (ReplicaRemoved) Name() string { return "replica_removed" }

// Level implements event.Event.
func (ReplicaRemoved) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e ReplicaRemoved) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("topic", e.Topic), slog.Int("partition", int(e.Partition)), slog.Bool("stray", e.Stray)}
}

// SegmentsExpired says that retention moved a log's start.
type SegmentsExpired struct {
	Topic      string
	Partition  int32
	LogStart   int64
	FreedBytes int64
}

// Name implements event.Event.
func (SegmentsExpired) Name() string { return "segments_expired" }

// Level implements event.Event.
func (SegmentsExpired) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e SegmentsExpired) Attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("topic", e.Topic), slog.Int("partition", int(e.Partition)),
		slog.Int64("log_start", e.LogStart), slog.Int64("freed_bytes", e.FreedBytes),
	}
}

// ControllerRefused says that the controller did not take what this broker told it. It is repeated.
type ControllerRefused struct {
	What string
	Err  error
}

// Name implements event.Event.
func (ControllerRefused) Name() string { return "controller_refused" }

// Level implements event.Event.
func (ControllerRefused) Level() slog.Level { return slog.LevelWarn }

// Attrs implements event.Event.
func (e ControllerRefused) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("what", e.What), slog.Any("error", e.Err)}
}
