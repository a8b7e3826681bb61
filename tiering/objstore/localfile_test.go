package objstore

import (
	"bytes"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestLocalFile: through all that Open puts around a folder, the file of an object is to be had, is counted as read only for what
// is read, and outlives its body and its name when it is kept. A body whose bytes are others than the file's has none.
func TestLocalFile(t *testing.T) {
	c := NewCounters(nil, nil)
	s, err := Open(t.Context(), "dir://"+t.TempDir(), OpenOptions{Counters: c, Bandwidth: NewBandwidth(0, 0)})
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789"), 1000)
	mustPut(t, s, "a/b", data)
	get := func(s Store) (io.ReadCloser, *LocalFile) {
		t.Helper()
		body, err := s.Get(t.Context(), "a/b", 500, 1000, "read")
		if err != nil {
			t.Fatal(err)
		}
		return body, LocalFileOf(body)
	}
	body, f := get(s)
	other, again := get(s)
	if f == nil || again == nil || !f.Same(again) {
		t.Fatalf("%v and %v", f, again)
	}
	f.Keep()
	if b, err := io.ReadAll(body); err != nil || !bytes.Equal(b, data[500:1500]) {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	if err := body.Close(); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := again.ReadAt(make([]byte, 1), 0); err == nil {
		t.Error("a file that was not kept outlives its body")
	}
	if _, err := s.Delete(t.Context(), []string{"a/b"}); err != nil {
		t.Fatal(err)
	}
	mustPut(t, s, "a/b", data)
	body, again = get(s)
	if again.Same(f) {
		t.Error("what was put later is said to be the same file")
	}
	b := make([]byte, len(data))
	if _, err := f.ReadAt(b, 0); err != nil || !bytes.Equal(b, data) {
		t.Errorf("the object's bytes are not those of the file: %v", err)
	}
	for _, u := range c.Snapshot() {
		if u.Verb == VerbGet && u.Bytes != 1000 {
			t.Errorf("%d bytes are counted", u.Bytes)
		}
	}
	if err := body.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNoLocalFile: no file is told of where its bytes are not those of the body, or there is none.
func TestNoLocalFile(t *testing.T) {
	disk := NewFaulty(NewDir(vfs.Default, t.TempDir()), 1)
	for name, s := range map[string]Store{"memory": NewMem(nil), "folder in memory": NewDir(vfs.NewMem(), "/x"), "spoiled": disk} {
		mustPut(t, s, "a", bytes.Repeat([]byte("x"), 1000))
		for _, kind := range []FaultKind{FaultWrongBytes, FaultTruncated, FaultReset} {
			disk.Add(Fault{Kind: kind, Verb: VerbGet})
			body, err := s.Get(t.Context(), "a", 0, -1, "")
			if err != nil {
				t.Fatal(err)
			}
			if LocalFileOf(body) != nil {
				t.Errorf("%s: has a file", name)
			}
			if err := body.Close(); err != nil {
				t.Fatal(err)
			}
			disk.Clear()
		}
	}
	body, err := disk.Get(t.Context(), "a", 0, -1, "")
	if err != nil || LocalFileOf(body) == nil {
		t.Fatalf("without a fault there is no file: %v", err)
	}
	if err := body.Close(); err != nil {
		t.Fatal(err)
	}
}
