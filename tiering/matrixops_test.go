package tiering

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
	"varve/tiering/objstore"
)

// uploadOp settles what is sealed.
var uploadOp = matrixOp{
	name:  "upload",
	world: func(t *testing.T, size worldSize) *world { return matrixWorld(t, keepAll(), 2000, size) },
	ready: func(c *matrixCase, _ strike) { c.w.append(24, 0) },
	try: func(c *matrixCase) error {
		if err := c.w.round(); err != nil {
			return err
		}
		if c.w.end() != c.w.sealedEnd() {
			return fmt.Errorf("the tier ends at %d, %d is sealed", c.w.end(), c.w.sealedEnd())
		}
		return nil
	},
	sound: func(c *matrixCase, errs []error) {
		if len(errs) == 0 || c.w.rec.Count("tier_upload_failed") == 0 {
			c.t.Errorf("an upload through the fault: %v", errs)
		}
	},
	check: func(c *matrixCase) { c.w.atRest() },
}

// readOp reads the whole tier from its start, with memory and caches empty at first.
var readOp = matrixOp{
	name: "read",
	world: func(t *testing.T, size worldSize) *world {
		w := matrixWorld(t, keepAll(), 1<<20, size)
		w.appendSized(70, 12_000, 0)
		w.settle()
		return w
	},
	ready: func(c *matrixCase, s strike) {
		c.w.stop()
		c.w.opts.CacheDir, c.w.opts.CacheBytes, c.w.opts.IndexCacheBytes = c.t.TempDir(), s.cache, s.cache
		c.w.start()
	},
	try: func(c *matrixCase) error { return c.w.readTier() },
	sound: func(c *matrixCase, errs []error) {
		if len(errs) == 0 {
			c.t.Error("all was read through the fault")
		}
		if alarms := c.w.rec.Count("tier_corruption") + c.w.rec.Count("tier_object_missing"); (alarms > 0) != (c.row.name == "wrong bytes") {
			c.t.Errorf("%d alarms", alarms)
		}
	},
	check: func(c *matrixCase) { c.w.atRest() },
}

// readTier reads from log start to the tier's end as a client does, and ends with its first error.
func (w *world) readTier() error {
	st, err := w.meta.Tier(w.part.id, 0)
	if err != nil {
		return err
	}
	var want, got []byte
	for _, b := range w.made {
		if b.NextOffset() > st.LogStart && b.BaseOffset() < st.End {
			want = append(want, b...)
		}
	}
	ctx, cancel := context.WithTimeout(w.ctx, 20*time.Second)
	defer cancel()
	for off := st.LogStart; off < st.End; {
		res, err := w.m.Read(ctx, ReadRequest{TopicID: w.part.id, Offset: off, MaxBytes: 200_000, MinOne: true})
		if err != nil {
			return fmt.Errorf("offset %d: %w", off, err)
		}
		got, off = append(got, joined(res)...), res.NextOffset
	}
	if !bytes.Equal(got, want) || len(want) == 0 {
		w.t.Errorf("%d bytes read in [%d, %d), %d written", len(got), st.LogStart, st.End, len(want))
	}
	return nil
}

// deleteOp lets total retention give up segments: log start moves, the journal says so, the objects go, the rows go.
var deleteOp = matrixOp{
	name: "delete",
	world: func(t *testing.T, size worldSize) *world {
		cfg := keepAll()
		cfg.RetentionBytes = 3000
		return matrixWorld(t, cfg, 2000, func(w *world) {
			w.opts.DeleteDelayMs = 0
			size(w)
		})
	},
	ready: func(c *matrixCase, _ strike) { c.w.append(40, 0) },
	try: func(c *matrixCase) error {
		if err := c.w.round(); err != nil {
			return err
		}
		return c.w.nothingWaits()
	},
	sound: func(c *matrixCase, errs []error) {
		if len(errs) == 0 {
			c.t.Error("all went through the fault")
		}
	},
	check: func(c *matrixCase) {
		c.w.atRest()
		if st, err := c.w.meta.Tier(c.w.part.id, 0); err != nil || st.LogStart == 0 || st.Bytes > 6000 {
			c.t.Errorf("retention left %+v: %v", st, err)
		}
	},
}

