package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// FaultKind is what goes wrong.
type FaultKind uint8

// The faults a Faulty store can play.
const (
	// FaultError fails the call before it reaches the store, with Fault.Err.
	FaultError FaultKind = iota
	// FaultThrottle fails the call with a throttling *RetryableError.
	FaultThrottle
	// FaultLostReply lets the call take effect and then reports a failure.
	FaultLostReply
	// FaultLate (put) reports a failure at once; the object appears at Release.
	FaultLate
	// FaultWrongBytes flips one bit of the body: of what a get brings, or of what a put
	// sends, which the store then refuses.
	FaultWrongBytes
	// FaultTruncated cuts the body short, with the error the drivers give.
	FaultTruncated
	// FaultReset breaks off in the middle: half of a get's body or of a list's objects
	// come, half of a delete's keys go, half of a put is sent and nothing stored.
	FaultReset
	// FaultStaleList (list) answers as the store stood when the fault was added: it
	// hides what was put since, and shows what was deleted since.
	FaultStaleList
	// FaultPartialDelete (delete) leaves about half of the keys and names them.
	FaultPartialDelete
	// FaultDelay waits Fault.Delay (or for the context) and then goes on.
	FaultDelay
	// FaultHang waits for the context to end.
	FaultHang
)

// Fault is one line of the script. A call that matches Verb and Key is passed over
// Skip times, then meets the fault Times times.
type Fault struct {
	Kind    FaultKind
	Verb    Verb          // "" matches each verb
	Key     string        // substring of the key, of the prefix for list, of any key for delete
	Skip    int           // matching calls that go through first
	Times   int           // calls that fail; 0 means one, negative means all
	Percent int           // chance for each call, by the seed; 0 means always
	Err     error         // FaultError, FaultLostReply, FaultLate; nil means a *RetryableError
	Delay   time.Duration // FaultDelay
}

// Faulty is a Store that plays a script of faults over another, for tests. Given
// the same seed, script and order of calls it does the same each time.
type Faulty struct {
	inner Store

	mu     sync.Mutex
	rng    *rand.Rand
	script []*Fault
	fresh  map[string]bool       // keys put while a FaultStaleList stood in the script
	gone   map[string]ObjectInfo // and those deleted
	late   []latePut
	calls  map[Verb]int
	met    int
}

type latePut struct {
	key  string
	data []byte
	opt  PutOptions
}

// NewFaulty wraps inner.
func NewFaulty(inner Store, seed uint64) *Faulty {
	return &Faulty{
		inner: inner, rng: rand.New(rand.NewPCG(seed, seed)),
		fresh: map[string]bool{}, gone: map[string]ObjectInfo{}, calls: map[Verb]int{},
	}
}

// Add appends faults to the script. The first that matches a call is played.
func (f *Faulty) Add(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range faults {
		if fault.Times == 0 {
			fault.Times = 1
		}
		if fault.Kind == FaultStaleList {
			clear(f.fresh)
			clear(f.gone)
		}
		f.script = append(f.script, &fault)
	}
}

// Clear empties the script; late puts stay pending.
func (f *Faulty) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.script = nil
	clear(f.fresh)
	clear(f.gone)
}

// Calls returns how often a verb was called.
func (f *Faulty) Calls(v Verb) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[v]
}

// Met returns how many calls met a fault.
func (f *Faulty) Met() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.met
}

