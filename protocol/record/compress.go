package record

import (
	"encoding/binary"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"varve/protocol"
)

// DefaultLevel stands for each codec's default compression level.
const DefaultLevel = 0

// zstdWindowBytes is the window we compress with. Batches are seldom larger,
// and readers allocate it.
const zstdWindowBytes = 512 << 10

// encoder is a streaming compressor that can be used again.
type encoder interface {
	io.WriteCloser
	Reset(io.Writer)
}

type encoderKey struct {
	codec Codec
	level int // normal form: one of few per codec
}

// encoders holds a *sync.Pool per encoderKey; there are at most 24 of them.
var encoders sync.Map

// normalLevel maps a level of Kafka's config keys (compression.gzip.level,
// compression.lz4.level, compression.zstd.level) to one of those that make a
// difference here.
func normalLevel(codec Codec, level int) int {
	switch {
	case codec == Gzip && level >= gzip.BestSpeed && level <= gzip.BestCompression:
		return level
	case codec == Gzip:
		return gzip.DefaultCompression
	case codec == LZ4 && level != lz4DefaultLevel && level > 0:
		return min(level, lz4DefaultLevel)
	case codec == Zstd && level != DefaultLevel:
		return int(zstd.EncoderLevelFromZstd(level))
	case codec == Zstd:
		return int(zstd.SpeedDefault)
	}
	return DefaultLevel
}

// lz4DefaultLevel is the level at which Kafka uses the fast compressor
// (Lz4BlockOutputStream.java); all others are of the high compressor.
const lz4DefaultLevel = 9

func openEncoder(codec Codec, level int, w io.Writer) (encoder, func(), error) {
	key := encoderKey{codec, normalLevel(codec, level)}
	p, ok := encoders.Load(key)
	if !ok {
		p, _ = encoders.LoadOrStore(key, new(sync.Pool))
	}
	pool := p.(*sync.Pool)
	e, _ := pool.Get().(encoder)
	if e == nil {
		var err error
		if e, err = newEncoder(key); err != nil {
			return nil, nil, &protocol.InvariantError{What: "compressor: " + err.Error()}
		}
	}
	e.Reset(w)
	return e, func() { e.Reset(nil); pool.Put(e) }, nil
}

func newEncoder(key encoderKey) (encoder, error) {
	switch key.codec {
	case Gzip:
		return gzip.NewWriterLevel(nil, key.level)
	case Snappy:
		return new(xerialWriter), nil
	case LZ4:
		w := lz4.NewWriter(nil)
		level := lz4.Fast
		if key.level != DefaultLevel {
			level = lz4.CompressionLevel(1 << (8 + key.level))
		}
		return w, w.Apply(lz4.ConcurrencyOption(1), lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.CompressionLevelOption(level))
	case Zstd:
		return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithZeroFrames(true),
			zstd.WithWindowSize(zstdWindowBytes), zstd.WithEncoderLevel(zstd.EncoderLevel(key.level)))
	}
	return nil, &protocol.InvariantError{What: "no compressor for codec " + key.codec.String()}
}

// xerialWriter writes snappy the way snappy-java does, which every client reads.
type xerialWriter struct {
	w       io.Writer
	pending []byte // less than a block
	out     []byte
	started bool
}

// Reset implements encoder.
func (x *xerialWriter) Reset(w io.Writer) { x.w, x.pending, x.started = w, x.pending[:0], false }

// Write implements io.Writer.
func (x *xerialWriter) Write(p []byte) (int, error) {
	written := len(p)
	for len(x.pending)+len(p) >= xerialBlockBytes {
		n := xerialBlockBytes - len(x.pending)
		x.pending = append(x.pending, p[:n]...)
		p = p[n:]
		if err := x.flush(); err != nil {
			return 0, err
		}
	}
	x.pending = append(x.pending, p...)
	return written, nil
}

// Close writes what is pending.
func (x *xerialWriter) Close() error {
	if len(x.pending) == 0 && x.started {
		return nil
	}
	return x.flush()
}

func (x *xerialWriter) flush() error {
	x.out = x.out[:0]
	if !x.started {
		x.out, x.started = append(x.out, xerialHeader...), true
	}
	if len(x.pending) > 0 {
		at := len(x.out)
		if need := at + 4 + s2.MaxEncodedLen(len(x.pending)); cap(x.out) < need {
			x.out = append(make([]byte, 0, need), x.out...)
		}
		block := s2.EncodeSnappy(x.out[at+4:cap(x.out)], x.pending)
		x.out = binary.BigEndian.AppendUint32(x.out, uint32(len(block)))
		x.out = x.out[:at+4+len(block)]
		x.pending = x.pending[:0]
	}
	_, err := x.w.Write(x.out)
	return err
}
