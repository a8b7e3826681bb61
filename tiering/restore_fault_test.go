package tiering

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
	"varve/tiering/objstore"
)

// TestRestoreCrashes crashes before every step of a restore, and goes on with a new Manager: the end is the same, and each failpoint is met.
func TestRestoreCrashes(t *testing.T) {
	w, _ := newSource(t)
	w.settled(30)
	w.snapshot()
	w.settled(20)
	met := map[string]bool{}
	source := "cluster"
	for i, fp := range restoreFailpoints {
		if fp == fpSnapPrune || fp == fpSnapPart { // of TestPrune and TestSnapshotParts
			met[fp] = true
			continue
		}
		g := newTarget(t, w, fmt.Sprintf("new%d", i))
		crashes := 0
		g.opts.Failpoint = func(name string) error {
			met[name] = true
			if name == fp && crashes < 2 {
				crashes++
				return errors.New("crash")
			}
			return nil
		}
		g.start()
		id := g.begin(RestoreRequest{Source: source})
		for tries := 0; ; tries++ {
			err := g.m.restoreAll(t.Context())
			if err == nil {
				break
			}
			if !crashed(err) || tries > 3 {
				t.Fatalf("%s: %v", fp, err)
			}
			g.start()
			if err := g.m.ClaimOwner(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if crashes == 0 {
			t.Errorf("%s was not met", fp)
		}
		rep := g.report(id)
		source = g.m.o.ClusterID
		if g.same(); len(rep.Findings) > 0 {
			t.Fatalf("%s: %v", fp, rep.Findings)
		}
		g.listed()
		if offsets := len(g.groups.put); offsets < 2 {
			t.Fatalf("%s: %d group offsets", fp, offsets)
		}
		g.m.o.Groups.(*fakeGroups).parts = map[int32][]*metapb.GroupOffset{0: {groupAt("a", 5)}, 1: {groupAt("b", 1<<40)}}
		if done, err := g.m.snapshotOnce(t.Context()); err != nil || !done {
			t.Fatalf("%s: the next cluster's snapshot: %v", fp, err)
		}
	}
	for fp := range met {
		if strings.HasPrefix(fp, "restore-") && !strings.HasPrefix(fp, fpRestorePhase) && !contains(restoreFailpoints, fp) {
			t.Errorf("%s is in no list", fp)
		}
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// TestRestoreMissingJournal: an object of the journal that is gone is noticed, and what to do is said. Before the hole, and by
// salvage, it works.
func TestRestoreMissingJournal(t *testing.T) {
	w, _ := newSource(t)
	w.settled(30)
	w.snapshot()
	w.clock.advance(time.Minute)
	before := w.clock.Now()
	w.clock.advance(time.Minute)
	w.settled(20)
	w.clock.advance(time.Minute)
	w.settled(20)
	var keys []string
	err := w.store.List(w.ctx, journalPrefix("p", "cluster"), "", func(o objstore.ObjectInfo) bool { keys = append(keys, o.Key); return true })
	if err != nil || len(keys) < 3 {
		t.Fatalf("%d journal objects: %v", len(keys), err)
	}
	w.remove(keys[len(keys)-2])
	g := newTarget(t, w, "new")
	g.begin(RestoreRequest{})
	var none *NoSourceError
	if err := g.m.restoreAll(t.Context()); !errors.As(err, &none) || !strings.Contains(none.Fix, "--salvage") || !permanent(err) {
		t.Fatalf("a hole in the journal: %v", err)
	}
	if err := g.m.AbortRestore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := g.m.restoreAll(t.Context()); err != nil || g.meta.Image().Restore() != nil {
		t.Fatalf("abort: %v", err)
	}
	g.restore(RestoreRequest{ToMs: before.UnixMilli()})
	s := newTarget(t, w, "salvage")
	s.restore(RestoreRequest{Source: "cluster", Salvage: true, TakeOver: true})
	s.same()
}

// TestRestoreDamagedSnapshot: the one before it and its journal lead to the same state.
func TestRestoreDamagedSnapshot(t *testing.T) {
	w, _ := newSource(t)
	w.settled(30)
	w.snapshot()
	w.settled(20)
	w.snapshot()
	heads, err := listSnapshots(w.ctx, w.store, "p", "cluster")
	if err != nil || len(heads) != 2 {
		t.Fatalf("%v %v", heads, err)
	}
	key := snapKey("p", "cluster", heads[1].index)
	b := w.object(key)
	b[len(b)-1] ^= 1
	w.put(key, b)
	g := newTarget(t, w, "new")
	id := g.begin(RestoreRequest{})
	for tries := 0; ; tries++ {
		if err := g.m.restoreAll(t.Context()); err == nil {
			break
		} else if tries > 3 {
			t.Fatal(err)
		}
	}
	rep := g.report(id)
	if rep.SnapshotIndex != heads[0].index || !strings.Contains(strings.Join(rep.Findings, " "), "damaged") {
		t.Fatalf("%+v", rep)
	}
	g.same()
}

// TestRestoreMissingObjects: gone at the beginning, at the end, in the middle.
func TestRestoreMissingObjects(t *testing.T) {
	w, _ := newSource(t)
	w.settled(80)
	w.snapshot()
	rows := w.rows()
	last := len(rows) - 1
	for _, i := range []int{0, 1, 4, last} {
		w.remove(w.m.rowKey(rows[i]))
	}
	g := newTarget(t, w, "new")
	rep := g.restore(RestoreRequest{})
	st, err := g.meta.Tier(w.part.id, 0)
	if err != nil || st.LogStart != rows[2].Base || st.End != rows[last].Base || rep.MissingObjects != 4 || len(rep.Findings) != 2 {
		t.Fatalf("%+v, %v: %v", st, rep.Findings, err)
	}
	if _, err := g.m.Read(t.Context(), ReadRequest{TopicID: w.part.id, Offset: rows[4].Base, MaxBytes: 100}); protocol.CodeOf(err) != protocol.KafkaStorageError {
		t.Fatalf("the hole in the middle: %v", err)
	}
}

// TestRestoreHolds: nothing of a restored topic goes before its release, whatever its config says; then all goes that should,
// in the old folder too.
func TestRestoreHolds(t *testing.T) {
	w, _ := newSource(t)
	w.settled(40)
	w.snapshot()
	g := newTarget(t, w, "new")
	g.restore(RestoreRequest{})
	topic, _ := g.meta.Image().Topic("t")
	part := &testPart{id: w.part.id, epoch: topic.Partitions[0].LeaderEpoch, log: w.part.log, limit: -1, cfg: TierConfig{RetentionMs: -1, RetentionBytes: 1, LocalRetentionMs: -1, LocalRetentionBytes: -1}}
	g.m.Lead(part)
	pt := g.m.parts[partKey{part.id, 0}]
	round := func() {
		t.Helper()
		err := errors.Join(g.m.retainPart(w.ctx, pt), g.m.journalAll(w.ctx), g.m.collect(w.ctx))
		if err != nil && !errors.Is(err, context.DeadlineExceeded) { // a batch has 50 ms; the next round does it again
			t.Fatal(err)
		}
		w.clock.advance(time.Hour)
	}
	before := rowsOf(t, g.meta, part.id)
	for range 3 {
		round()
	}
	if after := rowsOf(t, g.meta, part.id); len(after) != len(before) || len(before) < 4 {
		t.Fatalf("%d segments of %d are left", len(after), len(before))
	}
	names, err := g.m.ReleaseRestored(w.ctx, "t*")
	if err != nil || len(names) != 1 {
		t.Fatalf("%v %v", names, err)
	}
	for range 10 {
		round()
	}
	if after := rowsOf(t, g.meta, part.id); len(after) > 1 {
		t.Fatalf("%d segments of %d are left after the release", len(after), len(before))
	}
	g.listed()
	pending, _, err := g.meta.PendingSegments(metastore.Cursor{}, 10)
	if err != nil || len(pending) != 0 {
		t.Fatalf("%d rows wait: %v", len(pending), err)
	}
}