// Release lets the late puts happen now, in order, and returns their errors.
func (f *Faulty) Release(ctx context.Context) error {
	f.mu.Lock()
	late := f.late
	f.late = nil
	f.mu.Unlock()
	var errs []error
	for _, p := range late {
		_, err := f.inner.Put(ctx, p.key, BytesBody(p.data), p.opt)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// String implements Store.
func (f *Faulty) String() string { return f.inner.String() }
func (f *Faulty) unwrap() Store  { return f.inner }

// next finds the fault that this call meets, if any.
func (f *Faulty) next(verb Verb, keys ...string) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[verb]++
	for _, fault := range f.script {
		if !fault.matches(verb, keys) || fault.Times == 0 {
			continue
		}
		if fault.Skip > 0 {
			fault.Skip--
			continue
		}
		if fault.Percent > 0 && f.rng.IntN(100) >= fault.Percent {
			continue
		}
		if fault.Times > 0 {
			fault.Times--
		}
		f.met++
		copied := *fault
		return &copied
	}
	return nil
}

func (fault *Fault) matches(verb Verb, keys []string) bool {
	if fault.Verb != "" && fault.Verb != verb {
		return false
	}
	for _, k := range keys {
		if strings.Contains(k, fault.Key) {
			return true
		}
	}
	return fault.Key == ""
}

func (fault *Fault) err(what string) error {
	if fault.Err != nil {
		return fault.Err
	}
	return &RetryableError{Err: errors.New("injected: " + what)}
}

// before plays the faults that are alike for all verbs. A nil fault is no fault.
func (fault *Fault) before(ctx context.Context) error {
	if fault == nil {
		return ctx.Err()
	}
	switch fault.Kind {
	case FaultError:
		return fault.err("request failed")
	case FaultThrottle:
		return &RetryableError{Throttled: true, Err: errors.New("injected: SlowDown")}
	case FaultHang:
		<-ctx.Done()
		return ctx.Err()
	case FaultDelay:
		select {
		case <-ctx.Done():
		case <-time.After(fault.Delay):
		}
	}
	return ctx.Err()
}

// after replaces a success whose reply is to be lost.
func (fault *Fault) after(err error) error {
	if fault != nil && fault.Kind == FaultLostReply && err == nil {
		return fault.err("reply lost")
	}
	return err
}

// Put implements Store.
func (f *Faulty) Put(ctx context.Context, key string, body Body, opt PutOptions) (ObjectInfo, error) {
	fault := f.next(VerbPut, key)
	if err := fault.before(ctx); err != nil {
		return ObjectInfo{}, err
	}
	if fault != nil && fault.Kind == FaultLate {
		data, err := readBody(ctx, key, body, opt)
		if err != nil {
			return ObjectInfo{}, err
		}
		f.mu.Lock()
		f.late = append(f.late, latePut{key: key, data: data, opt: opt})
		f.mu.Unlock()
		return ObjectInfo{}, fault.err("writer paused")
	}
	if fault != nil && (fault.Kind == FaultWrongBytes || fault.Kind == FaultTruncated || fault.Kind == FaultReset) {
		return ObjectInfo{}, f.refuse(ctx, fault, key, body, opt)
	}
	info, err := f.inner.Put(ctx, key, body, opt)
	if err == nil && f.stale() {
		f.mu.Lock()
		f.fresh[key] = true
		f.mu.Unlock()
	}
	if err = fault.after(err); err != nil {
		return ObjectInfo{}, err
	}
	return info, nil
}

// refuse reads as much of a put's body as the fault lets through. What does not fit its
// checksum, no store keeps: the drivers always send one.
func (f *Faulty) refuse(ctx context.Context, fault *Fault, key string, body Body, opt PutOptions) error {
	if fault.Kind == FaultReset {
		_, err := readBody(ctx, key, Body{ReaderAt: body.ReaderAt, Size: body.Size / 2}, PutOptions{})
		return errors.Join(&RetryableError{Err: errors.New("injected: connection reset")}, err)
	}
	if _, err := readBody(ctx, key, body, opt); err != nil {
		return err
	}
	return &RetryableError{Err: errors.New("injected: BadDigest")}
}

// stale reports whether a FaultStaleList stands in the script.
func (f *Faulty) stale() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.script, func(fault *Fault) bool { return fault.Kind == FaultStaleList && fault.Times != 0 })
}

// Get implements Store.
func (f *Faulty) Get(ctx context.Context, key string, off, length int64, cause string) (io.ReadCloser, error) {
	fault := f.next(VerbGet, key)
	if err := fault.before(ctx); err != nil {
		return nil, err
	}
	body, err := f.inner.Get(ctx, key, off, length, cause)
	if err != nil || fault == nil {
		return body, err
	}
	if fault.Kind == FaultLostReply {
		return nil, errors.Join(fault.err("reply lost"), body.Close())
	}
	if fault.Kind != FaultWrongBytes && fault.Kind != FaultTruncated && fault.Kind != FaultReset {
		return body, nil
	}
	return f.spoil(fault, key, body)
}