// mergeOp makes one segment of small neighbours, and removes these.
var mergeOp = matrixOp{
	name: "merge",
	world: func(t *testing.T, size worldSize) *world {
		return matrixWorld(t, keepAll(), 2000, func(w *world) {
			w.opts.MergeMinSegments, w.opts.DeleteDelayMs = 8, 0
			w.part.cfg.SegmentBytes, w.part.cfg.IndexIntervalBytes = 40_000, 300
			size(w)
		})
	},
	ready: func(c *matrixCase, _ strike) {
		c.w.trickle(9)
		c.w.m.indexes = newIndexCache()
	},
	try: func(c *matrixCase) error {
		if err := errors.Join(c.w.merge(), c.w.round()); err != nil {
			return err
		}
		return c.w.nothingWaits()
	},
	sound: func(c *matrixCase, errs []error) {
		if len(errs) == 0 {
			c.t.Error("all was merged through the fault")
		}
	},
	check: func(c *matrixCase) {
		c.w.atRest()
		if n := len(c.w.rows()); n >= 8+9 {
			c.t.Errorf("%d segments are left", n)
		}
	},
}

// scrubOp compares bucket and metastore, heals one segment whose object is gone and one that is damaged, and removes an orphan.
var scrubOp = matrixOp{
	name: "scrub",
	world: func(t *testing.T, size worldSize) *world {
		return matrixWorld(t, keepAll(), 2000, size)
	},
	ready: func(c *matrixCase, _ strike) {
		w := c.w
		w.append(30, 0)
		w.settle()
		rows := w.rows()
		b, orphan := w.object(w.m.rowKey(rows[2])), rows[2]
		orphan.ID = protocol.NewUUID()
		w.put(w.m.rowKey(orphan), b)
		w.remove(w.m.rowKey(rows[0]))
		b = w.object(w.m.rowKey(rows[1]))
		b[10] ^= 1
		w.put(w.m.rowKey(rows[1]), b)
		w.clock.advance(3 * time.Hour)
		c.planted = map[int64]bool{rows[0].Base: true, rows[1].Base: true, rows[2].Base: true}
	},
	armed: func(c *matrixCase) { // a stale LIST does not have these, and goes on to show what is deleted
		c.w.append(30, 0)
		_ = c.w.round()
	},
	try: func(c *matrixCase) error {
		var all []Finding
		rep, err := c.w.m.Verify(c.w.ctx, VerifyOptions{Level: VerifyData, Repair: true, Found: func(f Finding) { all = append(all, f) }})
		if err != nil {
			return err
		}
		for _, f := range all {
			if !c.planted[f.Base] && !(c.lasts && c.row.name == "wrong bytes") { // lasting wrong bytes are damage
				c.t.Errorf("found what is not so: %+v", f)
			}
		}
		if rep.Unchecked > 0 || rep.Findings > 0 {
			return fmt.Errorf("%d unchecked, %d of %d repaired: %s %+v", rep.Unchecked, rep.Repaired, rep.Findings, rep.FirstError, all)
		}
		return c.w.round()
	},
	check: func(c *matrixCase) { c.w.atRest() },
}

