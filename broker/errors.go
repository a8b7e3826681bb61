package broker

import (
	"errors"
	"fmt"
	"syscall"

	"varve/broker/commitlog"
	"varve/metastore"
	"varve/tiering"
	"varve/tiering/objstore"
)

// Exit codes of the process (docs/ARCHITECTURE.md).
const (
	ExitDrained = 0
	ExitRuntime = 1
	ExitUsage   = 2 // arguments or configuration
	ExitStore   = 3 // the object store says no
	ExitForeign = 4 // data of another node or cluster, or of a newer version
)

// ExitError ends the process: with which code, why, and what to do about it.
type ExitError struct {
	Code int
	Err  error
	Fix  string // "" when Err says it
}

// Error implements error.
func (e *ExitError) Error() string {
	if e.Fix == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v; %s", e.Err, e.Fix)
}

// Unwrap gives errors.Is and errors.As the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// exitOf gives an error its exit code; fix is used where the error does not say itself what to do.
func exitOf(err error, fix string) *ExitError {
	var exit *ExitError
	var logForeign *commitlog.ForeignError
	var metaForeign *metastore.ForeignError
	var newer *metastore.NewerError
	var owner *tiering.OwnerError
	var locked *commitlog.LockedError
	var url *objstore.URLError
	switch {
	case errors.As(err, &exit):
		return exit
	case errors.As(err, &logForeign), errors.As(err, &metaForeign), errors.As(err, &newer), errors.As(err, &owner):
		return &ExitError{Code: ExitForeign, Err: err, Fix: fix}
	case errors.As(err, &locked):
		return &ExitError{Code: ExitRuntime, Err: err, Fix: fix}
	case errors.As(err, &url):
		return &ExitError{Code: ExitUsage, Err: err, Fix: "correct varve.tier.url"}
	case errors.Is(err, objstore.ErrForbidden):
		return &ExitError{Code: ExitStore, Err: err, Fix: "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and what they may do in this bucket (list, get, put, delete), then start again"}
	case errors.Is(err, objstore.ErrBucketMissing):
		return &ExitError{Code: ExitStore, Err: err, Fix: "create the bucket or correct varve.tier.url, then start again"}
	case errors.Is(err, syscall.ENOSPC):
		return &ExitError{Code: ExitRuntime, Err: err, Fix: "make room on the disk, then start again"}
	}
	return &ExitError{Code: ExitRuntime, Err: err, Fix: fix}
}
