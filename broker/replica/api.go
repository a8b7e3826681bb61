package replica

import (
	"time"

	"varve/broker/commitlog"
	"varve/protocol"
	"varve/protocol/record"
)

// NoEpoch in a request means that the client did not say which leader epoch it knows.
const NoEpoch int32 = -1

// ConsumerID is the replica id of requests that do not come from a broker.
const ConsumerID int32 = -1

// Acks values of a produce request.
const (
	AcksNone   int16 = 0
	AcksLeader int16 = 1
	AcksAll    int16 = -1
)

// AppendRequest is a produce request after decoding and authorization.
type AppendRequest struct {
	Acks           int16
	Timeout        time.Duration // bound on waiting for other replicas or for the disk; at least 0
	InternalTopics bool          // the sender may write to internal topics
	Partitions     []AppendPartition
}

// AppendPartition is one batch for one partition. TopicID identifies the topic when it is not zero, else Topic does.
// Records must hold exactly one magic 2 batch; it is stamped in place and must stay valid until done is called.
type AppendPartition struct {
	Topic     string
	TopicID   protocol.UUID
	Partition int32
	Records   []byte
}

// AppendResult answers one AppendPartition. Offsets and LogAppendTime are -1 when unknown. Leader and LeaderEpoch are
// set (else -1) with NotLeaderOrFollower and FencedLeaderEpoch, as KIP-951 sends them.
type AppendResult struct {
	Err           protocol.ErrorCode
	Message       string
	BaseOffset    int64
	LogAppendTime int64 // milliseconds; -1 when the topic keeps the producer's time
	LogStart      int64
	RecordErrors  []record.RecordError
	Leader        int32
	LeaderEpoch   int32
}

// FetchRequest is a fetch request after decoding and authorization.
type FetchRequest struct {
	ReplicaID     int32 // ConsumerID, or the broker that fetches as a follower
	MaxWait       time.Duration
	MinBytes      int
	MaxBytes      int
	ReadCommitted bool
	Partitions    []FetchPartition
}

// FetchPartition asks for one partition. TopicID identifies the topic when it is not zero, else Topic does.
type FetchPartition struct {
	Topic              string
	TopicID            protocol.UUID
	Partition          int32
	CurrentLeaderEpoch int32 // NoEpoch when unknown
	Offset             int64
	LogStart           int64 // a follower's own log start; -1 from consumers
	MaxBytes           int32
	LastFetchedEpoch   int32 // a follower's last epoch (KIP-595); NoEpoch when unknown
}

// FetchResult answers one FetchPartition, in the request's order. Offsets are -1 when unknown. The receiver owns the
// spans and releases each one.
type FetchResult struct {
	Err              protocol.ErrorCode
	HighWatermark    int64
	LastStable       int64
	LogStart         int64
	Aborted          []commitlog.AbortedTxn // read_committed only
	Spans            []protocol.Span
	Diverging        *EpochEnd // not nil: the follower's log differs from here on
	Leader           int32     // with NotLeaderOrFollower and FencedLeaderEpoch, else -1
	LeaderEpoch      int32
	PreferredReplica int32 // -1: this one

	more bool // there are records that the size limits kept back
}

// EpochEnd is a leader epoch and the offset after its last record; -1, -1 when unknown.
type EpochEnd struct {
	Epoch int32
	End   int64
}

// Special timestamps of ListOffsets (ListOffsetsRequest.java).
const (
	TimestampLatest                int64 = -1
	TimestampEarliest              int64 = -2
	TimestampMax                   int64 = -3 // the record with the largest timestamp (KIP-734)
	TimestampEarliestLocal         int64 = -4 // KIP-405
	TimestampLatestTiered          int64 = -5 // KIP-1005
	TimestampEarliestPendingUpload int64 = -6 // KIP-1023
)

// OffsetQuery asks for one offset. TopicID identifies the topic when it is not zero, else Topic does.
type OffsetQuery struct {
	Topic              string
	TopicID            protocol.UUID
	Partition          int32
	CurrentLeaderEpoch int32 // NoEpoch when unknown
	ReplicaID          int32 // ConsumerID sees what consumers may read, others up to the log's end
	Timestamp          int64 // milliseconds, or one of the special ones
	ReadCommitted      bool
}

// OffsetResult answers an OffsetQuery; all fields are -1 when there is no such offset.
type OffsetResult struct {
	Timestamp   int64
	Offset      int64
	LeaderEpoch int32
}

// EpochQuery asks where a leader epoch ends (OffsetForLeaderEpoch).
type EpochQuery struct {
	Topic              string
	TopicID            protocol.UUID
	Partition          int32
	CurrentLeaderEpoch int32 // NoEpoch when unknown
	Epoch              int32
}

// LostRange is a range of offsets [From, To) that an erased replica held, up to the high watermark last checkpointed, and
// that nobody has. What it got in the seconds after that checkpoint is lost too, and not known: so an empty range is told
// as well.
type LostRange struct {
	Topic     string
	TopicID   protocol.UUID
	Partition int32
	From, To  int64
	At        time.Time
}

// PartitionInfo describes one replica for people.
type PartitionInfo struct {
	Topic         string
	TopicID       protocol.UUID
	Partition     int32
	State         State
	Leader        int32 // -1 none
	LeaderEpoch   int32
	Replicas, ISR []int32
	Tiered        bool
	LogStart      int64
	LocalStart    int64
	End           int64
	HighWatermark int64
	LastStable    int64
	TierEnd       int64 // -1 when the partition is not tiered
	LocalBytes    int64
	Problem       string // why the partition is not served, "" when it is
	Lost          []LostRange
}

// State is what a replica is doing.
type State string

// The states of a replica.
const (
	StateLeader   State = "leader"
	StateFollower State = "follower"
	StateElecting State = "electing" // leader in the Image, waiting for its folder to be assigned or for the tier
	StateErased   State = "erased"   // its folder vanished; the controller decides
	StateOffline  State = "offline"  // its log failed
)

// Stats are counters since the start, and sums of the moment, for metrics.
type Stats struct {
	Topics          []TopicStats // sorted by name
	Partitions      int          // replicas on this broker
	Leaders         int          // of them led and served
	UnderReplicated int          // led with fewer in sync than assigned
	UnderMinISR     int          // led with fewer in sync than min.insync.replicas
	Offline         int          // log failed, erased, or without any leader
	DelayedProduces int          // append requests waiting
	DelayedFetches  int          // fetch requests waiting
}

// TopicStats are the counters of one topic.
type TopicStats struct {
	Topic           string
	BytesIn         int64
	BytesOut        int64
	MessagesIn      int64
	ProduceRequests int64 // per partition of a request, as Kafka counts them
	FetchRequests   int64
	FailedProduces  int64 // unexpected failures only
	FailedFetches   int64
	LocalBytes      int64
}
