package objstore

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"varve/protocol"
)

// Bounds of the connections to a store. How long an answer may take is WithDeadline's.
const (
	dialTimeout         = 10 * time.Second
	tlsHandshakeTimeout = 10 * time.Second
	idleConnTimeout     = 60 * time.Second
	maxIdleConns        = 64
	connBufferBytes     = 64 << 10
	connReadBufferBytes = 4 << 10
)

// wire is the HTTP transport of the network drivers; it counts what it sends.
type wire struct{ t *http.Transport }

func newWire() wire {
	return wire{&http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   tlsHandshakeTimeout,
		MaxIdleConns:          maxIdleConns,
		MaxIdleConnsPerHost:   maxIdleConns,
		IdleConnTimeout:       idleConnTimeout,
		ExpectContinueTimeout: time.Second,
		// Reads of at least a buffer's size go from the socket to where the caller wants
		// them: a small buffer spares bodies a copy.
		ReadBufferSize:     connReadBufferBytes,
		WriteBufferSize:    connBufferBytes,
		DisableCompression: true, // bodies are counted and checked as they are stored
	}}
}

func (w wire) RoundTrip(r *http.Request) (*http.Response, error) {
	countRequest(r.Context())
	return w.t.RoundTrip(r)
}

// errNoSuchUpload: an upload in parts was completed or aborted; the next Put starts afresh.
var errNoSuchUpload = errors.New("no such upload")

// answer is an error answer of an S3 server, as either SDK tells it.
type answer struct {
	verb        Verb
	bucket, key string
	conditional bool // the request carried If-None-Match or If-Match
	status      int  // HTTP status, 0 when no answer came
	code, text  string
	requestID   string
}

func (a answer) String() string {
	s := fmt.Sprintf("%s %q: HTTP %d %s", a.verb, a.bucket+"/"+a.key, a.status, a.code)
	if a.text != "" && a.text != a.code {
		s += ": " + a.text[:min(len(a.text), maxAnswerTextBytes)]
	}
	if a.requestID != "" {
		s += " (request " + a.requestID + ")"
	}
	return s
}

const maxAnswerTextBytes = 300

