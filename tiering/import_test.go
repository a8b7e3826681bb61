package tiering

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"varve/broker/commitlog"
	"varve/metastore"
	"varve/protocol"
	"varve/protocol/record"
	"varve/tiering/objstore"
)

// oldBroker writes a log directory with partitions 0 to n-1 of topic "old", stopped in order. Partition n-1 is empty. It
// returns the bytes of each partition's log.
func oldBroker(t *testing.T, n int32) (dir string, logs [][]byte) {
	t.Helper()
	dir = t.TempDir()
	m, err := commitlog.OpenManager(commitlog.ManagerOptions{Dir: dir, NodeID: 1, ClusterID: "old"})
	if err != nil {
		t.Fatal(err)
	}
	cfg := commitlog.DefaultConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 2000, 500
	id := protocol.NewUUID()
	for p := range n {
		l, err := m.Create("old", id, p, cfg)
		if err != nil {
			t.Fatal(err)
		}
		var made []byte
		for i := range 60 * int(min(1, n-1-p)) {
			codec := record.Codec(i % 5)
			bl := record.NewBuilder(record.Options{Codec: codec, Producer: &record.Producer{ID: 7, Epoch: 0, BaseSequence: int32(i * 2)}})
			for r := range 2 {
				if err := bl.Add(1_700_000_000_000+int64(i), fmt.Appendf(nil, "k%d", r), bytes.Repeat([]byte{byte(i)}, 100)); err != nil {
					t.Fatal(err)
				}
			}
			b, err := bl.Batch()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.AppendAsLeader(b, int32(i/30), commitlog.OriginClient); err != nil {
				t.Fatal(err)
			}
			made = append(made, b...)
		}
		logs = append(logs, made)
	}
	if err := m.Close(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	return dir, logs
}

// importAll imports all partitions and returns what it was told.
func importAll(t *testing.T, store objstore.Store, dir string) (all []ImportedPartition, err error) {
	t.Helper()
	im := &Import{Store: store, Prefix: "p", ID: "import-1", Configs: map[string]string{"remote.storage.enable": "true"}, Now: func() time.Time { return time.UnixMilli(1_700_000_100_000) }}
	if err := im.Open(t.Context()); err != nil {
		return nil, err
	}
	d, err := commitlog.OpenForeign(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Partitions {
		done, err := im.Partition(t.Context(), d, p, p.Topic)
		if err != nil {
			return all, err
		}
		all = append(all, done)
	}
	return all, nil
}

// checkImported reads the objects that the journal names and compares them with what was written; nothing else is there.
func checkImported(t *testing.T, store objstore.Store, logs [][]byte) {
	t.Helper()
	im := &Import{Store: store, Prefix: "p", ID: "import-1"}
	if err := im.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	src := &restoreSource{store: store, prefix: "p", cluster: "import-1", rep: newRestoreReport("import-1")}
	if err := src.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	named := 0
	for p, want := range logs {
		key := partKey{im.TopicID("old"), int32(p)}
		part := &sourcePartition{key: key, rows: newPartRows(key, t.TempDir(), 2)}
		defer part.rows.close()
		if err := src.tail.each(key, part.apply); err != nil {
			t.Fatal(err)
		}
		var finished []metastore.RemoteSegment
		err := part.rows.windows(func(rows []metastore.RemoteSegment, _, _ int64) error {
			finished = append(finished, rows...)
			return nil
		})
		if _, known := src.tail.last[key]; err != nil || !known {
			t.Fatalf("the journal does not know partition %d: %v", p, err)
		}
		var got bytes.Buffer
		next := int64(0)
		for _, r := range finished {
			seg, err := OpenSegment(objectReader{t.Context(), store, segmentKeyIn("p", "import-1", &r)}, r.ObjectBytes)
			if err == nil {
				err = seg.WriteLog(&got)
			}
			if err != nil || r.Base != next || seg.Footer.Topic != "old" || seg.Footer.Partition != int32(p) {
				t.Fatalf("partition %d, segment from %d (expected %d): %v", p, r.Base, next, err)
			}
			next, named = r.Next, named+1
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("partition %d: %d bytes, not the %d that were written", p, got.Len(), len(want))
		}
	}
	err := store.List(t.Context(), "", "", func(o objstore.ObjectInfo) bool {
		if _, err := ParseSegmentKey(o.Key); err == nil {
			named--
		}
		return true
	})
	if err != nil || named != 0 {
		t.Errorf("%d more objects named than there are, %v", named, err)
	}
	if err := (&sourceWalk{s: src, sink: &countingSink{rep: src.rep}, ctx: t.Context()}).show(); err != nil {
		t.Fatal(err)
	}
	if topic := src.topics[im.TopicID("old")]; topic == nil || topic.name != "old" || len(topic.epochs) != len(logs) || src.nextPID != 8 {
		t.Errorf("topic %+v, next producer id %d", topic, src.nextPID)
	}
}

// objectReader reads an object at any place.
type objectReader struct {
	ctx   context.Context
	store objstore.Store
	key   string
}

func (r objectReader) ReadAt(p []byte, off int64) (int, error) {
	m := Manager{o: Options{Store: r.store}}
	b, err := m.getRange(r.ctx, r.key, off, int64(len(p)), "test")
	return copy(p, b), err
}

// TestImport: a directory goes into the bucket whole, once, and again without being uploaded again.
func TestImport(t *testing.T) {
	dir, logs := oldBroker(t, 4)
	store := objstore.NewMem(nil)
	first, err := importAll(t, store, dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range first {
		empty := i == 3
		if p.Already || p.End != 120*int64(min(1, 3-i)) || p.Records != p.End || (p.Segments > 3) == empty || p.UploadedObjects != int64(p.Segments) || p.LeftOut != 0 {
			t.Errorf("%+v", p)
		}
	}
	checkImported(t, store, logs)
	again, err := importAll(t, store, dir)
	if err != nil || len(again) != 4 || !again[0].Already || again[0].UploadedObjects != 0 {
		t.Fatal(again, err)
	}
	checkImported(t, store, logs)
	m := &Import{Store: store, Prefix: "p", ID: "no/id"}
	if err := m.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "letters") {
		t.Error(err)
	}
	if _, _, err := takeOver(t.Context(), store, "p", "import-1", "somebody"); err != nil {
		t.Fatal(err)
	}
	var owner *OwnerError
	if _, err := importAll(t, store, dir); !errors.As(err, &owner) {
		t.Errorf("after a restore: %v", err)
	}
}

// TestImportFaults: whatever the store does to one request, the next run finishes the work.
func TestImportFaults(t *testing.T) {
	for verb, kinds := range map[objstore.Verb][]objstore.FaultKind{
		objstore.VerbPut:  {objstore.FaultError, objstore.FaultThrottle, objstore.FaultLostReply},
		objstore.VerbHead: {objstore.FaultError},
		objstore.VerbList: {objstore.FaultError, objstore.FaultStaleList},
		objstore.VerbGet:  {objstore.FaultError, objstore.FaultWrongBytes, objstore.FaultTruncated},
	} {
		for _, kind := range kinds {
			t.Run(fmt.Sprintf("%s-%d", verb, kind), func(t *testing.T) {
				t.Parallel()
				dir, logs := oldBroker(t, 2)
				ended := false
				for skip := 0; skip < 60 && !ended; skip++ {
					store := objstore.NewFaulty(objstore.NewMem(nil), 1)
					fault := objstore.Fault{Kind: kind, Verb: verb, Skip: skip}
					if kind == objstore.FaultStaleList {
						fault.Times = 3
					}
					store.Add(fault)
					_, err := importAll(t, store, dir)
					ended = store.Calls(verb) <= skip
					store.Clear()
					for range 3 {
						if _, err = importAll(t, store, dir); err == nil {
							break
						}
					}
					if err != nil {
						t.Fatal(err)
					}
					checkImported(t, store, logs)
				}
			})
		}
	}
}

// TestImportBesideAnother: two importers that append to one journal at once both get in.
func TestImportBesideAnother(t *testing.T) {
	dir, logs := oldBroker(t, 3)
	store := objstore.NewMem(nil)
	ims := make([]*Import, 2)
	for i := range ims {
		ims[i] = &Import{Store: store, Prefix: "p", ID: "import-1"}
		if err := ims[i].Open(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	d, err := commitlog.OpenForeign(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range d.Partitions {
		if _, err := ims[i%2].Partition(t.Context(), d, p, p.Topic); err != nil {
			t.Fatal(err)
		}
	}
	checkImported(t, store, logs)
}

// TestImportDamage: a damaged directory is refused, names the place, and leaves no journal entry of that partition.
func TestImportDamage(t *testing.T) {
	dir, _ := oldBroker(t, 2)
	files, err := filepath.Glob(filepath.Join(dir, "old-0", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(files[2])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(files[2], b, 0o600); err != nil {
		t.Fatal(err)
	}
	store := objstore.NewMem(nil)
	if _, err := importAll(t, store, dir); !isCorrupt(err) || !strings.Contains(err.Error(), files[2]) {
		t.Fatal(err)
	}
	im := &Import{Store: store, Prefix: "p", ID: "import-1"}
	if err := im.Open(t.Context()); err != nil || im.through != 0 {
		t.Error(im.through, err)
	}
}

// TestImportThenRestore: a cluster takes the imported topic in, and reads it as the old broker wrote it.
func TestImportThenRestore(t *testing.T) {
	w, _ := newSource(t)
	dir, logs := oldBroker(t, 3)
	done, err := importAll(t, w.store, dir)
	if err != nil {
		t.Fatal(err)
	}
	g := newTarget(t, w, "new")
	g.restore(RestoreRequest{Source: "import-1"})
	topic, ok := g.meta.Image().Topic("old")
	if !ok || topic.ID != done[0].TopicID || len(topic.Partitions) != 3 || topic.Configs["remote.storage.enable"] != "true" || topic.Partitions[0].LeaderEpoch <= 1 {
		t.Fatalf("%+v", topic)
	}
	for p, want := range logs {
		st, err := g.meta.Tier(topic.ID, int32(p))
		if err != nil || st.End != done[p].End {
			t.Fatalf("partition %d: %+v, %v", p, st, err)
		}
		var got []byte
		for off := st.LogStart; off < st.End; {
			res, err := g.m.Read(t.Context(), ReadRequest{TopicID: topic.ID, Partition: int32(p), Offset: off, MaxBytes: 1000, MinOne: true})
			if err != nil {
				t.Fatal(err)
			}
			got, off = append(got, joined(res)...), res.NextOffset
		}
		if !bytes.Equal(got, want) {
			t.Errorf("partition %d: %d bytes, not %d", p, len(got), len(want))
		}
	}
	if id := g.meta.Image().NextProducerID(); id <= 7 {
		t.Errorf("producer ids go on at %d", id)
	}
	rep, err := g.m.Verify(t.Context(), VerifyOptions{Level: VerifyData})
	if err != nil || rep.Findings != 0 || rep.Segments != int64(done[0].Segments+done[1].Segments) {
		t.Errorf("%+v %v", rep, err)
	}
}
