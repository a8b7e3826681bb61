package commitlog

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/protocol"
	"varve/protocol/record"
)

// spareEnv is a log on a real disk whose segments take long enough to fill for one to be prepared.
type spareEnv struct {
	t     *testing.T
	m     *Manager
	l     *Log
	clock *clock
}

func newSpareEnv(t *testing.T) *spareEnv {
	e := &spareEnv{t: t, clock: newClock(1_700_000_000_000)}
	var err error
	e.m, err = OpenManager(ManagerOptions{Dir: t.TempDir(), NodeID: 1, ClusterID: "c", Now: e.clock.now})
	must(t, err)
	cfg := testConfig()
	cfg.SegmentBytes = 8 << 20
	must(t, e.m.LoadAll(context.Background(), func(string, protocol.UUID, int32) Config { return cfg }))
	e.l, err = e.m.Create("t", testID, 0, cfg)
	must(t, err)
	return e
}

// fill appends until the active segment has so many bytes, everyMs by the clock.
func (e *spareEnv) fill(upTo, everyMs int64) {
	e.t.Helper()
	value := make([]byte, 64<<10)
	for base := e.l.active().base; e.l.active().base == base && e.l.active().size() < upTo; {
		e.clock.add(everyMs)
		bl := record.NewBuilder(record.Options{})
		must(e.t, bl.Add(1_700_000_000_000, nil, value))
		b, err := bl.Batch()
		must(e.t, err)
		_, err = e.l.AppendAsLeader(b, 0, OriginClient)
		must(e.t, err)
	}
}

// spares waits for the number of spare files in the folder and returns them.
func (e *spareEnv) spares(want int) []string {
	e.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		names, err := filepath.Glob(filepath.Join(e.l.dir, "*"+aheadSuffix))
		must(e.t, err)
		if made := e.l.spareSince.Load() != 0; len(names) == want && made == (want > 0) {
			return names
		}
		if time.Now().After(deadline) {
			e.t.Fatalf("spare files %v, wanted %d", names, want)
		}
	}
}

// TestSpareBecomesTheNextSegment: a segment that fills soon has its next file prepared, with its blocks, and the roll does
// no more than name it.
func TestSpareBecomesTheNextSegment(t *testing.T) {
	e := newSpareEnv(t)
	e.fill(5<<20, 10)
	spare := e.spares(1)[0]
	st, err := os.Stat(spare)
	must(t, err)
	if size, onDisk := blocksOf(t, spare); size != 0 || onDisk < 8<<20+ballastBlocks*ballastBytes {
		t.Fatalf("the spare has %d bytes, %d on disk", size, onDisk)
	}
	e.fill(8<<20, 10) // rolls
	e.spares(0)
	now, err := os.Stat(e.l.active().log.path)
	must(t, err)
	if e.l.active().base == 0 || !os.SameFile(st, now) || e.l.active().reservedBytes.Load() != 8<<20 {
		t.Fatalf("the segment at %d is not the spare", e.l.active().base)
	}
	e.fill(8<<20, 10) // and so on
	must(t, e.l.Flush())
	for _, s := range e.l.segments()[:2] {
		if size, onDisk := blocksOf(t, s.log.path); size != s.size() || onDisk > size+8<<10 {
			t.Fatalf("sealed: %d bytes, %d on disk", size, onDisk)
		}
	}
	e.fill(5<<20, 10)
	e.spares(1)
	checkLog(t, e.l)
	must(t, e.m.Close(context.Background(), 1))
	names, err := filepath.Glob(filepath.Join(e.l.dir, "*"+aheadSuffix))
	must(t, err)
	if len(names) > 0 {
		t.Fatalf("%v after an orderly end", names)
	}
}

// TestSpareIsForWhatFillsSoon: a slow segment has none, and one that nobody used goes.
func TestSpareIsForWhatFillsSoon(t *testing.T) {
	e := newSpareEnv(t)
	defer func() { must(t, e.m.Close(context.Background(), 1)) }()
	e.fill(7<<20, 60_000)
	if e.l.spareAsked {
		t.Fatal("a spare for a segment that takes hours")
	}
	must(t, e.l.Roll())
	e.fill(5<<20, 10)
	e.spares(1)
	e.l.expireSpare(e.clock.get() + spareKeepMs/2)
	e.spares(1)
	e.l.expireSpare(e.clock.get() + spareKeepMs)
	e.spares(0)
	e.fill(6<<20, 10)
	e.spares(1)
	e.m.disk.level.Store(int32(DiskIsShort))
	e.l.expireSpare(e.clock.get())
	e.spares(0)
}

