package metastore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"varve/metastore/metapb"
	"varve/protocol"
	"varve/protocol/event"
)

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func openTest(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeTest(t, s) })
	return s
}

func closeTest(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(context.Background()); err != nil {
		t.Errorf("close: %v", err)
	}
}

func propose(t *testing.T, s *Store, cmd *metapb.Command) Result {
	t.Helper()
	r, err := s.Propose(testContext(t), cmd)
	if err != nil {
		t.Fatalf("%T: %v", cmd.Body, err)
	}
	return r
}

// randomRun proposes n commands, refusals and all.
func randomRun(t *testing.T, s *Store, seed uint64, n int) {
	t.Helper()
	g := newGenerator(seed, s.fsm)
	for range n {
		if _, err := s.Propose(testContext(t), g.command()); protocol.CodeOf(err) == protocol.NotController {
			t.Fatal(err)
		}
	}
}

func TestOpenIsFast(t *testing.T) {
	start := time.Now()
	s := openTest(t, Options{Dir: t.TempDir(), NodeID: 7})
	took := time.Since(start)
	t.Logf("open took %v", took)
	if s.ClusterID() == "" || s.Image().Controller() != 7 || !s.IsController() {
		t.Fatalf("cluster %q controller %d", s.ClusterID(), s.Image().Controller())
	}
	if took > 2*time.Second { // 30 ms on an idle machine
		t.Fatalf("open took %v", took)
	}
}

// TestHardStop copies the folder while the store runs, as a stopped process would leave it, at many points of a run, and starts from the copy.
func TestHardStop(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, Options{Dir: dir, NodeID: 1, snapshotEvery: 20, trailingLogs: 10})
	for round := range 6 {
		randomRun(t, s, uint64(round), 15)
		if round%2 == 1 { // some of it is in tables, some only in the log
			if err := flush(s.fsm.handle.db); err != nil {
				t.Fatal(err)
			}
		}
		left := t.TempDir()
		copyDir(t, dir, left)
		again, err := Open(testContext(t), Options{Dir: left, NodeID: 1})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := dump(t, again.fsm), dump(t, s.fsm); got != want {
			t.Fatalf("round %d: started with\n%s\nwas\n%s", round, got, want)
		}
		if got, want := describe(again.Image()), describe(s.Image()); got != want {
			t.Fatalf("round %d: started with\n%s\nwas\n%s", round, got, want)
		}
		closeTest(t, again)
	}
}

// copyDir copies without temporary snapshots, which may be renamed meanwhile.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := copyTree(from, to); err != nil {
		t.Fatal(err)
	}
}

func copyTree(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		src, dst := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		switch {
		case strings.HasSuffix(e.Name(), ".tmp"):
		case e.IsDir():
			if err := os.MkdirAll(dst, 0o755); err != nil {
				return err
			}
			if err := copyTree(src, dst); err != nil {
				return err
			}
		default:
			b, err := os.ReadFile(src)
			if err == nil {
				err = os.WriteFile(dst, b, 0o644)
			}
			if err != nil && !os.IsNotExist(err) {
				return err
			}
		}
	}
	return nil
}

func TestRestartKeepsEverything(t *testing.T) {
	o := Options{Dir: t.TempDir(), NodeID: 1}
	s := openTest(t, o)
	randomRun(t, s, 1, 60)
	rows, image, cluster, server := dump(t, s.fsm), describe(s.Image()), s.ClusterID(), s.ServerID()
	closeTest(t, s)
	if _, err := s.Propose(testContext(t), createTopicCmd("late", 1)); protocol.CodeOf(err) != protocol.NotController {
		t.Fatalf("propose after close: %v", err)
	}
	if _, err := s.Tier(uid("x"), 0); err == nil {
		t.Fatal("read after close")
	}
	again := openTest(t, o)
	if dump(t, again.fsm) != rows || describe(again.Image()) != image || again.ClusterID() != cluster || again.ServerID() != server {
		t.Fatal("state differs after a restart")
	}
}

