package tiering

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"varve/metastore"
	"varve/protocol"
	"varve/tests/s3server"
	"varve/tiering/objstore"
)

// consume reads from off to the end as a client does, who asks again after an error and
// does not wait for long; the errors that it met come back.
func (r *readRig) consume(t *testing.T, off int64, patience time.Duration) (all []byte, errs []error) {
	t.Helper()
	for tries := 0; off < r.meta.state.End; tries++ {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		res, err := r.Read(ctx, ReadRequest{TopicID: readTopic, Offset: off, MaxBytes: 200_000, MinOne: true})
		cancel()
		if err != nil {
			if errs = append(errs, err); tries > 500 {
				t.Fatalf("no progress at %d: %v", off, err)
			}
			continue
		}
		all, off = append(all, joined(res)...), res.NextOffset
	}
	return all, errs
}

// TestReadSlowAndFlaky: while the store is slow, or fails now and then, a client that asks again reads every byte as it was written. (What
// fails for a while and then does not is in the fault matrix.)
func TestReadSlowAndFlaky(t *testing.T) {
	for name, f := range map[string]objstore.Fault{
		"slow":  {Kind: objstore.FaultDelay, Delay: 30 * time.Millisecond, Times: -1},
		"flaky": {Kind: objstore.FaultError, Percent: 40, Times: -1},
	} {
		for _, cacheBytes := range []int64{0, tinyCache} {
			t.Run(fmt.Sprintf("%s/cache %d", name, cacheBytes), func(t *testing.T) {
				t.Parallel()
				r := newReadRig(t, 3, 40, 12_000, func(o *Options) {
					o.CacheDir, o.CacheBytes, o.IndexCacheBytes = t.TempDir(), cacheBytes, cacheBytes
				})
				f := f
				f.Verb = objstore.VerbGet
				r.store.Add(f)
				got, errs := r.consume(t, 0, 20*time.Millisecond)
				if !bytes.Equal(got, r.log) || r.rec.Count("tier_corruption") > 0 {
					t.Fatalf("bytes differ, or there was an alarm, after %v", errs)
				}
			})
		}
	}
}

// TestReadsWhileServerIsAway: both SDKs get over a server that dies and comes back.
func TestReadsWhileServerIsAway(t *testing.T) {
	eachDriver(t, func(t *testing.T, srv *s3server.Server, url, _ string) {
		t.Run("server away and back", func(t *testing.T) {
			r := newDriverRig(t, url)
			half := r.meta.state.End / 2
			res, err := r.read(0, 100_000, true)
			if err != nil || !bytes.HasPrefix(r.log, joined(res)) {
				t.Fatal(err)
			}
			srv.Kill()
			r.forget()
			if _, err := r.read(half, 100_000, true); !objstore.IsRetryable(err) {
				t.Fatalf("without a server: %v", err)
			}
			if err := srv.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got, errs := r.consume(t, 0, time.Second); !bytes.Equal(got, r.log) {
				t.Fatalf("bytes differ, after %v", errs)
			}
		})
	})
}

