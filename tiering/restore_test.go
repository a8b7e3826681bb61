package tiering

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
	"varve/protocol/event"
	"varve/tests/s3server"
)

// fakeGroups are group offsets in memory. Partitions that are away do not answer.
type fakeGroups struct {
	parts   map[int32][]*metapb.GroupOffset
	away    map[int32]bool
	put     []*metapb.GroupOffset
	puts    int
	putFail error
}

func (g *fakeGroups) Partitions() int32 { return int32(len(g.parts)) }
func (g *fakeGroups) Offsets(_ context.Context, p int32) ([]*metapb.GroupOffset, bool) {
	return g.parts[p], !g.away[p]
}
func (g *fakeGroups) PutOffsets(_ context.Context, o []*metapb.GroupOffset) error {
	g.puts++
	if g.putFail != nil {
		return g.putFail
	}
	g.put = append(g.put, o...)
	return nil
}

func groupAt(group string, at int64) *metapb.GroupOffset {
	return &metapb.GroupOffset{Group: group, Topic: "t", Offset: at, LeaderEpoch: -1}
}

// newSource is a cluster with snapshots on a store that has the same clock.
func newSource(t *testing.T) (*world, *fakeGroups) {
	t.Helper()
	groups := &fakeGroups{parts: map[int32][]*metapb.GroupOffset{0: {groupAt("a", 5)}, 1: {groupAt("b", 1<<40)}}, away: map[int32]bool{}}
	w := newWorld(t, keepAll(), nil)
	w.useMem(w.clock.Now)
	w.opts.State, w.opts.Groups, w.opts.DeleteDeadlineMs = w.meta, groups, 50
	w.start()
	t.Cleanup(w.stop)
	return w, groups
}

// settled appends and uploads, with the journal in the bucket.
func (w *world) settled(n int) {
	w.t.Helper()
	w.append(n, 0)
	if err := w.part.log.Roll(); err != nil {
		w.t.Fatal(err)
	}
	for range 5 {
		if err := w.round(); err != nil {
			w.t.Fatal(err)
		}
	}
	if st, _ := w.meta.Tier(w.part.id, 0); st.End != w.part.log.End() {
		w.t.Fatalf("the tier ends at %d of %d", st.End, w.part.log.End())
	}
}

func (w *world) snapshot() {
	w.t.Helper()
	if done, err := w.m.snapshotOnce(w.ctx); err != nil || !done {
		w.t.Fatalf("snapshot: %v %v", done, err)
	}
}

// target is an empty cluster on the same bucket.
type target struct {
	t      *testing.T
	w      *world
	meta   *metastore.Store
	opts   Options
	groups *fakeGroups
	rec    *event.Recorder
	m      *Manager
}

func newTarget(t *testing.T, w *world, id string) *target {
	t.Helper()
	meta, err := metastore.Open(t.Context(), metastore.Options{Dir: t.TempDir(), NodeID: 1, ClusterID: id, Now: w.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = meta.Close(context.Background()) })
	g := &target{t: t, w: w, meta: meta, groups: &fakeGroups{}, rec: &event.Recorder{}}
	g.opts = w.opts
	g.opts.Meta, g.opts.State, g.opts.Groups, g.opts.ClusterID, g.opts.Events, g.opts.Failpoint = meta, meta, g.groups, id, g.rec.Emit, nil
	g.opts.Publish = g.publish
	g.start()
	return g
}

func (g *target) start() {
	g.t.Helper()
	var err error
	if g.m, err = New(g.opts); err != nil {
		g.t.Fatal(err)
	}
	m := g.m
	g.t.Cleanup(func() { m.fills.close(); m.cache.close() })
}

func (g *target) publish(ctx context.Context, t *metastore.RestoringTopic) error {
	r := g.meta.Image().Restore()
	c := &metapb.RestorePublish{TopicId: t.ID[:]}
	for _, e := range t.LeaderEpochs {
		c.Partitions = append(c.Partitions, &metapb.Partition{Replicas: []int32{1}, Dirs: [][]byte{make([]byte, 16)}, Isr: []int32{1}, Leader: 1, LeaderEpoch: e + 1})
	}
	_, err := g.meta.ProposeRestore(ctx, &metapb.RestoreCommand{RestoreId: r.ID[:], Body: &metapb.RestoreCommand_Publish{Publish: c}})
	return err
}

