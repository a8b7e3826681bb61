package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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
	// FaultWrongBytes (get) flips one bit of the body.
	FaultWrongBytes
	// FaultTruncated (get) cuts the body short, with the error the drivers give.
	FaultTruncated
	// FaultStaleList (list) hides objects put since the fault was added.
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
	fresh  map[string]bool // keys put while a FaultStaleList stood in the script
	late   []latePut
	calls  map[Verb]int
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
		fresh: map[string]bool{}, calls: map[Verb]int{},
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
		f.script = append(f.script, &fault)
	}
}

// Clear empties the script; late puts stay pending.
func (f *Faulty) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.script = nil
	clear(f.fresh)
}

// Calls returns how often a verb was called.
func (f *Faulty) Calls(v Verb) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[v]
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
	info, err := f.inner.Put(ctx, key, body, opt)
	if err == nil {
		f.noteFresh(key)
	}
	if err = fault.after(err); err != nil {
		return ObjectInfo{}, err
	}
	return info, nil
}

func (f *Faulty) noteFresh(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range f.script {
		if fault.Kind == FaultStaleList && fault.Times != 0 {
			f.fresh[key] = true
			return
		}
	}
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
	if fault.Kind != FaultWrongBytes && fault.Kind != FaultTruncated {
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

// List implements Store. FaultLostReply ends the listing after its first object.
func (f *Faulty) List(ctx context.Context, prefix, startAfter string, fn func(ObjectInfo) bool) error {
	fault := f.next(VerbList, prefix)
	if err := fault.before(ctx); err != nil {
		return err
	}
	if fault == nil {
		return f.inner.List(ctx, prefix, startAfter, fn)
	}
	cut := false
	err := f.inner.List(ctx, prefix, startAfter, func(info ObjectInfo) bool {
		f.mu.Lock()
		hidden := fault.Kind == FaultStaleList && f.fresh[info.Key]
		f.mu.Unlock()
		if hidden {
			return true
		}
		if cut = fault.Kind == FaultLostReply; cut {
			fn(info)
			return false
		}
		return fn(info)
	})
	if cut && err == nil {
		return fault.err("listing cut")
	}
	return err
}

// Delete implements Store.
func (f *Faulty) Delete(ctx context.Context, keys []string) ([]KeyError, error) {
	fault := f.next(VerbDelete, keys...)
	if err := fault.before(ctx); err != nil {
		return nil, err
	}
	var left []KeyError
	if fault != nil && fault.Kind == FaultPartialDelete {
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
	failed, err := f.inner.Delete(ctx, keys)
	if err = fault.after(err); err != nil {
		return nil, err
	}
	return append(left, failed...), nil
}
