package tiering

import (
	"log/slog"

	"varve/protocol"
)

// SegmentUploaded: a segment is FINISHED and readable from the tier.
type SegmentUploaded struct {
	Topic      string
	Partition  int32
	ID         protocol.UUID
	Base, Next int64
	Bytes      int64 // of the object
	TookMs     int64
}

func (SegmentUploaded) Name() string      { return "tier_segment_uploaded" }
func (SegmentUploaded) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e SegmentUploaded) Attrs() []slog.Attr {
	return append(where(e.Topic, e.Partition), slog.String("segment", e.ID.String()), slog.Int64("base", e.Base),
		slog.Int64("next", e.Next), slog.Int64("bytes", e.Bytes), slog.Int64("tookMs", e.TookMs))
}

// UploadFailed: an attempt ended without FINISHED; another one follows.
type UploadFailed struct {
	Topic     string
	Partition int32
	ID        protocol.UUID // zero when it failed before STARTED
	Err       error
}

func (UploadFailed) Name() string      { return "tier_upload_failed" }
func (UploadFailed) Level() slog.Level { return slog.LevelWarn }

// Attrs implements event.Event.
func (e UploadFailed) Attrs() []slog.Attr {
	return append(where(e.Topic, e.Partition), slog.String("segment", e.ID.String()), slog.Any("error", e.Err))
}

// SegmentsMerged: neighbours in the tier have become one segment.
type SegmentsMerged struct {
	Topic      string
	Partition  int32
	ID         protocol.UUID
	Base, Next int64
	Sources    int
	Generation uint32
	Bytes      int64 // of the new object
	TookMs     int64
}

func (SegmentsMerged) Name() string      { return "tier_segments_merged" }
func (SegmentsMerged) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e SegmentsMerged) Attrs() []slog.Attr {
	return append(where(e.Topic, e.Partition), slog.String("segment", e.ID.String()), slog.Int64("base", e.Base),
		slog.Int64("next", e.Next), slog.Int("sources", e.Sources), slog.Uint64("generation", uint64(e.Generation)),
		slog.Int64("bytes", e.Bytes), slog.Int64("tookMs", e.TookMs))
}

// MergeFailed: the neighbours stay as they are; another attempt follows.
type MergeFailed struct {
	Topic     string
	Partition int32
	Err       error
}

func (MergeFailed) Name() string      { return "tier_merge_failed" }
func (MergeFailed) Level() slog.Level { return slog.LevelWarn }

// Attrs implements event.Event.
func (e MergeFailed) Attrs() []slog.Attr {
	return append(where(e.Topic, e.Partition), slog.Any("error", e.Err))
}

// UploadLag: sealed segments wait longer for their upload than they should (Lagging), or
// not any more.
type UploadLag struct {
	Topic     string
	Partition int32
	Lagging   bool
	Segments  int64
	Bytes     int64
	ForMs     int64 // the oldest of them
}

func (UploadLag) Name() string { return "tier_upload_lag" }

// Level implements event.Event.
func (e UploadLag) Level() slog.Level {
	if e.Lagging {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// Attrs implements event.Event.
func (e UploadLag) Attrs() []slog.Attr {
	return append(where(e.Topic, e.Partition), slog.Bool("lagging", e.Lagging), slog.Int64("segments", e.Segments),
		slog.Int64("bytes", e.Bytes), slog.Int64("forMs", e.ForMs))
}

// UploadsAborted: uploads in parts that a dead process left open were ended.
type UploadsAborted struct{ Count int }

func (UploadsAborted) Name() string      { return "tier_uploads_aborted" }
func (UploadsAborted) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e UploadsAborted) Attrs() []slog.Attr { return []slog.Attr{slog.Int("count", e.Count)} }

// StoreJudged: uploads are held back because the store took none of several in a row
// (Err), or it takes them again.
type StoreJudged struct{ Err error }

func (StoreJudged) Name() string { return "tier_store_judged" }

// Level implements event.Event.
func (e StoreJudged) Level() slog.Level {
	if e.Err != nil {
		return slog.LevelError
	}
	return slog.LevelInfo
}

// Attrs implements event.Event.
func (e StoreJudged) Attrs() []slog.Attr {
	if e.Err == nil {
		return []slog.Attr{slog.String("uploads", "resumed")}
	}
	return []slog.Attr{slog.String("uploads", "held back"), slog.Any("error", e.Err)}
}

// LocalFreed: local segments that are in the tier went.
type LocalFreed struct {
	Topic     string
	Partition int32
	Below     int64 // new local start
	Bytes     int64
	Early     bool // the disk is short: local retention would have kept them
}

func (LocalFreed) Name() string      { return "tier_local_freed" }
func (LocalFreed) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e LocalFreed) Attrs() []slog.Attr {
	return append(where(e.Topic, e.Partition), slog.Int64("below", e.Below), slog.Int64("bytes", e.Bytes), slog.Bool("early", e.Early))
}

// LogStartMoved: total retention moved the log start.
type LogStartMoved struct {
	Topic     string
	Partition int32
	Offset    int64
}

