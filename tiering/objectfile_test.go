package tiering

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/metastore"
	"varve/protocol"
	"varve/tiering/objstore"
)

// dirRig has its segments in a folder.
type dirRig struct {
	*readRig
	folder string
}

func newDirRig(t *testing.T, fsys vfs.FS, segments, batches, size int, change func(*Options)) *dirRig {
	d := &dirRig{readRig: newReadRig(t, 0, 0, 0, change), folder: t.TempDir()}
	d.store = objstore.NewFaulty(objstore.NewDir(fsys, d.folder), 1)
	d.o.Store = d.store
	for s := range segments {
		d.add(t, int64(s*batches*3), batches, size, nil)
	}
	return d
}

// object is the file of the i-th segment.
func (d *dirRig) object(t *testing.T, i int) string {
	t.Helper()
	var found string
	err := filepath.WalkDir(d.folder, func(path string, _ fs.DirEntry, err error) error {
		if strings.Contains(path, d.meta.rows[i].ID.String()) && strings.HasSuffix(path, ".obj") {
			found = path
		}
		return err
	})
	if err != nil || found == "" {
		t.Fatalf("no object of segment %d: %v", i, err)
	}
	return found
}

// open says how many files are open and how many chunks are in them.
func (d *dirRig) open() (files, chunks int) {
	d.fills.wg.Wait()
	d.mem.mu.Lock()
	defer d.mem.mu.Unlock()
	return d.mem.openFiles, d.mem.inFiles
}

