package objstore

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"varve/protocol"
)

// fakeS3 answers by a function, for what no well-behaved server does on request.
type fakeS3 struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*http.Request
}

func newFake(t *testing.T, h http.HandlerFunc) *fakeS3 {
	f := &fakeS3{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.seen = append(f.seen, r)
		f.mu.Unlock()
		w.Header().Set("X-Amz-Request-Id", "REQ1")
		h(w, r)
	}))
	t.Cleanup(f.CloseClientConnections)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeS3) requests() []*http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen
}

// eachSDK runs test against a bare driver of each SDK, without wrappers.
func eachSDK(t *testing.T, endpoint, query string, test func(t *testing.T, s Store)) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDTEST")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "not-so-secret")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for _, scheme := range []string{"s3", "minio"} {
		t.Run(scheme, func(t *testing.T) {
			test(t, bareDriver(t, scheme+"://bucket?region=us-east-1&endpoint="+endpoint+query))
		})
	}
}

func bareDriver(t *testing.T, raw string) Store {
	t.Helper()
	u, err := ParseURL(raw)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openDriver(t.Context(), u, OpenOptions{PartBytes: testPartBytes})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func errorAnswer(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		if code != "" && r.Method != http.MethodHead {
			fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>because</Message></Error>`, code)
		}
	}
}

func TestAnswers(t *testing.T) {
	isRetry := func(err error) bool { return IsRetryable(err) && !IsThrottled(err) }
	is := func(target error) func(error) bool {
		return func(err error) bool { return errors.Is(err, target) && !IsRetryable(err) }
	}
	for _, c := range []struct {
		status int
		code   string
		want   func(error) bool
	}{
		{503, "SlowDown", IsThrottled},
		{503, "", IsThrottled},
		{429, "TooManyRequests", IsThrottled},
		{500, "InternalError", isRetry},
		{502, "", isRetry},
		{400, "RequestTimeout", isRetry},
		{400, "BadDigest", isRetry},
		{409, "ConditionalRequestConflict", isRetry},
		{412, "PreconditionFailed", is(ErrPrecondition)},
		{403, "AccessDenied", is(ErrForbidden)},
		{403, "SignatureDoesNotMatch", is(ErrForbidden)},
		{400, "ExpiredToken", is(ErrForbidden)},
		{401, "", is(ErrForbidden)},
		{404, "NoSuchBucket", is(ErrBucketMissing)},
		{301, "PermanentRedirect", func(err error) bool { return strings.Contains(err.Error(), "region=") }},
		{400, "MalformedXML", func(err error) bool { return err != nil && !IsRetryable(err) }},
		{501, "NotImplemented", func(err error) bool { return err != nil && !IsRetryable(err) }},
	} {
		t.Run(fmt.Sprintf("%d%s", c.status, c.code), func(t *testing.T) {
			f := newFake(t, errorAnswer(c.status, c.code))
			eachSDK(t, f.URL, "", func(t *testing.T, s Store) {
				before := len(f.requests())
				_, err := s.Put(t.Context(), "a/b", BytesBody([]byte("x")), PutOptions{IfNoneMatch: true})
				if !c.want(err) {
					t.Errorf("put: %v", err)
				}
				if n := len(f.requests()) - before; n != 1 {
					t.Errorf("%d requests for one put: the SDK retries", n)
				}
				if _, err = s.Get(t.Context(), "a/b", 0, 10, ""); !c.want(err) {
					t.Errorf("get: %v", err)
				}
				if err = s.List(t.Context(), "a/", "", nil); !c.want(err) {
					t.Errorf("list: %v", err)
				}
				if err != nil && strings.Contains(err.Error(), "not-so-secret") {
					t.Errorf("the error tells the secret: %v", err)
				}
			})
		})
	}
}

func TestRequestsOnTheWire(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", `"e"`)
	})
	eachSDK(t, f.URL, "&storage-class=STANDARD_IA&kms-key-id=key1", func(t *testing.T, s Store) {
		before := len(f.requests())
		if _, err := s.Put(t.Context(), "a/b", BytesBody([]byte("123456789")), PutOptions{IfMatch: "tag"}); err != nil {
			t.Fatal(err)
		}
		r := f.requests()[before]
		for name, want := range map[string]string{
			"X-Amz-Content-Sha256":                        "UNSIGNED-PAYLOAD", // over plain HTTP
			"X-Amz-Checksum-Crc32c":                       "4waSgw==",         // 0xe3069283, the check value of CRC-32C
			"X-Amz-Storage-Class":                         "STANDARD_IA",
			"X-Amz-Server-Side-Encryption":                "aws:kms",
			"X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "key1",
			"If-Match":         `"tag"`,
			"X-Amz-Trailer":    "",
			"Content-Encoding": "",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if r.ContentLength != 9 || len(r.TransferEncoding) > 0 {
			t.Errorf("length %d, encoding %v", r.ContentLength, r.TransferEncoding)
		}
		auth := r.Header.Get("Authorization")
		if strings.Contains(auth, "accept-encoding") || !strings.Contains(auth, "x-amz-checksum-crc32c") {
			t.Errorf("signed headers: %s", auth)
		}
		if !strings.HasPrefix(r.URL.Path, "/bucket/a/b") {
			t.Errorf("path %q is not path-style", r.URL.Path)
		}
	})
}

func TestBodiesThatLie(t *testing.T) {
	const size = 100
	body := strings.Repeat("x", size)
	var mode atomic.Value
	mode.Store("")
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		h.Set("ETag", `"e"`)
		switch mode.Load() {
		case "short": // promises size bytes, sends half, hangs up
			h.Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", size-1, size))
			h.Set("Content-Length", fmt.Sprint(size))
			w.WriteHeader(http.StatusPartialContent)
			io.WriteString(w, body[:size/2])
			panic(http.ErrAbortHandler)
		case "wrongRange":
			h.Set("Content-Range", fmt.Sprintf("bytes 10-%d/%d", size-1, size))
			w.WriteHeader(http.StatusPartialContent)
			io.WriteString(w, body[10:])
		case "fewer": // a proper answer for fewer bytes than were asked for
			h.Set("Content-Range", fmt.Sprintf("bytes 0-49/%d", size))
			w.WriteHeader(http.StatusPartialContent)
			io.WriteString(w, body[:50])
		case "ignored":
			io.WriteString(w, body)
		case "crc":
			h.Set("X-Amz-Checksum-Crc32c", "AAAAAA==")
			h.Set("X-Amz-Checksum-Type", "FULL_OBJECT")
			io.WriteString(w, body)
		}
	})
	eachSDK(t, f.URL, "", func(t *testing.T, s Store) {
		for _, c := range []struct {
			mode        string
			off, length int64
		}{{"short", 0, size}, {"short", 0, -1}, {"wrongRange", 0, size}, {"wrongRange", 20, 5}, {"fewer", 0, size}, {"ignored", 5, 10}} {
			mode.Store(c.mode)
			if got, err := getRange(t.Context(), s, "k", c.off, c.length); !IsRetryable(err) {
				t.Errorf("%s %d+%d: %d bytes, %v", c.mode, c.off, c.length, len(got), err)
			}
		}
		mode.Store("ignored") // a server without ranges, asked from 0, is cut at what was asked
		if got, err := getRange(t.Context(), s, "k", 0, 10); err != nil || len(got) != 10 {
			t.Errorf("ignored range at 0: %d bytes, %v", len(got), err)
		}
		mode.Store("crc")
		var corruption *protocol.CorruptionError
		if got, err := getRange(t.Context(), s, "k", 0, -1); !errors.As(err, &corruption) {
			t.Errorf("wrong stored CRC: %d bytes, %v", len(got), err)
		}
	})
}

func TestStoredChecksumDiffers(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Amz-Checksum-Crc32c", "AAAAAA==")
	})
	eachSDK(t, f.URL, "", func(t *testing.T, s Store) {
		var corruption *protocol.CorruptionError
		if _, err := s.Put(t.Context(), "k", BytesBody([]byte("x")), PutOptions{}); !errors.As(err, &corruption) {
			t.Fatal(err)
		}
	})
}

// TestDeadlineReachesTheWire: the server never answers; the call ends, and the server
// sees the connection go.
func TestDeadlineReachesTheWire(t *testing.T) {
	gone := make(chan string, 100)
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		gone <- r.Method
	})
	eachSDK(t, f.URL, "", func(t *testing.T, bare Store) {
		const limit = 100 * time.Millisecond
		s := WithDeadline(bare, Deadlines{Put: limit, Get: limit, Head: limit, List: limit, Delete: limit})
		for verb, call := range map[string]func(ctx context.Context, s Store) error{
			"put": func(ctx context.Context, s Store) error {
				_, err := s.Put(ctx, "k", BytesBody([]byte("x")), PutOptions{})
				return err
			},
			"get":    func(ctx context.Context, s Store) error { _, err := s.Get(ctx, "k", 0, 5, ""); return err },
			"head":   func(ctx context.Context, s Store) error { _, err := s.Head(ctx, "k"); return err },
			"list":   func(ctx context.Context, s Store) error { return s.List(ctx, "", "", nil) },
			"delete": func(ctx context.Context, s Store) error { _, err := s.Delete(ctx, []string{"k"}); return err },
		} {
			start := time.Now()
			if err := call(t.Context(), s); !IsRetryable(err) || !errors.Is(err, errStalled) {
				t.Errorf("%s by WithDeadline: %v", verb, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			if err := call(ctx, bare); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s by context: %v", verb, err)
			}
			cancel()
			for range 2 {
				select {
				case <-gone:
				case <-time.After(5 * time.Second):
					t.Fatalf("%s: the connection stayed open", verb)
				}
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("%s took %v", verb, took)
			}
		}
	})
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "http://" + l.Addr().String()
	l.Close()
	eachSDK(t, endpoint, "", func(t *testing.T, s Store) {
		if _, err := Probe(t.Context(), s); !errors.Is(err, ErrUnreachable) || !IsRetryable(err) {
			t.Fatal(err)
		}
	})
}

// TestMultiDelete: partial failures are named; a server without multi-delete is asked
// key by key; keys the answer does not mention are not taken for deleted.
func TestMultiDelete(t *testing.T) {
	var mode atomic.Value
	mode.Store("")
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			if strings.HasSuffix(r.URL.Path, "/locked") {
				errorAnswer(403, "AccessDenied")(w, r)
				return
			}
			w.WriteHeader(http.StatusNoContent)
			return
		}
		var asked struct {
			Quiet  bool
			Object []struct{ Key string }
		}
		if err := xml.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		if mode.Load() == "none" {
			errorAnswer(501, "NotImplemented")(w, r)
			return
		}
		io.WriteString(w, `<?xml version="1.0"?><DeleteResult>`)
		for _, o := range asked.Object {
			switch o.Key {
			case "locked":
				fmt.Fprintf(w, `<Error><Key>%s</Key><Code>AccessDenied</Code><Message>no</Message></Error>`, o.Key)
			case "busy":
				fmt.Fprintf(w, `<Error><Key>%s</Key><Code>SlowDown</Code><Message>later</Message></Error>`, o.Key)
			default:
				if !asked.Quiet {
					fmt.Fprintf(w, `<Deleted><Key>%s</Key></Deleted>`, o.Key)
				}
			}
		}
		io.WriteString(w, `</DeleteResult>`)
	})
	eachSDK(t, f.URL, "", func(t *testing.T, s Store) {
		mode.Store("")
		failed, err := s.Delete(t.Context(), []string{"a", "locked", "b", "busy"})
		if err != nil || len(failed) != 2 {
			t.Fatalf("%v %v", failed, err)
		}
		for _, f := range failed {
			if (f.Key == "locked") != errors.Is(f, ErrForbidden) || (f.Key == "busy") != IsThrottled(f) {
				t.Errorf("%v", f)
			}
		}
		mode.Store("none")
		failed, err = s.Delete(t.Context(), []string{"a", "locked", "b"})
		if err != nil || len(failed) != 1 || failed[0].Key != "locked" || !errors.Is(failed[0], ErrForbidden) {
			t.Fatalf("one by one: %v %v", failed, err)
		}
	})
}

// TestRotatedCredentials: keys come from a profile that is rewritten while the store is
// open; after a refusal the new ones are used.
func TestRotatedCredentials(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if !strings.Contains(r.Header.Get("Authorization"), "Credential=NEWKEY/") {
			errorAnswer(403, "InvalidAccessKeyId")(w, r)
		}
	})
	eachSDK(t, f.URL, "", func(t *testing.T, _ Store) {
		file := filepath.Join(t.TempDir(), "credentials")
		write := func(id string) {
			text := "[default]\naws_access_key_id=" + id + "\naws_secret_access_key=s\n"
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("OLDKEY")
		t.Setenv("AWS_ACCESS_KEY_ID", "")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "")
		t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
		t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
		scheme := t.Name()[strings.LastIndexByte(t.Name(), '/')+1:]
		s := bareDriver(t, scheme+"://bucket?region=us-east-1&endpoint="+f.URL)
		put := func() error {
			_, err := s.Put(t.Context(), "k", BytesBody([]byte("x")), PutOptions{})
			return err
		}
		if err := put(); !errors.Is(err, ErrForbidden) {
			t.Fatalf("with the old key: %v", err)
		}
		write("NEWKEY")
		if err := put(); err != nil {
			t.Fatalf("with the new key: %v", err)
		}
	})
}

func TestNoCredentials(t *testing.T) {
	eachSDK(t, "http://127.0.0.1:9", "", func(t *testing.T, _ Store) {
		for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "MINIO_ROOT_USER", "MINIO_ACCESS_KEY"} {
			t.Setenv(name, "")
		}
		none := filepath.Join(t.TempDir(), "none")
		t.Setenv("HOME", t.TempDir())
		t.Setenv("AWS_SHARED_CREDENTIALS_FILE", none)
		t.Setenv("AWS_CONFIG_FILE", none)
		scheme := t.Name()[strings.LastIndexByte(t.Name(), '/')+1:]
		s := bareDriver(t, scheme+"://bucket?region=us-east-1&endpoint=http://127.0.0.1:9")
		_, err := s.Head(t.Context(), "k")
		if !errors.Is(err, ErrForbidden) || !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") {
			t.Fatal(err)
		}
	})
}
