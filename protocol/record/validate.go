package record

import (
	"fmt"
	"math"

	"varve/protocol"
)

// MaxDecompressedBytes bounds what one batch may decompress to, unless a caller
// sets another bound.
const MaxDecompressedBytes = 256 << 20

// maxRecordErrors bounds how many refused records an answer names.
const maxRecordErrors = 100

// Limits says what Validate holds a batch to.
type Limits struct {
	// Client turns on the rules for batches that producers send: offset deltas
	// 0, 1, 2, ..., last offset delta = count - 1, at least one record, no
	// control batch, no log append time or delete horizon, a sequence and an
	// epoch when there is a producer id. Without it gaps in the offsets are
	// legal, as compaction leaves them.
	Client bool
	// RequireKeys refuses records without a key (compacted topics).
	RequireKeys bool
	// CheckTimestamps refuses records whose timestamp is before
	// NowMs - BeforeMaxMs or after NowMs + AfterMaxMs; NoTimestamp passes.
	// Topics with log append time leave it off.
	CheckTimestamps                bool
	NowMs, BeforeMaxMs, AfterMaxMs int64
	// MaxDecompressedBytes overrides the package's bound when above 0.
	MaxDecompressedBytes int64
}

// Info is what Validate learned about the records.
type Info struct {
	Count                int32
	MaxTimestamp         int64 // largest record timestamp, ms; NoTimestamp when there is none
	OffsetOfMaxTimestamp int64 // of the first record that has it; -1 when there is none
	NullKeys             int32
	UncompressedBytes    int64 // of the record section
}

// RecordError is what is wrong with one record of a batch.
type RecordError struct {
	Index   int32 // position in the batch, from 0
	Message string
}

// RecordsError refuses a batch because of some of its records; it carries what
// Produce answers as record errors (KIP-467). Its code is InvalidTimestamp when
// a timestamp was out of range, else InvalidRecord.
type RecordsError struct {
	Code    protocol.ErrorCode
	Records []RecordError // the first maxRecordErrors of them
	Count   int           // of refused records
}

// Error implements error.
func (e *RecordsError) Error() string {
	return fmt.Sprintf("%s: %d records refused, first: record %d: %s", e.Code.Name(), e.Count, e.Records[0].Index, e.Records[0].Message)
}

// Unwrap gives protocol.CodeOf the code.
func (e *RecordsError) Unwrap() error { return e.Code }

// Validate checks everything about a batch: CRC, header, every record's
// structure, the rules of lim. Compressed records are decompressed in passing, up to
// the bound, and never held in memory as a whole.
//
// Errors: CorruptMessage for a wrong CRC (clients retry), InvalidRecord or
// InvalidTimestamp otherwise (they do not); a *RecordsError names the records.
// Info is valid only when the error is nil.
func (b Batch) Validate(lim Limits) (Info, error) {
	if err := b.CheckCRC(); err != nil {
		return Info{}, err
	}
	if err := b.checkHeader(lim.Client); err != nil {
		return Info{}, err
	}
	v := validator{lim: lim, batch: b, prevDelta: -1}
	v.info.MaxTimestamp, v.info.OffsetOfMaxTimestamp = NoTimestamp, -1
	if b.Codec() == None || len(b) == HeaderLen {
		s := source{buf: b[HeaderLen:]}
		return v.run(&s)
	}
	d, err := openDecoder(b.Codec(), b[HeaderLen:], decompressBound(lim.MaxDecompressedBytes))
	if err != nil {
		return Info{}, err
	}
	defer d.close()
	return v.run(&d.source)
}

func decompressBound(override int64) int64 {
	if override > 0 {
		return override
	}
	return MaxDecompressedBytes
}

