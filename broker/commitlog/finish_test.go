package commitlog

import (
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/protocol"
	"varve/protocol/record"
)

// unfinishedEnv is a log with an early segment that is finished, and a roll that is not: what the given operation should
// do fails for lack of room until room is set.
type unfinishedEnv struct {
	*env
	mem  *MemFS
	l    *Log
	room atomic.Bool
}

func newUnfinishedEnv(t *testing.T, op errorfs.OpKind, suffix string) *unfinishedEnv {
	u := &unfinishedEnv{mem: NewMemFS()}
	u.room.Store(true)
	u.env = newEnv(t, newFaultFS(u.mem, func(k errorfs.OpKind, path string) error {
		if k == op && strings.HasSuffix(path, suffix) && !u.room.Load() {
			return syscall.ENOSPC
		}
		return nil
	}), testConfig())
	u.l = u.log()
	appendN(t, u.l, 3, 5)
	must(t, u.l.Roll())
	appendN(t, u.l, 3, 5)
	u.l.makeSpare(4096)
	u.room.Store(false)
	for base := u.l.active().base; u.l.active().base == base; {
		appendN(t, u.l, 1, 5)
	}
	appendN(t, u.l, 3, 5)
	if u.l.unfinished.Load() == nil {
		t.Fatal("the roll is finished")
	}
	return u
}

// unfinishedBy are the steps that finishing a roll has, each with what does it.
var unfinishedBy = []struct {
	name   string
	op     errorfs.OpKind
	suffix string
}{
	{"rename", errorfs.OpRename, aheadSuffix}, {"index", errorfs.OpCreate, indexSuffix}, {"time index", errorfs.OpFileWriteAt, timeSuffix},
	{"snapshot", errorfs.OpCreate, snapshotSuffix}, {"snapshot's bytes", errorfs.OpFileWrite, snapshotSuffix},
}

// TestUnfinishedRollAfterACrash: the process ends, or the power goes, at each step of finishing a roll. With its pages kept
// nothing is lost, not even what stands in a file that has its old name; without them, nothing that a flush reported.
func TestUnfinishedRollAfterACrash(t *testing.T) {
	for _, by := range unfinishedBy {
		t.Run(by.name, func(t *testing.T) {
			u := newUnfinishedEnv(t, by.op, by.suffix)
			end, rolled := u.l.End(), u.l.active().base
			if err := u.l.Flush(); protocol.CodeOf(err) != protocol.KafkaStorageError || u.m.Offline() != nil {
				t.Fatalf("the flush says %v, offline %v", err, u.m.Offline())
			}
			if got := u.l.recoveryPoint.Load(); got != rolled {
				t.Fatalf("recovery point %d, the unfinished segment ends at %d", got, rolled)
			}
			must(t, u.m.Checkpoint())
			all, durable := u.mem.Crash(100, rngFor(1)), u.mem.Crash(0, rngFor(1))
			u.crash(durable)
			if l := u.log(); l.End() < rolled {
				t.Fatalf("the log ends at %d, %d was durable", l.End(), rolled)
			}
			checkLog(t, u.log())
			u.crash(all)
			if l := u.log(); l.End() != end {
				t.Fatalf("the log ends at %d, it ended at %d", l.End(), end)
			}
			checkLog(t, u.log())
			names, err := u.fs.List(u.log().dir)
			must(t, err)
			for _, n := range names {
				if filepath.Ext(n) == aheadSuffix {
					t.Fatal(n)
				}
			}
			must(t, u.m.Close(context.Background(), 1))
		})
	}
}

// TestUnfinishedRollIsFinishedLater: without room appends go on up to the next roll, what is older can be freed, and the
// first flush with room finishes.
func TestUnfinishedRollIsFinishedLater(t *testing.T) {
	for _, by := range unfinishedBy {
		t.Run(by.name, func(t *testing.T) {
			u := newUnfinishedEnv(t, by.op, by.suffix)
			l := u.l
			must(t, l.SetLogStart(l.End()))
			_, err := l.FreeBelow(l.End())
			must(t, err)
			if segs := l.segments(); len(segs) != 2 || l.unfinished.Load() == nil || segs[0] != l.unfinished.Load().old {
				t.Fatalf("%d segments are left", len(segs))
			}
			for range 100 {
				if _, err = l.AppendAsLeader(batch(t, 5, record.Options{}), 0, OriginClient); err != nil {
					break
				}
			}
			wantCode(t, err, protocol.KafkaStorageError)
			end := l.End()
			u.room.Store(true)
			must(t, l.Flush())
			if l.unfinished.Load() != nil || l.recoveryPoint.Load() != end {
				t.Fatalf("recovery point %d of %d", l.recoveryPoint.Load(), end)
			}
			appendN(t, l, 3, 5)
			checkLog(t, l)
			u.reopen()
			checkLog(t, u.log())
			must(t, u.m.Close(context.Background(), 1))
		})
	}
}
