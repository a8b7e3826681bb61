package commitlog

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/protocol"
	"varve/protocol/record"
)

// blocksOf is what a file takes on the disk, in bytes.
func blocksOf(t *testing.T, path string) (size, onDisk int64) {
	t.Helper()
	st, err := os.Stat(path)
	must(t, err)
	return st.Size(), st.Sys().(*syscall.Stat_t).Blocks * 512
}

// TestReserveIsGivenBack: what is reserved never shows in a file's size, and goes when its segment is sealed, closed, or
// sealed by the life after a crash.
func TestReserveIsGivenBack(t *testing.T) {
	dir := t.TempDir()
	cfg := testConfig()
	cfg.SegmentBytes = 64 << 20
	o := ManagerOptions{Dir: dir, NodeID: 1, ClusterID: "c"}
	start := func() (*Manager, *Log) {
		m, err := OpenManager(o)
		must(t, err)
		must(t, m.LoadAll(context.Background(), func(string, protocol.UUID, int32) Config { return cfg }))
		l, err := m.Create("t", testID, 0, cfg)
		must(t, err)
		return m, l
	}
	fill := func(l *Log, upTo int64) (path string) {
		value := make([]byte, 64<<10)
		for l.active().size() < upTo {
			bl := record.NewBuilder(record.Options{})
			must(t, bl.Add(1_700_000_000_000, nil, value))
			b, err := bl.Batch()
			must(t, err)
			_, err = l.AppendAsLeader(b, 0, OriginClient)
			must(t, err)
		}
		return l.active().log.path
	}
	check := func(what, path string, want, slack int64) {
		t.Helper()
		if size, onDisk := blocksOf(t, path); size != want || onDisk > size+slack {
			t.Fatalf("%s: %d bytes of %d, %d on disk", what, size, want, onDisk)
		}
	}
	m, l := start()
	path := fill(l, 2<<20)
	check("growing", path, l.active().size(), (2<<20)+(128<<10)) // filled fast: as much again
	must(t, l.Roll())
	must(t, l.Flush())
	check("sealed", path, l.segments()[0].size(), 8<<10)
	path = fill(l, 3<<20)
	size := l.active().size()
	e := env{m: m}
	e.abandon() // a crash: nothing is closed
	m, l = start()
	must(t, l.Roll())
	must(t, l.Flush())
	check("sealed after a crash", path, size, 8<<10)
	path = fill(l, 3<<20)
	size = l.active().size()
	must(t, m.Close(context.Background(), 1))
	check("closed", path, size, 8<<10)
}

// TestReserveThatFails: a file system that reserves nothing, or has no room for it, costs no append.
func TestReserveThatFails(t *testing.T) {
	for _, failure := range []error{syscall.ENOSPC, syscall.EOPNOTSUPP, syscall.EIO} {
		var asked atomic.Int64
		fsys := newFaultFS(NewMemFS(), func(op errorfs.OpKind, _ string) error {
			if op == errorfs.OpFilePreallocate {
				asked.Add(1)
				return failure
			}
			return nil
		})
		e := newEnv(t, fsys, testConfig())
		l := e.log()
		appendN(t, l, 100, 5)
		checkLog(t, l)
		for deadline := time.Now().Add(20 * time.Second); asked.Load() == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("nobody asked")
			}
			appendN(t, l, 1, 5)
		}
		if n := asked.Load(); n > 1000 {
			t.Fatalf("asked %d times", n)
		}
		if e.m.Offline() != nil {
			t.Fatal(e.m.Offline())
		}
		must(t, e.m.Close(context.Background(), 1))
	}
}

// TestReserveLeavesTheLastRoom: near the reserve of the disk guard nothing is taken that is not needed yet.
func TestReserveLeavesTheLastRoom(t *testing.T) {
	fsys := &smallDiskFS{MemFS: NewMemFS(), total: 1 << 30}
	fsys.avail.Store(1 << 29)
	g := newDiskGuard(fsys, "d", AutoReserve, time.Now, nil)
	look := func() { g.unchecked.Store(g.reserveBytes); must(t, g.admit(1, false)) }
	look()
	if !g.roomy() {
		t.Fatal("half a disk is not room")
	}
	fsys.avail.Store(uint64(g.reserveBytes) + 1)
	look()
	s := newSegment(&fileCache{fs: fsys, maxOpenFiles: 9}, filepath.Join("d", "x"), 0)
	s.reserve(4<<20, 1<<30, 0, g)
	if g.roomy() || s.reservedBytes.Load() != 0 {
		t.Fatal("reserved on a disk without room")
	}
	fsys.avail.Store(1 << 29)
	look()
	must(t, fsys.MkdirAll(filepath.Join("d", "x"), 0o755))
	s.reserve(4<<20, 1<<30, 0, g)
	if s.reservedBytes.Load() != 5<<20 {
		t.Fatal(s.reservedBytes.Load())
	}
	s.setEnds(5<<20, 1)
	s.reserve(6<<20, 1<<30, s.soonBytes(s.createdMs+1000), g) // it grows fast: as much again as is there
	if s.reservedBytes.Load() != 12<<20 {
		t.Fatal(s.reservedBytes.Load())
	}
	fsys.avail.Store(uint64(g.shortBytes) + 4<<20) // no look since, so it counts as roomy still
	s.setEnds(12<<20, 2)
	s.reserve(13<<20, 1<<30, s.soonBytes(s.createdMs+1000), g)
	if s.reservedBytes.Load() != 13<<20+(13<<20)/reserveAhead {
		t.Fatal(s.reservedBytes.Load())
	}
	must(t, s.log.remove())
}
