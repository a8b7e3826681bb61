package objstore

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Prices is what a store charges, in US dollars per request on the wire.
type Prices map[Verb]float64

// S3StandardPrices are AWS S3 Standard's in us-east-1: 0.005 per 1,000 PUT, POST and
// LIST, 0.0004 per 1,000 GET and HEAD, DELETE free. Storage and transfer out of the
// region are not counted.
func S3StandardPrices() Prices {
	return Prices{VerbPut: 5e-6, VerbList: 5e-6, VerbGet: 4e-7, VerbHead: 4e-7, VerbDelete: 0}
}

// Counters adds up what is asked of a store, by verb, cause and group.
type Counters struct {
	prices Prices
	now    func() time.Time
	group  func(key string) string

	mu     sync.Mutex
	rows   map[usageKey]*Usage
	causes map[string]bool
}

type usageKey struct {
	verb         Verb
	cause, group string
}

// Bounds of the rows. A row that would be one too many counts as cause or group "other".
const (
	maxCauses    = 64
	maxUsageRows = 20_000
	otherUsage   = "other"
)

// Usage is one row of a snapshot.
type Usage struct {
	Verb     Verb
	Cause    string  // "" when the caller named none, and for head, list and delete
	Group    string  // what the key belongs to; "" for nothing, for list and delete, and in Snapshot
	Calls    int64   // calls of the Store method
	Requests int64   // requests on the wire; equals Calls for drivers without one
	Errors   int64   // calls and bodies that failed; "not found" and "precondition failed" are answers
	Bytes    int64   // body bytes sent (put) or received (get)
	Seconds  float64 // spent waiting for the store, bodies included
	Dollars  float64 // Requests at the price of the verb
}

// NewCounters returns counters at zero. prices may be nil (all free), now may be nil.
func NewCounters(prices Prices, now func() time.Time) *Counters {
	if now == nil {
		now = time.Now
	}
	return &Counters{prices: maps.Clone(prices), now: now, rows: map[usageKey]*Usage{}, causes: map[string]bool{}}
}

// GroupBy makes the counters keep apart what group tells apart: of gets, puts and heads, by their keys. It is called before
// anything is counted.
func (c *Counters) GroupBy(group func(key string) string) { c.group = group }

// Snapshot returns the sums over all groups, ordered by verb and cause.
func (c *Counters) Snapshot() (out []Usage) {
	for _, u := range c.Detailed() {
		if n := len(out); n > 0 && out[n-1].Verb == u.Verb && out[n-1].Cause == u.Cause {
			out[n-1].add(u)
			out[n-1].Dollars += u.Dollars
			continue
		}
		u.Group = ""
		out = append(out, u)
	}
	return out
}

// Detailed returns the rows, ordered by verb, cause and group.
func (c *Counters) Detailed() []Usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Usage, 0, len(c.rows))
	for _, u := range c.rows {
		row := *u
		row.Dollars = float64(row.Requests) * c.prices[row.Verb]
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b Usage) int {
		return cmp.Or(cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Group, b.Group))
	})
	return out
}

func (u *Usage) add(d Usage) {
	u.Calls += d.Calls
	u.Requests += d.Requests
	u.Errors += d.Errors
	u.Bytes += d.Bytes
	u.Seconds += d.Seconds
}

func (c *Counters) add(verb Verb, cause, key string, d Usage) {
	k := usageKey{verb: verb, cause: cause}
	if c.group != nil && key != "" {
		k.group = c.group(key)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.causes[k.cause] && len(c.causes) >= maxCauses {
		k.cause = otherUsage
	}
	u := c.rows[k]
	if u == nil && len(c.rows) >= maxUsageRows {
		k.group = otherUsage
		u = c.rows[k]
	}
	if u == nil {
		u = &Usage{Verb: verb, Cause: k.cause, Group: k.group}
		c.rows[k], c.causes[k.cause] = u, true
	}
	u.add(d)
}

// requestCount travels in the context from Counted to the driver's transport.
type requestCount struct{ n atomic.Int64 }

type requestCountKey struct{}

// countRequest is called by a driver for each request it puts on the wire.
func countRequest(ctx context.Context) {
	if rc, ok := ctx.Value(requestCountKey{}).(*requestCount); ok {
		rc.n.Add(1)
	}
}

type counted struct {
	inner Store
	c     *Counters
}

// Counted wraps s so that c counts what passes. It belongs directly around the
// driver, below retries, so that each attempt is counted.
func Counted(s Store, c *Counters) Store { return &counted{inner: s, c: c} }

func (s *counted) String() string { return s.inner.String() }
func (s *counted) unwrap() Store  { return s.inner }

// call runs one method and counts it; bytes are known after it for a Put.
func (s *counted) call(ctx context.Context, verb Verb, cause, key string, fn func(context.Context) (bytes int64, err error)) error {
	rc := &requestCount{}
	start := s.c.now()
	n, err := fn(context.WithValue(ctx, requestCountKey{}, rc))
	u := Usage{Calls: 1, Requests: max(1, rc.n.Load()), Bytes: n, Seconds: s.c.now().Sub(start).Seconds()}
	if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrPrecondition) {
		u.Errors = 1
	}
	s.c.add(verb, cause, key, u)
	return err
}

func (s *counted) Put(ctx context.Context, key string, body Body, opt PutOptions) (info ObjectInfo, err error) {
	err = s.call(ctx, VerbPut, opt.Cause, key, func(ctx context.Context) (int64, error) {
		info, err = s.inner.Put(ctx, key, body, opt)
		if err != nil {
			return 0, err
		}
		return body.Size, nil
	})
	return info, err
}

func (s *counted) Get(ctx context.Context, key string, off, length int64, cause string) (body io.ReadCloser, err error) {
	err = s.call(ctx, VerbGet, cause, key, func(ctx context.Context) (int64, error) {
		body, err = s.inner.Get(ctx, key, off, length, cause)
		return 0, err
	})
	if err != nil {
		return nil, err
	}
	return &countedBody{ReadCloser: body, s: s, cause: cause, key: key}, nil
}

func (s *counted) Head(ctx context.Context, key string) (info ObjectInfo, err error) {
	err = s.call(ctx, VerbHead, "", key, func(ctx context.Context) (int64, error) {
		info, err = s.inner.Head(ctx, key)
		return 0, err
	})
	return info, err
}

func (s *counted) List(ctx context.Context, prefix, startAfter string, fn func(ObjectInfo) bool) error {
	return s.call(ctx, VerbList, "", "", func(ctx context.Context) (int64, error) {
		return 0, s.inner.List(ctx, prefix, startAfter, fn)
	})
}

func (s *counted) Delete(ctx context.Context, keys []string) (failed []KeyError, err error) {
	err = s.call(ctx, VerbDelete, "", "", func(ctx context.Context) (int64, error) {
		failed, err = s.inner.Delete(ctx, keys)
		return 0, err
	})
	return failed, err
}

type countedBody struct {
	io.ReadCloser
	s     *counted
	cause string
	key   string
	u     Usage
}

func (b *countedBody) Read(p []byte) (int, error) {
	start := b.s.c.now()
	n, err := b.ReadCloser.Read(p)
	b.u.Bytes += int64(n)
	b.u.Seconds += b.s.c.now().Sub(start).Seconds()
	if err != nil && err != io.EOF {
		b.u.Errors = 1
	}
	return n, err
}

func (b *countedBody) Close() error {
	b.s.c.add(VerbGet, b.cause, b.key, b.u)
	b.u = Usage{}
	return b.ReadCloser.Close()
}
