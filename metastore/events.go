package metastore

import (
	"log/slog"
	"time"

	"varve/protocol"
)

// BecameController says that this node leads the metadata quorum and has applied all that was committed before.
type BecameController struct{ NodeID int32 }

// Name implements event.Event.
func (BecameController) Name() string { return "controller_gained" }

// Level implements event.Event.
func (BecameController) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e BecameController) Attrs() []slog.Attr { return []slog.Attr{slog.Int("node", int(e.NodeID))} }

// LostController says that this node no longer leads the metadata quorum.
type LostController struct{ NodeID int32 }

// Name implements event.Event.
func (LostController) Name() string { return "controller_lost" }

// Level implements event.Event.
func (LostController) Level() slog.Level { return slog.LevelWarn }

// Attrs implements event.Event.
func (e LostController) Attrs() []slog.Attr { return []slog.Attr{slog.Int("node", int(e.NodeID))} }

// SegmentRefused says that a FINISHED or REPLACE was refused and its row moved to DELETE_STARTED.
type SegmentRefused struct {
	Segment protocol.UUID
	TopicID protocol.UUID
	Part    int32
	Reason  string
}

// Name implements event.Event.
func (SegmentRefused) Name() string { return "remote_segment_refused" }

// Level implements event.Event.
func (SegmentRefused) Level() slog.Level { return slog.LevelWarn }

// Attrs implements event.Event.
func (e SegmentRefused) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("segment", e.Segment.String()), slog.String("topic_id", e.TopicID.String()),
		slog.Int("partition", int(e.Part)), slog.String("reason", e.Reason)}
}

// StateSnapshotted says that a snapshot of the state is on this node's disk.
type StateSnapshotted struct {
	Index uint64 // of the state
	Rows  int64
	Bytes int64
	Took  time.Duration
}

// Name implements event.Event.
func (StateSnapshotted) Name() string { return "metastore_snapshotted" }

// Level implements event.Event.
func (StateSnapshotted) Level() slog.Level { return slog.LevelDebug }

// Attrs implements event.Event.
func (e StateSnapshotted) Attrs() []slog.Attr {
	return []slog.Attr{slog.Uint64("index", e.Index), slog.Int64("rows", e.Rows), slog.Int64("bytes", e.Bytes), slog.Int64("tookMs", e.Took.Milliseconds())}
}

// StateRestored says that the state was replaced by a snapshot's.
type StateRestored struct {
	Index   uint64 // of the state
	AtStart bool   // found behind the newest snapshot when the node started
}

// Name implements event.Event.
func (StateRestored) Name() string { return "metastore_restored" }

// Level implements event.Event.
func (StateRestored) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e StateRestored) Attrs() []slog.Attr {
	return []slog.Attr{slog.Uint64("index", e.Index), slog.Bool("at_start", e.AtStart)}
}

// StateFailed says that the state machine stopped: nothing is applied until the node restarts and replays its log.
type StateFailed struct {
	Index uint64
	Err   error
}

// Name implements event.Event.
func (StateFailed) Name() string { return "metastore_failed" }

// Level implements event.Event.
func (StateFailed) Level() slog.Level { return slog.LevelError }

// Attrs implements event.Event.
func (e StateFailed) Attrs() []slog.Attr {
	return []slog.Attr{slog.Uint64("index", e.Index), slog.String("error", e.Err.Error())}
}

// StorageTrouble passes on what Pebble reports about its files (a flush that failed and is retried, a full disk).
type StorageTrouble struct{ What string }

// Name implements event.Event.
func (StorageTrouble) Name() string { return "metastore_storage_trouble" }

// Level implements event.Event.
func (StorageTrouble) Level() slog.Level { return slog.LevelError }

// Attrs implements event.Event.
func (e StorageTrouble) Attrs() []slog.Attr { return []slog.Attr{slog.String("what", e.What)} }