func (LogStartMoved) Name() string      { return "tier_log_start_moved" }
func (LogStartMoved) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e LogStartMoved) Attrs() []slog.Attr {
	return append(where(e.Topic, e.Partition), slog.Int64("offset", e.Offset))
}

// TierLeft: all that a partition had in the tier is on its way out, after its topic was told to leave.
type TierLeft struct {
	Topic     string
	Partition int32
}

func (TierLeft) Name() string      { return "tier_left" }
func (TierLeft) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e TierLeft) Attrs() []slog.Attr { return where(e.Topic, e.Partition) }

// ObjectsDeleted: a batch of objects went from the bucket.
type ObjectsDeleted struct {
	Count  int
	Bytes  int64
	Failed int // stay for the next round
}

func (ObjectsDeleted) Name() string      { return "tier_objects_deleted" }
func (ObjectsDeleted) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e ObjectsDeleted) Attrs() []slog.Attr {
	return []slog.Attr{slog.Int("count", e.Count), slog.Int64("bytes", e.Bytes), slog.Int("failed", e.Failed)}
}

// PartitionStuck: an upload, or a merge, neither ended nor could be cancelled; the partition
// was freed for another attempt.
type PartitionStuck struct {
	Topic     string
	Partition int32
	Merge     bool
	ForMs     int64
}

func (PartitionStuck) Name() string      { return "tier_partition_stuck" }
func (PartitionStuck) Level() slog.Level { return slog.LevelError }

// Attrs implements event.Event.
func (e PartitionStuck) Attrs() []slog.Attr {
	return append(where(e.Topic, e.Partition), slog.Bool("merge", e.Merge), slog.Int64("forMs", e.ForMs))
}

// CorruptionFound is an alarm: bytes of the tier, or of a local segment on its way
// there, are not what was written.
type CorruptionFound struct {
	TopicID   protocol.UUID
	Partition int32
	Key       string
	Err       error
}

func (CorruptionFound) Name() string      { return "tier_corruption" }
func (CorruptionFound) Level() slog.Level { return slog.LevelError }

// Attrs implements event.Event.
func (e CorruptionFound) Attrs() []slog.Attr {
	return append(where(e.TopicID.String(), e.Partition), slog.String("object", e.Key), slog.Any("error", e.Err))
}

// ObjectMissing is an alarm: the metastore names an object that is not there.
type ObjectMissing struct {
	TopicID   protocol.UUID
	Partition int32
	Key       string
	Location  string // the store it was written to
}

func (ObjectMissing) Name() string      { return "tier_object_missing" }
func (ObjectMissing) Level() slog.Level { return slog.LevelError }

// Attrs implements event.Event.
func (e ObjectMissing) Attrs() []slog.Attr {
	return append(where(e.TopicID.String(), e.Partition), slog.String("object", e.Key), slog.String("store", e.Location))
}

// JournalWritten: journal entries are in the bucket.
type JournalWritten struct {
	First, Last uint64 // raft indexes
	Entries     int
	Bytes       int
}

func (JournalWritten) Name() string      { return "tier_journal_written" }
func (JournalWritten) Level() slog.Level { return slog.LevelDebug }

// Attrs implements event.Event.
func (e JournalWritten) Attrs() []slog.Attr {
	return []slog.Attr{slog.Uint64("first", e.First), slog.Uint64("last", e.Last), slog.Int("entries", e.Entries), slog.Int("bytes", e.Bytes)}
}

// JournalForked is an alarm: the bucket holds a journal object of this cluster that
// its metastore did not write.
type JournalForked struct {
	Key  string
	What string
}

func (JournalForked) Name() string      { return "tier_journal_forked" }
func (JournalForked) Level() slog.Level { return slog.LevelError }

// Attrs implements event.Event.
func (e JournalForked) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("object", e.Key), slog.String("what", e.What)}
}

// ClockJudged: deleting by age was paused (Err) or resumed.
type ClockJudged struct{ Err error }

func (ClockJudged) Name() string { return "tier_clock_judged" }

// Level implements event.Event.
func (e ClockJudged) Level() slog.Level {
	if e.Err != nil {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// Attrs implements event.Event.
func (e ClockJudged) Attrs() []slog.Attr {
	if e.Err == nil {
		return []slog.Attr{slog.String("retention", "resumed")}
	}
	return []slog.Attr{slog.String("retention", "paused"), slog.Any("error", e.Err)}
}

// ClockNotKept: the file that lets a wrong clock be noticed at the next start could not be read or written.
type ClockNotKept struct {
	Path string
	Err  error
}

func (ClockNotKept) Name() string      { return "tier_clock_not_kept" }
func (ClockNotKept) Level() slog.Level { return slog.LevelWarn }

// Attrs implements event.Event.
func (e ClockNotKept) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("path", e.Path), slog.Any("error", e.Err)}
}

func where(topic string, partition int32) []slog.Attr {
	return []slog.Attr{slog.String("topic", topic), slog.Int64("partition", int64(partition))}
}