// TestSpareOfALogThatGoes: nothing is made in a folder that is somebody else's by now.
func TestSpareOfALogThatGoes(t *testing.T) {
	e := newSpareEnv(t)
	e.l.makeSpare(1 << 20)
	must(t, e.m.Delete("t", 0))
	again, err := e.m.Create("t", testID, 0, *e.l.cfg.Load())
	must(t, err)
	e.l.makeSpare(1 << 20)
	names, err := os.ReadDir(again.dir)
	must(t, err)
	for _, n := range names {
		if filepath.Ext(n.Name()) == aheadSuffix {
			t.Fatal(n.Name())
		}
	}
	must(t, e.m.Close(context.Background(), 1))
}

// TestSpareAfterACrash: a start removes what was prepared.
func TestSpareAfterACrash(t *testing.T) {
	mem := NewMemFS()
	e := newEnv(t, mem, testConfig())
	l := e.log()
	appendN(t, l, 3, 5)
	l.makeSpare(1 << 20)
	must(t, syncDir(mem, l.dir))
	must(t, l.Flush())
	e.crash(mem.Crash(100, rngFor(1)))
	names, err := e.fs.List(l.dir)
	must(t, err)
	for _, n := range names {
		if filepath.Ext(n) == aheadSuffix {
			t.Fatal(n)
		}
	}
	appendN(t, e.log(), 3, 5)
	checkLog(t, e.log())
	must(t, e.m.Close(context.Background(), 1))
}

// TestSpareThatFails: without room or without the means there is none, and the roll does without.
func TestSpareThatFails(t *testing.T) {
	e := newSpareEnv(t)
	e.l.makeSpare(1 << 60)
	e.spares(0)
	e.fill(1<<20, 10)
	must(t, e.l.Roll())
	e.fill(1<<20, 10)
	checkLog(t, e.l)
	if e.m.Offline() != nil {
		t.Fatal(e.m.Offline())
	}
	var st syscall.Stat_t
	must(t, syscall.Stat(e.l.active().log.path, &st))
	must(t, e.m.Close(context.Background(), 1))
}

// TestFreeingHoldsUpNoAppend: while old segments go, and the disk takes its time over it, appends go on.
func TestFreeingHoldsUpNoAppend(t *testing.T) {
	reached, goOn := make(chan string, 100), make(chan struct{})
	var slow atomic.Bool
	e := newEnv(t, newFaultFS(NewMemFS(), func(op errorfs.OpKind, path string) error {
		if slow.Load() && (op == errorfs.OpFileSync || op == errorfs.OpRemove) {
			reached <- path
			<-goOn
		}
		return nil
	}), testConfig())
	l := e.log()
	appendN(t, l, 40, 5)
	must(t, l.Flush())
	must(t, l.SetLogStart(l.End()-1))
	slow.Store(true)
	freed := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { _, err := l.FreeBelow(l.End()); freed <- err })
	steps := map[string]bool{}
	for done := false; !done; {
		select {
		case path := <-reached:
			if steps[filepath.Base(path)] = true; l.active().size() < 2000 { // no roll here, which may sync
				appendN(t, l, 1, 1)
			}
			goOn <- struct{}{}
		case err := <-freed:
			must(t, err)
			done = true
		}
	}
	wg.Wait()
	slow.Store(false)
	if !steps[epochFile+tmpSuffix] || len(steps) < 5 {
		t.Fatalf("nothing waited for the disk but %v", steps)
	}
	checkLog(t, l)
	must(t, e.m.Close(context.Background(), 1))
}

// TestRollSyncsNoActiveSegment: what a roll has flushed is the closed segment; the recovery point is where the active one
// begins, and a flush of all goes on from there.
func TestRollSyncsNoActiveSegment(t *testing.T) {
	var mu sync.Mutex
	synced := map[string]int{}
	e := newEnv(t, newFaultFS(NewMemFS(), func(op errorfs.OpKind, path string) error {
		if op == errorfs.OpFileSync || op == errorfs.OpFileSyncData {
			mu.Lock()
			synced[filepath.Base(path)]++
			mu.Unlock()
		}
		return nil
	}), testConfig())
	l := e.log()
	appendN(t, l, 3, 5)
	first := l.active()
	count := func(s *segment) int {
		mu.Lock()
		defer mu.Unlock()
		n := synced[filepath.Base(s.log.path)]
		if s != first {
			n += synced[fileName(first.base, aheadSuffix)] // as it was called when it was opened
		}
		return n
	}
	must(t, l.Roll())
	appendN(t, l, 3, 5)
	for deadline := time.Now().Add(20 * time.Second); l.recoveryPoint.Load() < 15; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the recovery point is %d", l.recoveryPoint.Load())
		}
	}
	if l.recoveryPoint.Load() != 15 || count(first) == 0 || count(l.active()) != 0 {
		t.Fatalf("recovery point %d, syncs %v", l.recoveryPoint.Load(), synced)
	}
	must(t, l.Flush())
	if l.recoveryPoint.Load() != 30 || count(l.active()) != 1 {
		t.Fatalf("recovery point %d, syncs %v", l.recoveryPoint.Load(), synced)
	}
	must(t, e.m.Close(context.Background(), 1))
}