// flip changes a byte of a file in its place.
func flip(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err = f.ReadAt(b, at); err == nil {
		b[0] ^= 1
		_, err = f.WriteAt(b, at)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestReadFromFolder: what is in a folder is sent out of its files, takes no memory and no room in the cache, a read in order is
// one range, and no file stays open once nobody needs it.
func TestReadFromFolder(t *testing.T) {
	d := newDirRig(t, vfs.Default, 2, 100, 20_000, func(o *Options) { o.CacheDir, o.CacheBytes = t.TempDir(), 1<<30 })
	for range 2 {
		pos, spans := 0, 0
		for off := int64(0); off < d.meta.state.End; {
			res, err := d.read(off, 1<<20, true)
			if err != nil || res.NextOffset <= off {
				t.Fatalf("offset %d: up to %d, %v", off, res.NextOffset, err)
			}
			for _, s := range res.Spans {
				if s.File == nil || s.File.Fd() == ^uintptr(0) {
					t.Fatal("a span is not in a file")
				}
			}
			spans += len(res.Spans)
			b := joined(res)
			if !bytes.Equal(b, d.log[pos:pos+len(b)]) {
				t.Fatalf("offset %d: bytes differ", off)
			}
			off, pos = res.NextOffset, pos+len(b)
		}
		if most := 2 * 8; spans > most {
			t.Errorf("%d ranges for %d bytes, not %d", spans, len(d.log), most)
		}
		if files, _ := d.open(); files > 2 {
			t.Errorf("%d files are open, of 2 objects", files)
		}
		if n := d.mem.usedBytes(); n != 0 || d.cache.status().UsedBytes != 0 {
			t.Errorf("%d bytes in memory, %d in the cache", n, d.cache.status().UsedBytes)
		}
		d.forget()
		if files, chunks := d.open(); files != 0 || chunks != 0 {
			t.Errorf("%d files stay open, with %d chunks", files, chunks)
		}
	}
}

// TestReadFolderInMemory: a file system without descriptors is read into memory.
func TestReadFolderInMemory(t *testing.T) {
	d := newDirRig(t, vfs.NewMem(), 2, 40, 20_000, nil)
	if !bytes.Equal(d.readAll(t, 0, 1<<20), d.log) {
		t.Fatal("bytes differ")
	}
	if files, chunks := d.open(); files != 0 || chunks != 0 || d.mem.usedBytes() == 0 {
		t.Errorf("%d files, %d chunks, %d bytes in memory", files, chunks, d.mem.usedBytes())
	}
}

// TestReadFolderManyObjects: the bound on descriptors holds, and what is beyond it comes through memory.
func TestReadFolderManyObjects(t *testing.T) {
	const segments = maxObjectFiles + 20
	d := newDirRig(t, vfs.Default, segments, 1, 12_000, func(o *Options) { o.CacheDir, o.CacheBytes = t.TempDir(), 1<<30 })
	var held []ReadResult
	inMemory := 0
	for i := range segments {
		res, err := d.read(int64(3*i), 1<<20, true)
		if err != nil {
			t.Fatal(err)
		}
		if res.Spans[0].File == nil {
			inMemory++
		}
		held = append(held, res)
	}
	files, chunks := d.open()
	if files != maxObjectFiles || chunks != maxObjectFiles || inMemory != segments-maxObjectFiles {
		t.Errorf("%d files and %d chunks, %d spans in memory", files, chunks, inMemory)
	}
	for i, res := range held {
		if b := joined(res); !bytes.HasPrefix(d.log[d.at[i]:], b) || len(b) < 36_000 {
			t.Errorf("segment %d: bytes differ", i)
		}
	}
	d.forget()
	if files, chunks := d.open(); files != 0 || chunks != 0 || d.cache.status().UsedBytes != 0 {
		t.Errorf("%d files stay open, with %d chunks; %d bytes in the cache", files, chunks, d.cache.status().UsedBytes)
	}
}

// TestReadFolderDeletedUnderWay: an object that retention deletes while it is sent is sent to its end.
func TestReadFolderDeletedUnderWay(t *testing.T) {
	d := newDirRig(t, vfs.Default, 1, 40, 20_000, nil)
	res, err := d.read(0, 1<<20, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.store.Delete(context.Background(), []string{d.rowKey(d.meta.rows[0])}); err != nil {
		t.Fatal(err)
	}
	if b := joined(res); !bytes.HasPrefix(d.log, b) || len(b) < 1<<20-60_000 {
		t.Fatalf("%d bytes that differ", len(b))
	}
	d.forget()
	if files, _ := d.open(); files != 0 {
		t.Errorf("%d files stay open", files)
	}
}

// TestReadFolderWrongBytes: wrong bytes, in the file or on the way from it, are an error and an alarm and are never sent; once the
// object is right again, so are the answers.
func TestReadFolderWrongBytes(t *testing.T) {
	for name, spoil := range map[string]func(d *dirRig){
		"in the file": func(d *dirRig) { flip(t, d.object(t, 0), 200_000) },
		"on the way": func(d *dirRig) {
			d.store.Add(objstore.Fault{Kind: objstore.FaultWrongBytes, Verb: objstore.VerbGet, Times: -1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDirRig(t, vfs.Default, 1, 8, 20_000, nil) // less than enoughBytes: all of it is waited for
			if _, err := d.index(context.Background(), d.meta.rows[0]); err != nil {
				t.Fatal(err)
			}
			spoil(d)
			for range 2 {
				_, err := d.read(0, 1<<20, true)
				var bad *protocol.CorruptionError
				if !errors.As(err, &bad) || protocol.CodeOf(err) != protocol.KafkaStorageError {
					t.Fatalf("got %v", err)
				}
				d.fills.wg.Wait() // the rest of what failed is told so, too
			}
			if n := d.rec.Count("tier_corruption"); n < 2 {
				t.Errorf("%d alarms", n)
			}
			if d.store.Clear(); name == "in the file" {
				flip(t, d.object(t, 0), 200_000)
			}
			if !bytes.Equal(d.readAll(t, 0, 1<<20), d.log) {
				t.Fatal("bytes differ")
			}
		})
	}
}

// TestReadFolderSpoiledLater: bytes that were checked and have left the page cache since are checked again when they are read for
// sending, and nothing more is read from a file that failed; the object that took its place is read from then on.
func TestReadFolderSpoiledLater(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"wrong":     func(path string) error { flip(t, path, 300_000); return nil },
		"truncated": func(path string) error { return os.Truncate(path, 250_000) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDirRig(t, vfs.Default, 1, 40, 20_000, nil)
			path := d.object(t, 0)
			good, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			res, err := d.read(0, 1<<20, true)
			if err != nil {
				t.Fatal(err)
			}
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			var bad *protocol.CorruptionError
			if _, err := res.Spans[0].AppendTo(nil); !errors.As(err, &bad) || d.rec.Count("tier_corruption") != 1 {
				t.Fatalf("%v, %d alarms", err, d.rec.Count("tier_corruption"))
			}
			if _, err := d.read(0, 1<<20, true); err == nil {
				t.Fatal("the file is read on")
			}
			if err := os.WriteFile(path+"2", good, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path+"2", path); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(d.readAll(t, 0, 1<<20), d.log) {
				t.Fatal("bytes differ")
			}
			protocol.ReleaseSpans(res.Spans)
			if d.forget(); d.mem.count != 0 {
				t.Errorf("%d chunks stay", d.mem.count)
			}
			if files, chunks := d.open(); files != 0 || chunks != 0 || d.mem.ahead != 0 {
				t.Errorf("%d files stay open, with %d chunks, %d ahead", files, chunks, d.mem.ahead)
			}
		})
	}
}

// TestReadFolderRenewed: an object whose file is put in the place of its like, while the old one is open, is read from the new one.
func TestReadFolderRenewed(t *testing.T) {
	d := newDirRig(t, vfs.Default, 1, 120, 20_000, nil)
	first, err := d.read(0, 100_000, true)
	if err != nil {
		t.Fatal(err)
	}
	path := d.object(t, 0)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+"2", good, 0o644); err != nil {
		t.Fatal(err)
	}
	flip(t, path, 7_000_000) // of the old one, which nobody has read that far
	if err := os.Rename(path+"2", path); err != nil {
		t.Fatal(err)
	}
	last, err := d.read(3*117, 1<<20, true)
	if err != nil {
		t.Fatal(err)
	}
	if b := joined(last); !bytes.Equal(b, d.log[d.at[117]:]) {
		t.Error("bytes of the old file")
	}
	if b := joined(first); !bytes.HasPrefix(d.log, b) {
		t.Error("bytes differ")
	}
}

// TestReadFolderDuringRetention: readers hold and let go of answers while objects are deleted, with little memory.
func TestReadFolderDuringRetention(t *testing.T) {
	d := newDirRig(t, vfs.Default, 8, 40, 20_000, func(o *Options) { o.ReadMemoryBytes = 16 << 20 })
	log, at, end := d.log, d.at, d.meta.state.End
	var done atomic.Bool
	var wg sync.WaitGroup
	for i := range int64(8) {
		wg.Go(func() {
			for off := i * end / 8; !done.Load(); off = (off + 37) % end {
				res, err := d.read(off, 700_000, true)
				if protocol.CodeOf(err) == protocol.OffsetOutOfRange {
					continue
				}
				if err != nil {
					t.Errorf("offset %d: %v", off, err)
					return
				}
				if b := joined(res); len(b) == 0 || !bytes.Equal(b, log[at[off/3]:][:len(b)]) {
					t.Errorf("offset %d: %d bytes that differ", off, len(b))
					return
				}
			}
		})
	}
	for range 7 {
		for range 20 {
			if res, err := d.read(end-1, 100, true); err == nil {
				joined(res)
			}
		}
		d.meta.mu.Lock()
		gone := d.meta.rows[0]
		d.meta.rows = append([]metastore.RemoteSegment{}, d.meta.rows[1:]...)
		d.meta.state.LogStart = gone.Next
		d.meta.mu.Unlock()
		if _, err := d.store.Delete(context.Background(), []string{d.rowKey(gone)}); err != nil {
			t.Error(err)
		}
	}
	done.Store(true)
	wg.Wait()
	d.forget()
	if files, chunks := d.open(); files != 0 || chunks != 0 || d.rec.Count("tier_object_missing") != 0 {
		t.Errorf("%d files stay open, with %d chunks; %d alarms", files, chunks, d.rec.Count("tier_object_missing"))
	}
}

// TestReadEndsWhereAWalkDoes: of the batches that fit, none is left out and none is cut, wherever a read begins and however few
// of them the index knows.
func TestReadEndsWhereAWalkDoes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 1))
	for _, size := range []int{200, 3000, 60_000, 200_000} {
		d := newDirRig(t, vfs.Default, 1, 3+2_500_000/(3*size+300), size, nil)
		d.readAll(t, 0, 8<<20) // what is there needs no wait
		d.fills.wg.Wait()
		ends := append(d.at[1:len(d.at):len(d.at)], len(d.log))
		for range 100 {
			first := rnd.IntN(len(d.at))
			maxBytes := 1 + rnd.IntN(1<<(10+rnd.IntN(12)))
			want := first
			for want < len(ends) && ends[want]-d.at[first] <= maxBytes {
				want++
			}
			want = max(want, first+1)
			res, err := d.read(int64(3*first)+rnd.Int64N(3), maxBytes, true)
			if err != nil {
				t.Fatal(err)
			}
			if b := joined(res); res.NextOffset != int64(3*want) || !bytes.Equal(b, d.log[d.at[first]:ends[want-1]]) {
				t.Fatalf("%d bytes from batch %d: %d bytes up to %d, not %d up to %d", maxBytes, first, len(b), res.NextOffset, ends[want-1]-d.at[first], 3*want)
			}
		}
	}
}

