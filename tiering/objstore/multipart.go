package objstore

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
)

// Bounds of uploads.
const (
	defaultPartBytes = 16 << 20
	minPartBytes     = 5 << 20 // S3's own
	maxParts         = 10_000  // S3's own
	maxPartsInFlight = 4
	abortTimeout     = 10 * time.Second
)

// part is one uploaded part of a multipart upload.
type part struct {
	number int // from 1
	etag   string
	crc    uint32
}

// uploader is what upload needs of an SDK. Readers are at their start and seekable, so
// that nothing needs to be buffered; errors are this package's.
type uploader interface {
	Head(ctx context.Context, key string) (ObjectInfo, error)
	putWhole(ctx context.Context, key string, r *io.SectionReader, crc uint32, opt PutOptions) (etag string, err error)
	createUpload(ctx context.Context, key string) (id string, err error)
	putPart(ctx context.Context, key, id string, number int, r *io.SectionReader, crc uint32) (etag string, err error)
	completeUpload(ctx context.Context, key, id string, parts []part, opt PutOptions) (etag string, err error)
	abortUpload(ctx context.Context, key, id string) error
}

// uploadPolicy says how an upload is cut, and when one of its requests is made again.
type uploadPolicy struct {
	partBytes int64
	retry     RetryPolicy   // of each part, and of the completion
	stall     time.Duration // a part that does not move for so long is sent again
}

// newUploadPolicy: a part gives up before WithDeadline gives the whole up, which would
// throw away the parts that are there.
func newUploadPolicy(o OpenOptions) uploadPolicy {
	p := uploadPolicy{partBytes: defaultPartBytes, retry: o.Retry.withDefaults(), stall: o.Deadlines.withDefaults().Put / 2}
	if o.PartBytes > 0 {
		p.partBytes = max(o.PartBytes, minPartBytes)
	}
	return p
}

// upload stores body by one PUT, or in parts when it is larger than partBytes. Each
// piece is read twice: for its CRC32C, which goes in front of it on the wire so that
// the server can check, and to be sent. The first pass is from the page cache into one
// small buffer; the second streams from the source to the socket. Memory per upload
// is that of maxPartsInFlight connections, whatever the sizes.
func upload(ctx context.Context, up uploader, key string, body Body, opt PutOptions, policy uploadPolicy) (ObjectInfo, error) {
	var etag string
	var err error
	if body.Size <= policy.partBytes {
		var crc uint32
		if crc, _, err = checksumRange(ctx, key, body, 0, body.Size, 0); err == nil {
			if err = checkCRC(key, crc, opt); err == nil {
				etag, err = up.putWhole(ctx, key, sourceSection(key, body, 0, body.Size), crc, opt)
			}
		}
	} else {
		policy.partBytes = max(policy.partBytes, (body.Size+maxParts-1)/maxParts)
		u := &partsUpload{up: up, key: key, body: body, opt: opt, policy: policy}
		etag, err = u.run(ctx)
	}
	if err != nil {
		return ObjectInfo{}, err
	}
	return ObjectInfo{Key: key, Size: body.Size, ETag: etag, ModTime: time.Now()}, nil
}

// partsUpload is one upload in parts. A request of it that fails is made again by
// itself: what the store has of the other parts stays good.
type partsUpload struct {
	up     uploader
	key    string
	id     string
	body   Body
	opt    PutOptions
	policy uploadPolicy
}

func (u *partsUpload) run(ctx context.Context) (etag string, err error) {
	if u.id, err = u.up.createUpload(ctx, u.key); err != nil {
		return "", err
	}
	defer func() {
		if err == nil {
			return
		}
		// The caller's context may be the reason we are here.
		actx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
		defer cancel()
		if aerr := u.up.abortUpload(actx, u.key, u.id); aerr != nil && !errors.Is(aerr, ErrNotFound) && !errors.Is(aerr, errNoSuchUpload) {
			err = fmt.Errorf("%w (and its parts stay until AbortUploads or the bucket's lifecycle rule removes them: %v)", err, aerr)
		}
	}()
	parts, err := u.putParts(ctx)
	if err != nil {
		return "", err
	}
	return u.complete(ctx, parts)
}

// putParts uploads all parts, a few at a time, and checks the CRC of the whole before
// the caller may complete the upload.
func (u *partsUpload) putParts(ctx context.Context) ([]part, error) {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxPartsInFlight)
	partBytes := u.policy.partBytes
	parts := make([]part, (u.body.Size+partBytes-1)/partBytes)
	whole := uint32(0)
	var err error
	for i := range parts {
		off := int64(i) * partBytes
		n := min(partBytes, u.body.Size-off)
		p := &parts[i]
		p.number = i + 1
		if p.crc, whole, err = checksumRange(gctx, u.key, u.body, off, n, whole); err != nil {
			break
		}
		g.Go(func() error {
			return spent(gctx, u.policy.retry.do(gctx, func() error { return u.putPart(gctx, p, off, n) }))
		})
	}
	// The group's error caused the loop's, when both are there and ctx is alive.
	if gerr := g.Wait(); gerr != nil {
		return nil, gerr
	}
	if err != nil {
		return nil, err
	}
	return parts, checkCRC(u.key, whole, u.opt)
}

