package tiering

import (
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

// segKey is a key: offsets, leader epoch, generation.
func segKey(base, next int64, epoch int32, generation uint32) SegmentKey {
	return SegmentKey{Base: base, Next: next, LeaderEpoch: epoch, Generation: generation, ID: protocol.UUID{byte(base), byte(next), byte(epoch), byte(generation)}}
}

func TestChain(t *testing.T) {
	for name, c := range map[string]struct {
		all  []SegmentKey
		want string
	}{
		"empty":                       {nil, ""},
		"in a row":                    {[]SegmentKey{segKey(10, 20, 1, 0), segKey(0, 10, 1, 0), segKey(20, 30, 2, 0)}, "0-10/1/0 10-20/1/0 20-30/2/0"},
		"twice the same offsets":      {[]SegmentKey{segKey(0, 10, 1, 0), segKey(0, 10, 2, 0), segKey(10, 20, 2, 0)}, "0-10/2/0 10-20/2/0"},
		"merged":                      {[]SegmentKey{segKey(0, 10, 1, 0), segKey(10, 20, 1, 0), segKey(0, 20, 1, 1), segKey(20, 30, 1, 0)}, "0-20/1/1 20-30/1/0"},
		"an attempt rolled elsewhere": {[]SegmentKey{segKey(0, 15, 1, 0), segKey(0, 10, 1, 0), segKey(10, 20, 1, 0)}, "0-10/1/0 10-20/1/0"},
		"a deposed leader's late put": {[]SegmentKey{segKey(0, 10, 1, 0), segKey(10, 50, 1, 0), segKey(10, 20, 2, 0)}, "0-10/1/0 10-20/2/0"},
		"behind a gap":                {[]SegmentKey{segKey(0, 10, 1, 0), segKey(20, 30, 1, 0), segKey(30, 40, 1, 0)}, "20-30/1/0 30-40/1/0"},
		"merged, then merged again":   {[]SegmentKey{segKey(0, 10, 1, 0), segKey(10, 20, 1, 0), segKey(0, 20, 1, 1), segKey(20, 40, 1, 1), segKey(0, 40, 1, 2)}, "0-40/1/2"},
		"half of the merged is gone":  {[]SegmentKey{segKey(10, 20, 1, 0), segKey(0, 20, 1, 1)}, "0-20/1/1"},
	} {
		var got []string
		at := int64(-1)
		for _, k := range chain(c.all) {
			if at >= 0 && k.Base != at {
				t.Errorf("%s: %d after %d", name, k.Base, at)
			}
			at = k.Next
			got = append(got, fmt.Sprintf("%d-%d/%d/%d", k.Base, k.Next, k.LeaderEpoch, k.Generation))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %s, not %s", name, s, c.want)
		}
	}
}

// TestSalvageLeftovers: an attempt that was given up, and an object that is damaged, do not stop the others; nothing is read twice.
func TestSalvageLeftovers(t *testing.T) {
	w, _ := newSource(t)
	w.settled(60)
	rows := w.rows()
	last := rows[len(rows)-1]
	abandoned := rows[3]
	abandoned.ID, abandoned.LeaderEpoch = protocol.NewUUID(), 0
	w.put(w.m.rowKey(abandoned), []byte("no segment at all"))
	key := w.m.rowKey(last)
	b := w.object(key)
	b[len(b)-1] ^= 1
	w.put(key, b)
	g := newTarget(t, w, "new")
	rep := g.restore(RestoreRequest{Salvage: true})
	st, err := g.meta.Tier(w.part.id, 0)
	if err != nil || st.End != last.Base || st.LogStart != 0 || st.Count != int64(len(rows)-1) || len(rep.Findings) == 0 {
		t.Fatalf("%+v, %v: %v", st, rep.Findings, err)
	}
	g.reads(st)
	if g.meta.Image().ClaimEpoch("cluster") != 2 || !strings.Contains(strings.Join(rep.Lost, " "), "group offsets") {
		t.Fatalf("claim %d, lost %v", g.meta.Image().ClaimEpoch("cluster"), rep.Lost)
	}
}

// TestSalvageTwoTopicsOfOneName: the one written to last has the name.
func TestSalvageTwoTopicsOfOneName(t *testing.T) {
	w, _ := newSource(t)
	w.settled(10)
	first := w.part.id
	_, err := w.meta.Propose(w.ctx, &metapb.Command{Body: &metapb.Command_DeleteTopic{DeleteTopic: &metapb.DeleteTopic{TopicId: first[:]}}})
	if err != nil {
		t.Fatal(err)
	}
	w.m.Unlead(first, 0)
	w.clock.advance(time.Second)
	w.made = nil
	w.openPart(keepAll())
	w.m.Lead(w.part)
	w.settled(20)
	g := newTarget(t, w, "new")
	rep := g.restore(RestoreRequest{Salvage: true})
	topic, ok := g.meta.Image().Topic("t")
	if !ok || topic.ID != w.part.id || len(rep.Topics) != 1 || !strings.Contains(strings.Join(rep.Findings, " "), first.String()) {
		t.Fatalf("%+v: %v", topic, rep.Findings)
	}
	g.same()
}

// TestPickCluster: with several folders, the choice is the caller's.
func TestPickCluster(t *testing.T) {
	store := objstore.NewMem(nil)
	put := func(key, body string) {
		if _, err := store.Put(t.Context(), key, objstore.BytesBody([]byte(body)), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	pick := func(asked string, takeOver bool) (string, error) {
		return PickCluster(t.Context(), store, "p", asked, "me", takeOver)
	}
	var none *NoSourceError
	var owner *OwnerError
	if _, err := pick("", false); !errors.As(err, &none) {
		t.Fatalf("an empty bucket: %v", err)
	}
	put("p/me/owner", `{"version":1,"cluster_id":"me","epoch":1}`)
	put("p/a/owner", `{"version":1,"cluster_id":"a","epoch":1}`)
	put("p/a-folder/of-somebody", "x")
	put("p/taken/owner", `{"version":1,"cluster_id":"a","epoch":2}`)
	if got, err := pick("", false); got != "a" || err != nil {
		t.Fatalf("%s %v", got, err)
	}
	if _, err := pick("taken", false); !errors.As(err, &owner) {
		t.Fatalf("taken over by another: %v", err)
	}
	if got, err := pick("taken", true); got != "taken" || err != nil {
		t.Fatalf("%s %v", got, err)
	}
	if _, err := pick("b", false); !errors.As(err, &none) || !strings.Contains(none.Fix, "a, taken (taken over by a)") {
		t.Fatalf("not there: %v", err)
	}
	put(journalKey("p", "b", 1), "x")
	if _, err := pick("", false); !errors.As(err, &none) || !strings.Contains(none.Fix, "--cluster") {
		t.Fatalf("two: %v", err)
	}
}

const benchRows = 100_000

// benchSource is a bucket with the snapshot of a cluster that has one partition of benchRows segments.
func benchSource(b *testing.B, id protocol.UUID) objstore.Store {
	store := objstore.NewMem(nil)
	put := func(key string, body []byte) {
		if _, err := store.Put(b.Context(), key, objstore.BytesBody(body), objstore.PutOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	records := []*metapb.SnapshotRecord{
		{Body: &metapb.SnapshotRecord_Cluster{Cluster: &metapb.SnapshotCluster{ClusterId: "old", Index: 5}}},
		{Body: &metapb.SnapshotRecord_Locations{Locations: &metapb.SnapshotLocations{Locations: []string{"mem:"}}}},
		{Body: &metapb.SnapshotRecord_Topic{Topic: &metapb.SnapshotTopic{TopicId: id[:], Name: "t", LeaderEpochs: []int32{1}, Replication: 1}}},
		{Body: &metapb.SnapshotRecord_Partition{Partition: &metapb.SnapshotPartition{TopicId: id[:], Tier: (&metastore.TierState{End: 10 * benchRows}).Row()}}},
	}
	var packed []byte
	for i := range int64(benchRows) {
		s := metastore.RemoteSegment{ID: protocol.NewUUID(), TopicID: id, Base: 10 * i, Next: 10*i + 10, State: metastore.SegFinished, ObjectBytes: 1, LogBytes: 1}
		packed = metastore.PackSegments(packed, &s, func(string) uint32 { return 0 })
		put(segmentKeyIn("p", "old", &s), []byte("x"))
		if i%1000 == 999 {
			records = append(records, &metapb.SnapshotRecord{Body: &metapb.SnapshotRecord_Segments{Segments: &metapb.SnapshotSegments{TopicId: id[:], Rows: packed}}})
			packed = nil
		}
	}
	objects := encodeSnapshot(b, records)
	for i, o := range objects[:len(objects)-1] {
		put(snapPartKey("p", "old", 5, protocol.UUID{1, 2, 3}, i), o)
	}
	put(snapKey("p", "old", 5), objects[len(objects)-1])
	put(ownerKey("p", "old"), []byte(`{"version":1,"cluster_id":"old","epoch":1,"delete_deadline_ms":1}`)) // else each round waits for a minute
	return store
}

// BenchmarkRestore takes in one partition of 100,000 segments.
func BenchmarkRestore(b *testing.B) {
	id := protocol.UUID{1}
	store := benchSource(b, id)
	for b.Loop() {
		b.StopTimer()
		meta, err := metastore.Open(b.Context(), metastore.Options{Dir: b.TempDir(), NodeID: 1, ClusterID: protocol.NewUUID().String()})
		if err != nil {
			b.Fatal(err)
		}
		m, err := New(Options{Store: store, Location: "mem:", Prefix: "p", Meta: meta, State: meta, ClusterID: meta.ClusterID(), BrokerID: 1, DeleteDeadlineMs: 1,
			Publish: (&target{meta: meta}).publish})
		if err == nil {
			err = m.ClaimOwner(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if _, err := m.StartRestore(b.Context(), RestoreRequest{Source: "old", TakeOver: true}); err != nil {
			b.Fatal(err)
		}
		if err := m.restoreAll(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if st, err := meta.Tier(id, 0); err != nil || st.Count != benchRows {
			b.Fatalf("%+v: %v", st, err)
		}
		_ = meta.Close(b.Context())
		b.StartTimer()
	}
	b.ReportMetric(benchRows*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
