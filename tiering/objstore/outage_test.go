package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"varve/tests/s3server"
)

// eachURL runs test against a real server through each SDK.
func eachURL(t *testing.T, test func(t *testing.T, srv *s3server.Server, url string)) {
	for _, scheme := range []string{"s3", "minio"} {
		t.Run(scheme, func(t *testing.T) {
			srv := s3server.Start(t)
			srv.Setenv(t)
			url := srv.URL
			if scheme == "minio" {
				url = srv.MinioURL
			}
			test(t, srv, url)
		})
	}
}

// TestServerDiesAndComesBack: a Put and a Get are under way when the server is killed.
func TestServerDiesAndComesBack(t *testing.T) {
	eachURL(t, func(t *testing.T, srv *s3server.Server, url string) {
		s, err := Open(t.Context(), url, OpenOptions{
			PartBytes: testPartBytes, Retry: RetryPolicy{MaxAttempts: 50, MaxBackoff: 200 * time.Millisecond},
		})
		if err != nil {
			t.Fatal(err)
		}
		data := randomBytes(21, 3*testPartBytes)
		var (
			once sync.Once
			wg   sync.WaitGroup
		)
		src := &failingReaderAt{data: data, at: 2 * testPartBytes, hook: func() {
			once.Do(func() {
				srv.Kill()
				wg.Go(func() {
					time.Sleep(300 * time.Millisecond)
					if err := srv.Restart(context.Background()); err != nil {
						t.Error(err)
					}
				})
			})
		}}
		if _, err := s.Put(t.Context(), "outage/put", Body{ReaderAt: src, Size: int64(len(data))}, PutOptions{}); err != nil {
			t.Fatalf("put over an outage: %v", err)
		}
		wg.Wait()
		wantBytes(t, s, "outage/put", 0, -1, data)

		body, err := s.Get(t.Context(), "outage/put", 0, -1, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(body, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		srv.Kill()
		if _, err := io.Copy(io.Discard, body); !IsRetryable(err) {
			t.Fatalf("read when the server died: %v", err)
		}
		body.Close()
		if _, err := bareDriver(t, url).Head(t.Context(), "outage/put"); !errors.Is(err, ErrUnreachable) {
			t.Fatalf("head without a server: %v", err)
		}
		if err := srv.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantBytes(t, s, "outage/put", 100, 5000, data[100:5100])
	})
}

// incomplete lists the multipart uploads that are open in the bucket.
func incomplete(t *testing.T, srv *s3server.Server) []string {
	t.Helper()
	c, err := minio.New(strings.TrimPrefix(srv.Endpoint, "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(srv.AccessKey, srv.SecretKey, ""), Region: "us-east-1",
	})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for u := range c.ListIncompleteUploads(t.Context(), srv.Bucket, "", true) {
		if u.Err != nil {
			t.Fatal(u.Err)
		}
		keys = append(keys, u.Key)
	}
	return keys
}

// TestFailedUploadsAreAborted: whatever ends a multipart upload, no part stays behind.
func TestFailedUploadsAreAborted(t *testing.T) {
	eachURL(t, func(t *testing.T, srv *s3server.Server, url string) {
		s := openForTest(t, url)
		data := randomBytes(22, 2*testPartBytes+100)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		open := 0
		for i, src := range []*failingReaderAt{
			{data: data, at: testPartBytes + 10, err: errors.New("disk on fire"), hook: func() { open += len(incomplete(t, srv)) }},
			{data: data, at: 2*testPartBytes + 10, hook: cancel},
		} {
			if _, err := s.Put(ctx, fmt.Sprintf("abort/%d", i), Body{ReaderAt: src, Size: int64(len(data))}, PutOptions{}); err == nil {
				t.Fatal("no error")
			}
		}
		mustPut(t, s, "abort/there", data)
		if _, err := s.Put(t.Context(), "abort/there", BytesBody(data), PutOptions{IfNoneMatch: true}); !errors.Is(err, ErrPrecondition) {
			t.Fatal(err)
		}
		if left := incomplete(t, srv); len(left) > 0 {
			t.Fatalf("uploads left open: %q", left)
		}
		if open == 0 {
			t.Fatal("the test does not see open uploads")
		}
	})
}

func TestRefusals(t *testing.T) {
	eachURL(t, func(t *testing.T, srv *s3server.Server, url string) {
		missing := openForTest(t, strings.Replace(url, "://"+srv.Bucket, "://no-such-bucket", 1))
		big := randomBytes(1, testPartBytes+1)
		for name, err := range map[string]error{
			"probe": func() error { _, err := Probe(t.Context(), missing); return err }(),
			"put":   func() error { _, err := missing.Put(t.Context(), "k", BytesBody(nil), PutOptions{}); return err }(),
			"parts": func() error { _, err := missing.Put(t.Context(), "k", BytesBody(big), PutOptions{}); return err }(),
			"get":   func() error { _, err := missing.Get(t.Context(), "k", 0, 1, ""); return err }(),
		} {
			if !errors.Is(err, ErrBucketMissing) || !strings.Contains(err.Error(), "no-such-bucket") {
				t.Errorf("missing bucket, %s: %v", name, err)
			}
		}
		good := openForTest(t, url)
		if rep, err := Probe(t.Context(), good); err != nil || rep != (Report{}) {
			t.Errorf("probe: %+v %v", rep, err)
		}
		t.Setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-secret")
		wrong := openForTest(t, url)
		for name, err := range map[string]error{
			"probe":  func() error { _, err := Probe(t.Context(), wrong); return err }(),
			"put":    func() error { _, err := wrong.Put(t.Context(), "k", BytesBody(big), PutOptions{}); return err }(),
			"get":    func() error { _, err := wrong.Get(t.Context(), "k", 0, 1, ""); return err }(),
			"head":   func() error { _, err := wrong.Head(t.Context(), "k"); return err }(),
			"delete": func() error { _, err := wrong.Delete(t.Context(), []string{"k"}); return err }(),
		} {
			if !errors.Is(err, ErrForbidden) || strings.Contains(fmt.Sprint(err), "wrong-secret") {
				t.Errorf("wrong credentials, %s: %v", name, err)
			}
		}
	})
}

// patternReaderAt is a body of any size without memory.
type patternReaderAt struct{}

func (patternReaderAt) ReadAt(p []byte, off int64) (int, error) {
	for i := range p {
		p[i] = byte((off + int64(i)) >> 8)
	}
	return len(p), nil
}

// TestUploadMemoryIsBounded: what a Put allocates does not grow with parts or sizes, and
// the counters see each request on the wire.
func TestUploadMemoryIsBounded(t *testing.T) {
	eachURL(t, func(t *testing.T, srv *s3server.Server, url string) {
		c := NewCounters(S3StandardPrices(), nil)
		s, err := Open(t.Context(), url, OpenOptions{Counters: c, PartBytes: 8 << 20})
		if err != nil {
			t.Fatal(err)
		}
		const size, parts = 60 << 20, 8
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := s.Put(t.Context(), "memory/big", Body{ReaderAt: patternReaderAt{}, Size: size}, PutOptions{Cause: "upload"}); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if grew := after.TotalAlloc - before.TotalAlloc; grew > 8<<20 {
			t.Errorf("%d bytes allocated for a put of %d", grew, size)
		}
		for _, u := range c.Snapshot() {
			if u.Verb == VerbPut && (u.Requests != parts+2 || u.Calls != 1 || u.Bytes != size || u.Dollars != 5e-6*(parts+2)) {
				t.Errorf("%+v", u)
			}
		}
	})
}

// TestBadWeather sends each kind through the full stack of wrappers.
func TestBadWeather(t *testing.T) {
	eachURL(t, func(t *testing.T, srv *s3server.Server, url string) {
		p := s3server.StartProxy(t, srv)
		s, err := Open(t.Context(), p.Via(srv, url), OpenOptions{
			PartBytes: testPartBytes,
			Retry:     RetryPolicy{MaxAttempts: 8, BaseBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond},
			Deadlines: Deadlines{Put: time.Second, Get: time.Second, Head: 300 * time.Millisecond},
		})
		if err != nil {
			t.Fatal(err)
		}
		data := randomBytes(31, testPartBytes+1000)
		for name, w := range map[string]s3server.Weather{
			"fair":    {},
			"503":     {Unavailable: 3},
			"resets":  {Resets: 3, ResetAfter: 1 << 20},
			"latency": {Latency: 20 * time.Millisecond},
			"narrow":  {BytesPerSec: 40 << 20},
		} {
			p.Set(w)
			mustPut(t, s, "weather/"+name, data)
			if n := p.Left(); n > 0 {
				t.Errorf("%s: %d faults were not met", name, n)
			}
			p.Set(w)
			if body, err := s.Get(t.Context(), "weather/"+name, 0, -1, ""); err != nil {
				t.Errorf("%s: %v", name, err)
			} else if n, err := io.Copy(io.Discard, body); (err == nil) != (n == int64(len(data))) || (err != nil && !IsRetryable(err)) {
				t.Errorf("%s: %d bytes, %v", name, n, err)
			} else if name == "resets" && err == nil {
				t.Error("a reset body was read whole")
			}
		}
		p.Set(s3server.Weather{Blackhole: true})
		if _, err := bareDriver(t, p.Via(srv, url)).Head(shortContext(t), "weather/fair"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("blackhole by context: %v", err)
		}
		timer := time.AfterFunc(500*time.Millisecond, func() { p.Set(s3server.Weather{}) })
		defer timer.Stop()
		if _, err := s.Head(t.Context(), "weather/fair"); err != nil {
			t.Errorf("blackhole that ends: %v", err)
		}
	})
}

func shortContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}
