package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/encrypt"
)

// minioStore is a Store over minio-go's Core, the layer without part buffers, worker
// pools and client-side hashing.
type minioStore struct {
	url    URL
	core   *minio.Core
	creds  *credentials.Credentials
	sse    encrypt.ServerSide
	policy uploadPolicy
}

func newMinio(u URL, o OpenOptions) (Store, error) {
	endpoint, err := url.Parse(u.Endpoint)
	if err != nil {
		return nil, &URLError{"the endpoint is not a URL", "write endpoint=http://host:port"}
	}
	s := &minioStore{url: u, policy: newUploadPolicy(o), creds: credentials.New(&rotating{chain: credentials.Chain{
		Providers: []credentials.Provider{
			&credentials.EnvAWS{}, &credentials.EnvMinio{}, &credentials.FileAWSCredentials{},
			&credentials.FileMinioClient{}, &credentials.IAM{},
		},
	}})}
	if u.KMSKeyID != "" {
		if s.sse, err = encrypt.NewSSEKMS(u.KMSKeyID, nil); err != nil {
			return nil, fmt.Errorf("minio: kms-key-id: %w", err)
		}
	}
	lookup := minio.BucketLookupDNS
	if u.PathStyle {
		lookup = minio.BucketLookupPath
	}
	s.core, err = minio.NewCore(endpoint.Host, &minio.Options{
		Creds: s.creds, Secure: endpoint.Scheme == "https", Transport: newWire(), Region: u.Region, BucketLookup: lookup,
		MaxRetries: 1, // WithRetry is the one place that retries; the SDK still sleeps up to 200 ms after a failure
		// Over plain HTTP a server was seen to store the framing of trailing headers as
		// data; the CRC32C goes in front of the body, so trailers are never needed.
		TrailingHeaders: false,
	})
	if err != nil {
		return nil, fmt.Errorf("minio: %w", err)
	}
	return s, nil
}

// rotating asks the chain anew when its keys may have been rotated.
type rotating struct {
	credentials.Expiry
	chain credentials.Chain
}

func (r *rotating) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	v, err := r.chain.RetrieveWithCredContext(cc)
	if err != nil {
		return v, &credentialsError{err}
	}
	if v.AccessKeyID == "" {
		return v, &credentialsError{errors.New("neither environment, nor profile, nor instance has any")}
	}
	if v.Expiration.IsZero() {
		r.SetExpiration(time.Now().Add(credentialsTTL), 0)
	} else {
		r.SetExpiration(v.Expiration, credentials.DefaultExpiryWindow)
	}
	return v, nil
}

func (r *rotating) Retrieve() (credentials.Value, error) {
	return r.RetrieveWithCredContext(&credentials.CredContext{Client: http.DefaultClient})
}

func (s *minioStore) String() string { return s.url.String() }

// err sorts an SDK error.
func (s *minioStore) err(ctx context.Context, verb Verb, key string, conditional bool, err error) error {
	if err == nil {
		return nil
	}
	var resp minio.ErrorResponse
	if ctx.Err() != nil || !errors.As(err, &resp) || (resp.StatusCode/100 == 2 && resp.Code == "") {
		return transportError(ctx, verb, s.url.Bucket, key, err)
	}
	if staleCredentialCodes[resp.Code] {
		s.creds.Expire()
	}
	return answer{
		verb: verb, bucket: s.url.Bucket, key: key, conditional: conditional,
		status: resp.StatusCode, code: resp.Code, text: resp.Message, requestID: resp.RequestID,
	}.err()
}

// Put implements Store.
func (s *minioStore) Put(ctx context.Context, key string, body Body, opt PutOptions) (ObjectInfo, error) {
	if err := checkPut(key, body, opt); err != nil {
		return ObjectInfo{}, err
	}
	return upload(ctx, s, key, body, opt, s.policy)
}

const crcHeader = "X-Amz-Checksum-Crc32c"

func (s *minioStore) putOptions(opt PutOptions) minio.PutObjectOptions {
	// The payload is not signed, over plain HTTP too: the CRC32C vouches for it.
	out := minio.PutObjectOptions{DisableContentSha256: true}
	if opt.IfNoneMatch {
		out.SetMatchETagExcept("*")
	}
	if opt.IfMatch != "" {
		out.SetMatchETag(opt.IfMatch)
	}
	return out
}

