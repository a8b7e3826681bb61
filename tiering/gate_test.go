package tiering

import (
	"testing"
	"time"

	"varve/tiering/objstore"
)

// TestGateOfAnIdleBroker: after an outage a broker on which nothing waits to be uploaded finds out by itself that the store is back, writes
// nothing for it, asks seldom, and closes the gate again at the next segment that fails.
func TestGateOfAnIdleBroker(t *testing.T) {
	w := newWorld(t, keepAll(), func(o *Options) { o.TaskIntervalMs, o.JournalIntervalMs, o.UploadDeadlineMs = 5, 5, 3_600_000 })
	w.start()
	stop := w.run()
	w.await(func() bool { return w.m.claimed() })
	outage := objstore.Fault{Kind: objstore.FaultError, Verb: objstore.VerbPut, Times: -1}
	w.store.Add(outage)
	w.append(40, 0)
	w.hours(1)
	if w.rec.Count("tier_store_judged") != 1 || len(w.m.Status().Errors) == 0 {
		t.Fatalf("%d events, status %+v", w.rec.Count("tier_store_judged"), w.m.Status())
	}
	w.m.Unlead(w.part.id, 0)
	const looks = 10
	minutes := func(n int) {
		for range n {
			w.clock.advance(time.Minute)
			time.Sleep(10 * time.Millisecond)
		}
	}
	minutes(looks)
	asked := w.store.Calls(objstore.VerbPut)
	if len(w.m.Status().Errors) == 0 {
		t.Fatal("the gate opened while the store was away")
	}
	objects := w.objects()
	w.store.Clear()
	w.await(func() bool { minutes(1); return w.rec.Count("tier_store_judged") == 2 })
	if s := w.m.Status(); len(s.Errors) != 0 || w.objects() != objects || w.store.Calls(objstore.VerbPut) == asked {
		t.Fatalf("%d objects, before %d; status %+v", w.objects(), objects, s)
	}
	asked = w.store.Calls(objstore.VerbPut)
	minutes(looks)
	if n := w.store.Calls(objstore.VerbPut) - asked; n > looks/2 { // journal objects, perhaps
		t.Errorf("%d PUTs by a broker that is idle", n)
	}
	outage.Key = ".seg"
	w.store.Add(outage)
	w.m.putEnded(&objstore.RetryableError{Err: errStuck})
	if w.rec.Count("tier_store_judged") != 3 {
		t.Error("one failure did not close the gate that a probe had opened")
	}
	stop()
	w.store.Clear()
	w.stop()
}