// TestReadFolderByOthers: what reads records itself, and not for sending, gets them out of files too: lookups by time, and a batch
// that is larger than a read may be.
func TestReadFolderByOthers(t *testing.T) {
	ctx := context.Background()
	d := newDirRig(t, vfs.Default, 2, 40, 5_000, nil)
	d.add(t, d.meta.state.End, 2, 3<<20, nil)
	for range 2 {
		for off := int64(0); off < d.meta.state.End; off += 7 {
			at, ok, err := d.OffsetForTimestamp(ctx, readTopic, 0, testTime(off))
			if err != nil || !ok || at.Offset != off {
				t.Fatalf("offset %d: %+v %v %v", off, at, ok, err)
			}
		}
		d.meta.state.LogStart = 130 // in a batch
		if at, ok, err := d.MaxTimestamp(ctx, readTopic, 0); err != nil || !ok || at.Offset != d.meta.state.End-1 {
			t.Fatalf("max: %+v %v", at, err)
		}
		d.meta.state.LogStart = 0
		if !bytes.Equal(d.readAll(t, 0, 1000), d.log) {
			t.Fatal("bytes differ")
		}
	}
	if d.forget(); d.mem.count != 0 || d.mem.openFiles != 0 {
		t.Errorf("%d chunks and %d files stay", d.mem.count, d.mem.openFiles)
	}
}