func TestForeignFolders(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, Options{Dir: dir, NodeID: 1, ClusterID: "one"})
	if _, err := Open(testContext(t), Options{Dir: dir, NodeID: 1}); err == nil {
		t.Fatal("the same folder opened twice")
	}
	closeTest(t, s)
	var foreign *ForeignError
	if _, err := Open(testContext(t), Options{Dir: dir, NodeID: 2}); !errors.As(err, &foreign) || foreign.What != "node id" {
		t.Fatalf("node 2: %v", err)
	}
	if _, err := Open(testContext(t), Options{Dir: dir, NodeID: 1, ClusterID: "two"}); !errors.As(err, &foreign) || foreign.What != "cluster id" {
		t.Fatalf("cluster two: %v", err)
	}
	path := filepath.Join(dir, stampFile)
	stamp, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	open := func(text string) error {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Open(testContext(t), Options{Dir: dir, NodeID: 1})
		return err
	}
	var newer *NewerError
	if err := open(strings.Replace(string(stamp), "format=1", "format=2", 1)); !errors.As(err, &newer) {
		t.Fatalf("format 2: %v", err)
	}
	var corrupt *protocol.CorruptionError
	for _, text := range []string{"", "x", stampMagic + "\nformat=1\n", stampMagic + "\nformat=x\n", stampMagic + "\nnothing\n"} {
		if err := open(text); !errors.As(err, &corrupt) {
			t.Fatalf("stamp %q: %v", text, err)
		}
	}
}

func TestNewerFeatureLevel(t *testing.T) {
	o := Options{Dir: t.TempDir(), NodeID: 1}
	s := openTest(t, o)
	closeTest(t, s)
	f, err := openFolder(vfs.Default, o.Dir, 1, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := openPebble(f, stateName(1), storageLog{})
	if err != nil {
		t.Fatal(err)
	}
	b, _ := rowEncoding.Marshal(&metapb.ClusterRow{ClusterId: f.stamp.cluster, FeatureLevel: FeatureLevel + 1})
	if err := errors.Join(h.db.Set([]byte{nsCluster}, b, pebble.NoSync), h.db.Flush(), h.close(), f.close()); err != nil {
		t.Fatal(err)
	}
	var newer *NewerError
	if _, err := Open(testContext(t), o); !errors.As(err, &newer) || newer.What != "feature level" {
		t.Fatalf("open: %v", err)
	}
}

// TestSnapshotWithoutRestore is the crash between the two steps of an installed snapshot: it is in the snapshot store, but Restore was never
// called.
func TestSnapshotWithoutRestore(t *testing.T) {
	behind := Options{Dir: t.TempDir(), NodeID: 1, ClusterID: "c"}
	s := openTest(t, behind)
	randomRun(t, s, 1, 10)
	conf := s.raft.GetConfiguration()
	if err := conf.Error(); err != nil {
		t.Fatal(err)
	}
	closeTest(t, s)

	ahead := openTest(t, Options{Dir: t.TempDir(), NodeID: 2, ClusterID: "c"})
	randomRun(t, ahead, 2, 80)
	want := dump(t, ahead.fsm)

	snaps, err := raft.NewFileSnapshotStore(behind.Dir, 2, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	_, trans := raft.NewInmemTransport("")
	sink, err := snaps.Create(raft.SnapshotVersionMax, ahead.Image().Index()+5, 9, conf.Configuration(), 1, trans)
	if err != nil {
		t.Fatal(err)
	}
	snap, err := ahead.fsm.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if err := snap.Persist(sink); err != nil {
		t.Fatal(err)
	}
	snap.Release()

	var rec event.Recorder
	behind.Events = rec.Emit
	again := openTest(t, behind)
	if rec.Count("metastore_restored") != 1 || dump(t, again.fsm) != want {
		t.Fatalf("restored %d times, state equal: %v", rec.Count("metastore_restored"), dump(t, again.fsm) == want)
	}
	propose(t, again, createTopicCmd("after", 1))
	closeTest(t, again)
	third := openTest(t, behind)
	if _, ok := third.Image().Topic("after"); !ok || rec.Count("metastore_restored") != 1 {
		t.Fatal("what came after the restore is gone, or it was restored again")
	}
}

func TestSubscribe(t *testing.T) {
	s := openTest(t, Options{Dir: t.TempDir(), NodeID: 1})
	propose(t, s, createTopicCmd("early", 1))
	var mu sync.Mutex
	var seen []string
	last := newImage()
	cancel := s.Subscribe(func(d Delta) {
		mu.Lock()
		defer mu.Unlock()
		if describe(d.Old) != describe(last) {
			t.Errorf("delta does not continue the last one")
		}
		last = d.New
		for _, c := range d.Topics {
			switch {
			case c.Old == nil:
				seen = append(seen, "+"+c.Name())
			case c.New == nil:
				seen = append(seen, "-"+c.Name())
			default:
				seen = append(seen, "~"+c.Name())
			}
		}
	})
	propose(t, s, createTopicCmd("a", 2))
	waitFor(t, func() bool { mu.Lock(); defer mu.Unlock(); return last.TopicCount() == 2 })
	propose(t, s, deleteTopicCmd("a"))
	waitFor(t, func() bool { mu.Lock(); defer mu.Unlock(); return last.TopicCount() == 1 })
	mu.Lock()
	if got := strings.Join(seen, " "); got != "+early +a -a" {
		t.Errorf("saw %s", got)
	}
	mu.Unlock()
	cancel()
	cancel()
	before := s.Image().Index()
	propose(t, s, createTopicCmd("b", 1))
	mu.Lock()
	defer mu.Unlock()
	if last.Index() > before {
		t.Error("told after cancel")
	}
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain")
		}
	}
}

