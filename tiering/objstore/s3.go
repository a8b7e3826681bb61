package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"varve/protocol"
)

// s3Store is a Store over aws-sdk-go-v2's plain client.
type s3Store struct {
	url    URL
	client *s3.Client
	creds  *aws.CredentialsCache
	policy uploadPolicy
}

const (
	maxListPage    = 1000 // S3's own
	maxDeleteBatch = 1000 // S3's own
	// credentialsTTL is how long keys that never expire by themselves are used before
	// the chain is asked again: a rotated profile is picked up after that.
	credentialsTTL = time.Minute
)

func newS3(ctx context.Context, u URL, o OpenOptions) (Store, error) {
	load := []func(*config.LoadOptions) error{config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} })}
	if u.Region != "" {
		load = append(load, config.WithRegion(u.Region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, fmt.Errorf("s3: AWS configuration: %w", err)
	}
	creds := aws.NewCredentialsCache(&chainCredentials{load: load})
	s := &s3Store{url: u, creds: creds, policy: newUploadPolicy(o)}
	s.client = s3.NewFromConfig(cfg, func(opt *s3.Options) {
		opt.HTTPClient = &http.Client{Transport: newWire(), CheckRedirect: noRedirects}
		opt.Credentials = creds
		opt.Retryer = aws.NopRetryer{}
		opt.UsePathStyle = u.PathStyle
		if u.Endpoint != "" {
			opt.BaseEndpoint = aws.String(u.Endpoint)
		}
		if !isAWS(opt.BaseEndpoint) {
			// Checksums that we do not send ourselves confuse servers that do not know them.
			opt.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
			opt.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
			opt.APIOptions = append(opt.APIOptions, leaveAcceptEncodingUnsigned)
			if opt.Region == "" {
				opt.Region = "us-east-1"
			}
		}
	})
	if s.client.Options().Region == "" {
		return nil, &URLError{"the region is not known", "add ?region=R or set AWS_REGION"}
	}
	return s, nil
}

// noRedirects: a redirect names another region, which the signature does not fit.
func noRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func isAWS(endpoint *string) bool {
	if endpoint == nil {
		return true
	}
	u, err := url.Parse(*endpoint)
	if err != nil {
		return false
	}
	host := u.Hostname()
	return strings.HasSuffix(host, ".amazonaws.com") || strings.HasSuffix(host, ".amazonaws.com.cn")
}

// chainCredentials asks the SDK's chain anew each time: the chain itself reads a
// profile only once.
type chainCredentials struct {
	load []func(*config.LoadOptions) error
}

func (c *chainCredentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	cfg, err := config.LoadDefaultConfig(ctx, c.load...)
	if err != nil {
		return aws.Credentials{}, &credentialsError{err}
	}
	v, err := cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return aws.Credentials{}, &credentialsError{err}
	}
	if !v.CanExpire {
		v.CanExpire, v.Expires = true, time.Now().Add(credentialsTTL)
	}
	return v, nil
}

// leaveAcceptEncodingUnsigned drops the header that the SDK sets and signs: proxies in
// front of some stores (Google's) rewrite it, and the signature no longer fits.
func leaveAcceptEncodingUnsigned(stack *middleware.Stack) error {
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("varve:NoAcceptEncoding",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
			if req, ok := in.Request.(*smithyhttp.Request); ok {
				req.Header.Del("Accept-Encoding")
			}
			return next.HandleFinalize(ctx, in)
		}), "Signing", middleware.Before)
}

// unsignedPayload saves a SHA-256 of the body, over plain HTTP too: the CRC32C, which
// is signed with the headers, vouches for the body.
var unsignedPayload = s3.WithAPIOptions(v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)

func (s *s3Store) String() string { return s.url.String() }

