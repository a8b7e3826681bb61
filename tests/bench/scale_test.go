package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"varve/tiering"
	"varve/tiering/objstore"
)

// TestDouble: the double lists, by our own driver, exactly the keys of the history and what was put beside them, in any pages, and each
// segment is one that our own reader takes.
func TestDouble(t *testing.T) {
	h, err := newHistory(3, 1100)
	if err != nil {
		t.Fatal(err)
	}
	d, err := newDouble(h)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if err := h.write(d.put); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "scale")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "scale")
	store, err := objstore.Open(t.Context(), d.url(), objstore.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{}
	for p := range int32(3) {
		for i := range 1100 {
			r := h.row(p, i)
			if key := h.key(p, i); tiering.TopicOfKey(key) != h.topic.String() || !strings.HasPrefix(key, h.folder(p)) {
				t.Fatalf("key %s of %+v", key, r)
			} else {
				want[key] = r.ObjectBytes
			}
		}
	}
	for key, b := range d.objects {
		want[key] = int64(len(b))
	}
	for _, prefix := range []string{"", h.cluster + "/", h.folder(1), h.folder(2)[:len(h.folder(2))-5], h.key(0, 7)[:70], "none"} {
		n := 0
		for key := range want {
			if strings.HasPrefix(key, prefix) {
				n++
			}
		}
		err := store.List(t.Context(), prefix, "", func(o objstore.ObjectInfo) bool {
			if want[o.Key] != o.Size || !strings.HasPrefix(o.Key, prefix) {
				t.Fatalf("%s of %d bytes", o.Key, o.Size)
			}
			n--
			return true
		})
		if err != nil || n != 0 {
			t.Fatalf("%q: %d keys were not listed: %v", prefix, n, err)
		}
	}
	r := h.row(2, 1099)
	body, err := store.Get(t.Context(), h.key(2, 1099), 0, -1, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	raw, err := io.ReadAll(body)
	if err != nil || int64(len(raw)) != r.ObjectBytes {
		t.Fatalf("%d bytes of %d: %v", len(raw), r.ObjectBytes, err)
	}
	seg, err := tiering.OpenSegment(bytes.NewReader(raw), r.ObjectBytes)
	if err != nil || seg.Footer.Base != r.Base || seg.Footer.MaxTimestamp != r.MaxTimestamp || seg.Footer.RecordCount != scaleRecords {
		t.Fatalf("%+v: %v", seg, err)
	}
	if err := seg.WriteLog(io.Discard); err != nil {
		t.Fatal(err)
	}
}
