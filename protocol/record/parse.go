package record

import "encoding/binary"

// raw is one record as it stands in the batch.
type raw struct {
	timestampDelta int64
	offsetDelta    int32
	nullKey        bool
	key, value     []byte // nil when null; not set by skimLarge
	headerCount    int32
	headers        []byte // the headers' bytes; not set by skimLarge
}

// next reads one record into r. Records larger than the window are read in
// passing, without their contents, unless whole is set.
func (s *source) next(r *raw, whole bool) error {
	size, err := s.varint()
	if err != nil {
		return err
	}
	if size < 0 {
		return invalid("record has a size of %d bytes", size)
	}
	if int(size) > len(s.buf) {
		if s.r != nil && int(size) > windowBytes && !whole {
			return s.skimLarge(r, int64(size))
		}
		if err := s.need(int(size)); err != nil {
			return err
		}
		if int(size) > len(s.buf) {
			return errCut
		}
	}
	return r.parse(s.take(int(size)))
}

// parse reads a record's body, which must be exactly one record.
func (r *raw) parse(b []byte) error {
	if len(b) == 0 {
		return errCut
	}
	b = b[1:] // attributes: unused in magic 2
	var n int
	if r.timestampDelta, n = binary.Varint(b); n <= 0 {
		return varintError(n)
	}
	b = b[n:]
	if r.offsetDelta, n = varint32(b); n <= 0 {
		return varintError(n)
	}
	var err error
	if r.key, b, err = nullableBytes(b[n:]); err != nil {
		return err
	}
	r.nullKey = r.key == nil
	if r.value, b, err = nullableBytes(b); err != nil {
		return err
	}
	if r.headerCount, n = varint32(b); n <= 0 {
		return varintError(n)
	}
	r.headers = b[n:]
	return checkHeaders(r.headers, r.headerCount)
}

// checkHeaders walks count headers, which must fill b exactly.
func checkHeaders(b []byte, count int32) error {
	// A header is at least two bytes, so the count cannot make the loop long.
	if count < 0 || int(count) > len(b)/2 {
		return invalid("record has %d headers in %d bytes", count, len(b))
	}
	for range count {
		var err error
		if _, _, b, err = cutHeader(b); err != nil {
			return err
		}
	}
	if len(b) > 0 {
		return invalid("record has %d bytes after its headers", len(b))
	}
	return nil
}

func cutHeader(b []byte) (key, value, rest []byte, err error) {
	if key, rest, err = nullableBytes(b); err != nil {
		return nil, nil, nil, err
	}
	if key == nil {
		return nil, nil, nil, invalid("record has a header without a key")
	}
	value, rest, err = nullableBytes(rest)
	return key, value, rest, err
}

// nullableBytes cuts a length and that many bytes off b. Length -1 is null,
// which is nil; an empty run is not nil.
func nullableBytes(b []byte) (v, rest []byte, err error) {
	size, n := varint32(b)
	if n <= 0 {
		return nil, nil, varintError(n)
	}
	b = b[n:]
	if size < 0 {
		if size != -1 {
			return nil, nil, invalid("record has a field of %d bytes", size)
		}
		return nil, b, nil
	}
	if int(size) > len(b) {
		return nil, nil, errCut
	}
	return b[:size:size], b[size:], nil
}

// skimLarge reads a record of size bytes in passing: key, value and headers are
// checked and dropped, however large they are.
func (s *source) skimLarge(r *raw, size int64) (err error) {
	end := s.off + size
	*r = raw{}
	if err := s.skip(1); err != nil {
		return err
	}
	if r.timestampDelta, err = s.varlong(); err != nil {
		return err
	}
	if r.offsetDelta, err = s.varint(); err != nil {
		return err
	}
	if r.nullKey, err = s.skipField(end); err != nil {
		return err
	}
	if _, err = s.skipField(end); err != nil {
		return err
	}
	if r.headerCount, err = s.varint(); err != nil {
		return err
	}
	if r.headerCount < 0 || int64(r.headerCount) > (end-s.off)/2 {
		return invalid("record has %d headers in %d bytes", r.headerCount, end-s.off)
	}
	for range r.headerCount {
		null, err := s.skipField(end)
		if err != nil {
			return err
		}
		if null {
			return invalid("record has a header without a key")
		}
		if _, err := s.skipField(end); err != nil {
			return err
		}
	}
	if s.off != end {
		return invalid("record of %d bytes has fields of %d", size, size+s.off-end)
	}
	return nil
}

// skipField skips a length and that many bytes, within the record's end.
func (s *source) skipField(end int64) (null bool, err error) {
	size, err := s.varint()
	if err != nil {
		return false, err
	}
	if size < -1 || int64(size) > end-s.off {
		return false, invalid("record has a field of %d bytes in %d", size, end-s.off)
	}
	return size == -1, s.skip(max(int(size), 0))
}
