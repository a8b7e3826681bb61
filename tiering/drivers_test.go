package tiering

import (
	"errors"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"varve/tests/s3server"
	"varve/tiering/objstore"
)

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

// TestUploadsLeftOpen: what a process that died left open at the key of its attempt goes with the attempt's row, whatever LIST shows of
// other keys (MinIO's shows none); a store that fails to tell holds the row up, one that refuses to does not.
func TestUploadsLeftOpen(t *testing.T) {
	eachDriver(t, func(t *testing.T, srv *s3server.Server, url, _ string) {
		w, proxy := driverWorld(t, srv, url)
		w.opts.DeleteDelayMs = 0
		w.start()
		defer w.stop()
		core, err := minio.NewCore(strings.TrimPrefix(srv.Endpoint, "http://"), &minio.Options{
			Creds: credentials.NewStaticV4(srv.AccessKey, srv.SecretKey, ""), Region: "us-east-1",
		})
		if err != nil {
			t.Fatal(err)
		}
		w.append(20, 0)
		w.store.Add(objstore.Fault{Kind: objstore.FaultError, Verb: objstore.VerbPut, Key: ".seg", Times: -1})
		_ = w.round()
		rows, err := w.meta.PendingOf(w.part.id, 0)
		if err != nil || len(rows) == 0 {
			t.Fatalf("%d attempts: %v", len(rows), err)
		}
		for _, r := range rows {
			if _, err := core.NewMultipartUpload(w.ctx, srv.Bucket, w.m.rowKey(r), minio.PutObjectOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		w.store.Clear()
		w.clock.advance(2*w.m.uploadDeadline() + time.Minute)
		tell := func(status int, code string) {
			proxy.Set(s3server.Weather{Fault: &s3server.Fault{Match: func(r *http.Request) bool { return r.URL.Query().Has("uploads") }, Play: s3server.Refuse(status, code)}})
		}
		tell(http.StatusServiceUnavailable, "SlowDown")
		if err := errors.Join(w.m.ClaimOwner(w.ctx), w.m.journalAll(w.ctx)); err != nil {
			t.Fatal(err)
		}
		if err := w.m.collect(w.ctx); err == nil || w.pendingRows() != len(rows) {
			t.Fatalf("%d of %d rows are left while the store does not tell: %v", w.pendingRows(), len(rows), err)
		}
		proxy.Set(s3server.Weather{})
		w.collected(2)
		for _, r := range rows {
			out, err := core.ListMultipartUploads(w.ctx, srv.Bucket, w.m.rowKey(r), "", "", "", 10)
			if err != nil || len(out.Uploads) != 0 {
				t.Errorf("%d uploads are open at %s: %v", len(out.Uploads), w.m.rowKey(r), err)
			}
		}
		w.store.Add(objstore.Fault{Kind: objstore.FaultError, Verb: objstore.VerbPut, Key: ".seg", Times: -1})
		_ = w.round()
		w.store.Clear()
		if w.pendingRows() == 0 {
			t.Fatal("no attempt")
		}
		w.clock.advance(2*w.m.uploadDeadline() + time.Minute)
		tell(http.StatusForbidden, "AccessDenied")
		w.collected(2)
	})
}
