package objstore

import (
	"context"
	"io"

	"golang.org/x/time/rate"
)

// bandwidthChunkBytes is the most that passes a limiter at once, and its burst: a
// bound that changes is felt after at most this many bytes.
const bandwidthChunkBytes = 64 << 10

// Bandwidth bounds what flows to and from a store. One value may be shared by
// several wrapped stores; both bounds may change while bodies flow.
type Bandwidth struct{ up, down *rate.Limiter }

// NewBandwidth bounds uploads and downloads in bytes per second; <= 0 is unbounded.
func NewBandwidth(upBytesPerSec, downBytesPerSec int64) *Bandwidth {
	return &Bandwidth{
		up:   rate.NewLimiter(limitOf(upBytesPerSec), bandwidthChunkBytes),
		down: rate.NewLimiter(limitOf(downBytesPerSec), bandwidthChunkBytes),
	}
}

// Set changes both bounds; waits that have begun end at the old rate.
func (b *Bandwidth) Set(upBytesPerSec, downBytesPerSec int64) {
	b.up.SetLimit(limitOf(upBytesPerSec))
	b.down.SetLimit(limitOf(downBytesPerSec))
}

func limitOf(bytesPerSec int64) rate.Limit {
	if bytesPerSec <= 0 {
		return rate.Inf
	}
	return rate.Limit(bytesPerSec)
}

type throttled struct {
	Store
	b *Bandwidth
}

// WithBandwidth wraps s so that bodies flow within b. It belongs outside of
// WithDeadline, whose clock stands still while a body waits here.
func WithBandwidth(s Store, b *Bandwidth) Store { return &throttled{Store: s, b: b} }

func (s *throttled) unwrap() Store { return s.Store }

func (s *throttled) Put(ctx context.Context, key string, body Body, opt PutOptions) (ObjectInfo, error) {
	if body.ReaderAt != nil {
		body = body.through(&throttledReaderAt{ctx: ctx, r: body.ReaderAt, lim: s.b.up})
	}
	return s.Store.Put(ctx, key, body, opt)
}

func (s *throttled) Get(ctx context.Context, key string, off, length int64, cause string) (io.ReadCloser, error) {
	body, err := s.Store.Get(ctx, key, off, length, cause)
	if err != nil {
		return nil, err
	}
	return &throttledBody{ReadCloser: body, ctx: ctx, lim: s.b.down}, nil
}

type throttledReaderAt struct {
	ctx context.Context
	r   io.ReaderAt
	lim *rate.Limiter
}

func (t *throttledReaderAt) ReadAt(p []byte, off int64) (int, error) {
	total := 0
	for {
		chunk := p[total:min(len(p), total+bandwidthChunkBytes)]
		if err := t.lim.WaitN(t.ctx, len(chunk)); err != nil {
			return total, waitError(t.ctx, err)
		}
		n, err := t.r.ReadAt(chunk, off+int64(total))
		total += n
		if err != nil || total == len(p) {
			return total, err
		}
	}
}

type throttledBody struct {
	io.ReadCloser
	ctx context.Context
	lim *rate.Limiter
}

func (t *throttledBody) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p[:min(len(p), bandwidthChunkBytes)])
	if n > 0 {
		if werr := t.lim.WaitN(t.ctx, n); werr != nil && err == nil {
			err = waitError(t.ctx, werr)
		}
	}
	return n, err
}

// waitError prefers the context's own error to the limiter's "would exceed deadline".
func waitError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, ok := ctx.Deadline(); ok {
		return context.DeadlineExceeded
	}
	return err
}
