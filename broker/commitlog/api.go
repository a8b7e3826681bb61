package commitlog

import (
	"math"
	"time"

	"varve/protocol"
	"varve/protocol/event"
	"varve/protocol/record"
)

// Config is what one log needs to know of its topic's configuration. The zero
// value is not usable; see DefaultConfig. Names and meaning are those of Apache
// Kafka's topic configs (LogConfig.java).
type Config struct {
	SegmentBytes       int32 // segment.bytes
	SegmentMs          int64 // segment.ms
	SegmentJitterMs    int64 // segment.jitter.ms
	SegmentIndexBytes  int32 // segment.index.bytes
	IndexIntervalBytes int32 // index.interval.bytes

	// FlushMessages is flush.messages: a flush is asked for once so many
	// records are not yet known to be durable. With 1 DurableEnd follows the
	// flushes instead of End.
	FlushMessages int64
	FlushMs       int64 // flush.ms, math.MaxInt64 for never

	MaxMessageBytes      int32 // max.message.bytes
	LogAppendTime        bool  // message.timestamp.type
	TimestampBeforeMaxMs int64 // message.timestamp.before.max.ms
	TimestampAfterMaxMs  int64 // message.timestamp.after.max.ms

	// Codec is compression.type; CodecProducer keeps what the producer chose.
	Codec      record.Codec
	CodecLevel int // level for Codec where batches are rewritten; 0 is the codec's default

	RequireKeys            bool // cleanup.policy contains compact
	FileDeleteDelayMs      int64
	Preallocate            bool
	ProducerIDExpirationMs int64 // producer.id.expiration.ms
}

// CodecProducer as Config.Codec keeps each batch's own codec.
const CodecProducer = record.Codec(-1)

// DefaultConfig returns Apache Kafka's defaults.
func DefaultConfig() Config {
	return Config{
		SegmentBytes:           1 << 30,
		SegmentMs:              7 * 24 * 3600 * 1000,
		SegmentIndexBytes:      10 << 20,
		IndexIntervalBytes:     4096,
		FlushMessages:          math.MaxInt64,
		FlushMs:                math.MaxInt64,
		MaxMessageBytes:        1048588,
		TimestampBeforeMaxMs:   math.MaxInt64,
		TimestampAfterMaxMs:    3600 * 1000,
		Codec:                  CodecProducer,
		FileDeleteDelayMs:      60_000,
		ProducerIDExpirationMs: 24 * 3600 * 1000,
	}
}

// ManagerOptions opens a log directory.
type ManagerOptions struct {
	FS        FS     // nil is DiskFS()
	Dir       string // the log directory; created if absent
	NodeID    int32
	ClusterID string // "" takes whatever meta.properties names; it is written once known
	Now       func() time.Time
	Events    event.Sink

	MaxOpenFiles         int   // descriptors held open by the cache; 0 is 4096
	RecoveryThreads      int   // logs loaded at a time; 0 is 4
	FlushThreads         int   // concurrent fsyncs; 0 is 4
	CheckpointIntervalMs int64 // 0 is 60000
	DiskReserveBytes     int64 // appends are refused while the disk has less room; AutoReserve, 0 is none
}

// Origin says who appends as leader, which decides what is checked
// (AppendOrigin.java).
type Origin uint8

// The origins of an append.
const (
	OriginClient      Origin = iota // a Produce request: everything is checked
	OriginCoordinator               // group or transaction coordinator: control batches are legal, sequences are not checked
)

// AppendInfo says what an append did.
type AppendInfo struct {
	FirstOffset   int64
	LastOffset    int64
	LogAppendTime int64 // ms, -1 with create time
	LogStart      int64
	Duplicate     bool // an idempotent producer sent it again: the offsets are those of the first time
	// RecordErrors names the bad records when the error is InvalidRecord or
	// InvalidTimestamp.
	RecordErrors []record.RecordError
}

// Slice is a run of whole batches. Release of the span must be called once.
type Slice struct {
	protocol.Span
	FirstOffset int64 // base offset of the first batch; it may lie below the offset asked for
	NextOffset  int64 // where the next read continues
}

// TimestampOffset is a record found by time.
type TimestampOffset struct {
	Timestamp   int64 // ms
	Offset      int64
	LeaderEpoch int32 // -1 unknown
}

// EpochStart says at which offset a leader epoch began.
type EpochStart struct {
	Epoch int32
	Start int64
}

// AbortedTxn is one entry of a transaction index.
type AbortedTxn struct {
	ProducerID       int64
	FirstOffset      int64
	LastOffset       int64 // of the abort marker
	LastStableOffset int64 // right after the abort
}

// ProducerInfo is the state kept of one idempotent producer
// (DescribeProducersResponse.json).
type ProducerInfo struct {
	ProducerID       int64
	Epoch            int16
	LastSequence     int32 // -1 none
	LastTimestamp    int64 // ms, the broker's clock at the last append
	CoordinatorEpoch int32 // -1 none
	TxnStart         int64 // first offset of the open transaction, -1 none
}

// SegmentInfo describes one local segment.
type SegmentInfo struct {
	Base, Next   int64
	SizeBytes    int64 // of the log file
	MaxTimestamp int64 // ms, -1 none
	CreatedMs    int64 // when its first batch was written; the file's time after a restart
	Sealed       bool
}
