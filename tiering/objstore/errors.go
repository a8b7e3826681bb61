package objstore

import (
	"errors"
	"fmt"
	"io"

	"varve/protocol"
)

// Answers of a store that a retry does not change. Errors wrap them with the key or
// bucket and, where there is one, the thing to do.
var (
	ErrNotFound      = errors.New("object not found")
	ErrPrecondition  = errors.New("precondition failed")
	ErrForbidden     = errors.New("access denied")
	ErrBucketMissing = errors.New("bucket does not exist")
)

// ErrUnreachable is wrapped (inside a *RetryableError) when no connection to the
// store could be made at all: wrong endpoint, no route, nobody listening.
var ErrUnreachable = errors.New("store is unreachable")

// RetryableError is a failure that may pass: throttling, a 5xx answer, a timeout, a
// connection reset, a body cut short. The request may have taken effect.
type RetryableError struct {
	Throttled bool // the store asked for less load (503 SlowDown, 429)
	Err       error
}

// Error implements error.
func (e *RetryableError) Error() string {
	if e.Throttled {
		return fmt.Sprintf("store is throttling: %v", e.Err)
	}
	return e.Err.Error()
}

// Unwrap gives errors.Is and errors.As the cause.
func (e *RetryableError) Unwrap() error { return e.Err }

// IsRetryable says whether err is, or wraps, a *RetryableError.
func IsRetryable(err error) bool {
	var r *RetryableError
	return errors.As(err, &r)
}

// IsThrottled says whether the store asked for less load.
func IsThrottled(err error) bool {
	var r *RetryableError
	return errors.As(err, &r) && r.Throttled
}

// URLError is a tier URL that cannot be used. Its text names the fix and never
// repeats user info or query values.
type URLError struct {
	Problem string
	Fix     string
}

// Error implements error.
func (e *URLError) Error() string {
	return fmt.Sprintf("tier URL: %s; %s", e.Problem, e.Fix)
}

// bodyError reports a body that gave fewer bytes than it promised: what was to be
// stored is not what is there, so a retry would not help.
func bodyError(key string, gotBytes, wantBytes int64, err error) error {
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("put %q: read body: %w", key, err)
	}
	return &protocol.CorruptionError{
		Where: fmt.Sprintf("body for object %q", key),
		What:  fmt.Sprintf("ended after %d of %d bytes", gotBytes, wantBytes),
	}
}

// checkCRC compares what was read of a body with what its owner says it is.
func checkCRC(key string, got uint32, opt PutOptions) error {
	if opt.CRC32C == nil || *opt.CRC32C == got {
		return nil
	}
	return &protocol.CorruptionError{
		Where: fmt.Sprintf("body for object %q", key),
		What:  fmt.Sprintf("CRC32C is %08x, its owner says %08x", got, *opt.CRC32C),
	}
}

// shortRead reports a body from the store that ended early.
func shortRead(key string, missingBytes int64) error {
	return &RetryableError{Err: fmt.Errorf("get %q: body ended %d bytes early: %w", key, missingBytes, io.ErrUnexpectedEOF)}
}