// Error codes by what they mean for the caller. The same words are used by AWS, by the
// servers that follow it, and by both SDKs.
var (
	throttleCodes = set("SlowDown", "SlowDownRead", "SlowDownWrite", "ServiceUnavailable", "Throttling", "ThrottlingException",
		"RequestLimitExceeded", "TooManyRequests", "RequestThrottled", "BandwidthLimitExceeded")
	// BadDigest and its kin: the CRC is checked against the body before it is sent, so
	// the wire spoilt it.
	passingCodes = set("InternalError", "RequestTimeout", "BadDigest", "XAmzContentChecksumMismatch", "InvalidDigest",
		"IncompleteBody", "OperationAborted", "ConditionalRequestConflict")
	forbiddenCodes = set("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken",
		"RequestTimeTooSkewed", "AllAccessDisabled", "AccountProblem", "NotSignedUp", "InvalidSecurity", "ExpiredTokenException")
	// Servers without multi-delete (Google's), or with one that wants other headers.
	multiDeleteRefusals = set("NotImplemented", "MethodNotAllowed", "MissingContentMD5", "InvalidRequest", "InvalidArgument",
		"MissingSecurityHeader")
	staleCredentialCodes = set("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "ExpiredTokenException")
)

func set(words ...string) map[string]bool {
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}

// err sorts an answer into the errors of this package.
func (a answer) err() error {
	switch {
	case a.code == "NoSuchBucket":
		return fmt.Errorf("%w: %q: create it or correct the tier URL (%v)", ErrBucketMissing, a.bucket, a)
	case throttleCodes[a.code] || a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable:
		return &RetryableError{Throttled: true, Err: errors.New(a.String())}
	case a.code == "NoSuchUpload":
		return &RetryableError{Err: fmt.Errorf("%w: %v", errNoSuchUpload, a)}
	case passingCodes[a.code]:
		return &RetryableError{Err: errors.New(a.String())}
	case forbiddenCodes[a.code] || a.status == http.StatusForbidden || a.status == http.StatusUnauthorized:
		return fmt.Errorf("%w: %v: %s", ErrForbidden, a, a.forbiddenFix())
	case a.status == http.StatusPreconditionFailed, a.conditional && a.status == http.StatusConflict,
		a.conditional && a.status == http.StatusNotFound: // If-Match on what is not there
		return fmt.Errorf("%w: %v", ErrPrecondition, a)
	case a.status == http.StatusRequestedRangeNotSatisfiable:
		return &rangeError{a}
	case a.status == http.StatusNotFound:
		return fmt.Errorf("%w: %v", ErrNotFound, a)
	case a.status == http.StatusMovedPermanently || a.status == http.StatusTemporaryRedirect || a.code == "AuthorizationHeaderMalformed":
		return fmt.Errorf("%v: the bucket is in another region: set region= in the tier URL", a)
	case a.status == http.StatusRequestTimeout || (a.status >= 500 && a.status != http.StatusNotImplemented):
		return &RetryableError{Err: errors.New(a.String())}
	}
	return errors.New(a.String())
}

func (a answer) forbiddenFix() string {
	switch {
	case a.code == "RequestTimeTooSkewed":
		return "set this machine's clock"
	case staleCredentialCodes[a.code]:
		return "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the profile or the role"
	}
	return "allow s3:GetObject, PutObject, DeleteObject, ListBucket and AbortMultipartUpload on the bucket"
}

// credentialsError says that there was nothing to sign a request with.
type credentialsError struct{ err error }

func (e *credentialsError) Error() string { return e.err.Error() }
func (e *credentialsError) Unwrap() error { return e.err }

// transportError sorts an error that came without an answer from the store.
func transportError(ctx context.Context, verb Verb, bucket, key string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s %q: %w", verb, bucket+"/"+key, ctx.Err())
	}
	var (
		creds *credentialsError
		local *localError
		bad   *protocol.CorruptionError
		dial  *net.OpError
		dns   *net.DNSError
		u     *url.Error
	)
	switch {
	case errors.As(err, &local):
		return local.err
	case errors.As(err, &bad) || IsRetryable(err):
		return err
	case errors.As(err, &creds):
		return fmt.Errorf("%w: no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role (%v)", ErrForbidden, creds)
	case strings.Contains(err.Error(), "checksum did not match"): // the SDK's type is its own
		return &protocol.CorruptionError{Where: fmt.Sprintf("object %q", key), What: err.Error()}
	}
	if errors.As(err, &u) {
		err = u.Err // without the URL, which repeats the key
	}
	if errors.As(err, &dns) || (errors.As(err, &dial) && dial.Op == "dial") {
		err = fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return &RetryableError{Err: fmt.Errorf("%s %q: %w", verb, bucket+"/"+key, err)}
}

// localError marks an error of the body's source, which is not the store's.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }
func (e *localError) Unwrap() error { return e.err }

// wireBody turns the errors of a body from the network into this package's.
type wireBody struct {
	io.ReadCloser
	ctx         context.Context
	bucket, key string
}

func (b *wireBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil || err == io.EOF {
		return n, err
	}
	return n, transportError(b.ctx, VerbGet, b.bucket, b.key, err)
}

// ranged is what a GET brought, as either SDK tells it.
type ranged struct {
	body         io.ReadCloser
	contentBytes int64 // Content-Length, -1 when unknown
	contentRange string
	crc          string // x-amz-checksum-crc32c, for whole objects
}

// rangeHeader asks for length bytes from off; "" asks for the whole.
func rangeHeader(off, length int64) string {
	switch {
	case length >= 0:
		return fmt.Sprintf("bytes=%d-%d", off, off+length-1)
	case off > 0:
		return fmt.Sprintf("bytes=%d-", off)
	}
	return ""
}

// check holds what came against what was asked for and returns a body that ends
// exactly where it should. It closes the body when it returns an error.
func (r ranged) check(ctx context.Context, bucket, key string, off, length int64) (io.ReadCloser, error) {
	fail := func(format string, args ...any) (io.ReadCloser, error) {
		err := fmt.Errorf("get %q: "+format, append([]any{bucket + "/" + key}, args...)...)
		return nil, errors.Join(&RetryableError{Err: err}, r.body.Close())
	}
	want := r.contentBytes
	if asked := rangeHeader(off, length); asked != "" && r.contentRange != "" {
		var first, last, total int64
		if _, err := fmt.Sscanf(r.contentRange, "bytes %d-%d/%d", &first, &last, &total); err != nil {
			return fail("answer has the content range %.60q", r.contentRange)
		}
		size := total - off
		if length >= 0 {
			size = min(size, length)
		}
		if first != off || last-first+1 != size {
			return fail("asked for %s, got %.60q", asked, r.contentRange)
		}
		if want >= 0 && want != size {
			return fail("content range %.60q with %d bytes", r.contentRange, want)
		}
		want = size
	} else if off > 0 {
		return fail("the store ignored the range %s", asked)
	} else if want < 0 {
		return fail("answer without a length")
	} else if length >= 0 {
		want = min(want, length)
	}
	body := &wireBody{ReadCloser: r.body, ctx: ctx, bucket: bucket, key: key}
	return newExactBody(body, key, want, decodeCRC(r.crc)), nil
}

// encodeCRC is the form of a CRC32C in headers: base64 of its big-endian bytes.
func encodeCRC(crc uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
}

// decodeCRC reads that form; nil for "" and for a multipart upload's "...-N".
func decodeCRC(s string) *uint32 {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(b) != 4 {
		return nil
	}
	crc := binary.BigEndian.Uint32(b)
	return &crc
}

// isRangeError says whether err is the answer to a range at or behind an object's end.
func isRangeError(err error) bool {
	var r *rangeError
	return errors.As(err, &r)
}

type rangeError struct{ answer }

func (e *rangeError) Error() string { return e.String() }

// listOrder checks the promise that List makes of its store.
type listOrder struct{ prefix, last string }

func (l *listOrder) check(key string) error {
	if !strings.HasPrefix(key, l.prefix) || (l.last != "" && key <= l.last) {
		return fmt.Errorf("list %q: the store sent %q after %q", l.prefix, key, l.last)
	}
	l.last = key
	return nil
}

// validKeys sorts out the keys that no driver could have stored.
func validKeys(keys []string) (valid []string, failed []KeyError) {
	for _, k := range keys {
		if err := ValidateKey(k); err != nil {
			failed = append(failed, KeyError{Key: k, Err: err})
		} else {
			valid = append(valid, k)
		}
	}
	return valid, failed
}

// deleteEach deletes keys one request each, and stops only when ctx ends.
func deleteEach(ctx context.Context, keys []string, del func(context.Context, string) error) ([]KeyError, error) {
	var failed []KeyError
	for _, k := range keys {
		err := del(ctx, k)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			failed = append(failed, KeyError{Key: k, Err: err})
		}
	}
	return failed, nil
}
