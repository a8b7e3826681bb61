package commitlog

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"varve/protocol"
	"varve/protocol/record"
)

// headerChunkBytes is what one read of a walk over batch headers takes: small
// batches lie in it by the dozen, large ones cost one read each.
const headerChunkBytes = 4096

var chunkPool = sync.Pool{New: func() any { return new([headerChunkBytes]byte) }}

// headerScan walks the batch headers of a log file. It reads no records, so a
// header's Size is not the batch's; size is.
type headerScan struct {
	src   io.ReaderAt
	where string
	pos   int64 // of the batch that next will return
	end   int64 // of the valid part of the file

	buf   *[headerChunkBytes]byte
	bufAt int64
	bufN  int
}

// scanHeaders starts at pos, which is where a batch begins. close must be called.
func scanHeaders(src io.ReaderAt, where string, pos, end int64) headerScan {
	return headerScan{src: src, where: where, pos: pos, end: end, buf: chunkPool.Get().(*[headerChunkBytes]byte)}
}

func (s *headerScan) close() { chunkPool.Put(s.buf) }

// next returns the header of the next batch, valid until the call after, where
// the batch begins and its whole size in bytes. io.EOF ends the walk; anything
// else than whole batches is a CorruptionError.
func (s *headerScan) next() (h record.Batch, pos, size int64, err error) {
	if s.pos == s.end {
		return nil, 0, 0, io.EOF
	}
	if s.end-s.pos < record.HeaderLen {
		return nil, 0, 0, s.corrupt(io.ErrUnexpectedEOF)
	}
	if s.pos < s.bufAt || s.pos+record.HeaderLen > s.bufAt+int64(s.bufN) {
		want := min(s.end-s.pos, headerChunkBytes)
		n, err := s.src.ReadAt(s.buf[:want], s.pos)
		if int64(n) < want {
			if err == nil || errors.Is(err, io.EOF) {
				err = s.corrupt(io.ErrUnexpectedEOF)
			}
			return nil, 0, 0, err
		}
		s.bufAt, s.bufN = s.pos, n
	}
	h = record.Batch(s.buf[s.pos-s.bufAt:][:record.HeaderLen])
	n, err := record.PeekSize(h)
	if err != nil {
		return nil, 0, 0, s.corrupt(err)
	}
	if int64(n) > s.end-s.pos {
		return nil, 0, 0, s.corrupt(io.ErrUnexpectedEOF)
	}
	if h.LastOffsetDelta() < 0 {
		return nil, 0, 0, s.corrupt(fmt.Errorf("last offset delta is %d", h.LastOffsetDelta()))
	}
	pos, size = s.pos, int64(n)
	s.pos += size
	return h, pos, size, nil
}

func (s *headerScan) corrupt(err error) error {
	return &protocol.CorruptionError{Where: fmt.Sprintf("%s at byte %d", s.where, s.pos), What: err.Error()}
}

// readBatch reads one whole batch.
func readBatch(src io.ReaderAt, where string, pos, size int64) (record.Batch, error) {
	buf := make([]byte, size)
	if n, err := src.ReadAt(buf, pos); n < len(buf) {
		if err == nil || errors.Is(err, io.EOF) {
			err = &protocol.CorruptionError{Where: fmt.Sprintf("%s at byte %d", where, pos), What: io.ErrUnexpectedEOF.Error()}
		}
		return nil, err
	}
	b, _, err := record.Next(buf)
	if err != nil {
		return nil, &protocol.CorruptionError{Where: fmt.Sprintf("%s at byte %d", where, pos), What: err.Error()}
	}
	return b, nil
}

// recoverChunkBytes is what recovery reads at a time.
const recoverChunkBytes = 1 << 20

// batchScan reads whole batches one after the other, for recovery. Its buffer
// grows to the largest batch, which is never larger than the file.
type batchScan struct {
	src      io.ReaderAt
	pos, end int64 // of what is not yet returned
	buf      []byte
	rest     []byte // unread part of buf; begins at pos
}

// next returns the next batch, valid until the call after, and where it
// begins. io.EOF ends the walk; io.ErrUnexpectedEOF and Kafka codes name a torn
// or foreign batch; other errors are the disk's.
func (s *batchScan) next() (record.Batch, int64, error) {
	for {
		b, rest, err := record.Next(s.rest)
		if err == nil {
			pos := s.pos
			s.pos += int64(len(b))
			s.rest = rest
			return b, pos, nil
		}
		if err != io.EOF && err != io.ErrUnexpectedEOF {
			return nil, s.pos, err
		}
		grown, ferr := s.fill()
		if ferr != nil {
			return nil, s.pos, ferr
		}
		if !grown {
			return nil, s.pos, err
		}
	}
}

// fill makes rest longer; false when it already reaches the end of the file or the
// batch claims to.
func (s *batchScan) fill() (bool, error) {
	left := s.end - s.pos
	if int64(len(s.rest)) == left {
		return false, nil
	}
	want := int64(recoverChunkBytes)
	if n, err := record.PeekSize(s.rest); err == nil {
		if int64(n) > left {
			return false, nil
		}
		want = max(want, int64(n))
	}
	want = min(want, left)
	if int64(cap(s.buf)) < want {
		s.buf = make([]byte, want)
	}
	s.buf = s.buf[:want]
	n, err := s.src.ReadAt(s.buf, s.pos)
	if int64(n) < want {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return false, err
	}
	s.rest = s.buf
	return true, nil
}
