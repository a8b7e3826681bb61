package objstore

import (
	"context"
	"io"
	"slices"
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

// Flow is whom bodies are for: those of one flow share what one gets, however many they are. Its zero value is ready for use;
// it belongs to one store's wrappers.
type Flow struct {
	served float64 // bytes, on the clock of the limiter that it waits at, whose mutex guards it
}

type flowKey struct{}

type flowUse struct {
	flow   *Flow
	urgent func() bool
}

// WithFlow says for whom the Gets under ctx are, and whether somebody waits for what they bring: who does goes before who
// does not. urgent is asked again while a body waits; it must not block. A Get without a flow is one by itself, and urgent.
func WithFlow(ctx context.Context, f *Flow, urgent func() bool) context.Context {
	return context.WithValue(ctx, flowKey{}, flowUse{f, urgent})
}

func flowOf(ctx context.Context) flowUse {
	if u, ok := ctx.Value(flowKey{}).(flowUse); ok {
		return u
	}
	return flowUse{&Flow{}, func() bool { return true }}
}

// limiter is a token bucket. Of those who wait, the urgent go first; of these the one whose flow has had the least: so
// flows that share a bound get the same rate, and the bodies of a flow take turns.
type limiter struct {
	mu      sync.Mutex
	rate    float64 // bytes per second, 0 = unbounded
	tokens  float64 // bytes; at most what bandwidthBurst brings, or a chunk
	at      time.Time
	changed chan struct{} // closed by each set
	waiting []*turn       // in the order of their coming; as many as there are bodies
	clock   float64       // bytes that each flow has had that was never idle: a flow that comes back begins here
}

// turn is a wait for n bytes.
type turn struct {
	flowUse
	n    int
	poke chan struct{} // capacity 1: look again
}

func newLimiter() *limiter {
	return &limiter{changed: make(chan struct{}), at: time.Now()}
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

// next is who passes next.
func (l *limiter) next() (best *turn) {
	var urgent bool
	for _, t := range l.waiting {
		u := t.urgent()
		if best == nil || u && !urgent || u == urgent && t.flow.served < best.flow.served {
			best, urgent = t, u
		}
	}
	return best
}

// wait returns when n bytes, at most bandwidthChunkBytes, may pass.
func (l *limiter) wait(ctx context.Context, use flowUse, n int) error {
	if !l.bounded() {
		return ctx.Err()
	}
	t := &turn{flowUse: use, n: n, poke: make(chan struct{}, 1)}
	l.mu.Lock()
	t.flow.served = max(t.flow.served, l.clock)
	l.waiting = append(l.waiting, t)
	l.mu.Unlock()
	defer l.leave(t)
	for {
		after, changed, passed := l.try(t)
		if passed {
			return ctx.Err()
		}
		var timer *time.Timer
		var due <-chan time.Time
		if after > 0 {
			timer = time.NewTimer(after)
			due = timer.C
		}
		select {
		case <-due:
		case <-t.poke:
		case <-changed:
		case <-ctx.Done():
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// try lets t pass if it is its turn and there are tokens. If it is its turn and there are not, after is when to look again; if
// it is not, whose turn it is has been told so: somebody always has a timer.
func (l *limiter) try(t *turn) (after time.Duration, changed chan struct{}, passed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refill()
	if l.rate == 0 {
		return 0, nil, true
	}
	best := l.next()
	if best != t {
		best.look()
		return 0, l.changed, false
	}
	if l.tokens < float64(t.n) {
		// The microsecond is for what rounding leaves: a wait of nothing would never end.
		return time.Duration((float64(t.n)-l.tokens)/l.rate*float64(time.Second)) + time.Microsecond, l.changed, false
	}
	l.tokens -= float64(t.n)
	l.clock = max(l.clock, t.flow.served)
	t.flow.served += float64(t.n)
	return 0, nil, true
}

// leave ends a wait and has the next one look.
func (l *limiter) leave(t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = slices.DeleteFunc(l.waiting, func(w *turn) bool { return w == t })
	if best := l.next(); best != nil {
		best.look()
	}
}

func (t *turn) look() {
	select {
	case t.poke <- struct{}{}:
	default:
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
		body = body.through(&throttledReaderAt{ctx: ctx, r: body.ReaderAt, lim: s.b.up, use: flowOf(ctx)})
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
	return &throttledBody{ReadCloser: body, ctx: ctx, lim: lim, use: flowOf(ctx)}, nil
}

type throttledReaderAt struct {
	ctx context.Context
	r   io.ReaderAt
	lim *limiter
	use flowUse
}

func (t *throttledReaderAt) ReadAt(p []byte, off int64) (int, error) {
	total := 0
	for {
		chunk := p[total:min(len(p), total+bandwidthChunkBytes)]
		if err := t.lim.wait(t.ctx, t.use, len(chunk)); err != nil {
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
	use flowUse
}

func (t *throttledBody) Read(p []byte) (int, error) {
	if t.lim.bounded() {
		p = p[:min(len(p), bandwidthChunkBytes)]
	}
	n, err := t.ReadCloser.Read(p)
	for left := n; left > 0; left -= bandwidthChunkBytes {
		if werr := t.lim.wait(t.ctx, t.use, min(left, bandwidthChunkBytes)); werr != nil && err == nil {
			err = werr
		}
	}
	return n, err
}
