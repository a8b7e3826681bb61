package tiering

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"varve/protocol"
)

func cachedBytes(k blockKey) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("%x/%d ", k.seg[:2], k.chunk)), chunkBytes/6)[:chunkBytes-k.chunk]
}

func readTest(c *chunkCache, k blockKey) []byte { return c.read(k, make([]byte, chunkBytes)) }

func putTest(c *chunkCache, k blockKey) {
	b := cachedBytes(k)
	c.put(k, b, crc32.Checksum(b, castagnoli))
}

func TestCacheEvictsWithinBound(t *testing.T) {
	dir := t.TempDir()
	c, err := openCache(dir, cacheFileName, 4*chunkBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	seg := protocol.UUID{1}
	for i := range 10 {
		putTest(c, blockKey{seg, i})
	}
	if s := c.status(); s.UsedBytes != 4*chunkBytes {
		t.Fatalf("uses %d", s.UsedBytes)
	}
	if fi, err := os.Stat(filepath.Join(dir, cacheFileName)); err != nil || fi.Size() > 4*chunkBytes {
		t.Fatalf("file of %d: %v", fi.Size(), err)
	}
	for i := range 10 {
		got := readTest(c, blockKey{seg, i})
		if want := i >= 6; (got != nil) != want || (want && !bytes.Equal(got, cachedBytes(blockKey{seg, i}))) {
			t.Fatalf("chunk %d: %d bytes", i, len(got))
		}
	}
	readTest(c, blockKey{seg, 6}) // used last, so it stays
	putTest(c, blockKey{seg, 11})
	if readTest(c, blockKey{seg, 6}) == nil || readTest(c, blockKey{seg, 7}) != nil {
		t.Fatal("the least recently used one did not go")
	}
}

// TestCacheChecksDisk: what changed on disk is a miss, and goes.
func TestCacheChecksDisk(t *testing.T) {
	dir := t.TempDir()
	c, err := openCache(dir, cacheFileName, 4*chunkBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	k := blockKey{protocol.UUID{1}, 0}
	putTest(c, k)
	f, err := os.OpenFile(filepath.Join(dir, cacheFileName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{0xff}, 1000); err != nil {
		t.Fatal(err)
	}
	if readTest(c, k) != nil || c.has(k) || c.status().CorruptChunks != 1 {
		t.Fatal("a changed chunk was served or kept")
	}
	putTest(c, k)
	if readTest(c, k) == nil {
		t.Fatal("its slot is lost")
	}
	// A disk that fails is a miss too.
	if err := c.f.Close(); err != nil {
		t.Fatal(err)
	}
	if readTest(c, k) != nil {
		t.Fatal("read from a closed file")
	}
	putTest(c, blockKey{protocol.UUID{1}, 1})
}

func TestCacheOffAndRestart(t *testing.T) {
	for _, maxBytes := range []int64{-1, 0, chunkBytes - 1} {
		c, err := openCache(t.TempDir(), cacheFileName, maxBytes)
		if err != nil || c != nil {
			t.Fatalf("%d bytes: %v %v", maxBytes, c, err)
		}
		putTest(c, blockKey{})
		if readTest(c, blockKey{}) != nil || c.has(blockKey{}) {
			t.Fatal("a cache that is off holds something")
		}
		c.close()
	}
	dir := t.TempDir()
	c, _ := openCache(dir, cacheFileName, chunkBytes)
	putTest(c, blockKey{})
	c.close()
	if c, _ = openCache(dir, cacheFileName, chunkBytes); readTest(c, blockKey{}) != nil {
		t.Fatal("the past life's content is trusted")
	}
	c.close()
}

// TestCacheConcurrent: a slot is never reused under a reader.
func TestCacheConcurrent(t *testing.T) {
	c, err := openCache(t.TempDir(), cacheFileName, 3*chunkBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 200 {
				k := blockKey{protocol.UUID{byte(w % 2)}, (i + w) % 6}
				if b := readTest(c, k); b == nil {
					putTest(c, k)
				} else if !bytes.Equal(b, cachedBytes(k)) {
					t.Errorf("%v: wrong bytes", k)
				}
			}
		})
	}
	wg.Wait()
	if s := c.status(); s.CorruptChunks != 0 || s.Hits == 0 {
		t.Fatalf("%+v", s)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := int64(len(c.free)+len(c.byKey)) - c.used; got != 0 {
		t.Fatalf("%d slots are lost", -got)
	}
}

// TestCacheResize: a smaller bound holds at once, and slots are used again.
func TestCacheResize(t *testing.T) {
	c, err := openCache(t.TempDir(), indexFileName, 8*chunkBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	seg := protocol.UUID{1}
	for i := range 8 {
		putTest(c, blockKey{seg, i})
	}
	for _, want := range []int64{3, 6} {
		c.resize(want * chunkBytes)
		for i := 10; i < 20; i++ {
			putTest(c, blockKey{seg, i})
		}
		if s := c.status(); s.UsedBytes != want*chunkBytes || s.CapacityBytes != want*chunkBytes {
			t.Fatalf("%+v, want %d chunks", s, want)
		}
	}
	for i := 14; i < 20; i++ {
		if !bytes.Equal(readTest(c, blockKey{seg, i}), cachedBytes(blockKey{seg, i})) {
			t.Fatalf("chunk %d", i)
		}
	}
}
