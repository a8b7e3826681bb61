package record

import (
	"encoding/binary"
	"errors"
	"io"
	"math"

	"varve/protocol"
)

// windowBytes is how much decompressed data is looked at in one piece; only a
// caller that wants a larger record's bytes makes the window grow.
const windowBytes = 32 << 10

// maxIdleReads is how often in a row a decompressor may return nothing.
const maxIdleReads = 100

// The longest varints of a record (ByteUtils.java): of 64 bits, which only the
// timestamp delta is, and of 32.
const (
	maxVarintBytes   = 10
	maxVarint32Bytes = 5
)

// source is the record section of a batch as a window that moves over it. An
// uncompressed section is one window from the start (r is nil).
type source struct {
	buf   []byte    // the unread window
	r     io.Reader // more of it; nil when buf is all there is
	store []byte    // backs buf when r is not nil
	left  int64     // bytes that may still come from r: the decompression bound
	off   int64     // bytes consumed so far
}

func invalid(format string, args ...any) error {
	return protocol.Errorf(protocol.InvalidRecord, format, args...)
}

var (
	errCut      = invalid("record section ends inside a record")
	errVarint   = invalid("record has a malformed varint")
	errTooLarge = invalid("record batch decompresses to more than the bound")
)

// need makes the window hold n bytes, or all that is left. It never allocates
// more than twice what the decompressor has really produced.
func (s *source) need(n int) error {
	for idle := 0; len(s.buf) < n && s.r != nil; {
		used := len(s.buf)
		if err := s.fill(n); err != nil {
			return err
		}
		if idle++; len(s.buf) > used {
			idle = 0
		}
		if idle > maxIdleReads {
			return decompressError(io.ErrNoProgress)
		}
	}
	return nil
}

// fill reads once into the window, moving or growing it when it is full.
func (s *source) fill(n int) error {
	used := len(s.buf)
	if used == 0 || cap(s.buf) < n {
		if used == len(s.store) && used > 0 {
			s.store = append(make([]byte, 0, min(n, 2*used)), s.buf...)[:min(n, 2*used)]
		} else {
			copy(s.store, s.buf)
		}
		s.buf = s.store[:used]
	}
	got, err := guardedRead(s.r, s.buf[used:cap(s.buf)])
	s.buf = s.buf[:used+got]
	if s.left -= int64(got); s.left < 0 {
		return errTooLarge
	}
	switch {
	case err == io.EOF:
		s.r = nil
	case err != nil:
		return decompressError(err)
	}
	return nil
}

// guardedRead turns a panic of a decompressor, which only bytes from the network
// could have caused, into an error.
func guardedRead(r io.Reader, p []byte) (n int, err error) {
	defer func() {
		if v := recover(); v != nil {
			n, err = 0, invalid("record batch does not decompress: %v", v)
		}
	}()
	return r.Read(p)
}

// decompressError gives what a decompressor says a code that clients do not
// retry on: sending the same bytes again does not help.
func decompressError(err error) error {
	var typed *protocol.Error
	if errors.As(err, &typed) {
		return err
	}
	return invalid("record batch does not decompress: %v", err)
}

func (s *source) take(n int) []byte {
	b := s.buf[:n:n]
	s.buf = s.buf[n:]
	s.off += int64(n)
	return b
}

// skip drops n bytes without keeping them.
func (s *source) skip(n int) error {
	for n > len(s.buf) {
		n -= len(s.buf)
		s.take(len(s.buf))
		if err := s.need(1); err != nil {
			return err
		}
		if len(s.buf) == 0 {
			return errCut
		}
	}
	s.take(n)
	return nil
}

// varint reads a 32-bit zigzag varint.
func (s *source) varint() (int32, error) {
	if len(s.buf) < maxVarintBytes {
		if err := s.need(maxVarintBytes); err != nil {
			return 0, err
		}
	}
	v, n := varint32(s.buf)
	if n <= 0 {
		return 0, varintError(n)
	}
	s.take(n)
	return v, nil
}

func (s *source) varlong() (int64, error) {
	if err := s.need(maxVarintBytes); err != nil {
		return 0, err
	}
	v, n := binary.Varint(s.buf)
	if n <= 0 {
		return 0, varintError(n)
	}
	s.take(n)
	return v, nil
}

func varintError(n int) error {
	if n == 0 {
		return errCut
	}
	return errVarint
}

// atEnd reports whether nothing is left.
func (s *source) atEnd() (bool, error) {
	err := s.need(1)
	return len(s.buf) == 0, err
}

// varint32 decodes a zigzag varint of at most 32 bits: n is 0 when b ends
// inside it, below 0 when it is too long.
func varint32(b []byte) (v int32, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		u := uint32(b[0])
		return int32(u>>1) ^ -int32(u&1), 1
	}
	u, n := binary.Uvarint(b)
	if n > maxVarint32Bytes || n > 0 && u > math.MaxUint32 {
		return 0, -n
	}
	return int32(uint32(u)>>1) ^ -int32(u&1), n
}
