package protocol

import (
	"fmt"
	"io"
)

// SpanFile is a file whose bytes can be sent. Fd returns ^uintptr(0) when there
// is no kernel file behind it (a memory file system): read through ReadAt then.
type SpanFile interface {
	io.ReaderAt
	Fd() uintptr
}

// Span is a run of bytes to send: in memory (Bytes) or in a file at an explicit
// offset (File, Off). Len is in bytes and valid for both kinds.
//
// Release, when not nil, is called exactly once by the span's last owner when
// the bytes are no longer needed, whether they were sent or not.
type Span struct {
	Bytes   []byte
	File    SpanFile
	Off     int64
	Len     int64
	Release func()
}

// MemSpan returns a span over b.
func MemSpan(b []byte) Span { return Span{Bytes: b, Len: int64(len(b))} }

// SpansLen returns the number of bytes in all spans.
func SpansLen(spans []Span) int64 {
	var n int64
	for i := range spans {
		n += spans[i].Len
	}
	return n
}

// ReleaseSpans calls every Release once and clears it.
func ReleaseSpans(spans []Span) {
	for i := range spans {
		if f := spans[i].Release; f != nil {
			spans[i].Release = nil
			f()
		}
	}
}

// AppendTo copies the span's bytes to dst, for paths that cannot pass spans on.
// A file that is shorter than the span is a *CorruptionError.
func (s Span) AppendTo(dst []byte) ([]byte, error) {
	if s.File == nil {
		return append(dst, s.Bytes...), nil
	}
	n := len(dst)
	dst = append(dst, make([]byte, s.Len)...)
	got, err := s.File.ReadAt(dst[n:], s.Off)
	if int64(got) == s.Len {
		return dst, nil
	}
	if err == nil || err == io.EOF {
		err = &CorruptionError{Where: "file range", What: fmt.Sprintf("%d of %d bytes at %d", got, s.Len, s.Off)}
	}
	return dst[:n], err
}
