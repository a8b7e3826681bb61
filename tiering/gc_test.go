package tiering

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
	"varve/tests/s3server"
	"varve/tiering/objstore"
)

// finished makes n FINISHED rows of one offset each from base on, without objects.
func (w *world) finished(base, n int64, location string) {
	w.t.Helper()
	for i := base; i < base+n; i++ {
		s := metastore.RemoteSegment{ID: protocol.NewUUID(), TopicID: w.part.id, Base: i, Next: i + 1, LogBytes: 1, ObjectBytes: 1,
			Location: location, Broker: 1, Epochs: []metastore.EpochStart{{}}}
		err := w.meta.SegmentStart(w.ctx, s, 1)
		if err == nil {
			_, err = w.meta.SegmentFinish(w.ctx, s)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) deleteTopic() {
	w.t.Helper()
	if _, err := w.meta.Propose(w.ctx, &metapb.Command{Body: &metapb.Command_DeleteTopic{DeleteTopic: &metapb.DeleteTopic{TopicId: w.part.id[:]}}}); err != nil {
		w.t.Fatal(err)
	}
	w.m.Unlead(w.part.id, 0)
}

func (w *world) pendingRows() int {
	w.t.Helper()
	rows, _, err := w.meta.PendingSegments(metastore.Cursor{}, 1<<20)
	if err != nil {
		w.t.Fatal(err)
	}
	return len(rows)
}

// collected runs the deleter and the journal until nothing is pending.
func (w *world) collected(rounds int) {
	w.t.Helper()
	var err error
	for range rounds {
		w.clock.advance(2 * time.Minute)
		if err = w.m.ClaimOwner(w.ctx); err == nil {
			err = w.m.journalAll(w.ctx)
		}
		if err == nil {
			err = w.m.collect(w.ctx)
		}
		if w.pendingRows() == 0 {
			return
		}
	}
	w.t.Fatalf("%d rows are left: %v", w.pendingRows(), err)
}

// TestDeleteInOtherStoreIsBounded: rows of another location cost a few requests each round however many there are; once one object
// is found here, that location is this store under another name, and all go.
func TestDeleteInOtherStoreIsBounded(t *testing.T) {
	w := newWorld(t, keepAll(), nil)
	w.start()
	defer w.stop()
	const rows = 3 * metastore.MaxSegmentIDs / 2
	w.finished(0, rows, "mem:old#p")
	if err := w.m.ClaimOwner(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.deleteTopic()
	for range 3 {
		before := w.store.Calls(objstore.VerbHead)
		w.clock.advance(2 * time.Minute)
		_ = w.m.journalAll(w.ctx)
		err := w.m.collect(w.ctx)
		if n := w.store.Calls(objstore.VerbHead) - before; n > maxElsewhereHeads || w.pendingRows() != rows {
			t.Fatalf("%d requests, %d rows are left: %v", n, w.pendingRows(), err)
		}
	}
	all, _, err := w.meta.PendingSegments(metastore.Cursor{}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all { // the same bucket, now by another name
		if _, err := w.store.Put(w.ctx, w.m.rowKey(r), objstore.BytesBody([]byte("x")), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.collected(5)
	if n := w.objects(); n != 0 {
		t.Fatalf("%d objects are left", n)
	}
}

// TestDeletedTopicWithManyRows: all rows of a deleted topic go, finished, started and such as await deletion, over many batches.
func TestDeletedTopicWithManyRows(t *testing.T) {
	w := newWorld(t, keepAll(), func(o *Options) { o.DeleteDelayMs = 0 })
	w.start()
	defer w.stop()
	const rows = 2*metastore.MaxSegmentIDs + 500
	w.finished(0, rows, w.m.location)
	if err := w.meta.AdvanceLogStart(w.ctx, w.part.id, 0, 0, 300); err != nil {
		t.Fatal(err)
	}
	if err := w.m.retainTotal(w.ctx, w.pt()); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		s := metastore.RemoteSegment{ID: protocol.NewUUID(), TopicID: w.part.id, Base: rows, Next: rows + 1 + int64(i), Location: w.m.location, Broker: 1, LeaderEpoch: 0}
		if err := w.meta.SegmentStart(w.ctx, s, 1); err != nil {
			t.Fatal(err)
		}
	}
	w.deleteTopic()
	w.collected(60)
}

// TestDeletesAreNotStarved: neither uploads that wait for their bandwidth nor a store that does not take them hold deletes up.
func TestDeletesAreNotStarved(t *testing.T) {
	cfg := keepAll()
	cfg.RetentionBytes = 3000
	w := newWorld(t, cfg, func(o *Options) { o.TaskIntervalMs, o.JournalIntervalMs, o.DeleteDelayMs, o.Concurrency = 10, 10, 0, 1 })
	held := &heldStore{Store: w.store, free: make(chan struct{})}
	w.start()
	w.append(60, 0)
	if err := w.round(); err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.opts.Store = held
	w.start()
	w.append(40, 0)
	deleted := w.store.Calls(objstore.VerbDelete)
	stop := w.run()
	w.await(func() bool {
		return held.puts.Load() > 0 && w.store.Calls(objstore.VerbDelete) > deleted && w.pendingRows() <= 1
	})
	close(held.free)
	stop()
	w.stop()
	w.start()
	w.settle()
	w.check()
	w.stop()
}

// deleteFault is one thing that an S3 server does to requests that delete; times counts down.
func deleteFault(times int, answer func(http.ResponseWriter, *http.Request)) s3server.Weather {
	var left atomic.Int64
	left.Store(int64(times))
	return s3server.Weather{Answer: func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || !r.URL.Query().Has("delete") || left.Add(-1) < 0 {
			return false
		}
		rw.Header().Set("Connection", "close") // the body may be unread
		rw.Header().Set("Content-Type", "application/xml")
		answer(rw, r)
		return true
	}}
}

var keyElement = regexp.MustCompile(`<Key>[^<]*</Key>`)

func xmlError(status int, code string) func(http.ResponseWriter, *http.Request) {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(status)
		fmt.Fprintf(rw, `<?xml version="1.0"?><Error><Code>%s</Code><Message>by the proxy</Message></Error>`, code)
	}
}

// TestDeleteFaultsOverDrivers: each fault of a real server ends, and then the bucket holds what the metastore says.
func TestDeleteFaultsOverDrivers(t *testing.T) {
	srv := s3server.Start(t)
	srv.Setenv(t)
	for driver, url := range map[string]string{"s3": srv.URL, "minio": srv.MinioURL} {
		for name, weather := range map[string]s3server.Weather{
			"slow down":     deleteFault(4, xmlError(http.StatusServiceUnavailable, "SlowDown")),
			"access denied": deleteFault(2, xmlError(http.StatusForbidden, "AccessDenied")),
			"expired":       deleteFault(2, xmlError(http.StatusForbidden, "ExpiredToken")),
			"bucket gone":   deleteFault(2, xmlError(http.StatusNotFound, "NoSuchBucket")),
			"500":           deleteFault(2, xmlError(http.StatusInternalServerError, "InternalError")),
			"reset":         {Resets: 2},
			"each key refused": deleteFault(2, func(rw http.ResponseWriter, r *http.Request) {
				fmt.Fprint(rw, `<?xml version="1.0"?><DeleteResult>`)
				body, _ := io.ReadAll(r.Body)
				for _, key := range keyElement.FindAll(body, -1) {
					fmt.Fprintf(rw, `<Error>%s<Code>AccessDenied</Code><Message>no</Message></Error>`, key)
				}
				fmt.Fprint(rw, `</DeleteResult>`)
			}),
		} {
			t.Run(driver+"/"+name, func(t *testing.T) {
				t.Parallel()
				proxy := s3server.StartProxy(t, srv)
				store, err := objstore.Open(t.Context(), proxy.Via(srv, url), objstore.OpenOptions{})
				if err != nil {
					t.Fatal(err)
				}
				cfg := keepAll()
				cfg.RetentionBytes = 3000
				w := newWorld(t, cfg, func(o *Options) { o.DeleteDelayMs, o.Prefix = 0, strings.ReplaceAll(driver+"-"+name, " ", "-") })
				w.store = objstore.NewFaulty(store, 1)
				w.opts.Store = w.store
				w.start()
				defer w.stop()
				w.append(60, 0)
				proxy.Set(weather)
				for range 4 {
					w.clock.advance(time.Minute)
					_ = w.round()
				}
				w.settle()
				w.checkPrefix(w.opts.Prefix)
			})
		}
	}
}

// checkPrefix is checkList for a bucket shared with other tests.
func (w *world) checkPrefix(prefix string) {
	w.t.Helper()
	n := int64(0)
	err := w.store.List(w.ctx, prefix+"/", "", func(o objstore.ObjectInfo) bool {
		if _, err := ParseSegmentKey(o.Key); err == nil {
			n++
		}
		return true
	})
	st, terr := w.meta.Tier(w.part.id, 0)
	if err != nil || terr != nil || n != st.Count || st.LogStart == 0 {
		w.t.Fatalf("%d objects for %d rows, log start %d: %v %v", n, st.Count, st.LogStart, err, terr)
	}
}
