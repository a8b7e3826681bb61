package commitlog

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/protocol/record"
)

// gate holds operations of one kind up while it is shut, but for the writes and reads of log files themselves.
type gate struct {
	mu   sync.Mutex
	kind errorfs.OpKind
	open chan struct{} // nil while nothing is held up
	held map[string]bool
}

func ofLogFile(op errorfs.OpKind, path string) bool {
	return (op == errorfs.OpFileWriteAt || op == errorfs.OpFileReadAt) &&
		(strings.HasSuffix(path, logSuffix) || strings.HasSuffix(path, aheadSuffix))
}

func (g *gate) hook(op errorfs.OpKind, path string) error {
	g.mu.Lock()
	open := g.open
	if op != g.kind || ofLogFile(op, path) {
		open = nil
	}
	if open != nil {
		g.held[path] = true
	}
	g.mu.Unlock()
	if open != nil {
		<-open
	}
	return nil
}

func (g *gate) shut(kind errorfs.OpKind) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kind, g.open = kind, make(chan struct{})
}

func (g *gate) lift() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
	g.open = nil
}

func (g *gate) holds() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.held)
}

// gatedKinds are all that this package asks of a file system; whoever holds no lock of the appends' may wait for them.
var gatedKinds = map[string]errorfs.OpKind{
	"create": errorfs.OpCreate, "open": errorfs.OpOpen, "open folder": errorfs.OpOpenDir, "remove": errorfs.OpRemove,
	"rename": errorfs.OpRename, "list": errorfs.OpList, "stat": errorfs.OpStat, "disk usage": errorfs.OpGetDiskUsage,
	"close": errorfs.OpFileClose, "read": errorfs.OpFileReadAt, "write": errorfs.OpFileWrite, "write at": errorfs.OpFileWriteAt,
	"file stat": errorfs.OpFileStat, "sync": errorfs.OpFileSync, "sync data": errorfs.OpFileSyncData,
	"preallocate": errorfs.OpFilePreallocate, "truncate": opTruncate,
}

// waited bounds how long a step may take that must not wait for the disk; nothing is measured by it.
const waited = 30 * time.Second

// TestAppendsWaitForNoOneElsesDisk: appends, tail reads and a prepared roll go on while every operation of one kind that is
// not theirs stands still, be it in a flush, in freeing, in a checkpoint, in a roll by age, or for what is prepared.
func TestAppendsWaitForNoOneElsesDisk(t *testing.T) {
	for name, kind := range gatedKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &gate{held: map[string]bool{}}
			cfg := testConfig()
			cfg.SegmentBytes, cfg.IndexIntervalBytes = 32<<10, 20
			e := newEnv(t, newFaultFS(NewMemFS(), g.hook), cfg)
			l := e.log()
			for range 4 {
				standStill(t, e, l, g, kind)
			}
			switch kind {
			case opTruncate, errorfs.OpStat, errorfs.OpFileReadAt, errorfs.OpFileStat: // nobody asks for them here
			default:
				if g.holds() == 0 {
					t.Fatal("nothing was held up")
				}
			}
			checkLog(t, l)
			must(t, e.m.Close(context.Background(), 1))
			e.open()
			checkLog(t, e.log())
			must(t, e.m.Close(context.Background(), 1))
		})
	}
}

// standStill prepares a segment, shuts the gate, has all that works beside appends begin, and appends until long after the
// prepared segment is in use.
func standStill(t *testing.T, e *env, l *Log, g *gate, kind errorfs.OpKind) {
	t.Helper()
	for l.active().size() < int64(e.cfg.SegmentBytes)/2 {
		appendN(t, l, 1, 5)
	}
	must(t, l.Flush())
	l.makeSpare(4096)
	must(t, l.SetLogStart(l.End()-1))
	l.SetHighWatermark(l.End())
	g.shut(kind)
	before := g.holds()
	var beside sync.WaitGroup
	begin := func(fn func() error) {
		beside.Go(func() {
			if err := fn(); err != nil {
				t.Error(err)
			}
		})
	}
	begin(l.Flush)
	begin(func() error { _, err := l.FreeBelow(l.End()); return err })
	begin(e.m.Checkpoint)
	l.expireSpare(e.clock.get()) // looks, and finds it fresh
	wait := time.Now().Add(50 * time.Millisecond)
	for g.holds() == before && time.Now().Before(wait) { // a kind that none of them asks for holds nobody up
		time.Sleep(time.Millisecond)
	}
	done := make(chan error, 1)
	beside.Go(func() { done <- appendOn(t, l) })
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(waited):
		t.Errorf("an append waits for what is held up in %v", g.held)
	}
	begin(l.Roll)
	g.lift()
	beside.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// appendOn appends and reads at the tail until the next segment is half full.
func appendOn(t *testing.T, l *Log) error {
	old := l.active()
	for l.active() == old || l.active().size() < int64(l.Config().SegmentBytes)/2 {
		at := l.End()
		if _, err := l.AppendAsLeader(batch(t, 5, record.Options{}), 0, OriginClient); err != nil {
			return err
		}
		s, err := l.Read(at, 1<<20, l.End(), true)
		if err != nil {
			return err
		}
		if len(read(t, s)) == 0 || s.NextOffset != l.End() {
			return fmt.Errorf("a read at the tail, %d, ends at %d of %d", at, s.NextOffset, l.End())
		}
	}
	return nil
}

// TestRollsByAgeHoldUpNoAppend: a roll that nobody prepared for, by age or for retention, prepares its file itself while
// appends go on.
func TestRollsByAgeHoldUpNoAppend(t *testing.T) {
	g := &gate{held: map[string]bool{}}
	e := newEnv(t, newFaultFS(NewMemFS(), g.hook), testConfig())
	l := e.log()
	for _, kind := range []errorfs.OpKind{errorfs.OpCreate, errorfs.OpRename, errorfs.OpFileWrite, errorfs.OpFileClose} {
		appendN(t, l, 2, 2)
		g.shut(kind)
		before := g.holds()
		var beside sync.WaitGroup
		beside.Go(func() {
			if err := l.Roll(); err != nil {
				t.Error(err)
			}
		})
		for deadline := time.Now().Add(waited); g.holds() == before && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		if g.holds() == before {
			t.Errorf("nothing was held up by %v", kind)
		}
		done := make(chan error, 1)
		beside.Go(func() {
			_, err := l.AppendAsLeader(batch(t, 2, record.Options{}), 0, OriginClient)
			done <- err
		})
		select {
		case err := <-done:
			must(t, err)
		case <-time.After(waited):
			t.Errorf("an append waits for %v", kind)
		}
		g.lift()
		beside.Wait()
		must(t, l.Flush())
	}
	checkLog(t, l)
	for _, ev := range e.rec.All() {
		if rolled, ok := ev.(SegmentRolled); ok && !rolled.Prepared {
			t.Errorf("%+v", rolled)
		}
	}
	must(t, e.m.Close(context.Background(), 1))
}
