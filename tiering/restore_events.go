package tiering

import (
	"log/slog"

	"varve/metastore/metapb"
)

// SnapshotWritten: a snapshot of the cluster's state is in the bucket.
type SnapshotWritten struct {
	SnapshotSize
	TookMs int64
}

func (SnapshotWritten) Name() string      { return "tier_snapshot_written" }
func (SnapshotWritten) Level() slog.Level { return slog.LevelDebug }

// Attrs implements event.Event.
func (e SnapshotWritten) Attrs() []slog.Attr {
	return []slog.Attr{slog.Uint64("index", e.Index), slog.Int("objects", e.Parts), slog.Int64("bytes", e.Bytes), slog.Int64("tookMs", e.TookMs)}
}

// RestoreMoved: a restore of another cluster's topics came into its next phase.
type RestoreMoved struct {
	Source string // cluster id
	Phase  metapb.RestorePhase
}

func (RestoreMoved) Name() string      { return "tier_restore_moved" }
func (RestoreMoved) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e RestoreMoved) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("source", e.Source), slog.String("phase", phaseName(e.Phase))}
}

// RestoreEnded: a restore is over.
type RestoreEnded struct {
	Source  string
	Aborted bool
	Report  RestoreReport // empty when it was aborted, or with Err
	Err     error         // why the report could not be read
}

func (*RestoreEnded) Name() string      { return "tier_restore_ended" }
func (*RestoreEnded) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e *RestoreEnded) Attrs() []slog.Attr {
	r := &e.Report
	out := []slog.Attr{slog.String("source", e.Source), slog.Bool("aborted", e.Aborted)}
	if e.Err != nil {
		return append(out, slog.Any("reportError", e.Err))
	}
	return append(out, slog.Int("topics", len(r.Topics)), slog.Int("partitions", r.Partitions), slog.Int64("segments", r.Segments), slog.Int64("bytes", r.Bytes),
		slog.Int("groupOffsets", r.GroupOffsets), slog.Int("missingObjects", r.MissingObjects), slog.String("recoveryPoint", r.Recovery))
}

// RestoreFailed: a restore cannot go on, or has to try a step again.
type RestoreFailed struct {
	Source string
	Err    error
	Again  bool // it is tried again by itself
}

func (RestoreFailed) Name() string      { return "tier_restore_failed" }
func (RestoreFailed) Level() slog.Level { return slog.LevelError }

// Attrs implements event.Event.
func (e RestoreFailed) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("source", e.Source), slog.Bool("again", e.Again), slog.Any("error", e.Err)}
}