// begin asks for a restore.
func (g *target) begin(req RestoreRequest) string {
	g.t.Helper()
	if err := g.m.ClaimOwner(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
	id, err := g.m.StartRestore(g.t.Context(), req)
	if err != nil {
		g.t.Fatal(err)
	}
	return id.String()
}

// restore asks and works it off.
func (g *target) restore(req RestoreRequest) *RestoreReport {
	g.t.Helper()
	id := g.begin(req)
	if err := g.m.restoreAll(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
	return g.report(id)
}

func (g *target) report(id string) *RestoreReport {
	g.t.Helper()
	st, err := g.m.RestoreStatus(g.t.Context(), id)
	if err != nil || st.Report == nil || st.Phase != "" {
		g.t.Fatalf("%+v: %v", st, err)
	}
	return st.Report
}

// rows are the FINISHED rows of the world's partition.
func rowsOf(t *testing.T, meta *metastore.Store, id protocol.UUID) (out []metastore.RemoteSegment) {
	t.Helper()
	err := meta.SegmentsFrom(id, 0, 0, func(r metastore.RemoteSegment) bool { out = append(out, r); return true })
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// same holds the restored partition against the old one: state, rows but for their place, and every byte.
func (g *target) same() {
	g.t.Helper()
	id := g.w.part.id
	was, err1 := g.w.meta.Tier(id, 0)
	is, err2 := g.meta.Tier(id, 0)
	if err := errors.Join(err1, err2); err != nil {
		g.t.Fatal(err)
	}
	if fmt.Sprint(was) != fmt.Sprint(is) {
		g.t.Fatalf("state %+v, was %+v", is, was)
	}
	old := rowsOf(g.t, g.w.meta, id)
	for i, r := range rowsOf(g.t, g.meta, id) {
		o := old[i]
		o.Location, o.DeadlineMs, o.StateTimeMs = r.Location, r.DeadlineMs, r.StateTimeMs // a salvage knows no deadline
		if fmt.Sprint(o) != fmt.Sprint(r) {
			g.t.Fatalf("row %d is %+v, was %+v", i, r, o)
		}
	}
	g.reads(is)
}

// reads compares what the tier has with what was appended.
func (g *target) reads(st metastore.TierState) {
	g.t.Helper()
	var want, got []byte
	for _, b := range g.w.made {
		if b.BaseOffset() >= st.LogStart && b.BaseOffset() < st.End {
			want = append(want, b...)
		}
	}
	for off := st.LogStart; off < st.End; {
		res, err := g.m.Read(g.t.Context(), ReadRequest{TopicID: g.w.part.id, Offset: off, MaxBytes: 1000, MinOne: true})
		if err != nil {
			g.t.Fatalf("offset %d: %v", off, err)
		}
		got, off = append(got, joined(res)...), res.NextOffset
	}
	if !bytes.Equal(got, want) || len(want) == 0 {
		g.t.Fatalf("%d bytes read in [%d, %d), %d written", len(got), st.LogStart, st.End, len(want))
	}
}

// listed compares the bucket's segments with the rows of the target; what waits to be deleted may be gone.
func (g *target) listed() {
	g.t.Helper()
	pending, _, err := g.meta.PendingSegments(metastore.Cursor{}, 1<<20)
	if err != nil {
		g.t.Fatal(err)
	}
	waits := map[string]bool{}
	for _, r := range pending {
		waits[r.ID.String()] = true
	}
	objects, err := g.w.walk()
	if err != nil {
		g.t.Fatal(err)
	}
	rows := append(plainRows(rowsOf(g.t, g.meta, g.w.part.id)), plainRows(pending)...)
	for _, diff := range s3server.Differences(objects, rows, func(id string) bool { return waits[id] }) {
		g.t.Error(diff)
	}
}

// TestRestoreNewest: snapshot and journal after it; the same rows, offsets clamped, epochs and producer ids above.
func TestRestoreNewest(t *testing.T) {
	w, _ := newSource(t)
	w.settled(40)
	w.snapshot()
	w.settled(40) // in the journal only
	g := newTarget(t, w, "new")
	rep := g.restore(RestoreRequest{})
	g.same()
	g.listed()
	st, _ := w.meta.Tier(w.part.id, 0)
	if rep.Source != "cluster" || rep.Segments != st.Count || rep.JournalEntries == 0 || rep.SnapshotIndex == 0 || len(rep.Topics) != 1 {
		t.Fatalf("report %+v", rep)
	}
	if p := rep.Topics[0].Partitions[0]; p.End != st.End || p.Segments != st.Count || rep.OffsetsClamped != 1 || rep.GroupOffsets != 2 {
		t.Fatalf("report of the partition %+v, %d clamped", p, rep.OffsetsClamped)
	}
	slices.SortFunc(g.groups.put, func(a, b *metapb.GroupOffset) int { return strings.Compare(a.Group, b.Group) })
	if len(g.groups.put) != 2 || g.groups.put[0].Offset != 5 || g.groups.put[1].Offset != st.End {
		t.Fatalf("group offsets %v", g.groups.put)
	}
	img := g.meta.Image()
	topic, ok := img.Topic("t")
	if !ok || topic.ID != w.part.id || !topic.Held || topic.Partitions[0].LeaderEpoch <= w.part.epoch || img.Restore() != nil {
		t.Fatalf("topic %+v", topic)
	}
	if img.NextProducerID() < w.meta.Image().NextProducerID() || img.ClaimEpoch("cluster") != 2 || img.SnapshotIndex() <= img.RestoredIndex() {
		t.Fatalf("producer id %d, claim %d, snapshot %d after %d", img.NextProducerID(), img.ClaimEpoch("cluster"), img.SnapshotIndex(), img.RestoredIndex())
	}
	var owner *OwnerError
	if err := w.m.checkOwner(w.ctx); !errors.As(err, &owner) || owner.Have != "new" {
		t.Fatalf("the old cluster still owns its folder: %v", err)
	}
	if err := w.m.stillOwner(w.ctx); !errors.As(err, &owner) {
		t.Fatalf("the old cluster does not notice: %v", err)
	}
}

// TestRestoreAgain: what was restored can be restored once more, by the next cluster, objects staying where they are.
func TestRestoreAgain(t *testing.T) {
	w, _ := newSource(t)
	w.settled(30)
	w.snapshot()
	first := newTarget(t, w, "new")
	first.restore(RestoreRequest{})
	second := newTarget(t, w, "newer")
	if _, err := second.m.StartRestore(t.Context(), RestoreRequest{Source: "cluster"}); err == nil {
		t.Fatal("restored from a cluster that another one has taken over")
	}
	rep := second.restore(RestoreRequest{})
	if rep.Source != "new" || second.meta.Image().ClaimEpoch("cluster") != 3 || second.meta.Image().ClaimEpoch("new") != 2 {
		t.Fatalf("from %s, claims %v", rep.Source, second.meta.Image().Claims())
	}
	second.same()
	second.listed()
}

// TestRestoreFromHalfRestored: a cluster that was lost before its own snapshot held what it had taken in says where to restore from.
func TestRestoreFromHalfRestored(t *testing.T) {
	w, _ := newSource(t)
	w.settled(30)
	w.snapshot()
	first := newTarget(t, w, "new")
	first.restore(RestoreRequest{})
	if err := first.m.journalAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	heads, err := listSnapshots(w.ctx, w.store, "p", "new")
	if err != nil || len(heads) != 1 {
		t.Fatalf("%v %v", heads, err)
	}
	w.remove(snapKey("p", "new", heads[0].index))
	second := newTarget(t, w, "newer")
	second.begin(RestoreRequest{Source: "new"})
	var none *NoSourceError
	if err := second.m.restoreAll(t.Context()); !errors.As(err, &none) || !strings.Contains(none.Fix, "--cluster cluster") {
		t.Fatalf("%v", err)
	}
}

// TestRestoreTooFarBack: before the oldest snapshot and journal there are.
func TestRestoreTooFarBack(t *testing.T) {
	w, _ := newSource(t)
	w.opts.DeleteDelayMs = 1000
	w.stop()
	w.start()
	long := w.clock.Now()
	for range 3 {
		w.clock.advance(time.Hour)
		w.settled(10)
		w.snapshot()
	}
	_, err := DryRunRestore(w.ctx, w.store, "p", RestoreRequest{ToMs: long.UnixMilli()}, w.clock.Now().UnixMilli())
	var none *NoSourceError
	if !errors.As(err, &none) || !strings.Contains(none.Fix, "or later") {
		t.Fatalf("%v", err)
	}
}

// TestRestoreTwoDeletes: to a point between two deletes. What went before stays gone, what went after comes back with its objects.
func TestRestoreTwoDeletes(t *testing.T) {
	w, _ := newSource(t)
	w.opts.DeleteDelayMs = time.Hour.Milliseconds()
	w.stop()
	w.start()
	w.settled(60)
	w.snapshot()
	rows := w.rows()
	w.deleteBelow(rows[2].Next)
	between := w.clock.Now()
	w.clock.advance(time.Minute)
	w.deleteBelow(rows[5].Next)
	if st, _ := w.meta.Tier(w.part.id, 0); st.LogStart != rows[5].Next {
		t.Fatalf("the log starts at %d", st.LogStart)
	}
	g := newTarget(t, w, "new")
	rep := g.restore(RestoreRequest{ToMs: between.UnixMilli()})
	st, err := g.meta.Tier(w.part.id, 0)
	if err != nil || st.LogStart != rows[2].Next || st.Count != int64(len(rows)-3) {
		t.Fatalf("%+v after %v", st, rep)
	}
	g.reads(st)
	g.listed()
	late := newTarget(t, w, "late")
	late.m.o.ClusterID = "late"
	late.restore(RestoreRequest{Source: "cluster", TakeOver: true})
	late.same()
}

// deleteBelow moves the log start and gives the rows below it up, as DeleteRecords and the next retention do.
func (w *world) deleteBelow(off int64) {
	w.t.Helper()
	if err := w.m.advance(w.ctx, w.pt(), w.part.epoch, off); err != nil {
		w.t.Fatal(err)
	}
	for range 3 {
		if err := w.round(); err != nil {
			w.t.Fatal(err)
		}
	}
	w.clock.advance(time.Minute)
}

// TestRestoreDeletedTopic: it comes back only when the point in time is before its deletion.
func TestRestoreDeletedTopic(t *testing.T) {
	w, _ := newSource(t)
	w.settled(30)
	w.snapshot()
	w.clock.advance(time.Minute)
	before := w.clock.Now()
	w.clock.advance(time.Minute)
	_, err := w.meta.Propose(w.ctx, &metapb.Command{Body: &metapb.Command_DeleteTopic{DeleteTopic: &metapb.DeleteTopic{TopicId: w.part.id[:]}}})
	if err == nil {
		err = w.m.journalAll(w.ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	g := newTarget(t, w, "new")
	rep := g.restore(RestoreRequest{})
	if len(rep.Topics) != 0 || g.meta.Image().TopicCount() != 0 || rep.ToDelete == 0 {
		t.Fatalf("came back: %+v", rep)
	}
	g.listed()
	past := newTarget(t, w, "past")
	rep = past.restore(RestoreRequest{Source: "cluster", ToMs: before.UnixMilli(), TakeOver: true})
	if len(rep.Topics) != 1 {
		t.Fatalf("did not come back: %+v", rep)
	}
	st, err := past.meta.Tier(w.part.id, 0)
	if err != nil {
		t.Fatal(err)
	}
	past.reads(st)
}
