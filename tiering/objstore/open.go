package objstore

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// OpenOptions are the parts of a store that its URL does not say. The zero value is
// what a broker uses, but for counters and bandwidth.
type OpenOptions struct {
	Counters  *Counters        // nil: not counted
	Bandwidth *Bandwidth       // nil: unbounded
	Retry     RetryPolicy      // zero: defaults
	Deadlines Deadlines        // zero: defaults
	PartBytes int64            // s3 and minio: size of a multipart part; 0 means 16 MiB, the least is 5 MiB
	Now       func() time.Time // nil: time.Now; stamps objects of mem
}

// Open opens the store that rawURL names (DESIGN section 7, ParseURL) and puts the
// wrappers around it: counters at the wire, then deadlines, bandwidth, and retries
// outermost. It does not talk to a network store yet: that is Probe's.
func Open(ctx context.Context, rawURL string, o OpenOptions) (Store, error) {
	u, err := ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	s, err := openDriver(ctx, u, o)
	if err != nil {
		return nil, err
	}
	if o.Counters != nil {
		s = Counted(s, o.Counters)
	}
	s = WithDeadline(s, o.Deadlines)
	if o.Bandwidth != nil {
		s = WithBandwidth(s, o.Bandwidth)
	}
	return WithRetry(s, o.Retry), nil
}

func openDriver(ctx context.Context, u URL, o OpenOptions) (Store, error) {
	switch u.Scheme {
	case "dir":
		return NewDir(vfs.Default, u.Path), nil
	case "s3":
		return newS3(ctx, u, o)
	case "minio":
		return newMinio(u, o)
	}
	return NewMem(o.Now), nil
}