// putPart sends one part once, as long as it moves.
func (u *partsUpload) putPart(ctx context.Context, p *part, off, n int64) (err error) {
	w := newWatch(ctx, u.policy.stall)
	defer w.stop()
	body := u.body
	body.ReaderAt = &watchedReaderAt{w: w, r: body.ReaderAt}
	p.etag, err = u.up.putPart(w.ctx, u.key, u.id, p.number, sourceSection(u.key, body, off, n), p.crc)
	return w.errOf(VerbPut, err)
}

// complete makes the object. When the answer to that was lost, the repetition is told
// that there is no such upload: then the object is what tells.
func (u *partsUpload) complete(ctx context.Context, parts []part) (etag string, err error) {
	asked := false
	var gone error
	err = u.policy.retry.do(ctx, func() error {
		etag, err = u.up.completeUpload(ctx, u.key, u.id, parts, u.opt)
		if errors.Is(err, errNoSuchUpload) {
			info, herr := u.up.Head(ctx, u.key)
			if asked && herr == nil && info.Size == u.body.Size && !u.opt.IfNoneMatch && u.opt.IfMatch == "" {
				etag, err = info.ETag, nil
			} else {
				gone, err = err, &spentError{err}
			}
		}
		asked = true
		return err
	})
	if gone != nil {
		return "", gone // somebody aborted it: all from the start
	}
	return etag, spent(ctx, err)
}

// spentError is a retryable error whose retries are used up: WithRetry would repeat
// the whole upload for the sake of one part.
type spentError struct{ err error }

func (e *spentError) Error() string { return e.err.Error() }
func (e *spentError) Unwrap() error { return e.err }

func spent(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || !IsRetryable(err) {
		return err
	}
	return &spentError{err}
}

// isSpent says whether err is one that must not be retried any more.
func isSpent(err error) bool {
	var s *spentError
	return errors.As(err, &s)
}

// uploadLister is a driver with uploads in parts that somebody may have left open.
type uploadLister interface {
	// listUploads calls fn for each open upload of a key under prefix, until it returns false.
	listUploads(ctx context.Context, prefix string, fn func(key, id string, began time.Time) (more bool)) error
	abortUpload(ctx context.Context, key, id string) error
}

// maxAbortsInCall bounds one AbortUploads; the next call finds the rest.
const maxAbortsInCall = 1000

// AbortUploads ends uploads in parts under prefix that began before a time and were
// never completed: those of a process that died, or whose store was away when it gave
// up. Their parts are billed and no List shows them. It returns how many it ended; a
// store without such uploads has none. MinIO's server lists the uploads of one exact key
// only, so that there prefix has to be one, and removes abandoned ones itself after a day
// (stale_uploads_expiry); https://github.com/minio/minio/issues/20989.
func AbortUploads(ctx context.Context, s Store, prefix string, before time.Time) (int, error) {
	for {
		if l, ok := s.(uploadLister); ok {
			return abortUploads(ctx, l, prefix, before)
		}
		u, ok := s.(unwrapper)
		if !ok {
			return 0, nil
		}
		s = u.unwrap()
	}
}

func abortUploads(ctx context.Context, l uploadLister, prefix string, before time.Time) (n int, err error) {
	type open struct{ key, id string }
	var old []open
	err = l.listUploads(ctx, prefix, func(key, id string, began time.Time) bool {
		if began.Before(before) {
			old = append(old, open{key, id})
		}
		return len(old) < maxAbortsInCall
	})
	for _, u := range old {
		aerr := l.abortUpload(ctx, u.key, u.id)
		if aerr == nil {
			n++
		} else if !errors.Is(aerr, ErrNotFound) && !errors.Is(aerr, errNoSuchUpload) {
			return n, errors.Join(err, aerr)
		}
	}
	return n, err
}

// checksumRange reads n bytes of body from off and returns their CRC32C, and that of
// all bytes before and with them, given before.
func checksumRange(ctx context.Context, key string, body Body, off, n int64, before uint32) (crc, whole uint32, err error) {
	src := body.checksumSource()
	whole = before
	buf := make([]byte, min(copyBufferBytes, max(n, 1)))
	for end := off + n; off < end; {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		chunk := buf[:min(int64(len(buf)), end-off)]
		got, err := src.ReadAt(chunk, off)
		if got < len(chunk) {
			return 0, 0, bodyError(key, off+int64(got), body.Size, err)
		}
		crc = crc32.Update(crc, castagnoli, chunk)
		whole = crc32.Update(whole, castagnoli, chunk)
		off += int64(got)
	}
	return crc, whole, nil
}

// sourceSection is the part of body to be sent; its errors are marked as local.
func sourceSection(key string, body Body, off, n int64) *io.SectionReader {
	return io.NewSectionReader(localReaderAt{key: key, body: body}, off, n)
}

type localReaderAt struct {
	key  string
	body Body
}

func (r localReaderAt) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.body.ReaderAt.ReadAt(p, off)
	if n == len(p) || (err == io.EOF && off+int64(n) >= r.body.Size) {
		return n, err
	}
	return n, &localError{bodyError(r.key, off+int64(n), r.body.Size, err)}
}
