package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"varve/protocol"
)

// HeaderLen is the size of a batch without records, in bytes.
const HeaderLen = 61

// Byte positions of the header fields.
const (
	baseOffsetAt      = 0
	lengthAt          = 8
	leaderEpochAt     = 12
	magicAt           = 16
	crcAt             = 17
	attributesAt      = 21
	lastOffsetDeltaAt = 23
	baseTimestampAt   = 27
	maxTimestampAt    = 35
	producerIDAt      = 43
	producerEpochAt   = 51
	baseSequenceAt    = 53
	countAt           = 57

	lengthOverhead = 12 // bytes before those that the length field counts
	magicV2        = 2
)

// PeekLen is how many bytes of a batch PeekSize needs.
const PeekLen = magicAt + 1

// Bits of the attributes field.
const (
	attrCodec         = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
)

// Values that stand for "none".
const (
	NoTimestamp     = int64(-1)
	NoProducerID    = int64(-1)
	NoProducerEpoch = int16(-1)
	NoSequence      = int32(-1)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is exactly one magic 2 batch, as Next returns it. Accessors read the
// bytes in place.
type Batch []byte

// PeekSize returns the whole size in bytes of the batch that begins with these
// bytes, of which it needs PeekLen. Errors: io.ErrUnexpectedEOF when there are
// fewer, CorruptMessage for an impossible length, UnsupportedForMessageFormat
// for another magic.
func PeekSize(header []byte) (int, error) {
	if len(header) < PeekLen {
		return 0, io.ErrUnexpectedEOF
	}
	if magic := int8(header[magicAt]); magic != magicV2 {
		if magic == 0 || magic == 1 {
			return 0, protocol.Errorf(protocol.UnsupportedForMessageFormat, "record batch of magic %d, only 2 is supported", magic)
		}
		return 0, protocol.Errorf(protocol.CorruptMessage, "record batch has magic %d", magic)
	}
	n := int32(binary.BigEndian.Uint32(header[lengthAt:]))
	if n < HeaderLen-lengthOverhead || n > math.MaxInt32-lengthOverhead {
		return 0, protocol.Errorf(protocol.CorruptMessage, "record batch has an impossible length of %d bytes", n)
	}
	return int(n) + lengthOverhead, nil
}

// Next cuts the first batch off buf. Only its shape is checked: length and
// magic. An empty buf gives io.EOF, a truncated batch io.ErrUnexpectedEOF, and
// what else is wrong the errors of PeekSize.
func Next(buf []byte) (b Batch, rest []byte, err error) {
	if len(buf) == 0 {
		return nil, nil, io.EOF
	}
	n, err := PeekSize(buf)
	if err != nil {
		return nil, buf, err
	}
	if n > len(buf) {
		return nil, buf, io.ErrUnexpectedEOF
	}
	return Batch(buf[:n:n]), buf[n:], nil
}

func (b Batch) i16(at int) int16 { return int16(binary.BigEndian.Uint16(b[at:])) }
func (b Batch) i32(at int) int32 { return int32(binary.BigEndian.Uint32(b[at:])) }
func (b Batch) i64(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }

// Size is the batch's size in bytes.
func (b Batch) Size() int { return len(b) }

// BaseOffset is the offset of the first record the batch ever had.
func (b Batch) BaseOffset() int64 { return b.i64(baseOffsetAt) }

// LeaderEpoch is the partition leader epoch it was appended in.
func (b Batch) LeaderEpoch() int32 { return b.i32(leaderEpochAt) }

// Magic is always 2.
func (b Batch) Magic() int8 { return int8(b[magicAt]) }

// CRC is the stored CRC32C.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[crcAt:]) }

// Attributes are the raw attribute bits.
func (b Batch) Attributes() int16 { return b.i16(attributesAt) }

// Codec is the compression codec; it may be one that does not exist.
func (b Batch) Codec() Codec { return Codec(b.Attributes() & attrCodec) }

// LogAppendTime reports whether all records carry MaxTimestamp as their time.
func (b Batch) LogAppendTime() bool { return b.Attributes()&attrLogAppendTime != 0 }

// Transactional reports whether the batch belongs to a transaction.
func (b Batch) Transactional() bool { return b.Attributes()&attrTransactional != 0 }

// Control reports whether the batch holds control records.
func (b Batch) Control() bool { return b.Attributes()&attrControl != 0 }

// HasDeleteHorizon reports whether BaseTimestamp is the time from which on
// compaction may drop the batch's tombstones or markers (KIP-534).
func (b Batch) HasDeleteHorizon() bool { return b.Attributes()&attrDeleteHorizon != 0 }

// LastOffsetDelta is LastOffset - BaseOffset.
func (b Batch) LastOffsetDelta() int32 { return b.i32(lastOffsetDeltaAt) }

// LastOffset is the last offset the batch covers, even if compaction dropped
// the record.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.LastOffsetDelta()) }

// NextOffset is LastOffset + 1.
func (b Batch) NextOffset() int64 { return b.LastOffset() + 1 }

// BaseTimestamp is what records' timestamp deltas are added to, in ms.
func (b Batch) BaseTimestamp() int64 { return b.i64(baseTimestampAt) }

// MaxTimestamp is the largest timestamp of the records, or the log append time,
// in ms.
func (b Batch) MaxTimestamp() int64 { return b.i64(maxTimestampAt) }

// ProducerID is the producer's id, NoProducerID if it has none.
func (b Batch) ProducerID() int64 { return b.i64(producerIDAt) }

// ProducerEpoch is the producer's epoch, NoProducerEpoch if it has none.
func (b Batch) ProducerEpoch() int16 { return b.i16(producerEpochAt) }

// BaseSequence is the first record's sequence number, NoSequence if none.
func (b Batch) BaseSequence() int32 { return b.i32(baseSequenceAt) }

// LastSequence is the sequence number that belongs to LastOffset; sequences
// wrap from 2^31-1 to 0. NoSequence if the batch has none.
func (b Batch) LastSequence() int32 {
	if b.BaseSequence() == NoSequence {
		return NoSequence
	}
	return AddSequence(b.BaseSequence(), b.LastOffsetDelta())
}

// AddSequence adds n >= 0 to a sequence number, wrapping from 2^31-1 to 0.
func AddSequence(seq, n int32) int32 { return int32((int64(seq) + int64(n)) & math.MaxInt32) }

// Count is the number of records the header tells of.
func (b Batch) Count() int32 { return b.i32(countAt) }

// String names the batch for logs.
func (b Batch) String() string {
	return fmt.Sprintf("batch [%d,%d] epoch %d, %d records, %d bytes, %s", b.BaseOffset(), b.LastOffset(), b.LeaderEpoch(), b.Count(), b.Size(), b.Codec())
}

// SetBaseOffset moves the batch to another offset; the CRC does not cover it.
func (b Batch) SetBaseOffset(offset int64) {
	binary.BigEndian.PutUint64(b[baseOffsetAt:], uint64(offset))
}

// SetLeaderEpoch stamps the leader epoch; the CRC does not cover it.
func (b Batch) SetLeaderEpoch(epoch int32) {
	binary.BigEndian.PutUint32(b[leaderEpochAt:], uint32(epoch))
}

// SetLogAppendTime makes ms the time of all records: attribute bit, max
// timestamp, and a new CRC.
func (b Batch) SetLogAppendTime(ms int64) {
	binary.BigEndian.PutUint16(b[attributesAt:], uint16(b.Attributes()|attrLogAppendTime))
	b.SetMaxTimestamp(ms)
}

// SetMaxTimestamp corrects the max timestamp (Kafka does so when a client's
// differs from its records', LogValidator.java) and computes a new CRC.
func (b Batch) SetMaxTimestamp(ms int64) {
	binary.BigEndian.PutUint64(b[maxTimestampAt:], uint64(ms))
	b.setCRC()
}

func (b Batch) setCRC() { binary.BigEndian.PutUint32(b[crcAt:], b.computeCRC()) }

func (b Batch) computeCRC() uint32 { return crc32.Checksum(b[attributesAt:], castagnoli) }

// CheckCRC compares the stored CRC with the bytes; the error is CorruptMessage.
func (b Batch) CheckCRC() error {
	if got := b.computeCRC(); got != b.CRC() {
		return protocol.Errorf(protocol.CorruptMessage, "record batch at offset %d has CRC %08x, stored is %08x", b.BaseOffset(), got, b.CRC())
	}
	return nil
}
