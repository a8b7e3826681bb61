package objstore

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"varve/tests/s3server"
)

// partsFake is a server of uploads in parts that counts requests and fails some.
type partsFake struct {
	mu        sync.Mutex
	creates   int
	puts      map[int]int // by part
	completes int
	stored    int64 // size of the object, once there is one
	sizes     map[int]int64

	part     func(number, nth int, w http.ResponseWriter, r *http.Request) (answered bool)
	complete func(nth int, w http.ResponseWriter) (answered bool)
}

func (f *partsFake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodPost && q.Has("uploads"):
		f.mu.Lock()
		f.creates++
		f.puts, f.sizes = map[int]int{}, map[int]int64{}
		f.mu.Unlock()
		fmt.Fprint(w, `<?xml version="1.0"?><InitiateMultipartUploadResult><Bucket>bucket</Bucket><Key>k</Key><UploadId>u1</UploadId></InitiateMultipartUploadResult>`)
	case r.Method == http.MethodPut:
		f.putPart(w, r)
	case r.Method == http.MethodPost:
		f.finish(w, r)
	case r.Method == http.MethodHead:
		f.mu.Lock()
		defer f.mu.Unlock()
		w.Header().Set("Content-Length", fmt.Sprint(f.stored))
		w.Header().Set("ETag", `"whole"`)
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		if f.stored == 0 {
			w.WriteHeader(http.StatusNotFound)
		}
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func (f *partsFake) putPart(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(r.URL.Query().Get("partNumber"))
	f.mu.Lock()
	f.puts[n]++
	nth := f.puts[n]
	f.mu.Unlock()
	if f.part != nil && f.part(n, nth, w, r) {
		return
	}
	body, err := io.ReadAll(r.Body)
	if want := r.Header.Get("X-Amz-Checksum-Crc32c"); err == nil && want != encodeCRC(crc32.Checksum(body, castagnoli)) {
		errorAnswer(400, "BadDigest")(w, r)
		return
	}
	f.mu.Lock()
	f.sizes[n] = int64(len(body))
	f.mu.Unlock()
	w.Header().Set("ETag", fmt.Sprintf(`"p%d"`, n))
}

func (f *partsFake) finish(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.completes++
	nth := f.completes
	if nth == 1 {
		for _, n := range f.sizes {
			f.stored += n
		}
	}
	f.mu.Unlock()
	if f.complete != nil && f.complete(nth, w) {
		return
	}
	fmt.Fprint(w, `<?xml version="1.0"?><CompleteMultipartUploadResult><Bucket>bucket</Bucket><Key>k</Key><ETag>"whole"</ETag></CompleteMultipartUploadResult>`)
}

// eachParts uploads three parts through the whole stack of wrappers, with each SDK.
func eachParts(t *testing.T, fake func() *partsFake, check func(t *testing.T, f *partsFake, err error)) {
	t.Helper()
	var f *partsFake
	srv := newFake(t, func(w http.ResponseWriter, r *http.Request) { f.ServeHTTP(w, r) })
	data := randomBytes(41, 2*testPartBytes+1000)
	eachSDK(t, srv.URL, "", func(t *testing.T, s Store) {
		f = fake()
		full, err := Open(t.Context(), s.String(), OpenOptions{
			PartBytes: testPartBytes, Retry: RetryPolicy{MaxAttempts: 3, BaseBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond},
			Deadlines: Deadlines{Put: 3 * time.Second},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = full.Put(t.Context(), "k", BytesBody(data), PutOptions{})
		check(t, f, err)
	})
}

// wantPuts holds how often each of the three parts was sent against what is right.
func (f *partsFake) wantPuts(t *testing.T, creates, p1, p2, p3 int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.creates != creates || f.puts[1] != p1 || f.puts[2] != p2 || f.puts[3] != p3 {
		t.Errorf("%d uploads, parts sent %v times; want %d, %d %d %d", f.creates, f.puts, creates, p1, p2, p3)
	}
}

// TestPartIsRetriedAlone: what fails or hangs for one part does not send the others again.
func TestPartIsRetriedAlone(t *testing.T) {
	second := func(play func(w http.ResponseWriter, r *http.Request)) func() *partsFake {
		return func() *partsFake {
			return &partsFake{part: func(n, nth int, w http.ResponseWriter, r *http.Request) bool {
				if n != 2 || nth > 2 {
					return false
				}
				play(w, r)
				return true
			}}
		}
	}
	for name, play := range map[string]func(w http.ResponseWriter, r *http.Request){
		"500":      errorAnswer(500, "InternalError"),
		"SlowDown": errorAnswer(503, "SlowDown"),
		"digest":   errorAnswer(400, "BadDigest"),
		"reset":    func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			eachParts(t, second(play), func(t *testing.T, f *partsFake, err error) {
				if err != nil {
					t.Fatal(err)
				}
				f.wantPuts(t, 1, 1, 3, 1)
			})
		})
	}
	t.Run("hang", func(t *testing.T) {
		eachParts(t, func() *partsFake {
			return &partsFake{part: func(n, nth int, _ http.ResponseWriter, r *http.Request) bool {
				if n == 2 && nth == 1 {
					_, _ = io.Copy(io.Discard, r.Body)
					<-r.Context().Done()
				}
				return n == 2 && nth == 1
			}}
		}, func(t *testing.T, f *partsFake, err error) {
			if err != nil {
				t.Fatal(err)
			}
			f.wantPuts(t, 1, 1, 2, 1)
		})
	})
}

// TestPartThatNeverGoes: when a part's own retries are used up, the whole is not sent again.
func TestPartThatNeverGoes(t *testing.T) {
	eachParts(t, func() *partsFake {
		return &partsFake{part: func(n, _ int, w http.ResponseWriter, r *http.Request) bool {
			if n == 2 {
				errorAnswer(500, "InternalError")(w, r)
			}
			return n == 2
		}}
	}, func(t *testing.T, f *partsFake, err error) {
		if !IsRetryable(err) {
			t.Fatalf("got %v", err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.creates != 1 || f.puts[2] != 3 || f.completes != 0 {
			t.Errorf("%d uploads, part 2 sent %d times, %d completions", f.creates, f.puts[2], f.completes)
		}
	})
}

// TestCompletionReplyLost: the object is there, and is not sent again.
func TestCompletionReplyLost(t *testing.T) {
	eachParts(t, func() *partsFake {
		return &partsFake{complete: func(nth int, w http.ResponseWriter) bool {
			if nth == 1 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `<?xml version="1.0"?><Error><Code>NoSuchUpload</Code><Message>gone</Message></Error>`)
			return true
		}}
	}, func(t *testing.T, f *partsFake, err error) {
		if err != nil || f.completes != 2 {
			t.Fatalf("%d completions: %v", f.completes, err)
		}
		f.wantPuts(t, 1, 1, 1, 1)
	})
}

// TestUploadAbortedByOthers: an upload that is gone before it was completed is made anew.
func TestUploadAbortedByOthers(t *testing.T) {
	eachParts(t, func() *partsFake {
		return &partsFake{complete: func(nth int, w http.ResponseWriter) bool {
			if nth > 1 {
				return false
			}
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `<?xml version="1.0"?><Error><Code>NoSuchUpload</Code><Message>gone</Message></Error>`)
			return true
		}}
	}, func(t *testing.T, f *partsFake, err error) {
		if err != nil || f.completes != 2 {
			t.Fatalf("%d completions: %v", f.completes, err)
		}
		f.wantPuts(t, 2, 1, 1, 1)
	})
}

// TestAbortUploads: uploads that a dead process left open go, those under way and under
// other prefixes stay.
func TestAbortUploads(t *testing.T) {
	eachURL(t, func(t *testing.T, srv *s3server.Server, url string) {
		s := openForTest(t, url)
		up := bareDriver(t, url).(uploader)
		ids := map[string]string{}
		for _, key := range []string{"a/one", "a/two", "b/three"} {
			id, err := up.createUpload(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			ids[key] = id
			r := io.NewSectionReader(bytes.NewReader([]byte("part")), 0, 4)
			if _, err := up.putPart(t.Context(), key, id, 1, r, crc32.Checksum([]byte("part"), castagnoli)); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := AbortUploads(t.Context(), s, "a/", time.Now().Add(-time.Hour)); n != 0 || err != nil {
			t.Fatalf("%d young ones ended: %v", n, err)
		}
		if n, err := AbortUploads(t.Context(), s, "a/", time.Now().Add(time.Hour)); n != 2 || err != nil {
			t.Fatalf("%d of 2 ended: %v", n, err)
		}
		if left := incomplete(t, srv); len(left) != 1 || left[0] != "b/three" {
			t.Fatalf("left open: %q", left)
		}
		if err := up.abortUpload(t.Context(), "b/three", ids["b/three"]); err != nil {
			t.Fatal(err)
		}
	})
	if n, err := AbortUploads(t.Context(), NewMem(nil), "", time.Now()); n != 0 || err != nil {
		t.Fatalf("mem: %d %v", n, err)
	}
}
