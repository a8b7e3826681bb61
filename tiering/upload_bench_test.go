package tiering

import (
	"context"
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"varve/tests/s3server"
	"varve/tiering/objstore"
	"varve/tiering/tierpb"
)

// BenchmarkUpload stores a segment through each driver, in turn with a bare loop that sends
// the same file by aws-sdk-go-v2 with as many parts at a time and their checksums:
//
//	go test -run '^$' -bench Upload ./tiering
//
// VARVE_BENCH_UPLOAD_BYTES is the segment's size, 64 MiB unless set. PUTs/GB are
// requests on the wire, peakRSS what the process grew by while it stored.
func BenchmarkUpload(b *testing.B) {
	size := int64(64 << 20)
	if s := os.Getenv("VARVE_BENCH_UPLOAD_BYTES"); s != "" {
		var err error
		if size, err = strconv.ParseInt(s, 10, 64); err != nil {
			b.Fatal(err)
		}
	}
	srv := s3server.Start(b)
	srv.Setenv(b)
	file, next := benchLog(b, size)
	info, err := file.Stat()
	if err != nil {
		b.Fatal(err)
	}
	size = info.Size()
	for _, url := range []string{srv.URL, srv.MinioURL} {
		driver, _, _ := strings.Cut(url, ":")
		c := objstore.NewCounters(nil, nil)
		store, err := objstore.Open(b.Context(), url, objstore.OpenOptions{Counters: c})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(driver, func(b *testing.B) {
			var ours, theirs time.Duration
			var peak int64
			for n := range b.N {
				begin := time.Now()
				if err := barePut(b.Context(), srv, fmt.Sprintf("bare/%s/%d", driver, n), file, size); err != nil {
					b.Fatal(err)
				}
				theirs += time.Since(begin)
				base := resetPeak(b)
				begin = time.Now()
				if err := benchPut(b.Context(), store, fmt.Sprintf("%s/%d", driver, n), file, size, next); err != nil {
					b.Fatal(err)
				}
				ours += time.Since(begin)
				peak = max(peak, peakRSS(b)-base)
			}
			mbs := func(d time.Duration) float64 { return float64(size) * float64(b.N) / 1e6 / d.Seconds() }
			b.ReportMetric(mbs(ours), "MB/s")
			b.ReportMetric(mbs(theirs), "bare-MB/s")
			b.ReportMetric(theirs.Seconds()/ours.Seconds(), "of-bare")
			b.ReportMetric(float64(peak)/(1<<20), "peakRSS-MiB")
			for _, u := range c.Snapshot() {
				if u.Verb == objstore.VerbPut {
					b.ReportMetric(float64(u.Requests)/(float64(u.Bytes)/1e9), "PUTs/GB")
				}
			}
		})
	}
}

// benchPut is an upload without the metastore: read and checked, then stored.
func benchPut(ctx context.Context, store objstore.Store, key string, log io.ReaderAt, size, next int64) error {
	topic, id := [16]byte{1}, [16]byte{2}
	enc, err := EncodeSegment(SegmentSource{Log: log, LogBytes: size, Footer: &tierpb.Footer{TopicId: topic[:], SegmentId: id[:], Next: next}})
	if err != nil {
		return err
	}
	_, err = store.Put(ctx, key, objstore.Body{ReaderAt: enc, Size: enc.Size}, objstore.PutOptions{CRC32C: &enc.CRC32C})
	return err
}

// benchLog writes a log of about size bytes and returns it with the offset after it.
func benchLog(b *testing.B, size int64) (*os.File, int64) {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	batch, next := testBatch(b, 0, 3, 100<<10, 1), int64(0)
	for written := int64(0); written < size; written += int64(len(batch)) {
		batch.SetBaseOffset(next)
		if _, err := f.Write(batch); err != nil {
			b.Fatal(err)
		}
		next += 3
	}
	return f, next
}

// barePut is what the SDK alone does. Each part has its CRC32C in front, so that the server
// has the same to do.
func barePut(ctx context.Context, srv *s3server.Server, key string, r io.ReaderAt, size int64) error {
	const partBytes, inFlight = 16 << 20, 4
	c := s3.New(s3.Options{
		BaseEndpoint: &srv.Endpoint, Region: "us-east-1", UsePathStyle: true, Retryer: aws.NopRetryer{},
		Credentials:                credentials.NewStaticCredentialsProvider(srv.AccessKey, srv.SecretKey, ""),
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
	})
	create := &s3.CreateMultipartUploadInput{Bucket: &srv.Bucket, Key: &key}
	create.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32c
	up, err := c.CreateMultipartUpload(ctx, create)
	if err != nil {
		return err
	}
	parts := make([]types.CompletedPart, (size+partBytes-1)/partBytes)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight)
	for i := range parts {
		g.Go(func() error {
			off := int64(i) * partBytes
			n := min(partBytes, size-off)
			parts[i].PartNumber = aws.Int32(int32(i + 1))
			in := &s3.UploadPartInput{Bucket: &srv.Bucket, Key: &key, UploadId: up.UploadId, PartNumber: parts[i].PartNumber,
				Body: io.NewSectionReader(r, off, n), ContentLength: &n}
			h := crc32.New(castagnoli)
			if _, err := io.Copy(h, io.NewSectionReader(r, off, n)); err != nil {
				return err
			}
			in.ChecksumCRC32C = aws.String(base64.StdEncoding.EncodeToString(h.Sum(nil)))
			parts[i].ChecksumCRC32C = in.ChecksumCRC32C
			out, err := c.UploadPart(gctx, in, s3.WithAPIOptions(v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware))
			if err == nil {
				parts[i].ETag = out.ETag
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	_, err = c.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{Bucket: &srv.Bucket, Key: &key, UploadId: up.UploadId,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: parts}})
	return err
}

// resetPeak starts a new measure of the peak and returns what is resident now, in bytes.
func resetPeak(b *testing.B) int64 {
	b.Helper()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		b.Logf("peakRSS is that of the whole run: %v", err)
	}
	return statusBytes(b, "VmRSS:")
}

func peakRSS(b *testing.B) int64 { return statusBytes(b, "VmHWM:") }

func statusBytes(b *testing.B, field string) int64 {
	b.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return kb << 10
		}
	}
	b.Fatalf("no %s", field)
	return 0
}
