package objstore

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// RetryPolicy bounds the retries of WithRetry. Zero fields take the defaults.
type RetryPolicy struct {
	MaxAttempts int           // calls in all, the first one included; default 5
	BaseBackoff time.Duration // before the second attempt, doubled each time; default 100 ms
	MaxBackoff  time.Duration // default 5 s
	Total       time.Duration // no attempt begins later than this after the first; default 2 min
}

// throttleFactor stretches the backoff after a SlowDown.
const throttleFactor = 4

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.MaxAttempts <= 0 {
		p.MaxAttempts = 5
	}
	if p.BaseBackoff <= 0 {
		p.BaseBackoff = 100 * time.Millisecond
	}
	if p.MaxBackoff <= 0 {
		p.MaxBackoff = 5 * time.Second
	}
	if p.Total <= 0 {
		p.Total = 2 * time.Minute
	}
	return p
}

// backoff before attempt n (2, 3, ...): between half and all of the doubled base.
func (p RetryPolicy) backoff(n int, throttled bool) time.Duration {
	d := p.BaseBackoff << min(n-2, 20)
	if throttled {
		d *= throttleFactor
	}
	if d <= 0 || d > p.MaxBackoff {
		d = p.MaxBackoff
	}
	return d/2 + rand.N(d/2+1)
}

type retrying struct {
	Store
	p RetryPolicy
}

// WithRetry wraps s so that calls which failed with a *RetryableError are made
// again. It is the one place that retries, but for the parts of an upload, which the
// driver repeats one by one: the SDKs' own retries are off. A Get is
// retried until its body is there; an error while the body is read is the
// caller's, who alone knows what he has used of it. A conditional Put may meet its
// own first success and answer ErrPrecondition: read the object and compare.
func WithRetry(s Store, p RetryPolicy) Store { return &retrying{Store: s, p: p.withDefaults()} }

func (s *retrying) unwrap() Store { return s.Store }

func (s *retrying) do(ctx context.Context, fn func() error) error { return s.p.do(ctx, fn) }

// do calls fn until it succeeds, fails for good, or the policy says that it is enough.
func (p RetryPolicy) do(ctx context.Context, fn func() error) error {
	start := time.Now()
	for attempt := 1; ; attempt++ {
		err := fn()
		if err == nil || !IsRetryable(err) || isSpent(err) || ctx.Err() != nil {
			return err
		}
		if attempt >= p.MaxAttempts {
			return fmt.Errorf("after %d attempts: %w", attempt, err)
		}
		wait := p.backoff(attempt+1, IsThrottled(err))
		if time.Since(start)+wait > p.Total {
			return fmt.Errorf("after %d attempts in %v: %w", attempt, time.Since(start).Round(time.Millisecond), err)
		}
		// An answer now is worth more than "deadline exceeded" later.
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return fmt.Errorf("after %d attempts, no time for another: %w", attempt, err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

func (s *retrying) Put(ctx context.Context, key string, body Body, opt PutOptions) (info ObjectInfo, err error) {
	err = s.do(ctx, func() error {
		info, err = s.Store.Put(ctx, key, body, opt)
		return err
	})
	return info, err
}

func (s *retrying) Get(ctx context.Context, key string, off, length int64, cause string) (body io.ReadCloser, err error) {
	err = s.do(ctx, func() error {
		body, err = s.Store.Get(ctx, key, off, length, cause)
		return err
	})
	return body, err
}

func (s *retrying) Head(ctx context.Context, key string) (info ObjectInfo, err error) {
	err = s.do(ctx, func() error {
		info, err = s.Store.Head(ctx, key)
		return err
	})
	return info, err
}

// List goes on behind the last key that fn saw, so fn meets each key once.
func (s *retrying) List(ctx context.Context, prefix, startAfter string, fn func(ObjectInfo) bool) error {
	return s.do(ctx, func() error {
		return s.Store.List(ctx, prefix, startAfter, func(info ObjectInfo) bool {
			startAfter = info.Key
			return fn(info)
		})
	})
}

// Delete asks again for the keys whose own failure may pass.
func (s *retrying) Delete(ctx context.Context, keys []string) ([]KeyError, error) {
	var final, again []KeyError
	err := s.do(ctx, func() error {
		failed, err := s.Store.Delete(ctx, keys)
		if err != nil {
			return err
		}
		again, keys = nil, nil
		for _, f := range failed {
			if IsRetryable(f.Err) {
				again, keys = append(again, f), append(keys, f.Key)
			} else {
				final = append(final, f)
			}
		}
		if len(again) > 0 {
			return again[0]
		}
		return nil
	})
	if err != nil && len(again) == 0 {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return append(final, again...), nil
}
