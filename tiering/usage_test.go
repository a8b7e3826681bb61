package tiering

import (
	"testing"
	"time"

	"varve/metastore"
	"varve/protocol"
	"varve/tiering/objstore"
)

// TestStored: the sums agree with the rows and with the bucket, also of what waits for its deletion.
func TestStored(t *testing.T) {
	w := settled(t)
	w.part.cfg.RetentionBytes = 5000
	w.opts.DeleteDelayMs = int64(time.Hour / time.Millisecond)
	w.stop()
	w.start()
	if err := w.round(); err != nil {
		t.Fatal(err)
	}
	got, err := w.m.Stored(w.ctx)
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	want := StoredTopic{TopicID: w.part.id, Topic: "t"}
	for _, r := range w.rows() {
		want.Segments, want.Bytes = want.Segments+1, want.Bytes+r.LogBytes
	}
	pending, _, err := w.meta.PendingSegments(metastore.Cursor{}, 1000)
	if err != nil || len(pending) == 0 {
		t.Fatal(pending, err)
	}
	objects := want.Segments
	for _, r := range pending {
		want.DeletingObjects, want.DeletingBytes = want.DeletingObjects+1, want.DeletingBytes+r.ObjectBytes
		objects++
	}
	if got[0] != want {
		t.Errorf("%+v, not %+v", got[0], want)
	}
	err = w.store.List(w.ctx, "", "", func(o objstore.ObjectInfo) bool {
		if TopicOfKey(o.Key) == w.part.id.String() {
			objects--
		}
		return true
	})
	if err != nil || objects != 0 || TopicOfKey("p/cluster/owner") != "" || TopicOfKey(protocol.NewUUID().String()) != "" {
		t.Errorf("%d objects more than listed, %v", objects, err)
	}
}
