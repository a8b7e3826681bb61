package tiering

import (
	"context"
	"time"

	"varve/broker/commitlog"
	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
	"varve/protocol/event"
	"varve/tiering/objstore"
)

// Partition is what a leader replica shows of itself. All methods may be called
// at any time and must not block.
type Partition interface {
	TopicID() protocol.UUID
	Topic() string
	Index() int32
	LeaderEpoch() int32
	Log() *commitlog.Log
	LastStable() int64 // nothing at or above it is uploaded
	TierConfig() TierConfig
	LogStartMoved(off int64) // the metastore has it; the replica applies it
}

// TierConfig is the part of a topic's config that rules its settling. Times are
// in milliseconds, sizes in bytes, -1 is no limit.
type TierConfig struct {
	RetentionMs         int64
	RetentionBytes      int64
	LocalRetentionMs    int64 // resolved: -2 is already replaced
	LocalRetentionBytes int64
	CopyDisable         bool  // remote.log.copy.disable (KIP-950)
	CopyLagMs           int64 // remote.copy.lag.ms (KIP-1241), resolved: -1 is already replaced by local retention
	CopyLagBytes        int64 // remote.copy.lag.bytes, likewise; see copyDue
	Left                bool  // the topic was taken out of the tier: what remains of it there goes, and nothing else is done
	UploadMaxLagMs      int64
	SegmentBytes        int64             // segment.bytes: what merging aims at
	IndexIntervalBytes  int32             // index.interval.bytes, for merged segments
	Configs             map[string]string // overrides, written into footers
}

// Meta is the metastore as tiering sees it; *metastore.Store satisfies it. Reads
// answer from this node's applied state, writes return after commit and local
// apply.
type Meta interface {
	IsController() bool
	Image() *metastore.Image
	SegmentStart(ctx context.Context, s metastore.RemoteSegment, broker int32) error
	SegmentFinish(ctx context.Context, s metastore.RemoteSegment) (metastore.SegmentState, error)
	SegmentReplace(ctx context.Context, old []protocol.UUID, s metastore.RemoteSegment) (metastore.SegmentState, error)
	SegmentsDelete(ctx context.Context, topicID protocol.UUID, partition, leaderEpoch int32, ids []protocol.UUID) error
	SegmentsGone(ctx context.Context, ids ...protocol.UUID) error
	AdvanceLogStart(ctx context.Context, topicID protocol.UUID, partition, leaderEpoch int32, off int64) error
	Tier(topicID protocol.UUID, partition int32) (metastore.TierState, error)
	SegmentAt(topicID protocol.UUID, partition int32, off int64) (metastore.RemoteSegment, bool, error)
	SegmentsFrom(topicID protocol.UUID, partition int32, off int64, fn func(metastore.RemoteSegment) bool) error
	SegmentByTime(topicID protocol.UUID, partition int32, from, ts int64) (metastore.RemoteSegment, bool, error)
	SegmentWithTxns(topicID protocol.UUID, partition int32, from int64) (metastore.RemoteSegment, bool, error)
	MaxTimestamp(topicID protocol.UUID, partition int32, from int64) (int64, bool, error)
	PendingSegments(after metastore.Cursor, limit int) ([]metastore.RemoteSegment, metastore.Cursor, error)
	IsPending(topicID protocol.UUID, partition int32, id protocol.UUID) (bool, error)
	PendingOf(topicID protocol.UUID, partition int32) ([]metastore.RemoteSegment, error)
	JournalPending(maxEntries int) (entries []*metapb.JournalEntry, first, last uint64, err error)
	JournalClear(ctx context.Context, through uint64) error
	JournaledThrough() uint64
}

