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
	putWhole(ctx context.Context, key string, r *io.SectionReader, crc uint32, opt PutOptions) (etag string, err error)
	createUpload(ctx context.Context, key string) (id string, err error)
	putPart(ctx context.Context, key, id string, number int, r *io.SectionReader, crc uint32) (etag string, err error)
	completeUpload(ctx context.Context, key, id string, parts []part, opt PutOptions) (etag string, err error)
	abortUpload(ctx context.Context, key, id string) error
}

// upload stores body by one PUT, or in parts when it is larger than partBytes. Each
// piece is read twice: for its CRC32C, which goes in front of it on the wire so that
// the server can check, and to be sent. The first pass is from the page cache into one
// small buffer; the second streams from the source to the socket. Memory per upload
// is that of maxPartsInFlight connections, whatever the sizes.
func upload(ctx context.Context, up uploader, key string, body Body, opt PutOptions, partBytes int64) (ObjectInfo, error) {
	var etag string
	var err error
	if body.Size <= partBytes {
		var crc uint32
		if crc, _, err = checksumRange(ctx, key, body, 0, body.Size, 0); err == nil {
			if err = checkCRC(key, crc, opt); err == nil {
				etag, err = up.putWhole(ctx, key, sourceSection(key, body, 0, body.Size), crc, opt)
			}
		}
	} else {
		etag, err = uploadParts(ctx, up, key, body, opt, partBytes)
	}
	if err != nil {
		return ObjectInfo{}, err
	}
	return ObjectInfo{Key: key, Size: body.Size, ETag: etag, ModTime: time.Now()}, nil
}

func uploadParts(ctx context.Context, up uploader, key string, body Body, opt PutOptions, partBytes int64) (etag string, err error) {
	partBytes = max(partBytes, (body.Size+maxParts-1)/maxParts)
	id, err := up.createUpload(ctx, key)
	if err != nil {
		return "", err
	}
	defer func() {
		if err == nil {
			return
		}
		// The caller's context may be the reason we are here.
		actx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
		defer cancel()
		if aerr := up.abortUpload(actx, key, id); aerr != nil && !errors.Is(aerr, ErrNotFound) {
			err = fmt.Errorf("%w (and its parts stay until the bucket's lifecycle rule removes them: %v)", err, aerr)
		}
	}()
	parts, err := putParts(ctx, up, key, id, body, opt, partBytes)
	if err != nil {
		return "", err
	}
	return up.completeUpload(ctx, key, id, parts, opt)
}

// putParts uploads all parts, a few at a time, and checks the CRC of the whole before
// the caller may complete the upload.
func putParts(ctx context.Context, up uploader, key, id string, body Body, opt PutOptions, partBytes int64) ([]part, error) {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxPartsInFlight)
	parts := make([]part, (body.Size+partBytes-1)/partBytes)
	whole := uint32(0)
	var err error
	for i := range parts {
		off := int64(i) * partBytes
		n := min(partBytes, body.Size-off)
		p := &parts[i]
		p.number = i + 1
		if p.crc, whole, err = checksumRange(gctx, key, body, off, n, whole); err != nil {
			break
		}
		g.Go(func() (err error) {
			p.etag, err = up.putPart(gctx, key, id, p.number, sourceSection(key, body, off, n), p.crc)
			return err
		})
	}
	// The group's error caused the loop's, when both are there and ctx is alive.
	if gerr := g.Wait(); gerr != nil {
		return nil, gerr
	}
	if err != nil {
		return nil, err
	}
	return parts, checkCRC(key, whole, opt)
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
