package objstore

import (
	"context"
	"io"
	"sync"
	"time"
)

const (
	// bandwidthChunkBytes is the most that passes a limiter at once: those who share a
	// bound take turns after so many bytes.
	bandwidthChunkBytes = 64 << 10
	// bandwidthBurst is how much may be made up for that was not used: what a timer
	// oversleeps.
	bandwidthBurst = 20 * time.Millisecond
)

// Bandwidth bounds what flows to and from a store. One value may be shared by
// several wrapped stores; both bounds may change while bodies flow.
type Bandwidth struct{ up, down *limiter }

// NewBandwidth bounds uploads and downloads in bytes per second; <= 0 is unbounded.
func NewBandwidth(upBytesPerSec, downBytesPerSec int64) *Bandwidth {
	b := &Bandwidth{up: newLimiter(), down: newLimiter()}
	b.Set(upBytesPerSec, downBytesPerSec)
	return b
}

// Set changes both bounds, at once also for those who wait.
func (b *Bandwidth) Set(upBytesPerSec, downBytesPerSec int64) {
	b.up.set(upBytesPerSec)
	b.down.set(downBytesPerSec)
}

// limiter is a token bucket whose waiters are served in the order of their coming: so
// bodies that share it flow at the same rate.
type limiter struct {
	turn chan struct{} // held by the one who waits for tokens

	mu      sync.Mutex
	rate    float64 // bytes per second, 0 = unbounded
	tokens  float64 // bytes; at most what bandwidthBurst brings, or a chunk
	at      time.Time
	changed chan struct{} // closed by each set
}

func newLimiter() *limiter {
	return &limiter{turn: make(chan struct{}, 1), changed: make(chan struct{}), at: time.Now()}
}

func (l *limiter) set(bytesPerSec int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refill()
	l.rate = float64(max(bytesPerSec, 0))
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *limiter) refill() {
	now := time.Now()
	l.tokens = min(l.tokens+l.rate*now.Sub(l.at).Seconds(), max(bandwidthChunkBytes, l.rate*bandwidthBurst.Seconds()))
	l.at = now
}

func (l *limiter) bounded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rate > 0
}

// wait returns when n bytes, at most bandwidthChunkBytes, may pass.
func (l *limiter) wait(ctx context.Context, n int) error {
	if !l.bounded() {
		return ctx.Err()
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		l.mu.Lock()
		l.refill()
		if l.rate == 0 || l.tokens >= float64(n) {
			l.tokens -= float64(n)
			l.mu.Unlock()
			return ctx.Err()
		}
		// The microsecond is for what rounding leaves: a wait of nothing would never end.
		timer := time.NewTimer(time.Duration((float64(n)-l.tokens)/l.rate*float64(time.Second)) + time.Microsecond)
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

// CauseMerge labels the requests of a merge. What it reads passes the bound of uploads,
// so that it takes nothing from those who read.
const CauseMerge = "merge"

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
	lim := s.b.down
	if cause == CauseMerge {
		lim = s.b.up
	}
	return &throttledBody{ReadCloser: body, ctx: ctx, lim: lim}, nil
}

type throttledReaderAt struct {
	ctx context.Context
	r   io.ReaderAt
	lim *limiter
}

func (t *throttledReaderAt) ReadAt(p []byte, off int64) (int, error) {
	total := 0
	for {
		chunk := p[total:min(len(p), total+bandwidthChunkBytes)]
		if err := t.lim.wait(t.ctx, len(chunk)); err != nil {
			return total, err
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
	lim *limiter
}

func (t *throttledBody) Read(p []byte) (int, error) {
	if t.lim.bounded() {
		p = p[:min(len(p), bandwidthChunkBytes)]
	}
	n, err := t.ReadCloser.Read(p)
	for left := n; left > 0; left -= bandwidthChunkBytes {
		if werr := t.lim.wait(t.ctx, min(left, bandwidthChunkBytes)); werr != nil && err == nil {
			err = werr
		}
	}
	return n, err
}