func TestJournalSwitchAtStart(t *testing.T) {
	o := Options{Dir: t.TempDir(), NodeID: 1, NoJournal: true}
	s := openTest(t, o)
	propose(t, s, createTopicCmd("a", 1))
	if entries, _, _, err := s.JournalPending(10); err != nil || len(entries) != 0 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	closeTest(t, s)
	o.NoJournal = false
	s = openTest(t, o)
	entries, first, last, err := s.JournalPending(10)
	if err != nil || len(entries) != 1 || first != last || entries[0].Records[0].GetRestated() == nil {
		t.Fatalf("entries %v, %v", entries, err)
	}
	if err := s.JournalClear(testContext(t), last); err != nil {
		t.Fatal(err)
	}
	if entries, _, _, _ := s.JournalPending(10); len(entries) != 0 || s.JournaledThrough() != last {
		t.Fatalf("%d entries after clearing, through %d", len(entries), s.JournaledThrough())
	}
}

// TestJournalPendingIsBounded: entries are read in portions, whatever they hold, and none is passed over.
func TestJournalPendingIsBounded(t *testing.T) {
	s := openTest(t, Options{Dir: t.TempDir(), NodeID: 1})
	const topics, valueBytes = 12, 1 << 20
	for i := range topics {
		c := createTopicCmd(fmt.Sprint("t", i), 1)
		c.GetCreateTopic().Configs = map[string]string{"k": strings.Repeat("v", valueBytes)}
		propose(t, s, c)
	}
	seen, portions := 0, 0
	for {
		entries, _, last, err := s.JournalPending(1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			break
		}
		bytes := 0
		for _, e := range entries {
			bytes += proto.Size(e)
		}
		if bytes > maxJournalReadBytes+2*valueBytes {
			t.Fatalf("%d bytes at once", bytes)
		}
		seen, portions = seen+len(entries), portions+1
		if err := s.JournalClear(testContext(t), last); err != nil {
			t.Fatal(err)
		}
	}
	if seen < topics || portions != 2 {
		t.Fatalf("%d entries in %d portions", seen, portions)
	}
}

func TestErrorsNameTheFix(t *testing.T) {
	for _, err := range []error{&ForeignError{Dir: "d", What: "node id", Have: "1", Want: "2"}, &NewerError{Dir: "d", What: "format", Have: 2, Supported: 1}} {
		if !strings.Contains(err.Error(), "d") || len(err.Error()) < 40 {
			t.Errorf("%v", err)
		}
	}
	if fmt.Sprint(SegFinished) != "COPY_SEGMENT_FINISHED" {
		t.Error(SegFinished)
	}
}
