package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Store is an object store, or a wrapper around one. See the package comment for
// what each method promises. Implementations are safe for concurrent use.
type Store interface {
	// Put stores body under key, replacing what is there unless opt forbids it.
	Put(ctx context.Context, key string, body Body, opt PutOptions) (ObjectInfo, error)
	// Get reads length bytes from off; length < 0 means to the end. The caller
	// closes the body. cause labels the request in counters ("" is allowed).
	Get(ctx context.Context, key string, off, length int64, cause string) (io.ReadCloser, error)
	// Head returns the object's size, ETag and time, or ErrNotFound.
	Head(ctx context.Context, key string) (ObjectInfo, error)
	// List calls fn for each object whose key starts with prefix and is greater
	// than startAfter, in byte order, until fn returns false. ETag may be empty.
	List(ctx context.Context, prefix, startAfter string, fn func(ObjectInfo) (more bool)) error
	// Delete removes keys. Keys that are absent count as removed. The error is for
	// the call as a whole; when it is nil the KeyErrors name the keys that remain.
	Delete(ctx context.Context, keys []string) ([]KeyError, error)
	// String names the store for people: its canonical URL, without secrets.
	String() string
}

// Body is what Put stores: Size bytes read from ReaderAt at offsets 0..Size. It is
// read at least once, by more than one reader perhaps, and must not change meanwhile.
type Body struct {
	ReaderAt io.ReaderAt
	Size     int64

	// source is ReaderAt before wrappers slowed it down: passes that only compute
	// checksums read here, because they put nothing on the wire.
	source io.ReaderAt
}

// through returns the body as read through r, which wraps b.ReaderAt.
func (b Body) through(r io.ReaderAt) Body {
	return Body{ReaderAt: r, Size: b.Size, source: b.checksumSource()}
}

func (b Body) checksumSource() io.ReaderAt {
	if b.source != nil {
		return b.source
	}
	return b.ReaderAt
}

// BytesBody is the Body of a byte slice.
func BytesBody(b []byte) Body { return Body{ReaderAt: bytesReaderAt(b), Size: int64(len(b))} }

type bytesReaderAt []byte

func (b bytesReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > int64(len(b)) {
		return 0, io.EOF
	}
	n := copy(p, b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// PutOptions qualify a Put. IfNoneMatch and IfMatch exclude each other.
type PutOptions struct {
	IfNoneMatch bool    // create only: ErrPrecondition when the key exists
	IfMatch     string  // replace only the object with this ETag, else ErrPrecondition
	CRC32C      *uint32 // Castagnoli checksum of the body when the caller knows it; checked
	Cause       string  // label for counters: upload, journal, owner ...
}

// ObjectInfo describes a stored object.
type ObjectInfo struct {
	Key     string
	Size    int64 // bytes
	ETag    string
	ModTime time.Time
}

// KeyError says why one key of a Delete remains.
type KeyError struct {
	Key string
	Err error
}

// Error implements error.
func (e KeyError) Error() string { return fmt.Sprintf("object %q: %v", e.Key, e.Err) }

// Unwrap gives errors.Is and errors.As the reason.
func (e KeyError) Unwrap() error { return e.Err }

// Verb names a Store method in deadlines, counters and fault rules.
type Verb string

// The verbs of a Store.
const (
	VerbPut    Verb = "put"
	VerbGet    Verb = "get"
	VerbHead   Verb = "head"
	VerbList   Verb = "list"
	VerbDelete Verb = "delete"
)

// Bounds of a key: what every driver can store.
const (
	maxKeyBytes     = 1024 // S3
	maxKeyPartBytes = 200  // a file name, with room for escapes and a suffix
)

// ErrBadKey is wrapped by the error for a key that not every driver could store.
var ErrBadKey = errors.New("objstore: bad key")

// ValidateKey checks that key is storable by every driver: 1 to 1024 bytes of
// UTF-8 without control characters, made of '/'-separated parts of 1 to 200 bytes,
// none of which is "." or "..".
func ValidateKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: empty", ErrBadKey)
	case len(key) > maxKeyBytes:
		return fmt.Errorf("%w: %d bytes, more than %d", ErrBadKey, len(key), maxKeyBytes)
	case !utf8.ValidString(key):
		return fmt.Errorf("%w: %q is not UTF-8", ErrBadKey, key)
	}
	for _, r := range key {
		if r < 0x20 || (r >= 0x7f && r < 0xa0) || r == '\\' {
			return fmt.Errorf("%w: %q holds the character %q", ErrBadKey, key, r)
		}
	}
	for part := range strings.SplitSeq(key, "/") {
		if part == "" || part == "." || part == ".." || len(part) > maxKeyPartBytes {
			return fmt.Errorf("%w: %q has the part %q (a part has 1 to %d bytes, and is not . or ..)",
				ErrBadKey, key, part, maxKeyPartBytes)
		}
	}
	return nil
}

func checkPut(key string, body Body, opt PutOptions) error {
	if err := ValidateKey(key); err != nil {
		return err
	}
	if body.Size < 0 || (body.Size > 0 && body.ReaderAt == nil) {
		return fmt.Errorf("objstore: put %q: body of %d bytes without a reader", key, body.Size)
	}
	if opt.IfNoneMatch && opt.IfMatch != "" {
		return fmt.Errorf("objstore: put %q: IfNoneMatch and IfMatch exclude each other", key)
	}
	return nil
}

func checkGet(key string, off int64) error {
	if err := ValidateKey(key); err != nil {
		return err
	}
	if off < 0 {
		return fmt.Errorf("objstore: get %q: negative offset %d", key, off)
	}
	return nil
}
