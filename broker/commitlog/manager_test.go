package commitlog

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"varve/protocol"
	"varve/protocol/event"
	"varve/protocol/record"
)

func put(t testing.TB, fs FS, name, content string) {
	t.Helper()
	must(t, writeFileAtomic(fs, name, []byte(content)))
}

func TestDirectoryIdentity(t *testing.T) {
	fs := NewMemFS()
	e := newEnv(t, fs, testConfig())
	id := e.m.DirectoryID()
	if id.IsZero() || e.m.ClusterID() != "c" {
		t.Fatal(id, e.m.ClusterID())
	}
	var locked *LockedError
	if _, err := OpenManager(e.options()); !errors.As(err, &locked) {
		t.Fatalf("a second manager: %v", err)
	}
	e.reopen()
	if e.m.DirectoryID() != id {
		t.Fatal("the directory id changed")
	}
	must(t, e.m.Close(t.Context(), 1))
	meta := filepath.Join(testDir, metaFile)
	for field, content := range map[string]string{
		"cluster.id": "version=1\ncluster.id=other\nnode.id=1\n",
		"node.id":    "version=1\ncluster.id=c\nnode.id=2\n",
		"version":    "version=2\ncluster.id=c\nnode.id=1\n",
	} {
		put(t, fs, meta, content)
		var foreign *ForeignError
		if _, err := OpenManager(e.options()); !errors.As(err, &foreign) || foreign.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	put(t, fs, meta, "#\n#Mon Jan 01 00:00:00 UTC 2024\nnode.id=1\ndirectory.id="+id.String()+"\nversion=1\nsomething.else=5\n")
	o := e.options()
	o.ClusterID = ""
	m, err := OpenManager(o)
	must(t, err)
	must(t, m.SetClusterID("late"))
	var foreign *ForeignError
	if err := m.SetClusterID("other"); !errors.As(err, &foreign) {
		t.Fatal(err)
	}
	must(t, m.Close(t.Context(), 1))
	data, err := readFile(fs, meta, maxMetaBytes)
	must(t, err)
	if s := string(data); !strings.Contains(s, "cluster.id=late\n") || !strings.Contains(s, "something.else=5\n") || !strings.Contains(s, id.String()) {
		t.Fatal(s)
	}
}

func TestCreateAndDelete(t *testing.T) {
	fs := NewMemFS()
	e := newEnv(t, fs, testConfig())
	l := e.log()
	appendN(t, l, 30, 5)
	s, err := l.Read(0, 1<<20, l.End(), true)
	must(t, err)
	l.SetHighWatermark(150)
	must(t, l.SetLogStart(10))
	must(t, e.m.Checkpoint())
	_, err = e.m.Create("t", protocol.UUID{9}, 0, e.cfg)
	wantCode(t, err, protocol.InconsistentTopicID)
	must(t, e.m.Delete("t", 0))
	must(t, e.m.Delete("t", 0))
	if _, ok := e.m.Get("t", 0); ok {
		t.Fatal("still there")
	}
	_, err = l.AppendAsLeader(batch(t, 1, record.Options{}), 0, OriginClient)
	wantCode(t, err, protocol.NotLeaderOrFollower)
	if len(read(t, s)) == 0 {
		t.Fatal("the reader was cut off")
	}
	l, err = e.m.Create("t", protocol.UUID{9}, 0, e.cfg)
	must(t, err)
	if l.End() != 0 || l.LogStart() != 0 || l.TopicID() != (protocol.UUID{9}) {
		t.Fatal(l.End(), l.LogStart())
	}
	appendN(t, l, 1, 1)
	e.crash(fs.Crash(100, rngFor(1)))
	l, ok := e.m.Get("t", 0)
	if !ok || l.End() != 1 || l.LogStart() != 0 || e.m.HighWatermark("t", 0) != -1 {
		t.Fatal("the old topic's checkpoints were believed", l.End(), l.LogStart(), e.m.HighWatermark("t", 0))
	}
	must(t, e.fs.MkdirAll(testDir+"/stray-3", 0o755))
	e.reopen()
	if strays := e.m.Strays(); len(strays) != 1 || filepath.Base(strays[0]) != "stray-3" {
		t.Fatal(strays)
	}
	names, err := e.fs.List(testDir)
	must(t, err)
	if s := strings.Join(names, " "); strings.Contains(s, deleteMark) {
		t.Fatal(s)
	}
	must(t, e.m.Close(t.Context(), 1))
}

// TestHousekeeping: deletion after the delay, flush.ms and checkpoints, on
// virtual time.
func TestHousekeeping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.FileDeleteDelayMs, cfg.FlushMs = 5000, 3000
		fs := NewMemFS()
		o := ManagerOptions{FS: fs, Dir: testDir, NodeID: 1, CheckpointIntervalMs: 10_000}
		m, err := OpenManager(o)
		must(t, err)
		must(t, m.LoadAll(context.Background(), nil))
		l, err := m.Create("t", testID, 0, cfg)
		must(t, err)
		gone, err := m.Create("gone", testID, 0, cfg)
		must(t, err)
		appendN(t, l, 1, 7)
		must(t, m.Delete("gone", 0))
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		folders := func() int {
			names, err := fs.List(testDir)
			must(t, err)
			n := 0
			for _, name := range names {
				if strings.HasSuffix(name, deleteMark) {
					n++
				}
			}
			return n
		}
		if l.recoveryPoint.Load() != 0 || folders() != 1 {
			t.Fatal(l.recoveryPoint.Load(), folders(), gone.End())
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if l.recoveryPoint.Load() != 7 || folders() != 0 {
			t.Fatal(l.recoveryPoint.Load(), folders())
		}
		l.SetHighWatermark(6)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		data, err := readFile(fs, m.path(highWatermarkFile), 1000)
		must(t, err)
		if string(data) != "0\n1\nt 0 6\n" {
			t.Fatalf("%q", data)
		}
		must(t, m.Close(context.Background(), 1))
	})
}

