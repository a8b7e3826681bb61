package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/s2"
)

// Snappy comes in two forms: one raw block (librdkafka, most Go clients), or
// the framing of snappy-java (SnappyOutputStream, "xerial"): a header of 8
// magic bytes, version and lowest compatible version, then for each block of up
// to 32 KiB its length and the block.
var xerialHeader = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}

const (
	xerialMagicLen   = 8
	xerialBlockBytes = 32 << 10
	// maxSnappyRatio is more than snappy can expand: 64 bytes from 3.
	maxSnappyRatio = 22
	// keepSnappyBytes is the largest block buffer that a pooled decoder keeps.
	keepSnappyBytes = 1 << 20
)

var errSnappy = errors.New("malformed snappy data")

// snappyReader streams both forms, one block at a time.
type snappyReader struct {
	rest   []byte // compressed, unread
	framed bool
	left   int64  // bound of the output
	out    []byte // decompressed, unread
	buf    []byte // backs out
}

func (r *snappyReader) reset(src []byte, maxBytes int64) {
	r.rest, r.left, r.out = src, maxBytes, nil
	r.framed = bytes.HasPrefix(src, xerialHeader[:xerialMagicLen])
}

func (r *snappyReader) release() {
	r.rest, r.out = nil, nil
	if cap(r.buf) > keepSnappyBytes {
		r.buf = nil
	}
}

// Read implements io.Reader.
func (r *snappyReader) Read(p []byte) (int, error) {
	for len(r.out) == 0 {
		if len(r.rest) == 0 {
			return 0, io.EOF
		}
		block, err := r.cutBlock()
		if err != nil {
			return 0, err
		}
		if err := r.decode(block); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

func (r *snappyReader) cutBlock() ([]byte, error) {
	block := r.rest
	if !r.framed {
		r.rest = nil
		return block, nil
	}
	// A header may come again where streams were joined.
	for bytes.HasPrefix(block, xerialHeader[:xerialMagicLen]) {
		if len(block) < len(xerialHeader) || binary.BigEndian.Uint32(block[xerialMagicLen:]) < 1 {
			return nil, errSnappy
		}
		block = block[len(xerialHeader):]
	}
	if len(block) == 0 {
		r.rest = nil
		return nil, nil
	}
	if len(block) < 4 {
		return nil, errSnappy
	}
	size := int64(binary.BigEndian.Uint32(block))
	block = block[4:]
	if size > int64(len(block)) {
		return nil, errSnappy
	}
	r.rest = block[size:]
	return block[:size], nil
}

func (r *snappyReader) decode(block []byte) error {
	if len(block) == 0 {
		return nil
	}
	n, headerLen := binary.Uvarint(block)
	if headerLen <= 0 || n > uint64(len(block))*maxSnappyRatio || !plainSnappy(block[headerLen:]) {
		return errSnappy
	}
	if r.left -= int64(n); r.left < 0 {
		return errTooLarge
	}
	if uint64(cap(r.buf)) < n {
		r.buf = make([]byte, max(n, xerialBlockBytes))
	}
	out, err := s2.Decode(r.buf[:n], block)
	r.out = out
	return err
}

// plainSnappy reports whether a block's tags are snappy's. The decoder also
// knows the S2 extension (an offset of 0 repeats the last one), which other
// clients would fail on.
func plainSnappy(tags []byte) bool {
	for at := 0; at < len(tags); {
		tag := tags[at]
		switch tag & 3 {
		case 0:
			n := int64(tag >> 2)
			if extra := int(n) - 59; extra > 0 {
				if at+extra >= len(tags) {
					return false
				}
				n = 0
				for i := extra; i > 0; i-- {
					n = n<<8 | int64(tags[at+i])
				}
				at += extra
			}
			if n >= int64(len(tags)-at-1) {
				return false
			}
			at += int(n) + 2
		case 1:
			if at+1 >= len(tags) || tag&0xe0 == 0 && tags[at+1] == 0 {
				return false
			}
			at += 2
		case 2:
			at += 3
		case 3:
			at += 5
		}
	}
	return true
}
