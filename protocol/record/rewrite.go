package record

import (
	"encoding/binary"
	"io"
	"math"
	"slices"

	"varve/protocol"
)

// Rewrite returns a copy of b with another codec. Offsets, times, producer
// fields and the records' own bytes stay. Level is DefaultLevel or as the
// codec's level config.
//
// The CRC of b is checked first, so that a new CRC never blesses broken bytes;
// the records are not looked at: Validate comes first for bytes from clients.
// Errors: CorruptMessage, InvalidRecord when b does not decompress within
// MaxDecompressedBytes, MessageTooLarge when the result does not fit a batch.
func Rewrite(b Batch, codec Codec, level int) (Batch, error) {
	if err := b.CheckCRC(); err != nil {
		return nil, err
	}
	out, err := recoded(b, codec, level)
	if err != nil {
		return nil, err
	}
	out.setCRC()
	return out, nil
}

// recoded returns a copy of b whose record section is in another codec, with
// the old CRC.
func recoded(b Batch, codec Codec, level int) (Batch, error) {
	switch {
	case codec == b.Codec() || len(b) == HeaderLen:
		return slices.Clone(b), nil
	case b.Codec() == None:
		return compressed(b, codec, level)
	}
	d, err := openDecoder(b.Codec(), b[HeaderLen:], MaxDecompressedBytes)
	if err != nil {
		return nil, err
	}
	defer d.close()
	return recompressed(b, &d.source, codec, level)
}

// compressed returns a copy of the uncompressed batch b with its records
// compressed; length and codec are set, the CRC is not.
func compressed(b Batch, codec Codec, level int) (Batch, error) {
	return recompressed(b, &source{buf: b[HeaderLen:]}, codec, level)
}

func recompressed(b Batch, s *source, codec Codec, level int) (Batch, error) {
	w := &sliceWriter{b: append(make([]byte, 0, HeaderLen+len(b)/2), b[:HeaderLen]...)}
	if codec == None {
		if err := s.writeTo(w); err != nil {
			return nil, err
		}
	} else {
		e, release, err := openEncoder(codec, level, w)
		if err != nil {
			return nil, err
		}
		defer release()
		if err := s.writeTo(e); err != nil {
			return nil, err
		}
		if err := e.Close(); err != nil {
			return nil, err
		}
	}
	out := Batch(w.b)
	binary.BigEndian.PutUint32(out[lengthAt:], uint32(len(out)-lengthOverhead))
	binary.BigEndian.PutUint16(out[attributesAt:], uint16(b.Attributes()&^attrCodec)|uint16(codec))
	return out, nil
}

// writeTo writes all that is left.
func (s *source) writeTo(w io.Writer) error {
	for {
		if err := s.need(1); err != nil || len(s.buf) == 0 {
			return err
		}
		if _, err := w.Write(s.take(len(s.buf))); err != nil {
			return err
		}
	}
}

// sliceWriter appends to a slice, up to the largest batch.
type sliceWriter struct{ b []byte }

// Write implements io.Writer.
func (w *sliceWriter) Write(p []byte) (int, error) {
	if len(w.b)+len(p) > math.MaxInt32 {
		return 0, protocol.Errorf(protocol.MessageTooLarge, "record batch of more than %d bytes", math.MaxInt32)
	}
	w.b = append(w.b, p...)
	return len(p), nil
}