// TestOnRealDisk goes through DiskFS once, with files as Kafka names them.
func TestOnRealDisk(t *testing.T) {
	dir := t.TempDir()
	cfg := testConfig()
	cfg.Preallocate = true
	o := ManagerOptions{Dir: filepath.Join(dir, "a", "log"), NodeID: 1, ClusterID: "c", MaxOpenFiles: 3}
	m, err := OpenManager(o)
	must(t, err)
	if _, err := OpenManager(o); err == nil {
		t.Fatal("two managers of one directory")
	}
	must(t, m.LoadAll(context.Background(), func(string, protocol.UUID, int32) Config { return cfg }))
	l, err := m.Create("t", testID, 0, cfg)
	must(t, err)
	appendN(t, l, 200, 3)
	checkLog(t, l)
	readAll(t, l, 0)
	must(t, l.Flush())
	readAll(t, l, 0)
	if n := m.cache.openFiles(); n > 3 {
		t.Fatalf("%d descriptors", n)
	}
	must(t, l.TruncateTo(500))
	appendN(t, l, 20, 3)
	checkLog(t, l)
	must(t, m.Close(context.Background(), 44))
	for _, name := range []string{".kafka_cleanshutdown", "meta.properties", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint",
		"t-0/00000000000000000000.log", "t-0/00000000000000000000.index", "t-0/00000000000000000000.timeindex", "t-0/partition.metadata", "t-0/leader-epoch-checkpoint"} {
		if _, err := os.Stat(filepath.Join(dir, "a", "log", name)); err != nil {
			t.Error(err)
		}
	}
	m, err = OpenManager(o)
	must(t, err)
	must(t, m.LoadAll(context.Background(), func(string, protocol.UUID, int32) Config { return cfg }))
	l, _ = m.Get("t", 0)
	if epoch, clean := m.CleanShutdown(); !clean || epoch != 44 {
		t.Fatal(epoch, clean)
	}
	checkLog(t, l)
	must(t, m.Close(context.Background(), 45))
}

// TestIdleLogsHoldOneDescriptor: indexes and sealed segments are closed again.
func TestIdleLogsHoldOneDescriptor(t *testing.T) {
	e := newEnv(t, NewMemFS(), testConfig())
	l := e.log()
	appendN(t, l, 200, 3)
	must(t, l.Flush())
	for _, s := range l.segments() {
		for _, x := range s.indexes() {
			if x.file.f != nil {
				t.Errorf("%s is open", x.file.path)
			}
		}
	}
	must(t, e.m.Close(t.Context(), 1))
	if n := e.m.cache.openFiles(); n != 0 {
		t.Fatalf("%d descriptors after close", n)
	}
}

func TestDamagedCheckpointsAreSurvived(t *testing.T) {
	fs := NewMemFS()
	e := newEnv(t, fs, testConfig())
	appendN(t, e.log(), 100, 3)
	must(t, e.m.Close(t.Context(), 1))
	must(t, fs.Remove(testDir+"/"+cleanShutdownFile))
	for _, name := range []string{recoveryPointFile, logStartFile, highWatermarkFile, "t-0/" + epochFile, "t-0/00000000000000000000.index"} {
		put(t, fs, testDir+"/"+name, "7\ngarbage\n")
	}
	e.rec = &event.Recorder{}
	e.open()
	l := e.log()
	checkLog(t, l)
	if l.End() != 300 || l.EpochAt(5) != 0 || e.rec.Count("checkpoint_damaged") != 4 || e.rec.Count("log_recovered") != 1 {
		t.Fatal(l.End(), l.Epochs(), e.rec.All())
	}
	must(t, e.m.Close(t.Context(), 1))
}
