package group

import (
	"log/slog"
	"time"

	"varve/protocol"
)

// Changed says that a group has a new state.
type Changed struct {
	Group      string
	State      State
	Generation int32
	Members    int
	Reason     string
}

// Name implements event.Event.
func (Changed) Name() string { return "group_changed" }

// Level implements event.Event.
func (Changed) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e Changed) Attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("group", e.Group), slog.String("state", string(e.State)), slog.Int("generation", int(e.Generation)),
		slog.Int("members", e.Members), slog.String("reason", e.Reason),
	}
}

// MemberGone says that a member is no longer in its group.
type MemberGone struct{ Group, Member, Reason string }

// Name implements event.Event.
func (MemberGone) Name() string { return "group_member_gone" }

// Level implements event.Event.
func (MemberGone) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e MemberGone) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("group", e.Group), slog.String("member", e.Member), slog.String("reason", e.Reason)}
}

// Removed says that offsets and groups were removed without a request.
type Removed struct {
	Offsets, Groups int
	Doing           string
}

// Name implements event.Event.
func (Removed) Name() string { return "group_offsets_removed" }

// Level implements event.Event.
func (Removed) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e Removed) Attrs() []slog.Attr {
	return []slog.Attr{slog.Int("offsets", e.Offsets), slog.Int("groups", e.Groups), slog.String("doing", e.Doing)}
}

// StoreFailed says that records could not be stored and no client was told.
type StoreFailed struct {
	Group string // "" several
	Doing string
	Code  protocol.ErrorCode
}

// Name implements event.Event.
func (StoreFailed) Name() string { return "group_store_failed" }

// Level implements event.Event.
func (StoreFailed) Level() slog.Level { return slog.LevelWarn }

// Attrs implements event.Event.
func (e StoreFailed) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("group", e.Group), slog.String("doing", e.Doing), slog.String("error", e.Code.Error())}
}

// TopicNotCreated says that OffsetsTopic could not be made: no group can be coordinated.
type TopicNotCreated struct{ Err error }

// Name implements event.Event.
func (TopicNotCreated) Name() string { return "group_topic_not_created" }

// Level implements event.Event.
func (TopicNotCreated) Level() slog.Level { return slog.LevelWarn }

// Attrs implements event.Event.
func (e TopicNotCreated) Attrs() []slog.Attr { return []slog.Attr{slog.String("error", e.Err.Error())} }

// PartitionLoaded says that this broker coordinates the groups of a partition.
type PartitionLoaded struct {
	Partition, LeaderEpoch int32
	Groups, Offsets        int
	Records, Skipped       int64 // read; of them not understood
	Took                   time.Duration
}

// Name implements event.Event.
func (PartitionLoaded) Name() string { return "group_partition_loaded" }

// Level implements event.Event.
func (e PartitionLoaded) Level() slog.Level {
	if e.Records == 0 {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// Attrs implements event.Event.
func (e PartitionLoaded) Attrs() []slog.Attr {
	return []slog.Attr{
		slog.Int("partition", int(e.Partition)), slog.Int("leader_epoch", int(e.LeaderEpoch)), slog.Int("groups", e.Groups),
		slog.Int("offsets", e.Offsets), slog.Int64("records", e.Records), slog.Int64("skipped", e.Skipped), slog.Duration("took", e.Took),
	}
}

// LoadFailed says that a partition could not be read; it is tried again.
type LoadFailed struct {
	Partition, LeaderEpoch int32
	Err                    error
}

// Name implements event.Event.
func (LoadFailed) Name() string { return "group_load_failed" }

// Level implements event.Event.
func (LoadFailed) Level() slog.Level { return slog.LevelWarn }

// Attrs implements event.Event.
func (e LoadFailed) Attrs() []slog.Attr {
	return []slog.Attr{slog.Int("partition", int(e.Partition)), slog.Int("leader_epoch", int(e.LeaderEpoch)), slog.String("error", e.Err.Error())}
}

// RecordSkipped says that a record was not understood.
type RecordSkipped struct {
	Partition int32
	Offset    int64
	Err       error
}

// Name implements event.Event.
func (RecordSkipped) Name() string { return "group_record_skipped" }

// Level implements event.Event.
func (RecordSkipped) Level() slog.Level { return slog.LevelWarn }

// Attrs implements event.Event.
func (e RecordSkipped) Attrs() []slog.Attr {
	return []slog.Attr{slog.Int("partition", int(e.Partition)), slog.Int64("offset", e.Offset), slog.String("error", e.Err.Error())}
}
