package commitlog

import (
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/protocol/record"
)

// streak fails so many operations in a row, from the nth on.
type streak struct {
	mu      sync.Mutex
	n, long int
	err     error
	only    func(op errorfs.OpKind) bool
}

func (s *streak) hook(op errorfs.OpKind, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.only(op) {
		return nil
	}
	if s.n--; s.n > 0 || s.n <= -s.long {
		return nil
	}
	return s.err
}

func (s *streak) fired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n <= 0
}

// TestPowerAfterFailures: some operations fail for lack of room or descriptors, the log goes on, and then the power goes.
// What a flush reported as durable is there.
func TestPowerAfterFailures(t *testing.T) {
	for _, fault := range []error{syscall.ENOSPC, syscall.EMFILE} {
		only := changes
		if fault == syscall.EMFILE {
			only = opens
		}
		for long := 1; long <= 2; long++ {
			t.Run(fmt.Sprintf("%v/%d", fault, long), func(t *testing.T) { // one for all: flushes that meet make operations fewer
				for n := 1; ; n++ {
					s := &streak{n: n, long: long, err: fault, only: only}
					if failThenCrash(t, s, uint64(n)); !s.fired() || t.Failed() {
						break
					}
				}
			})
		}
	}
}

// life is a log whose operations may fail, and what it said was written and durable.
type life struct {
	e       *env
	mem     *MemFS
	l       *Log
	written map[int64]string
	durable int64
}

func failThenCrash(t *testing.T, s *streak, seed uint64) {
	defer func() {
		if t.Failed() {
			t.Logf("operations failed from number %d on", seed)
		}
	}()
	cfg := testConfig()
	cfg.SegmentBytes = 1024
	f := &life{mem: NewMemFS(), written: map[int64]string{}}
	f.e = newEnv(t, newFaultFS(f.mem, func(errorfs.OpKind, string) error { return nil }), cfg)
	f.l = f.e.log()
	must(t, f.e.m.Checkpoint())
	f.e.fs.(*faultFS).swap(s.hook)
	for i := range 30 {
		f.step(t, i)
	}
	for percent := 0; percent <= 100; percent += 50 {
		f.check(t, fmt.Sprintf("power cut, %d%% kept", percent), f.mem.Crash(percent, rngFor(seed)))
	}
	_ = f.e.m.Close(t.Context(), 1)
	f.check(t, "closed", f.mem)
}

func (f *life) step(t *testing.T, i int) {
	switch {
	case i%7 == 3:
		_ = f.l.Roll() // as segments that age do
	case i == 22:
		to := f.l.End() - 7
		if f.l.TruncateTo(to) == nil {
			to = f.l.End()
		}
		f.durable = min(f.durable, to-5) // a batch that spans the cut goes whole
		for at := range f.written {
			if at >= f.l.End() && f.e.m.Offline() == nil {
				delete(f.written, at)
			}
		}
	}
	b := batch(t, 1+i%5, record.Options{}, 1_700_000_000_000)
	if info, err := f.l.AppendAsLeader(b, 1, OriginClient); err == nil {
		f.written[info.FirstOffset] = string(b)
	}
	if end := f.l.End(); i%3 == 2 && f.l.Flush() == nil {
		f.durable = end
		_ = f.e.m.Checkpoint()
	}
}

func (f *life) check(t *testing.T, how string, left FS) {
	t.Helper()
	again := &env{t: t, fs: left, clock: f.e.clock, rec: f.e.rec, cfg: f.e.cfg}
	again.open()
	l := again.log()
	checkLog(t, l)
	if l.End() < f.durable {
		t.Fatalf("%s: the log ends at %d, %d was durable", how, l.End(), f.durable)
	}
	for _, b := range readAll(t, l, 0) {
		if string(b) != f.written[b.BaseOffset()] {
			t.Fatalf("%s: another batch at %d", how, b.BaseOffset())
		}
	}
	must(t, again.m.Close(t.Context(), 1))
}

// TestFlushOwedIsDone: a flush that found no descriptor is done later though nobody asks again.
func TestFlushOwedIsDone(t *testing.T) {
	cfg := testConfig()
	e := newEnv(t, newFaultFS(NewMemFS(), func(errorfs.OpKind, string) error { return nil }), cfg)
	l := e.log()
	appendN(t, l, 2, 3)
	must(t, l.Roll())
	must(t, l.Flush())
	cfg.FlushMessages = 1
	l.SetConfig(cfg)
	e.fs.(*faultFS).swap((&streak{n: 1, long: 1, err: syscall.EMFILE, only: func(op errorfs.OpKind) bool { return op == errorfs.OpOpenDir }}).hook)
	l.dirDirty.Store(true)
	durable := make(chan struct{}, 100)
	l.OnDurable(func() { durable <- struct{}{} })
	appendN(t, l, 1, 3)
	for range 10 {
		if l.DurableEnd() == 9 {
			must(t, e.m.Close(t.Context(), 1))
			return
		}
		<-durable
	}
	t.Fatalf("durable end is %d", l.DurableEnd())
}