// spoil reads a body whole (this is for tests) and damages it.
func (f *Faulty) spoil(fault *Fault, key string, body io.ReadCloser) (io.ReadCloser, error) {
	data, err := io.ReadAll(body)
	if err = errors.Join(err, body.Close()); err != nil {
		return nil, err
	}
	if len(data) == 0 {
		return io.NopCloser(strings.NewReader("")), nil
	}
	f.mu.Lock()
	at := f.rng.IntN(len(data))
	f.mu.Unlock()
	if fault.Kind == FaultReset {
		reset := &RetryableError{Err: fmt.Errorf("injected: get %q: connection reset", key)}
		return io.NopCloser(io.MultiReader(bytes.NewReader(data[:len(data)/2]), errReader{reset})), nil
	}
	if fault.Kind == FaultTruncated {
		return io.NopCloser(io.MultiReader(strings.NewReader(string(data[:at])), errReader{shortRead(key, int64(len(data)-at))})), nil
	}
	data[at] ^= 1
	return io.NopCloser(strings.NewReader(string(data))), nil
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// Head implements Store.
func (f *Faulty) Head(ctx context.Context, key string) (ObjectInfo, error) {
	fault := f.next(VerbHead, key)
	if err := fault.before(ctx); err != nil {
		return ObjectInfo{}, err
	}
	info, err := f.inner.Head(ctx, key)
	if err = fault.after(err); err != nil {
		return ObjectInfo{}, err
	}
	return info, nil
}

// List implements Store. FaultLostReply and FaultReset end the listing after a part of its objects.
func (f *Faulty) List(ctx context.Context, prefix, startAfter string, fn func(ObjectInfo) bool) error {
	fault := f.next(VerbList, prefix)
	if err := fault.before(ctx); err != nil {
		return err
	}
	if fault == nil {
		return f.inner.List(ctx, prefix, startAfter, fn)
	}
	var infos []ObjectInfo
	f.mu.Lock()
	for key, info := range f.gone {
		if fault.Kind == FaultStaleList && strings.HasPrefix(key, prefix) && key > startAfter {
			infos = append(infos, info)
		}
	}
	f.mu.Unlock()
	err := f.inner.List(ctx, prefix, startAfter, func(info ObjectInfo) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		if fault.Kind != FaultStaleList || !f.fresh[info.Key] {
			infos = append(infos, info)
		}
		return true
	})
	if err != nil {
		return err
	}
	slices.SortFunc(infos, func(a, b ObjectInfo) int { return strings.Compare(a.Key, b.Key) })
	most := len(infos)
	switch fault.Kind {
	case FaultLostReply:
		most = min(most, 1)
	case FaultReset, FaultTruncated:
		most /= 2
	}
	for _, info := range infos[:most] {
		if !fn(info) {
			return nil
		}
	}
	if fault.Kind == FaultLostReply || fault.Kind == FaultReset || fault.Kind == FaultTruncated {
		return fault.err("listing cut")
	}
	return nil
}

// Delete implements Store.
func (f *Faulty) Delete(ctx context.Context, keys []string) ([]KeyError, error) {
	fault := f.next(VerbDelete, keys...)
	if err := fault.before(ctx); err != nil {
		return nil, err
	}
	var left []KeyError
	if fault != nil && (fault.Kind == FaultPartialDelete || fault.Kind == FaultReset) {
		var gone []string
		for i, k := range keys {
			if i%2 == 0 {
				left = append(left, KeyError{Key: k, Err: fault.err(fmt.Sprintf("delete of key %d refused", i))})
			} else {
				gone = append(gone, k)
			}
		}
		keys = gone
	}
	if err := f.remember(ctx, keys); err != nil {
		return nil, err
	}
	failed, err := f.inner.Delete(ctx, keys)
	if err = fault.after(err); err != nil {
		return nil, err
	}
	if fault != nil && fault.Kind == FaultReset {
		return nil, fault.err("connection reset")
	}
	return append(left, failed...), nil
}

// remember keeps what a stale list goes on showing.
func (f *Faulty) remember(ctx context.Context, keys []string) error {
	if !f.stale() {
		return nil
	}
	for _, k := range keys {
		info, err := f.inner.Head(ctx, k)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		f.mu.Lock()
		if !f.fresh[k] {
			f.gone[k] = info
		}
		f.mu.Unlock()
	}
	return nil
}