// newDriverRig has its segments in a real store.
func newDriverRig(t *testing.T, url string) *readRig {
	store, err := objstore.Open(t.Context(), url, objstore.OpenOptions{
		Retry:     objstore.RetryPolicy{MaxAttempts: 2, BaseBackoff: time.Millisecond},
		Deadlines: objstore.Deadlines{Get: 300 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := newReadRig(t, 0, 0, 0, func(o *Options) { o.Prefix = strings.NewReplacer("/", "-", " ", "-", "#", "-").Replace(t.Name()) })
	r.store = objstore.NewFaulty(store, 1)
	r.o.Store = r.store
	for s := range int64(2) {
		r.add(t, s*120, 40, 12_000, nil)
	}
	return r
}

// TestReadCacheFails: the cache's disk is full, or gives back something else; readers do
// not notice.
func TestReadCacheFails(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, c *chunkCache){
		"full": func(t *testing.T, c *chunkCache) {
			f, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
			c.f = f
		},
		"scribbled": func(t *testing.T, c *chunkCache) {
			if _, err := c.f.WriteAt(bytes.Repeat([]byte{7}, int(c.used)*chunkBytes), 0); err != nil {
				t.Fatal(err)
			}
		},
		"truncated": func(t *testing.T, c *chunkCache) {
			if err := c.f.Truncate(0); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReadRig(t, 2, 60, 12_000, func(o *Options) { o.CacheDir, o.CacheBytes, o.IndexCacheBytes = t.TempDir(), 1<<24, 1<<24 })
			for range 3 { // chunks come into the cache when they are fetched a second time
				r.forget()
				r.readAll(t, 0, 200_000)
			}
			r.forget()
			for _, c := range []*chunkCache{r.cache, r.indexFile} {
				spoil(t, c)
			}
			if !bytes.Equal(r.readAll(t, 0, 200_000), r.log) || r.rec.Count("tier_corruption") != 0 {
				t.Fatal("bytes differ, or there was an alarm")
			}
		})
	}
}

// forget empties what is in memory, once nothing is on its way.
func (r *readRig) forget() {
	r.fills.wg.Wait()
	time.Sleep(5 * time.Millisecond) // what is queued for the disk
	r.mem.mu.Lock()
	for c := range r.mem.chunks {
		if h := r.mem.chunks[c]; h.kept != nil {
			r.mem.drop(h)
		}
	}
	r.mem.mu.Unlock()
	r.indexes = newIndexCache()
}

// TestReadWithinMemory: many readers at once, each at another place, with memory for a
// part of what they want and a cache on disk that is smaller still: all come through,
// and the bound holds.
func TestReadWithinMemory(t *testing.T) {
	r := newReadRig(t, 3, 150, 20_000, func(o *Options) {
		o.CacheDir, o.CacheBytes, o.ReadMemoryBytes = t.TempDir(), 3*chunkBytes, 16<<20
	})
	var most atomic.Int64
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			at := i * len(r.at) / 50
			off, pos := int64(at*3), r.at[at]
			for n := 0; n < 12 && off < r.meta.state.End; n++ {
				res, err := r.read(off, 1<<20, true)
				most.Store(max(most.Load(), r.mem.usedBytes()))
				if err != nil {
					t.Errorf("offset %d: %v", off, err)
					return
				}
				b := joined(res)
				if !bytes.Equal(b, r.log[pos:][:len(b)]) || len(b) == 0 {
					t.Errorf("offset %d: %d bytes that differ", off, len(b))
					return
				}
				off, pos = res.NextOffset, pos+len(b)
			}
		})
	}
	wg.Wait()
	if most.Load() > 16<<20 {
		t.Errorf("%d bytes of chunks, the bound is 16 MiB", most.Load())
	}
	r.fills.wg.Wait()
	var kept, counted, filed int
	for range 2000 { // what is queued for the disk is held until it is written
		r.mem.mu.Lock()
		kept, counted, filed = r.mem.passed.Len()+r.mem.unread.Len(), r.mem.count, len(r.mem.chunks)
		r.mem.mu.Unlock()
		if kept == counted {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if kept != counted || kept != filed {
		t.Errorf("%d chunks are kept, %d counted, %d filed", kept, counted, filed)
	}
	r.cache.close()
	if a := r.mem.arena; a.room+r.mem.count != r.mem.maxChunks+maxQueuedWrites+1 {
		t.Errorf("%d slots are free beside %d chunks of at most %d", a.room, r.mem.count, r.mem.maxChunks)
	}
}

// TestReadersDuringRetention: segments go, and others come under the same offsets, as
// after delete and recreate, while readers read: what they get is what the metastore
// then named, or an answer that says it is gone.
func TestReadersDuringRetention(t *testing.T) {
	r := newReadRig(t, 6, 20, 12_000, func(o *Options) { o.CacheDir, o.CacheBytes = t.TempDir(), 1<<22 })
	log, at := r.log, r.at
	end := r.meta.state.End
	var done atomic.Bool
	var wg sync.WaitGroup
	for i := range int64(6) {
		wg.Go(func() {
			for off := i * end / 6; !done.Load(); off = (off + 37) % end {
				res, err := r.read(off, 100_000, true)
				if err != nil {
					if code := protocol.CodeOf(err); code != protocol.OffsetOutOfRange {
						t.Errorf("offset %d: %v", off, err)
						return
					}
					continue
				}
				if b := joined(res); !bytes.Equal(b, log[at[off/3]:][:len(b)]) {
					t.Errorf("offset %d: bytes differ", off)
					return
				}
			}
		})
	}
	for range 5 {
		time.Sleep(10 * time.Millisecond)
		r.meta.mu.Lock()
		gone := r.meta.rows[0]
		r.meta.rows = append([]metastore.RemoteSegment{}, r.meta.rows[1:]...)
		r.meta.state.LogStart = gone.Next
		r.meta.mu.Unlock()
		if _, err := r.store.Delete(context.Background(), []string{r.rowKey(gone)}); err != nil {
			t.Error(err)
		}
	}
	done.Store(true)
	wg.Wait()
	if n := r.rec.Count("tier_object_missing"); n != 0 {
		t.Errorf("%d alarms", n)
	}
}

// TestReadDeleteRecreate: other records under the same offsets, in a new segment, are
// never mixed with what is cached of the old one.
func TestReadDeleteRecreate(t *testing.T) {
	r := newReadRig(t, 1, 40, 12_000, func(o *Options) { o.CacheDir, o.CacheBytes, o.IndexCacheBytes = t.TempDir(), 1<<24, 1<<24 })
	for size := 12_000; size > 8_000; size -= 1000 {
		for range 2 {
			if !bytes.Equal(r.readAll(t, 0, 100_000), r.log) {
				t.Fatal("bytes differ")
			}
		}
		r.meta.mu.Lock()
		r.meta.rows = nil
		r.meta.mu.Unlock()
		r.log, r.at = nil, nil
		r.add(t, 0, 40, size, nil)
	}
}

// TestReadGiant: a batch larger than a read may be comes whole, in memory that is
// smaller than it.
func TestReadGiant(t *testing.T) {
	r := newReadRig(t, 1, 2, 7<<20, func(o *Options) { o.ReadMemoryBytes = 16 << 20 })
	if !bytes.Equal(r.readAll(t, 0, 1000), r.log) {
		t.Fatal("bytes differ")
	}
	if _, err := r.read(0, 1000, false); err != nil {
		t.Fatal(err)
	}
}