// err sorts an SDK error.
func (s *s3Store) err(ctx context.Context, verb Verb, key string, conditional bool, err error) error {
	if err == nil {
		return nil
	}
	var (
		resp *smithyhttp.ResponseError
		api  smithy.APIError
	)
	if ctx.Err() != nil || !errors.As(err, &resp) || resp.Response == nil || resp.HTTPStatusCode() == 0 {
		return transportError(ctx, verb, s.url.Bucket, key, err)
	}
	a := answer{verb: verb, bucket: s.url.Bucket, key: key, conditional: conditional, status: resp.HTTPStatusCode()}
	a.requestID = resp.Response.Header.Get("X-Amz-Request-Id")
	if errors.As(err, &api) {
		a.code, a.text = api.ErrorCode(), api.ErrorMessage()
	} else if a.status/100 == 2 {
		// A success whose body broke off or could not be read.
		return transportError(ctx, verb, s.url.Bucket, key, err)
	}
	if staleCredentialCodes[a.code] {
		s.creds.Invalidate()
	}
	return a.err()
}

// Put implements Store.
func (s *s3Store) Put(ctx context.Context, key string, body Body, opt PutOptions) (ObjectInfo, error) {
	if err := checkPut(key, body, opt); err != nil {
		return ObjectInfo{}, err
	}
	return upload(ctx, s, key, body, opt, s.policy)
}

func (s *s3Store) putWhole(ctx context.Context, key string, r *io.SectionReader, crc uint32, opt PutOptions) (string, error) {
	in := &s3.PutObjectInput{
		Bucket: &s.url.Bucket, Key: &key, Body: r, ContentLength: aws.Int64(r.Size()),
		ChecksumCRC32C: aws.String(encodeCRC(crc)),
		StorageClass:   types.StorageClass(s.url.StorageClass),
	}
	in.IfNoneMatch, in.IfMatch = conditions(opt)
	if s.url.KMSKeyID != "" {
		in.ServerSideEncryption, in.SSEKMSKeyId = types.ServerSideEncryptionAwsKms, &s.url.KMSKeyID
	}
	out, err := s.client.PutObject(ctx, in, unsignedPayload)
	if err != nil {
		return "", s.err(ctx, VerbPut, key, in.IfMatch != nil || in.IfNoneMatch != nil, err)
	}
	return unquote(out.ETag), storedCRC(key, crc, out.ChecksumCRC32C)
}

func conditions(opt PutOptions) (ifNoneMatch, ifMatch *string) {
	if opt.IfNoneMatch {
		ifNoneMatch = aws.String("*")
	}
	if opt.IfMatch != "" {
		ifMatch = aws.String(`"` + opt.IfMatch + `"`)
	}
	return ifNoneMatch, ifMatch
}

func unquote(etag *string) string { return strings.Trim(aws.ToString(etag), `"`) }

// storedCRC holds the checksum that the store reports, if any, against ours.
func storedCRC(key string, sent uint32, stored *string) error {
	if got := decodeCRC(aws.ToString(stored)); got != nil && *got != sent {
		return &protocol.CorruptionError{
			Where: fmt.Sprintf("object %q", key),
			What:  fmt.Sprintf("sent with CRC32C %08x, the store has %08x", sent, *got),
		}
	}
	return nil
}

func (s *s3Store) createUpload(ctx context.Context, key string) (string, error) {
	in := &s3.CreateMultipartUploadInput{
		Bucket: &s.url.Bucket, Key: &key,
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
		StorageClass:      types.StorageClass(s.url.StorageClass),
	}
	if s.url.KMSKeyID != "" {
		in.ServerSideEncryption, in.SSEKMSKeyId = types.ServerSideEncryptionAwsKms, &s.url.KMSKeyID
	}
	out, err := s.client.CreateMultipartUpload(ctx, in)
	if err != nil {
		return "", s.err(ctx, VerbPut, key, false, err)
	}
	return aws.ToString(out.UploadId), nil
}

func (s *s3Store) putPart(ctx context.Context, key, id string, number int, r *io.SectionReader, crc uint32) (string, error) {
	out, err := s.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &s.url.Bucket, Key: &key, UploadId: &id, PartNumber: aws.Int32(int32(number)),
		Body: r, ContentLength: aws.Int64(r.Size()), ChecksumCRC32C: aws.String(encodeCRC(crc)),
	}, unsignedPayload)
	if err != nil {
		return "", s.err(ctx, VerbPut, key, false, err)
	}
	return unquote(out.ETag), storedCRC(key, crc, out.ChecksumCRC32C)
}