// Options configure a Manager. Zero values of bounds and times take the defaults
// named beside them.
type Options struct {
	Store     objstore.Store
	Location  string // canonical URL of the store, kept in each row
	Prefix    string // folder inside the store, without slashes at its ends; may be empty
	Meta      Meta
	State     ClusterState                                                 // nil: no snapshots and no restores
	Groups    GroupOffsets                                                 // nil: there are no groups
	Publish   func(ctx context.Context, t *metastore.RestoringTopic) error // makes a restored topic visible; nil without State
	ClusterID string
	BrokerID  int32

	CacheDir        string // holds a file of chunks and one of indexes; "" = no cache on disk
	CacheBytes      int64  // bound of the chunks' file; below one chunk = none
	IndexCacheBytes int64  // bound of the indexes' file; below one chunk = none
	ReadMemoryBytes int64  // bound of the chunks in memory: read-ahead, and what is being sent; 134217728

	DeleteDelayMs      int64 // between DELETE_STARTED and the deletion of an object; 0 = none
	UploadDeadlineMs   int64 // from STARTED to FINISHED; 600000
	TaskIntervalMs     int64 // between two looks at a partition; 30000 (remote.log.manager.task.interval.ms)
	JournalIntervalMs  int64 // between two journal objects; 10000
	Concurrency        int   // partitions worked on at once; 4
	MergeMinSegments   int   // small neighbours that make a merge worth its while; below 2 = no merging
	MergeMaxBytes      int64 // of a merged segment; 0 = the topic's segment.bytes
	SnapshotIntervalMs int64 // between two snapshots in the bucket; 600000
	DeleteDeadlineMs   int64 // of one batch of deletes, named in the owner object when it is first written; 0 = a minute
	ScrubIntervalMs    int64 // between two passes of the scrub; 86400000; negative = none
	ScrubBytesPerSec   int64 // of the pass that reads every byte; 0 = no such pass

	Now       func() time.Time        // time.Now
	Clock     *ClockGuard             // one that keeps nothing
	DiskShort func() int64            // bytes to be freed for the logs' disk not to be short; nil: it never is. RetainSoon tells that it may be
	Counters  *objstore.Counters      // those around Store, for Status; may be nil
	Events    event.Sink              // may be nil
	Failpoint func(name string) error // called between any two steps; may be nil. Its error ends the step as a crash would
}

// ReadRequest asks for batches in the remote part of a partition.
type ReadRequest struct {
	TopicID       protocol.UUID
	Partition     int32
	Offset        int64
	MaxBytes      int
	MinOne        bool // return the first batch even if it is larger than MaxBytes
	ReadCommitted bool // fill Aborted
}

// ReadResult is a run of whole batches, the first of which holds the offset asked
// for. Its spans are checked, and in memory or in an object's own file (objectfile.go).
type ReadResult struct {
	Spans      []protocol.Span
	NextOffset int64 // first offset after the last batch, or the request's when there is none
	Aborted    []commitlog.AbortedTxn
}

// Status is what `varve tier status` shows.
type Status struct {
	Location   string
	Errors     []string // of the owner object, the clock, deletion and the journal; empty when all is well
	Partitions []PartitionStatus
	Cache      CacheStatus
	Scrub      []ScrubPass      // the last of each level
	Store      []objstore.Usage // nil without Options.Counters
}

// PartitionStatus tells how one led partition has settled. Sizes are in bytes.
type PartitionStatus struct {
	Topic       string
	TopicID     protocol.UUID
	Partition   int32
	LogStart    int64
	TierStart   int64 // first offset that is in the tier
	TierEnd     int64 // first offset that is not yet
	Segments    int64
	Bytes       int64
	LocalStart  int64
	LocalEnd    int64
	LocalBytes  int64
	LagBytes    int64 // local bytes of segments not in the tier
	LagOffsets  int64
	LagSegments int64  // sealed, committed segments that wait to be uploaded, as last looked
	LagMs       int64  // how long the oldest of them has waited
	LastError   string // "" when the last attempt went well
	LastErrorMs int64
}

// CacheStatus tells how the chunk cache does.
type CacheStatus struct {
	CapacityBytes, UsedBytes int64
	Hits, Misses             uint64 // chunks
	CorruptChunks            uint64 // found on disk and fetched again
	Dropped                  uint64 // not written, because the disk was slower than the store
	MemoryBytes              int64  // held by readers and read-ahead
}

// Defaults of Options.
const (
	defaultUploadDeadlineMs  = 600_000
	defaultTaskIntervalMs    = 30_000
	defaultJournalIntervalMs = 10_000
	defaultConcurrency       = 4
	defaultReadMemoryBytes   = 128 << 20
	minMemoryChunks          = (16 << 20) / chunkBytes
)

func (o Options) withDefaults() Options {
	or := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	or(&o.UploadDeadlineMs, defaultUploadDeadlineMs)
	or(&o.TaskIntervalMs, defaultTaskIntervalMs)
	or(&o.JournalIntervalMs, defaultJournalIntervalMs)
	or(&o.ReadMemoryBytes, defaultReadMemoryBytes)
	or(&o.SnapshotIntervalMs, defaultSnapshotIntervalMs)
	if o.ScrubIntervalMs == 0 {
		o.ScrubIntervalMs = defaultScrubIntervalMs
	}
	if o.Concurrency <= 0 {
		o.Concurrency = defaultConcurrency
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Clock == nil {
		o.Clock = NewClockGuard(ClockOptions{Now: o.Now, Boottime: bootTime, Events: o.Events})
	}
	return o
}
