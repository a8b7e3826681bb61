package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// inputPollMs is how soon a reader that waits for a person notices that it is to end.
const inputPollMs = 100

// patientReader reads a file that may be a terminal or a pipe, and ends when its context does.
type patientReader struct {
	ctx context.Context
	f   *os.File
}

// Read implements io.Reader. Its error after the context's end is the context's.
func (p *patientReader) Read(b []byte) (int, error) {
	for {
		if err := p.ctx.Err(); err != nil {
			return 0, err
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.f.Fd()), Events: unix.POLLIN}}, inputPollMs)
		if errors.Is(err, unix.EINTR) || err == nil && n == 0 {
			continue
		}
		return p.f.Read(b)
	}
}

// openInput returns the file that was named, or the standard input when none was or it is "-".
func (c *call) openInput(ctx context.Context, name string) (io.Reader, func() error, error) {
	if name != "" && name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, nil, err
		}
		return f, f.Close, nil
	}
	if f, ok := c.stdin.(*os.File); ok {
		return &patientReader{ctx, f}, func() error { return nil }, nil
	}
	return c.stdin, func() error { return nil }, nil
}

// recordReader cuts an input into records.
type recordReader struct {
	codec    recordCodec
	scanner  *bufio.Scanner
	whole    io.Reader // raw: all of it is one value
	maxBytes int
	number   int64 // of the line that was read last
}

func newRecordReader(r io.Reader, codec recordCodec, maxBytes int) *recordReader {
	rr := &recordReader{codec: codec, maxBytes: maxBytes}
	if codec.format == formatRaw {
		rr.whole = r
		return rr
	}
	rr.scanner = bufio.NewScanner(r)
	rr.scanner.Buffer(make([]byte, 0, 64<<10), codec.maxLineBytes(maxBytes))
	return rr
}

// next returns io.EOF at the end. Errors name the line.
func (rr *recordReader) next() (inputRecord, error) {
	rr.number++
	if rr.scanner == nil {
		return rr.all()
	}
	if !rr.scanner.Scan() {
		switch err := rr.scanner.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			return inputRecord{}, fmt.Errorf("line %d holds more than %s: raise --max-message-bytes, and max.message.bytes of the topic", rr.number, size(int64(rr.maxBytes)))
		case err != nil:
			return inputRecord{}, err
		}
		return inputRecord{}, io.EOF
	}
	rec, err := rr.codec.decode(rr.scanner.Bytes())
	if err != nil {
		return inputRecord{}, fmt.Errorf("line %d: %w", rr.number, err)
	}
	return rec, nil
}

func (rr *recordReader) all() (inputRecord, error) {
	if rr.whole == nil {
		return inputRecord{}, io.EOF
	}
	value, err := io.ReadAll(io.LimitReader(rr.whole, int64(rr.maxBytes)+1))
	if err == nil && len(value) > rr.maxBytes {
		err = fmt.Errorf("the input holds more than %s: raise --max-message-bytes, and max.message.bytes of the topic", size(int64(rr.maxBytes)))
	}
	rr.whole = nil
	return inputRecord{value: value, partition: -1}, err
}

// parseTime understands milliseconds since 1970, RFC 3339 (UTC where there is no zone), a date, and how long ago ("90m", "7d").
func parseTime(s string, now time.Time) (time.Time, error) {
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil {
		if ms < 0 {
			return time.Time{}, fmt.Errorf("%q is before 1970", s)
		}
		return time.UnixMilli(ms), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		if at, err := time.Parse(layout, s); err == nil {
			return at, nil
		}
	}
	if ago, err := parseDuration(s); err == nil {
		return now.Add(-ago.Abs()), nil
	}
	return time.Time{}, fmt.Errorf("%q is no time: write it as 2026-01-31T13:00:00Z, as milliseconds since 1970, or as how long ago (90m, 7d)", s)
}