func (s *s3Store) completeUpload(ctx context.Context, key, id string, parts []part, opt PutOptions) (string, error) {
	done := make([]types.CompletedPart, len(parts))
	for i, p := range parts {
		done[i] = types.CompletedPart{
			PartNumber: aws.Int32(int32(p.number)), ETag: aws.String(`"` + p.etag + `"`), ChecksumCRC32C: aws.String(encodeCRC(p.crc)),
		}
	}
	in := &s3.CompleteMultipartUploadInput{
		Bucket: &s.url.Bucket, Key: &key, UploadId: &id,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: done},
	}
	in.IfNoneMatch, in.IfMatch = conditions(opt)
	out, err := s.client.CompleteMultipartUpload(ctx, in)
	if err != nil {
		return "", s.err(ctx, VerbPut, key, in.IfMatch != nil || in.IfNoneMatch != nil, err)
	}
	return unquote(out.ETag), nil
}

func (s *s3Store) abortUpload(ctx context.Context, key, id string) error {
	_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.url.Bucket, Key: &key, UploadId: &id})
	return s.err(ctx, VerbPut, key, false, err)
}

func (s *s3Store) listUploads(ctx context.Context, prefix string, fn func(key, id string, began time.Time) bool) error {
	in := &s3.ListMultipartUploadsInput{Bucket: &s.url.Bucket, Prefix: &prefix, MaxUploads: aws.Int32(maxListPage)}
	for {
		out, err := s.client.ListMultipartUploads(ctx, in)
		if err != nil {
			return s.err(ctx, VerbList, prefix, false, err)
		}
		for _, u := range out.Uploads {
			if !fn(aws.ToString(u.Key), aws.ToString(u.UploadId), aws.ToTime(u.Initiated)) {
				return nil
			}
		}
		if !aws.ToBool(out.IsTruncated) || aws.ToString(out.NextKeyMarker) == "" {
			return nil
		}
		in.KeyMarker, in.UploadIdMarker = out.NextKeyMarker, out.NextUploadIdMarker
	}
}

// Get implements Store.
func (s *s3Store) Get(ctx context.Context, key string, off, length int64, _ string) (io.ReadCloser, error) {
	if err := checkGet(key, off); err != nil {
		return nil, err
	}
	if length == 0 {
		return emptyBody(s.Head(ctx, key))
	}
	in := &s3.GetObjectInput{Bucket: &s.url.Bucket, Key: &key}
	var opts []func(*s3.Options)
	if r := rangeHeader(off, length); r != "" {
		in.Range = &r
	} else {
		// Asked for as a bare header, the SDK leaves the checking to us on every server.
		opts = append(opts, s3.WithAPIOptions(smithyhttp.SetHeaderValue("X-Amz-Checksum-Mode", "ENABLED")))
	}
	out, err := s.client.GetObject(ctx, in, opts...)
	if err != nil {
		if err = s.err(ctx, VerbGet, key, false, err); isRangeError(err) {
			return emptyBody(s.Head(ctx, key))
		}
		return nil, err
	}
	r := ranged{body: out.Body, contentBytes: -1, contentRange: aws.ToString(out.ContentRange)}
	if out.ContentLength != nil {
		r.contentBytes = *out.ContentLength
	}
	if in.Range == nil && out.ChecksumType != types.ChecksumTypeComposite {
		r.crc = aws.ToString(out.ChecksumCRC32C)
	}
	return r.check(ctx, s.url.Bucket, key, off, length)
}

// emptyBody is the body of a range that holds nothing, if the object is there.
func emptyBody(_ ObjectInfo, err error) (io.ReadCloser, error) {
	if err != nil {
		return nil, err
	}
	return http.NoBody, nil
}