// checkHeader holds the header's fields against each other
// (LogValidator.validateBatch, and what DefaultRecordBatch assumes).
func (b Batch) checkHeader(client bool) error {
	count, last := b.Count(), b.LastOffsetDelta()
	switch {
	case b.Codec() > Zstd:
		return invalid("record batch has unknown compression codec %d", b.Codec())
	case count < 0 || last < 0:
		return invalid("record batch has %d records and a last offset delta of %d", count, last)
	case int64(count) > int64(last)+1:
		return invalid("record batch has %d records in a range of %d offsets", count, int64(last)+1)
	case !client:
		return nil
	case count == 0:
		return invalid("record batch is empty")
	case count != last+1:
		return invalid("record batch has %d records in a range of %d offsets", count, int64(last)+1)
	case b.Control():
		return invalid("clients are not allowed to write control records")
	case b.HasDeleteHorizon():
		return invalid("clients are not allowed to set a delete horizon")
	case b.LogAppendTime():
		return protocol.Errorf(protocol.InvalidTimestamp, "producers are not allowed to set the timestamp type to log append time")
	case b.ProducerID() >= 0 && (b.BaseSequence() < 0 || b.ProducerEpoch() < 0):
		return invalid("record batch of producer %d has sequence %d and epoch %d", b.ProducerID(), b.BaseSequence(), b.ProducerEpoch())
	case b.Transactional() && b.ProducerID() < 0:
		return invalid("transactional record batch has no producer id")
	}
	return nil
}

type validator struct {
	lim       Limits
	batch     Batch
	info      Info
	prevDelta int32
	refused   *RecordsError
}

func (v *validator) run(s *source) (Info, error) {
	var (
		r       raw
		count   = v.batch.Count()
		base    = v.batch.BaseTimestamp()
		logTime = v.batch.LogAppendTime()
	)
	for i := range count {
		if err := s.next(&r, false); err != nil {
			return Info{}, err
		}
		if err := v.offset(i, r.offsetDelta); err != nil {
			return Info{}, err
		}
		ts := base + r.timestampDelta
		if logTime {
			ts = v.batch.MaxTimestamp()
		}
		v.record(i, ts, r.nullKey)
	}
	end, err := s.atEnd()
	if err != nil {
		return Info{}, err
	}
	if !end {
		return Info{}, invalid("record batch has bytes after its %d records", count)
	}
	if v.refused != nil {
		return Info{}, v.refused
	}
	v.info.Count, v.info.UncompressedBytes = count, s.off
	return v.info, nil
}

func (v *validator) offset(i, delta int32) error {
	if v.lim.Client && delta != i {
		return invalid("record %d of the batch has offset delta %d", i, delta)
	}
	if delta <= v.prevDelta || delta > v.batch.LastOffsetDelta() {
		return invalid("record %d of the batch has offset delta %d after %d, the last is %d", i, delta, v.prevDelta, v.batch.LastOffsetDelta())
	}
	v.prevDelta = delta
	return nil
}

func (v *validator) record(i int32, ts int64, nullKey bool) {
	if ts > v.info.MaxTimestamp {
		v.info.MaxTimestamp = ts
		v.info.OffsetOfMaxTimestamp = v.batch.BaseOffset() + int64(v.prevDelta)
	}
	if nullKey {
		v.info.NullKeys++
		if v.lim.RequireKeys {
			v.refuse(protocol.InvalidRecord, i, "compacted topic cannot accept a record without key")
			return
		}
	}
	if v.lim.CheckTimestamps && ts != NoTimestamp && !v.lim.timestampFits(ts) {
		v.refuse(protocol.InvalidTimestamp, i, fmt.Sprintf("timestamp %d is out of range: more than %d ms before or %d ms after %d",
			ts, v.lim.BeforeMaxMs, v.lim.AfterMaxMs, v.lim.NowMs))
	}
}

func (lim *Limits) timestampFits(ts int64) bool {
	latest := int64(math.MaxInt64)
	if lim.AfterMaxMs < math.MaxInt64-lim.NowMs {
		latest = lim.NowMs + lim.AfterMaxMs
	}
	return ts >= lim.NowMs-lim.BeforeMaxMs && ts <= latest
}

func (v *validator) refuse(code protocol.ErrorCode, i int32, message string) {
	if v.refused == nil {
		v.refused = &RecordsError{Code: code}
	}
	if code == protocol.InvalidTimestamp {
		v.refused.Code = code
	}
	v.refused.Count++
	if len(v.refused.Records) < maxRecordErrors {
		v.refused.Records = append(v.refused.Records, RecordError{Index: i, Message: message})
	}
}