// restoreOp takes the lost cluster's topic into an empty one, which takes it away from the empty one before.
var restoreOp = matrixOp{
	name: "restore",
	world: func(t *testing.T, size worldSize) *world {
		w := newSizedWorld(t, keepAll(), 2000, nil)
		w.opts.Groups = &fakeGroups{parts: map[int32][]*metapb.GroupOffset{0: {groupAt("a", 5)}}, away: map[int32]bool{}}
		size(w)
		w.opts.State, w.opts.DeleteDeadlineMs = w.meta, 50
		w.start()
		t.Cleanup(w.stop)
		w.settled(30)
		w.snapshot()
		w.settled(20)
		w.clock.advance(time.Minute)
		w.settled(10)
		return w
	},
	ready: func(c *matrixCase, _ strike) {
		c.g = newTarget(c.t, c.w, fmt.Sprintf("new%d", c.n))
		c.g.begin(RestoreRequest{Source: "cluster", TakeOver: true})
	},
	armed: func(c *matrixCase) { // a stale LIST does not have these yet
		if c.row.f.Kind != objstore.FaultStaleList {
			return
		}
		for _, r := range c.w.rows() {
			c.w.put(c.w.m.rowKey(r), c.w.object(c.w.m.rowKey(r)))
		}
	},
	try: func(c *matrixCase) error {
		err := c.g.m.restoreAll(c.t.Context())
		if r := c.g.meta.Image().Restore(); r != nil && r.Phase < metapb.RestorePhase_RESTORE_PUBLISH {
			if _, seen := c.g.meta.Image().Topic("t"); seen {
				c.t.Error("visible before it is whole")
			}
		}
		return err
	},
	check: func(c *matrixCase) {
		c.g.same()
		c.g.listed()
		if pending, _, err := c.g.meta.PendingSegments(metastore.Cursor{}, 10); err != nil || len(pending) > 0 {
			c.t.Errorf("%d rows wait: %v", len(pending), err)
		}
	},
}

// matrixWorld is a world that has begun its life.
func matrixWorld(t *testing.T, cfg TierConfig, segmentBytes int32, size worldSize) *world {
	w := newSizedWorld(t, cfg, segmentBytes, nil)
	size(w)
	w.start()
	t.Cleanup(func() { w.stop() })
	if err := w.m.ClaimOwner(w.ctx); err != nil {
		t.Fatal(err)
	}
	return w
}

// nothingWaits: no row is on its way anywhere, and the journal has all.
func (w *world) nothingWaits() error {
	rows, _, err := w.meta.PendingSegments(metastore.Cursor{}, 10)
	out, _, _, jerr := w.meta.JournalPending(10)
	if err := errors.Join(err, jerr); err != nil {
		return err
	}
	if len(rows)+len(out) > 0 {
		return fmt.Errorf("%d rows wait, %d entries of the journal", len(rows), len(out))
	}
	return nil
}

// atRest comes to rest and compares everything.
func (w *world) atRest() {
	w.t.Helper()
	w.settle()
	w.m.indexes = newIndexCache()
	w.check()
	if err := w.nothingWaits(); err != nil {
		w.t.Error(err)
	}
}

// TestRestoreSnapshotsTurnedOnTheirWay: snapshots that were read with wrong bytes are no reason to give up what nothing else leads to.
func TestRestoreSnapshotsTurnedOnTheirWay(t *testing.T) {
	w, _ := newSource(t)
	w.settled(30)
	w.snapshot()
	first := newTarget(t, w, "new")
	first.restore(RestoreRequest{})
	second := newTarget(t, w, "newer")
	id := second.begin(RestoreRequest{Source: "new"})
	w.store.Add(objstore.Fault{Kind: objstore.FaultWrongBytes, Verb: objstore.VerbGet, Key: "/meta/snapshot/", Times: -1})
	for range matrixTries {
		if err := second.m.restoreAll(t.Context()); err == nil {
			t.Fatal("restored from damaged snapshots")
		}
	}
	w.store.Clear()
	for tries := 0; ; tries++ {
		err := second.m.restoreAll(t.Context())
		if err == nil {
			break
		}
		if tries > 2 {
			t.Fatal(err)
		}
	}
	if rep := second.report(id); len(rep.Findings) > 0 {
		t.Errorf("%v", rep.Findings)
	}
	second.same()
	second.listed()
}