func (s *minioStore) putWhole(ctx context.Context, key string, r *io.SectionReader, crc uint32, opt PutOptions) (string, error) {
	o := s.putOptions(opt)
	o.StorageClass, o.ServerSideEncryption = s.url.StorageClass, s.sse
	o.UserMetadata = map[string]string{crcHeader: encodeCRC(crc)}
	out, err := s.core.PutObject(ctx, s.url.Bucket, key, r, r.Size(), "", "", o)
	if err != nil {
		return "", s.err(ctx, VerbPut, key, opt.IfNoneMatch || opt.IfMatch != "", err)
	}
	return out.ETag, storedCRC(key, crc, &out.ChecksumCRC32C)
}

func (s *minioStore) createUpload(ctx context.Context, key string) (string, error) {
	o := s.putOptions(PutOptions{})
	o.StorageClass, o.ServerSideEncryption = s.url.StorageClass, s.sse
	o.UserMetadata = map[string]string{"X-Amz-Checksum-Algorithm": "CRC32C"}
	id, err := s.core.NewMultipartUpload(ctx, s.url.Bucket, key, o)
	return id, s.err(ctx, VerbPut, key, false, err)
}

func (s *minioStore) putPart(ctx context.Context, key, id string, number int, r *io.SectionReader, crc uint32) (string, error) {
	out, err := s.core.PutObjectPart(ctx, s.url.Bucket, key, id, number, r, r.Size(), minio.PutObjectPartOptions{
		DisableContentSha256: true, CustomHeader: http.Header{crcHeader: {encodeCRC(crc)}},
	})
	if err != nil {
		return "", s.err(ctx, VerbPut, key, false, err)
	}
	return out.ETag, storedCRC(key, crc, &out.ChecksumCRC32C)
}

func (s *minioStore) completeUpload(ctx context.Context, key, id string, parts []part, opt PutOptions) (string, error) {
	done := make([]minio.CompletePart, len(parts))
	for i, p := range parts {
		done[i] = minio.CompletePart{PartNumber: p.number, ETag: p.etag, ChecksumCRC32C: encodeCRC(p.crc)}
	}
	out, err := s.core.CompleteMultipartUpload(ctx, s.url.Bucket, key, id, done, s.putOptions(opt))
	return out.ETag, s.err(ctx, VerbPut, key, opt.IfNoneMatch || opt.IfMatch != "", err)
}

func (s *minioStore) abortUpload(ctx context.Context, key, id string) error {
	return s.err(ctx, VerbPut, key, false, s.core.AbortMultipartUpload(ctx, s.url.Bucket, key, id))
}

func (s *minioStore) listUploads(ctx context.Context, prefix string, fn func(key, id string, began time.Time) bool) error {
	keyMarker, idMarker := "", ""
	for {
		out, err := s.core.ListMultipartUploads(ctx, s.url.Bucket, prefix, keyMarker, idMarker, "", maxListPage)
		if err != nil {
			return s.err(ctx, VerbList, prefix, false, err)
		}
		for _, u := range out.Uploads {
			if !fn(u.Key, u.UploadID, u.Initiated) {
				return nil
			}
		}
		if !out.IsTruncated || out.NextKeyMarker == "" {
			return nil
		}
		keyMarker, idMarker = out.NextKeyMarker, out.NextUploadIDMarker
	}
}

// Get implements Store.
func (s *minioStore) Get(ctx context.Context, key string, off, length int64, _ string) (io.ReadCloser, error) {
	if err := checkGet(key, off); err != nil {
		return nil, err
	}
	if length == 0 {
		return emptyBody(s.Head(ctx, key))
	}
	var o minio.GetObjectOptions
	asked := rangeHeader(off, length)
	if asked != "" {
		o.Set("Range", asked)
	} else {
		o.Set("X-Amz-Checksum-Mode", "ENABLED")
	}
	body, info, header, err := s.core.GetObject(ctx, s.url.Bucket, key, o)
	if err != nil {
		if err = s.err(ctx, VerbGet, key, false, err); isRangeError(err) {
			return emptyBody(s.Head(ctx, key))
		}
		return nil, err
	}
	r := ranged{body: body, contentBytes: -1, contentRange: header.Get("Content-Range")}
	if header.Get("Content-Length") != "" {
		r.contentBytes = info.Size
	}
	if asked == "" && header.Get("X-Amz-Checksum-Type") != "COMPOSITE" {
		r.crc = header.Get(crcHeader)
	}
	return r.check(ctx, s.url.Bucket, key, off, length)
}

