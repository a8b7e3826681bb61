package record

import (
	"encoding/binary"
	"math"

	"varve/protocol"
)

// Producer names the idempotent producer of a batch.
type Producer struct {
	ID           int64
	Epoch        int16
	BaseSequence int32 // NoSequence for control batches
}

// Options are the header fields of a batch to build.
type Options struct {
	BaseOffset    int64
	LeaderEpoch   int32
	Codec         Codec
	Level         int       // DefaultLevel, or as the codec's level config
	Producer      *Producer // nil: none
	Transactional bool
	Control       bool
}

// Builder builds one batch. The zero value is not ready: use NewBuilder or
// Reset. Records are kept uncompressed until Batch.
type Builder struct {
	opts         Options
	buf          []byte // room for the header, then records
	count        int32
	lastDelta    int32
	base         int64 // base timestamp
	maxTimestamp int64
}

// NewBuilder returns a builder for one batch.
func NewBuilder(opts Options) *Builder {
	bl := new(Builder)
	bl.Reset(opts)
	return bl
}

// Reset begins a new batch and keeps the memory. Batches without compression
// that were built before share that memory and are overwritten.
func (bl *Builder) Reset(opts Options) {
	if cap(bl.buf) < HeaderLen {
		bl.buf = make([]byte, HeaderLen, 512)
	}
	*bl = Builder{opts: opts, buf: bl.buf[:HeaderLen], lastDelta: -1, base: NoTimestamp, maxTimestamp: NoTimestamp}
}

// Add appends a record at the next offset; a nil key or value is null.
func (bl *Builder) Add(timestampMs int64, key, value []byte, headers ...Header) error {
	return bl.Append(&Record{Offset: bl.opts.BaseOffset + int64(bl.lastDelta) + 1, Timestamp: timestampMs, Key: key, Value: value, Headers: headers})
}

// Append appends a record at its own offset, which must be above the last one.
// It copies what the record points to. The error is MessageTooLarge when a
// batch cannot hold it, or *protocol.InvariantError for a wrong offset.
func (bl *Builder) Append(r *Record) error {
	delta := r.Offset - bl.opts.BaseOffset
	if delta <= int64(bl.lastDelta) || delta > math.MaxInt32 {
		return &protocol.InvariantError{What: "record offset is not above the last one of its batch, or too far from its base"}
	}
	if bl.count == 0 {
		bl.base = r.Timestamp
	}
	tsDelta := r.Timestamp - bl.base
	body := bodySize(r, tsDelta, delta)
	if int64(len(bl.buf))+body+maxVarintBytes > math.MaxInt32 {
		return protocol.Errorf(protocol.MessageTooLarge, "record batch of more than %d bytes", math.MaxInt32)
	}
	b := binary.AppendVarint(bl.buf, body)
	b = append(b, 0)
	b = binary.AppendVarint(b, tsDelta)
	b = binary.AppendVarint(b, delta)
	b = appendNullable(b, r.Key)
	b = appendNullable(b, r.Value)
	b = binary.AppendVarint(b, int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		b = binary.AppendVarint(b, int64(len(h.Key)))
		b = append(b, h.Key...)
		b = appendNullable(b, h.Value)
	}
	bl.buf, bl.lastDelta = b, int32(delta)
	bl.count++
	bl.maxTimestamp = max(bl.maxTimestamp, r.Timestamp)
	return nil
}

// Count is the number of records so far.
func (bl *Builder) Count() int { return int(bl.count) }

// Size is the size of the batch so far, in bytes before compression.
func (bl *Builder) Size() int { return len(bl.buf) }

// Batch finishes the batch. Without compression it shares the builder's memory.
func (bl *Builder) Batch() (Batch, error) {
	if bl.count == 0 {
		return nil, &protocol.InvariantError{What: "batch without records"}
	}
	b := Batch(bl.buf)
	if bl.opts.Codec != None {
		var err error
		if b, err = compressed(b, bl.opts.Codec, bl.opts.Level); err != nil {
			return nil, err
		}
	}
	bl.header(b)
	return b, nil
}

func (bl *Builder) header(b Batch) {
	o := &bl.opts
	attributes := uint16(o.Codec)
	if o.Transactional {
		attributes |= attrTransactional
	}
	if o.Control {
		attributes |= attrControl
	}
	producer := Producer{NoProducerID, NoProducerEpoch, NoSequence}
	if o.Producer != nil {
		producer = *o.Producer
	}
	e := binary.BigEndian
	e.PutUint64(b[baseOffsetAt:], uint64(o.BaseOffset))
	e.PutUint32(b[lengthAt:], uint32(len(b)-lengthOverhead))
	e.PutUint32(b[leaderEpochAt:], uint32(o.LeaderEpoch))
	b[magicAt] = magicV2
	e.PutUint16(b[attributesAt:], attributes)
	e.PutUint32(b[lastOffsetDeltaAt:], uint32(bl.lastDelta))
	e.PutUint64(b[baseTimestampAt:], uint64(bl.base))
	e.PutUint64(b[maxTimestampAt:], uint64(bl.maxTimestamp))
	e.PutUint64(b[producerIDAt:], uint64(producer.ID))
	e.PutUint16(b[producerEpochAt:], uint16(producer.Epoch))
	e.PutUint32(b[baseSequenceAt:], uint32(producer.BaseSequence))
	e.PutUint32(b[countAt:], uint32(bl.count))
	b.setCRC()
}

func bodySize(r *Record, tsDelta, delta int64) int64 {
	n := 1 + varintLen(tsDelta) + varintLen(delta) + nullableLen(r.Key) + nullableLen(r.Value) + varintLen(int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		n += varintLen(int64(len(h.Key))) + int64(len(h.Key)) + nullableLen(h.Value)
	}
	return n
}

func varintLen(v int64) int64 {
	n := int64(1)
	for u := uint64(v)<<1 ^ uint64(v>>63); u >= 0x80; u >>= 7 {
		n++
	}
	return n
}

func nullableLen(b []byte) int64 {
	if b == nil {
		return 1
	}
	return varintLen(int64(len(b))) + int64(len(b))
}

func appendNullable(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}
