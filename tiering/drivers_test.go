package tiering

import (
	"io"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"varve/tests/s3server"
	"varve/tiering/objstore"
)

// segmentFault is one thing that an S3 server does to requests with a method for segment
// objects; times counts down.
func segmentFault(method string, times int, answer func(http.ResponseWriter, *http.Request)) s3server.Weather {
	var left atomic.Int64
	left.Store(int64(times))
	return s3server.Weather{Answer: func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != method || !strings.HasSuffix(r.URL.Path, segmentSuffix) || left.Add(-1) < 0 {
			return false
		}
		rw.Header().Set("Connection", "close")
		rw.Header().Set("Content-Type", "application/xml")
		answer(rw, r)
		return true
	}}
}

func hangs(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

// driverFaults are what a store does to uploads, or to the reads and writes of merges.
func driverFaults(method string) map[string]s3server.Weather {
	return map[string]s3server.Weather{
		"500":           segmentFault(method, 5, xmlError(http.StatusInternalServerError, "InternalError")),
		"slow down":     segmentFault(method, 5, xmlError(http.StatusServiceUnavailable, "SlowDown")),
		"wrong digest":  segmentFault(method, 5, xmlError(http.StatusBadRequest, "BadDigest")),
		"access denied": segmentFault(method, 2, xmlError(http.StatusForbidden, "AccessDenied")),
		"expired":       segmentFault(method, 2, xmlError(http.StatusForbidden, "ExpiredToken")),
		"bucket gone":   segmentFault(method, 2, xmlError(http.StatusNotFound, "NoSuchBucket")),
		"hangs":         segmentFault(method, 2, hangs),
		"reset":         {Resets: 4, ResetAfter: 100},
		"reply lost":    {Resets: 4, ResetAfter: 1 << 30},
	}
}

// driverWorld is a world over a real server, seen through a proxy.
func driverWorld(t *testing.T, srv *s3server.Server, url string) (*world, *s3server.Proxy) {
	proxy := s3server.StartProxy(t, srv)
	store, err := objstore.Open(t.Context(), proxy.Via(srv, url), objstore.OpenOptions{
		Retry:     objstore.RetryPolicy{MaxAttempts: 2, BaseBackoff: time.Millisecond},
		Deadlines: objstore.Deadlines{Put: 500 * time.Millisecond, Get: 500 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := newMergeWorld(t, 40_000, func(o *Options) {
		o.DeleteDelayMs, o.Prefix = 0, strings.NewReplacer("/", "-", "#", "-").Replace(t.Name())
	})
	w.store = objstore.NewFaulty(store, 1)
	w.opts.Store = w.store
	return w, proxy
}

// checkThrough compares the bucket, listed through another driver, with the metastore,
// object by object, and what is read with what was written.
func (w *world) checkThrough(url string) {
	w.t.Helper()
	other, err := objstore.Open(w.ctx, url, objstore.OpenOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	got, want := map[string]int64{}, map[string]int64{}
	err = other.List(w.ctx, w.opts.Prefix+"/", "", func(o objstore.ObjectInfo) bool {
		if _, err := ParseSegmentKey(o.Key); err == nil {
			got[o.Key] = o.Size
		}
		return true
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range w.rows() {
		want[w.m.rowKey(r)] = r.ObjectBytes
	}
	if !maps.Equal(got, want) || len(want) == 0 {
		w.t.Errorf("the bucket holds %v, the metastore says %v", got, want)
	}
	st, err := w.meta.Tier(w.part.id, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	w.m.indexes = newIndexCache()
	w.checkRecords(st)
}

// eachDriver runs test with each SDK; other is the URL through the other one.
func eachDriver(t *testing.T, test func(t *testing.T, srv *s3server.Server, url, other string)) {
	srv := s3server.Start(t)
	for _, kv := range srv.Env() { // not by t.Setenv, which forbids parallel tests; all servers have the same
		name, value, _ := strings.Cut(kv, "=")
		if err := os.Setenv(name, value); err != nil {
			t.Fatal(err)
		}
	}
	for driver, urls := range map[string][2]string{"s3": {srv.URL, srv.MinioURL}, "minio": {srv.MinioURL, srv.URL}} {
		t.Run(driver, func(t *testing.T) { test(t, srv, urls[0], urls[1]) })
	}
}

func TestUploadFaultsOverDrivers(t *testing.T) {
	eachDriver(t, func(t *testing.T, srv *s3server.Server, url, other string) {
		for name, weather := range driverFaults(http.MethodPut) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w, proxy := driverWorld(t, srv, url)
				w.start()
				defer w.stop()
				if err := w.m.ClaimOwner(w.ctx); err != nil {
					t.Fatal(err)
				}
				w.append(12, 0)
				proxy.Set(weather)
				if err := w.round(); err == nil || w.rec.Count("tier_upload_failed") == 0 {
					t.Errorf("the fault was not met: %v", err)
				}
				for range 3 {
					w.clock.advance(time.Minute)
					_ = w.round()
				}
				w.settle()
				if w.end() != w.sealedEnd() {
					t.Errorf("the tier ends at %d of %d", w.end(), w.sealedEnd())
				}
				w.checkThrough(other)
			})
		}
	})
}

func TestMergeFaultsOverDrivers(t *testing.T) {
	eachDriver(t, func(t *testing.T, srv *s3server.Server, url, other string) {
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			for name, weather := range driverFaults(method) {
				if method == http.MethodGet && (weather.Resets > 0 || name == "wrong digest" || name == "expired") {
					continue // resets meet whatever comes, the others are answers to a PUT, or like "access denied"
				}
				t.Run(method+" "+name, func(t *testing.T) {
					t.Parallel()
					w, proxy := driverWorld(t, srv, url)
					w.start()
					defer w.stop()
					w.trickle(9)
					w.m.indexes = newIndexCache()
					proxy.Set(weather)
					first := w.merge()
					for range 4 {
						w.clock.advance(time.Minute)
						_ = w.merge()
					}
					proxy.Set(s3server.Weather{})
					var last error
					for range 8 { // a loaded machine's server is slow, too
						if last = w.merge(); last == nil {
							break
						}
					}
					if first == nil || last != nil || len(w.rows()) != 1 {
						t.Errorf("%d segments; at first %v, at last %v", len(w.rows()), first, last)
					}
					w.settle()
					w.checkThrough(other)
				})
			}
		}
	})
}

// TestServerAwayAndBack: the server dies, and its bucket goes and comes back, while
// uploads and merges are due.
func TestServerAwayAndBack(t *testing.T) {
	eachDriver(t, func(t *testing.T, srv *s3server.Server, url, other string) {
		w, _ := driverWorld(t, srv, url)
		w.start()
		defer w.stop()
		w.trickle(16)
		srv.Kill()
		w.append(20, 0)
		for range 3 {
			w.clock.advance(time.Minute)
			if err := w.round(); err == nil {
				t.Error("an upload without a server")
			}
			if err := w.merge(); err == nil {
				t.Error("a merge without a server")
			}
		}
		if err := srv.Restart(w.ctx); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if err := w.merge(); err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.checkThrough(other)
	})
}

// TestFaultsOverDir: the folder of the tier cannot be written, then it can again.
func TestFaultsOverDir(t *testing.T) {
	dir := t.TempDir()
	store, err := objstore.Open(t.Context(), "dir://"+dir, objstore.OpenOptions{Retry: objstore.RetryPolicy{MaxAttempts: 1}})
	if err != nil {
		t.Fatal(err)
	}
	w := newMergeWorld(t, 40_000, func(o *Options) { o.DeleteDelayMs = 0 })
	w.store = objstore.NewFaulty(store, 1)
	w.opts.Store = w.store
	w.start()
	defer w.stop()
	w.trickle(16)
	away := dir + ".away"
	if err := os.Rename(dir, away); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // so that it cannot be made anew
		t.Fatal(err)
	}
	w.append(20, 0)
	w.m.indexes = newIndexCache()
	if err := w.round(); err == nil {
		t.Error("an upload into nothing")
	}
	if err := w.merge(); err == nil {
		t.Error("a merge of nothing")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(away, dir); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if err := w.merge(); err != nil {
		t.Fatal(err)
	}
	w.settle()
	w.checkThrough("dir://" + dir)
}
