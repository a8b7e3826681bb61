package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Bounds of what zstd decoders hold while they stream. A frame's header names
// its window, and the decoder allocates it at once.
const (
	// smallZstdWindowBytes is the largest window that any number of decoders may
	// have; the levels up to 19 stay within it.
	smallZstdWindowBytes = 8 << 20
	// bigZstdWindowBytes is the window of zstd's level 22.
	bigZstdWindowBytes = 128 << 20
	// maxBigZstdDecoders is how many decoders may have a larger window than the
	// small one at a time.
	maxBigZstdDecoders = 2
	// maxZstdRatio is more than zstd can expand (128 KiB from 4 bytes): a frame
	// that claims a larger content lies.
	maxZstdRatio = 64 << 10
)

// decoder streams the decompressed record section of one batch. Decoders are
// pooled by codec.
type decoder struct {
	source
	codec   Codec
	window  []byte
	in      bytes.Reader
	gzip    gzip.Reader
	lz4     *lz4.Reader
	snappy  snappyReader
	zstd    *zstd.Decoder
	bigZstd *zstd.Decoder // while it holds one of bigZstdPlaces
}

var (
	decoders      [Zstd + 1]sync.Pool
	bigZstdPlaces = make(chan struct{}, maxBigZstdDecoders)
)

// openDecoder returns a decoder at the start of src that ends with an error
// after maxBytes of output. It must be closed. Nobody may wait for a decoder
// while holding one: those with large zstd windows are few.
func openDecoder(codec Codec, src []byte, maxBytes int64) (*decoder, error) {
	if codec <= None || codec > Zstd {
		return nil, invalid("unknown compression codec %d", codec)
	}
	d, _ := decoders[codec].Get().(*decoder)
	if d == nil {
		d = &decoder{codec: codec, window: make([]byte, windowBytes)}
	}
	d.source = source{store: d.window, left: maxBytes}
	r, err := d.open(src)
	if err != nil {
		d.close()
		return nil, decompressError(err)
	}
	d.r = r
	return d, nil
}

// close gives the decoder back.
func (d *decoder) close() {
	d.source = source{}
	d.in.Reset(nil)
	d.snappy.release()
	if d.bigZstd != nil {
		d.bigZstd.Close()
		d.bigZstd = nil
		<-bigZstdPlaces
	}
	decoders[d.codec].Put(d)
}

func (d *decoder) open(src []byte) (io.Reader, error) {
	d.in.Reset(src)
	switch d.codec {
	case Gzip:
		return &d.gzip, d.gzip.Reset(&d.in)
	case Snappy:
		d.snappy.reset(src, d.left)
		return &d.snappy, nil
	case LZ4:
		frame, err := lz4Frame(src)
		if err != nil {
			return nil, err
		}
		d.in.Reset(frame)
		if d.lz4 == nil {
			d.lz4 = lz4.NewReader(nil)
		}
		d.lz4.Reset(&d.in)
		return d.lz4, nil
	}
	return d.openZstd(src)
}

func (d *decoder) openZstd(src []byte) (io.Reader, error) {
	var head zstd.Header
	if err := head.Decode(src); err != nil {
		return nil, err
	}
	window := head.WindowSize
	if head.HasFCS {
		if head.FrameContentSize > uint64(d.left) {
			return nil, errTooLarge
		}
		if head.FrameContentSize > uint64(len(src))*maxZstdRatio {
			return nil, errors.New("zstd frame claims more than its bytes can hold")
		}
		if head.SingleSegment {
			window = head.FrameContentSize
		}
	}
	var err error
	if window > smallZstdWindowBytes {
		bigZstdPlaces <- struct{}{}
		if d.bigZstd, err = newZstdDecoder(bigZstdWindowBytes, uint64(d.left)); err != nil {
			<-bigZstdPlaces
			return nil, err
		}
		return d.bigZstd, d.bigZstd.Reset(&d.in)
	}
	if d.zstd == nil {
		if d.zstd, err = newZstdDecoder(smallZstdWindowBytes, smallZstdWindowBytes); err != nil {
			return nil, err
		}
	}
	return d.zstd, d.zstd.Reset(&d.in)
}

// newZstdDecoder returns a decoder without goroutines. The two bounds are for
// frames that name a window and for those that are one segment.
func newZstdDecoder(windowBytes, segmentBytes uint64) (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(windowBytes), zstd.WithDecoderMaxMemory(segmentBytes))
}

var errLZ4Frame = errors.New("malformed lz4 frame")

// lz4Frame returns the first frame of src, which is all that Kafka's own reader
// decodes: independent blocks, no dictionary (Lz4BlockInputStream.java).
func lz4Frame(src []byte) ([]byte, error) {
	const (
		magic           = 0x184d2204
		versionMask     = 0xc0
		version1        = 0x40
		flagIndependent = 0x20
		flagBlockSum    = 0x10
		flagSize        = 0x08
		flagContentSum  = 0x04
		flagDictionary  = 0x01
		storedBit       = 1 << 31
	)
	if len(src) < 7 || binary.LittleEndian.Uint32(src) != magic {
		return nil, errLZ4Frame
	}
	flags, at := src[4], 7
	if flags&versionMask != version1 || flags&flagIndependent == 0 || flags&flagDictionary != 0 {
		return nil, errors.New("lz4 frame of another version, with dependent blocks or a dictionary")
	}
	if flags&flagSize != 0 {
		at += 8
	}
	for at+4 <= len(src) {
		size := int(binary.LittleEndian.Uint32(src[at:]) &^ storedBit)
		at += 4
		if size == 0 {
			if flags&flagContentSum != 0 {
				at += 4
			}
			if at > len(src) {
				return nil, errLZ4Frame
			}
			return src[:at], nil
		}
		if flags&flagBlockSum != 0 {
			size += 4
		}
		if size > len(src)-at {
			return nil, errLZ4Frame
		}
		at += size
	}
	return nil, errLZ4Frame
}
