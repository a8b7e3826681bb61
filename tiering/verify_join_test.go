package tiering

import (
	"strings"
	"testing"
	"time"

	"varve/metastore"
	"varve/protocol"
)

// TestVerifyTakenOver: garbage in a folder that a restore took over is this cluster's to remove once the topic is released, while the
// folder is still this one's. What may belong to a topic that was never restored stays.
func TestVerifyTakenOver(t *testing.T) {
	w, _ := newSource(t)
	w.settled(40)
	w.snapshot()
	g := newTarget(t, w, "new")
	g.restore(RestoreRequest{})
	late := rowsOf(t, w.meta, w.part.id)[0]
	b := w.object(w.m.rowKey(late))
	other := late
	late.ID, other.ID, other.TopicID = protocol.NewUUID(), protocol.NewUUID(), protocol.NewUUID()
	for _, r := range []metastore.RemoteSegment{late, other} {
		w.put(w.m.rowKey(r), b)
	}
	w.clock.advance(100 * time.Hour)
	verify := func(repair bool) (all []Finding) {
		rep, err := g.m.Verify(t.Context(), VerifyOptions{Repair: repair, Found: func(f Finding) { all = append(all, f) }})
		if err != nil || rep.Unchecked != 0 || int(rep.Findings) != len(all) {
			t.Fatalf("%+v: %v", rep, err)
		}
		return all
	}
	if found := verify(true); len(found) != 0 {
		t.Fatalf("held: %+v", found)
	}
	if _, err := g.m.ReleaseRestored(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if found := verify(false); len(found) != 1 || found[0].Kind != FoundOrphan || found[0].Key != w.m.rowKey(late) || found[0].Repaired {
		t.Fatalf("released: %+v", found)
	}
	owner := w.object(ownerKey("p", w.m.o.ClusterID))
	w.put(ownerKey("p", w.m.o.ClusterID), []byte(`{"version":1,"cluster_id":"third","epoch":9}`))
	own, err := ParseSegmentKey(w.m.rowKey(late))
	if err != nil {
		t.Fatal(err)
	}
	own.ClusterID, own.TopicID = "new", protocol.NewUUID() // of a topic that is deleted
	w.put(own.String(), b)
	w.clock.advance(100 * time.Hour)
	for _, f := range verify(true) {
		if here := f.Key == own.String(); f.Repaired != here || !here && !strings.Contains(f.Repair, "third") {
			t.Fatalf("taken over by a third: %+v", f)
		}
	}
	if found := verify(true); len(found) != 1 || found[0].Repaired {
		t.Fatalf("the own one has gone: %+v", found)
	}
	w.put(ownerKey("p", w.m.o.ClusterID), owner)
	if found := verify(true); len(found) != 1 || !found[0].Repaired {
		t.Fatalf("repaired: %+v", found)
	}
	if found := verify(true); len(found) != 0 {
		t.Fatalf("at last: %+v", found)
	}
	w.object(w.m.rowKey(other)) // still there
}
