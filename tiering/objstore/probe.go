package objstore

import (
	"context"
)

// Report is what Probe learned of a reachable store.
type Report struct {
	Versioning bool // the bucket keeps old versions: deletes free no space without a lifecycle rule
	ObjectLock bool // the bucket may refuse deletes until a retention date
}

// prober is implemented by drivers that can say more than the Store methods.
type prober interface {
	probe(ctx context.Context) (Report, error)
}

// unwrapper is implemented by the wrappers of this package.
type unwrapper interface{ unwrap() Store }

// Probe is the check at first start: is the store reachable, is the bucket there, are
// we allowed to use it? The error is, or wraps, ErrForbidden, ErrBucketMissing or
// ErrUnreachable, or is another *RetryableError. Versioning and object lock are
// reported where the store tells.
func Probe(ctx context.Context, s Store) (Report, error) {
	prefix := "" // permissions may end at the tier's own prefix
	if u, err := ParseURL(s.String()); err == nil {
		prefix = u.Prefix
	}
	// HEAD would not do: to it a missing bucket and a missing object look alike.
	if err := s.List(ctx, prefix, "", func(ObjectInfo) bool { return false }); err != nil {
		return Report{}, err
	}
	for inner := s; ; {
		if p, ok := inner.(prober); ok {
			return p.probe(ctx)
		}
		u, ok := inner.(unwrapper)
		if !ok {
			return Report{}, nil
		}
		inner = u.unwrap()
	}
}
