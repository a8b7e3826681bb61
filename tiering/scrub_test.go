package tiering

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"varve/protocol"
)

// TestScrub: the passes come by themselves, tell of what they find, and the controller alone makes them.
func TestScrub(t *testing.T) {
	w := settled(t)
	r := w.rows()[0]
	b := w.object(w.m.rowKey(r))
	b[r.IndexOff/2] ^= 1
	w.put(w.m.rowKey(r), b)
	orphan := r
	orphan.ID = protocol.NewUUID()
	w.put(w.m.rowKey(orphan), b)
	w.clock.advance(3 * time.Hour)
	if !w.m.scrubOnce(w.ctx, VerifyOptions{Level: VerifyList, Repair: true}) || !w.m.scrubOnce(w.ctx, VerifyOptions{Level: VerifyData, Repair: true}) {
		t.Fatal("no pass")
	}
	if n := w.rec.Count("tier_scrub_found"); n != 2 {
		t.Errorf("%d findings told of", n)
	}
	st := w.m.Status()
	if len(st.Scrub) != 2 || st.Scrub[0].Report.Repaired != 1 || st.Scrub[1].Report.Findings != 1 || st.Scrub[1].Report.Repaired != 1 {
		t.Errorf("status: %+v", st.Scrub)
	}
	fm := newFakeMeta()
	fm.controller = false
	w.m.o.Meta = fm
	if w.m.scrubOnce(w.ctx, VerifyOptions{}) {
		t.Error("a pass on a node that is not the controller")
	}
}

// TestScrubTimes: a pass begins within ten minutes, then one comes each interval, and none with -1.
func TestScrubTimes(t *testing.T) {
	for interval, want := range map[int64]int{3_600_000: 24, -1: 0} {
		synctest.Test(t, func(t *testing.T) {
			passes := 0
			m := &Manager{o: Options{ScrubIntervalMs: interval, Meta: countMeta{newFakeMeta(), &passes}}}
			ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
			defer cancel()
			m.ownerEpoch = 1
			m.scrub(ctx)
			if passes != want {
				t.Errorf("%d passes in a day with an interval of %d ms", passes, interval)
			}
		})
	}
}

// countMeta counts how often somebody asks whether this is the controller, and says that it is not.
type countMeta struct {
	*fakeMeta
	n *int
}

func (c countMeta) IsController() bool { *c.n++; return false }
