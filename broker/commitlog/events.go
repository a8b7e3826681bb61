package commitlog

import (
	"log/slog"
	"time"
)

// SegmentRolled: a segment was sealed and a new one begun at Next.
type SegmentRolled struct {
	Partition  string
	Base, Next int64
	Bytes      int64
	Prepared   bool // the new file stood ready: no append waited while it was made
}

// Name implements event.Event.
func (SegmentRolled) Name() string { return "segment_rolled" }

// Level implements event.Event.
func (SegmentRolled) Level() slog.Level { return slog.LevelDebug }

// Attrs implements event.Event.
func (e SegmentRolled) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("partition", e.Partition), slog.Int64("base", e.Base), slog.Int64("next", e.Next), slog.Int64("bytes", e.Bytes),
		slog.Bool("prepared", e.Prepared)}
}

// SegmentsFreed: sealed segments were removed from the local disk.
type SegmentsFreed struct {
	Partition  string
	Segments   int
	Bytes      int64
	LocalStart int64
}

// Name implements event.Event.
func (SegmentsFreed) Name() string { return "segments_freed" }

// Level implements event.Event.
func (SegmentsFreed) Level() slog.Level { return slog.LevelDebug }

// Attrs implements event.Event.
func (e SegmentsFreed) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("partition", e.Partition), slog.Int("segments", e.Segments), slog.Int64("bytes", e.Bytes), slog.Int64("local_start", e.LocalStart)}
}

// LogTruncated: records from To on were dropped.
type LogTruncated struct {
	Partition string
	From, To  int64
}

// Name implements event.Event.
func (LogTruncated) Name() string { return "log_truncated" }

// Level implements event.Event.
func (LogTruncated) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e LogTruncated) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("partition", e.Partition), slog.Int64("from", e.From), slog.Int64("to", e.To)}
}

// LogRestarted: everything local was dropped to begin at the tier's end.
type LogRestarted struct {
	Partition               string
	OldEnd, Start, LogStart int64
}

// Name implements event.Event.
func (LogRestarted) Name() string { return "log_restarted_from_tier" }

// Level implements event.Event.
func (LogRestarted) Level() slog.Level { return slog.LevelWarn }

// Attrs implements event.Event.
func (e LogRestarted) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("partition", e.Partition), slog.Int64("old_end", e.OldEnd), slog.Int64("start", e.Start), slog.Int64("log_start", e.LogStart)}
}

// LogRecovered: a log was scanned after an unclean stop.
type LogRecovered struct {
	Partition       string
	RecoveryPoint   int64
	End             int64
	Segments        int   // scanned
	TruncatedBytes  int64 // torn or broken bytes cut off
	DroppedSegments int   // that followed them
	Cause           string
	Took            time.Duration
}

// Name implements event.Event.
func (LogRecovered) Name() string { return "log_recovered" }

// Level implements event.Event.
func (e LogRecovered) Level() slog.Level {
	if e.TruncatedBytes > 0 || e.DroppedSegments > 0 {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// Attrs implements event.Event.
func (e LogRecovered) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("partition", e.Partition), slog.Int64("recovery_point", e.RecoveryPoint), slog.Int64("end", e.End),
		slog.Int("segments", e.Segments), slog.Int64("truncated_bytes", e.TruncatedBytes), slog.Int("dropped_segments", e.DroppedSegments),
		slog.String("cause", e.Cause), slog.Duration("took", e.Took)}
}

// DirOffline: the log directory serves nothing until the process restarts.
type DirOffline struct {
	Dir string
	Err error
}

// Name implements event.Event.
func (DirOffline) Name() string { return "log_dir_offline" }

// Level implements event.Event.
func (DirOffline) Level() slog.Level { return slog.LevelError }

// Attrs implements event.Event.
func (e DirOffline) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("dir", e.Dir), slog.Any("error", e.Err)}
}

// DiskFull says that writes are refused because the disk has no room; it is told once until there is room again.
type DiskFull struct {
	Dir  string
	What string // what was refused first
	Err  error
}

// Name implements event.Event.
func (DiskFull) Name() string { return "log_disk_full" }

// Level implements event.Event.
func (DiskFull) Level() slog.Level { return slog.LevelError }

// Attrs implements event.Event.
func (e DiskFull) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("dir", e.Dir), slog.String("what", e.What), slog.Any("error", e.Err)}
}

// DiskShort says that the disk has little room: what is in the tier is freed early, and at level tight partitions that wait
// for it take no appends.
type DiskShort struct {
	Dir       string
	RoomBytes int64
	Disk      DiskLevel
}

// Name implements event.Event.
func (DiskShort) Name() string { return "log_disk_short" }

// Level implements event.Event.
func (DiskShort) Level() slog.Level { return slog.LevelWarn }

// Attrs implements event.Event.
func (e DiskShort) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("dir", e.Dir), slog.Int64("room_bytes", e.RoomBytes), slog.String("disk", e.Disk.String())}
}

// DiskRoom says that the disk has room again.
type DiskRoom struct {
	Dir       string
	RoomBytes int64
}

// Name implements event.Event.
func (DiskRoom) Name() string { return "log_disk_room" }

// Level implements event.Event.
func (DiskRoom) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e DiskRoom) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("dir", e.Dir), slog.Int64("room_bytes", e.RoomBytes)}
}

// CheckpointDamaged: a checkpoint file could not be read and was taken for
// empty, which costs recovery time or a log start until the leader tells it.
type CheckpointDamaged struct {
	File string
	Err  error
}

// Name implements event.Event.
func (CheckpointDamaged) Name() string { return "checkpoint_damaged" }

// Level implements event.Event.
func (CheckpointDamaged) Level() slog.Level { return slog.LevelWarn }

// Attrs implements event.Event.
func (e CheckpointDamaged) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("file", e.File), slog.Any("error", e.Err)}
}

// StrayFolder: a folder looks like a partition and is none that can be loaded.
type StrayFolder struct {
	Path string
	Err  error
}

// Name implements event.Event.
func (StrayFolder) Name() string { return "stray_folder" }

// Level implements event.Event.
func (StrayFolder) Level() slog.Level { return slog.LevelWarn }

// Attrs implements event.Event.
func (e StrayFolder) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("path", e.Path), slog.Any("error", e.Err)}
}
