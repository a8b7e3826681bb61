package record

// MaxDecompressedBytes bounds what one batch may decompress to, unless a caller
// sets another bound.
const MaxDecompressedBytes = 256 << 20

// Limits says what Validate holds a batch to.
type Limits struct {
	// Client turns on the rules for batches that producers send: offset deltas
	// 0, 1, 2, ..., last offset delta = count - 1, no control batch, no log
	// append time, a sequence when there is a producer id. Without it gaps in
	// the offsets are legal, as compaction leaves them.
	Client bool
	// RequireKeys refuses records without a key (compacted topics).
	RequireKeys bool
	// CheckTimestamps refuses records whose timestamp is before
	// NowMs - BeforeMaxMs or after NowMs + AfterMaxMs. Topics with log append
	// time leave it off.
	CheckTimestamps         bool
	NowMs                   int64
	BeforeMaxMs, AfterMaxMs int64
	// MaxDecompressedBytes overrides the package's bound when above 0.
	MaxDecompressedBytes int64
}

// Info is what Validate learned about the records.
type Info struct {
	Count                int32
	MaxTimestamp         int64 // largest record timestamp, ms; NoTimestamp when none
	OffsetOfMaxTimestamp int64 // first record that has it; -1 when Count is 0
	NullKeys             int32
	UncompressedBytes    int64 // of the record section
}

// RecordError is what is wrong with one record of a batch.
type RecordError struct {
	Index   int32 // position in the batch, from 0
	Message string
}

// Header is a record header. A nil Value is null.
type Header struct {
	Key   string
	Value []byte
}

// Record is one record. What it points to is valid until the iterator's next
// step.
type Record struct {
	Offset    int64
	Timestamp int64  // ms
	Key       []byte // nil is null
	Value     []byte // nil is null
	Headers   []Header
}
