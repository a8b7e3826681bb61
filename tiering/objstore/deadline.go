package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Deadlines say how long the store may make no progress, per verb. Zero fields take
// the defaults. Time in which the caller is the slow one - a body not read, a source
// that waits for bandwidth, a List callback - is not counted, and neither is a long
// transfer that moves: who needs a total bound puts it in the context. What lies in
// socket buffers has left as far as we can see, so a limit must leave time for some
// megabytes to drain: seconds, not milliseconds.
type Deadlines struct {
	Put    time.Duration // default 60 s
	Get    time.Duration // default 30 s, until the body is there and for each Read
	Head   time.Duration // default 15 s
	List   time.Duration // default 30 s for each page
	Delete time.Duration // default 60 s
}

func (d Deadlines) withDefaults() Deadlines {
	for _, f := range []struct {
		p   *time.Duration
		def time.Duration
	}{{&d.Put, 60 * time.Second}, {&d.Get, 30 * time.Second}, {&d.Head, 15 * time.Second}, {&d.List, 30 * time.Second}, {&d.Delete, 60 * time.Second}} {
		if *f.p <= 0 {
			*f.p = f.def
		}
	}
	return d
}

var errStalled = errors.New("no answer from the store")

// watch is the clock of one call: it cancels the call's context when the store has
// been the one to wait for longer than limit.
type watch struct {
	parent context.Context
	ctx    context.Context
	cancel context.CancelCauseFunc
	limit  time.Duration

	mu     sync.Mutex
	timer  *time.Timer
	paused int // the caller is at work, in so many places
	done   bool
}

func newWatch(parent context.Context, limit time.Duration) *watch {
	w := &watch{parent: parent, limit: limit}
	w.ctx, w.cancel = context.WithCancelCause(parent)
	w.timer = time.AfterFunc(limit, func() { w.cancel(errStalled) })
	return w
}

func (w *watch) pause() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused++
	w.timer.Stop()
}

func (w *watch) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused--
	if w.paused == 0 && !w.done {
		w.timer.Reset(w.limit)
	}
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
	w.timer.Stop()
	w.cancel(nil)
}

// errOf turns what came of a call into what the caller should see.
func (w *watch) errOf(verb Verb, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	if w.parent.Err() == nil && errors.Is(context.Cause(w.ctx), errStalled) {
		return &RetryableError{Err: fmt.Errorf("%s: %w for %v", verb, errStalled, w.limit)}
	}
	return err
}

type deadlined struct {
	Store
	d Deadlines
}

// WithDeadline wraps s so that no call waits for the store longer than d says. It
// belongs directly around the driver or Counted.
func WithDeadline(s Store, d Deadlines) Store { return &deadlined{Store: s, d: d.withDefaults()} }

func (s *deadlined) unwrap() Store { return s.Store }

func (s *deadlined) Put(ctx context.Context, key string, body Body, opt PutOptions) (ObjectInfo, error) {
	w := newWatch(ctx, s.d.Put)
	defer w.stop()
	if body.ReaderAt != nil {
		body = body.through(&watchedReaderAt{w: w, r: body.ReaderAt})
	}
	info, err := s.Store.Put(w.ctx, key, body, opt)
	return info, w.errOf(VerbPut, err)
}

func (s *deadlined) Get(ctx context.Context, key string, off, length int64, cause string) (io.ReadCloser, error) {
	w := newWatch(ctx, s.d.Get)
	body, err := s.Store.Get(w.ctx, key, off, length, cause)
	if err != nil {
		w.stop()
		return nil, w.errOf(VerbGet, err)
	}
	w.pause()
	return &watchedBody{w: w, body: body}, nil
}

func (s *deadlined) Head(ctx context.Context, key string) (ObjectInfo, error) {
	w := newWatch(ctx, s.d.Head)
	defer w.stop()
	info, err := s.Store.Head(w.ctx, key)
	return info, w.errOf(VerbHead, err)
}

func (s *deadlined) List(ctx context.Context, prefix, startAfter string, fn func(ObjectInfo) bool) error {
	w := newWatch(ctx, s.d.List)
	defer w.stop()
	err := s.Store.List(w.ctx, prefix, startAfter, func(info ObjectInfo) bool {
		w.pause()
		defer w.resume()
		return fn(info)
	})
	return w.errOf(VerbList, err)
}

func (s *deadlined) Delete(ctx context.Context, keys []string) ([]KeyError, error) {
	w := newWatch(ctx, s.d.Delete)
	defer w.stop()
	failed, err := s.Store.Delete(w.ctx, keys)
	return failed, w.errOf(VerbDelete, err)
}

type watchedReaderAt struct {
	w *watch
	r io.ReaderAt
}

func (r *watchedReaderAt) ReadAt(p []byte, off int64) (int, error) {
	r.w.pause()
	defer r.w.resume()
	return r.r.ReadAt(p, off)
}

// watchedBody lets the clock run only inside of Read.
type watchedBody struct {
	w    *watch
	body io.ReadCloser
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.w.resume()
	n, err := b.body.Read(p)
	b.w.pause()
	return n, b.w.errOf(VerbGet, err)
}

func (b *watchedBody) Close() error {
	err := b.body.Close()
	b.w.stop()
	return err
}