// Head implements Store.
func (s *minioStore) Head(ctx context.Context, key string) (ObjectInfo, error) {
	if err := ValidateKey(key); err != nil {
		return ObjectInfo{}, err
	}
	out, err := s.core.StatObject(ctx, s.url.Bucket, key, minio.StatObjectOptions{})
	if err != nil {
		return ObjectInfo{}, s.err(ctx, VerbHead, key, false, err)
	}
	return ObjectInfo{Key: key, Size: out.Size, ETag: out.ETag, ModTime: out.LastModified}, nil
}

// List implements Store.
func (s *minioStore) List(ctx context.Context, prefix, startAfter string, fn func(ObjectInfo) bool) error {
	noOwner := false
	order := listOrder{prefix: prefix, last: startAfter}
	for o := range s.core.ListObjectsIter(ctx, s.url.Bucket, minio.ListObjectsOptions{
		Prefix: prefix, StartAfter: startAfter, Recursive: true, MaxKeys: maxListPage, FetchOwner: &noOwner,
	}) {
		if o.Err != nil {
			return s.err(ctx, VerbList, prefix, false, o.Err)
		}
		if err := order.check(o.Key); err != nil {
			return err
		}
		if !fn(ObjectInfo{Key: o.Key, Size: o.Size, ETag: o.ETag, ModTime: o.LastModified}) {
			return nil
		}
	}
	return ctx.Err() // the SDK ends a listing silently when its context does
}

// Delete implements Store.
func (s *minioStore) Delete(ctx context.Context, keys []string) ([]KeyError, error) {
	keys, failed := validKeys(keys)
	for batch := range slices.Chunk(keys, maxDeleteBatch) {
		bad, err := s.deleteBatch(ctx, batch)
		if err != nil {
			return nil, err
		}
		failed = append(failed, bad...)
	}
	return failed, nil
}

// deleteBatch takes only what the store confirmed as deleted: the SDK drops answers
// with the code InvalidArgument, and ends silently when a request fails half-way.
func (s *minioStore) deleteBatch(ctx context.Context, keys []string) ([]KeyError, error) {
	objects := make([]minio.ObjectInfo, len(keys))
	open := make(map[string]bool, len(keys))
	for i, k := range keys {
		objects[i].Key, open[k] = k, true
	}
	results, err := s.core.RemoveObjectsWithIter(ctx, s.url.Bucket, slices.Values(objects), minio.RemoveObjectsOptions{})
	if err != nil {
		return nil, s.err(ctx, VerbDelete, "", false, err)
	}
	var failed []KeyError
	for r := range results {
		if r.Err == nil {
			delete(open, r.ObjectName)
			continue
		}
		err := s.err(ctx, VerbDelete, r.ObjectName, false, r.Err)
		var resp minio.ErrorResponse
		if !errors.As(r.Err, &resp) || resp.StatusCode != 0 {
			return s.wholeFailure(ctx, keys, resp.Code, err)
		}
		// An entry of the answer, not the answer.
		if resp.Code != "NoSuchKey" {
			failed = append(failed, KeyError{Key: r.ObjectName, Err: err})
		}
		delete(open, r.ObjectName)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for k := range open {
		failed = append(failed, KeyError{Key: k, Err: &RetryableError{Err: errors.New("the store did not confirm the delete")}})
	}
	return failed, nil
}

// wholeFailure is a multi-delete that failed as a request.
func (s *minioStore) wholeFailure(ctx context.Context, keys []string, code string, err error) ([]KeyError, error) {
	if multiDeleteRefusals[code] {
		return deleteEach(ctx, keys, func(ctx context.Context, key string) error {
			err := s.core.RemoveObject(ctx, s.url.Bucket, key, minio.RemoveObjectOptions{})
			return s.err(ctx, VerbDelete, key, false, err)
		})
	}
	return nil, err
}

// probe asks what makes deletes free no space. A store that does not tell is fine.
func (s *minioStore) probe(ctx context.Context) (Report, error) {
	var rep Report
	if v, err := s.core.GetBucketVersioning(ctx, s.url.Bucket); err == nil {
		rep.Versioning = v.Enabled()
	}
	if lock, _, _, _, err := s.core.GetObjectLockConfig(ctx, s.url.Bucket); err == nil {
		rep.ObjectLock = lock == "Enabled"
	}
	return rep, ctx.Err()
}
