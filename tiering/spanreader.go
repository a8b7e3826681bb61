package tiering

import (
	"io"

	"varve/protocol"
)

// spanReaderAt reads a span from its start, wherever its bytes are.
type spanReaderAt struct{ protocol.Span }

func spanReader(s protocol.Span) io.ReaderAt { return spanReaderAt{s} }

// ReadAt implements io.ReaderAt within the span.
func (s spanReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= s.Len {
		return 0, io.EOF
	}
	short := int64(len(p)) > s.Len-off
	if short {
		p = p[:s.Len-off]
	}
	var n int
	var err error
	if s.File == nil {
		n = copy(p, s.Bytes[off:s.Len])
	} else {
		n, err = s.File.ReadAt(p, s.Off+off)
	}
	if n == len(p) {
		err = nil
		if short {
			err = io.EOF
		}
	}
	return n, err
}