// Head implements Store.
func (s *s3Store) Head(ctx context.Context, key string) (ObjectInfo, error) {
	if err := ValidateKey(key); err != nil {
		return ObjectInfo{}, err
	}
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.url.Bucket, Key: &key})
	if err != nil {
		return ObjectInfo{}, s.err(ctx, VerbHead, key, false, err)
	}
	return ObjectInfo{
		Key: key, Size: aws.ToInt64(out.ContentLength), ETag: unquote(out.ETag), ModTime: aws.ToTime(out.LastModified),
	}, nil
}

// List implements Store.
func (s *s3Store) List(ctx context.Context, prefix, startAfter string, fn func(ObjectInfo) bool) error {
	in := &s3.ListObjectsV2Input{Bucket: &s.url.Bucket, MaxKeys: aws.Int32(maxListPage)}
	if prefix != "" {
		in.Prefix = &prefix
	}
	if startAfter != "" {
		in.StartAfter = &startAfter
	}
	order := listOrder{prefix: prefix, last: startAfter}
	for {
		out, err := s.client.ListObjectsV2(ctx, in)
		if err != nil {
			return s.err(ctx, VerbList, prefix, false, err)
		}
		for _, o := range out.Contents {
			info := ObjectInfo{Key: aws.ToString(o.Key), Size: aws.ToInt64(o.Size), ETag: unquote(o.ETag), ModTime: aws.ToTime(o.LastModified)}
			if err := order.check(info.Key); err != nil {
				return err
			}
			if !fn(info) {
				return nil
			}
		}
		if !aws.ToBool(out.IsTruncated) {
			return nil
		}
		if aws.ToString(out.NextContinuationToken) == "" {
			return &RetryableError{Err: fmt.Errorf("list %q: a cut page without a continuation token", prefix)}
		}
		in.ContinuationToken = out.NextContinuationToken
	}
}

// Delete implements Store.
func (s *s3Store) Delete(ctx context.Context, keys []string) ([]KeyError, error) {
	keys, failed := validKeys(keys)
	for len(keys) > 0 {
		n := min(len(keys), maxDeleteBatch)
		bad, err := s.deleteBatch(ctx, keys[:n])
		if err != nil {
			return nil, err
		}
		failed = append(failed, bad...)
		keys = keys[n:]
	}
	return failed, nil
}

func (s *s3Store) deleteBatch(ctx context.Context, keys []string) ([]KeyError, error) {
	ids := make([]types.ObjectIdentifier, len(keys))
	for i := range keys {
		ids[i].Key = &keys[i]
	}
	out, err := s.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{
		Bucket: &s.url.Bucket, Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)},
	})
	if err != nil {
		var api smithy.APIError
		if errors.As(err, &api) && multiDeleteRefusals[api.ErrorCode()] {
			return deleteEach(ctx, keys, s.deleteOne)
		}
		return nil, s.err(ctx, VerbDelete, "", false, err)
	}
	var failed []KeyError
	for _, e := range out.Errors {
		a := answer{verb: VerbDelete, bucket: s.url.Bucket, key: aws.ToString(e.Key), code: aws.ToString(e.Code), text: aws.ToString(e.Message)}
		if err := a.err(); a.code != "NoSuchKey" && a.code != "NoSuchVersion" {
			failed = append(failed, KeyError{Key: a.key, Err: err})
		}
	}
	return failed, nil
}

func (s *s3Store) deleteOne(ctx context.Context, key string) error {
	_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.url.Bucket, Key: &key})
	return s.err(ctx, VerbDelete, key, false, err)
}

// probe asks what makes deletes free no space. A store that does not tell is fine.
func (s *s3Store) probe(ctx context.Context) (Report, error) {
	var rep Report
	if v, err := s.client.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &s.url.Bucket}); err == nil {
		rep.Versioning = v.Status == types.BucketVersioningStatusEnabled
	}
	if l, err := s.client.GetObjectLockConfiguration(ctx, &s3.GetObjectLockConfigurationInput{Bucket: &s.url.Bucket}); err == nil {
		rep.ObjectLock = l.ObjectLockConfiguration != nil &&
			l.ObjectLockConfiguration.ObjectLockEnabled == types.ObjectLockEnabledEnabled
	}
	return rep, ctx.Err()
}
