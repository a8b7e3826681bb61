package commitlog

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/protocol"
	"varve/protocol/event"
	"varve/protocol/record"
)

// faultRun walks through the whole life of a log while one operation of the
// disk fails.
type faultRun struct {
	t     *testing.T
	e     *env
	l     *Log
	inj   *injector
	acked map[int64]string // base offset -> batch
	err   error            // first error seen
}

// injector fails the nth operation that it is asked about.
type injector struct {
	mu   sync.Mutex
	n    int
	off  bool
	err  error
	only func(op errorfs.OpKind) bool
	hit  errorfs.OpKind
	path string
}

func (i *injector) hook(op errorfs.OpKind, path string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.off || !i.only(op) {
		return nil
	}
	if i.n--; i.n == 0 {
		i.hit, i.path = op, path
		return i.err
	}
	return nil
}

func (i *injector) set(off bool) {
	i.mu.Lock()
	i.off = off
	i.mu.Unlock()
}

func (i *injector) fired() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.n <= 0
}

func opens(op errorfs.OpKind) bool {
	return op == errorfs.OpCreate || op == errorfs.OpOpen || op == errorfs.OpOpenDir
}

func anyOp(op errorfs.OpKind) bool { return op != errorfs.OpFileClose }

func TestEveryOperationFails(t *testing.T) {
	for _, injected := range []error{syscall.ENOSPC, syscall.EIO, syscall.EMFILE} {
		only := anyOp
		if errors.Is(injected, syscall.ENOSPC) {
			only = changes
		}
		if errors.Is(injected, syscall.EMFILE) {
			only = opens
		}
		t.Run(injected.Error(), func(t *testing.T) { // one for all operations: flushes that meet make them fewer
			for n := 1; ; n++ {
				inj := &injector{n: n, err: injected, only: only}
				if faultyLife(t, inj); !inj.fired() || t.Failed() {
					break
				}
				if n > 2000 {
					t.Fatal("the workload does not end")
				}
			}
		})
	}
}

func faultyLife(t *testing.T, inj *injector) {
	mem := NewMemFS()
	cfg := testConfig()
	cfg.SegmentBytes, cfg.FlushMessages = 2048, 1
	r := &faultRun{t: t, inj: inj, acked: map[int64]string{}}
	r.e = &env{t: t, fs: newFaultFS(mem, inj.hook), clock: newClock(1_700_000_000_000), rec: &event.Recorder{}, cfg: cfg}
	defer func() {
		if t.Failed() {
			t.Logf("failed operation: %v, %v of %s", inj.err, inj.hit, inj.path)
		}
	}()
	if r.open() {
		r.work()
		if err := r.e.m.Close(context.Background(), 1); err != nil {
			r.note("close", err)
		}
	}
	if r.err == nil && inj.fired() && r.e.m != nil {
		t.Logf("%v of %s was passed over", inj.hit, inj.path)
	}
	again := &env{t: t, fs: mem, clock: r.e.clock, rec: &event.Recorder{}, cfg: cfg}
	again.open()
	l := again.log()
	checkLog(t, l)
	for _, b := range readAll(t, l, l.LocalStart()) {
		if want, ok := r.acked[b.BaseOffset()]; ok && want == string(b) {
			delete(r.acked, b.BaseOffset())
		}
	}
	for base := range r.acked {
		if base >= l.LocalStart() {
			t.Errorf("the batch at %d is gone", base)
		}
	}
	must(t, again.m.Close(context.Background(), 1))
}

// note checks that an error is Kafka's storage error, and that a full disk does
// not take the directory offline unless it broke a sync or a truncation.
func (r *faultRun) note(what string, err error) bool {
	if err == nil {
		return true
	}
	if r.err == nil {
		r.err = err
	}
	if protocol.CodeOf(err) != protocol.KafkaStorageError && !errors.Is(err, r.inj.err) {
		r.t.Errorf("%s: %v", what, err)
	}
	return false
}

func (r *faultRun) open() bool {
	m, err := OpenManager(r.e.options())
	if err != nil {
		return r.note("open", err)
	}
	r.e.m = m
	if err := m.LoadAll(context.Background(), r.e.conf); err != nil {
		r.note("load", err)
		r.e.abandon()
		return false
	}
	r.l, err = m.Create("t", testID, 0, r.e.cfg)
	if err != nil {
		r.note("create", err)
		r.l, err = m.Create("t", testID, 0, r.e.cfg) // a full disk is full no more
		if err != nil {
			r.note("create again", err)
			r.e.abandon()
			return false
		}
	}
	return true
}

func (r *faultRun) append(n int) {
	b := batch(r.t, n, record.Options{Producer: &record.Producer{ID: 5, BaseSequence: r.nextSeq()}}, 1_700_000_000_000)
	info, err := r.l.AppendAsLeader(b, 1, OriginClient)
	if r.note("append", err) {
		r.acked[info.FirstOffset] = string(b)
	}
}

func (r *faultRun) nextSeq() int32 {
	for _, p := range r.l.Producers() {
		return p.LastSequence + 1
	}
	return 0
}

func (r *faultRun) work() {
	for i := range 25 {
		r.append(4)
		if i%10 == 5 {
			r.l.makeSpare(4096) // the next roll, of one of these appends, takes it
		}
	}
	r.l.makeSpare(4096)
	r.note("roll", r.l.Roll())
	r.note("flush", r.l.Flush())
	r.append(3)
	to := max(r.l.End()-20, 0)
	r.note("truncate", r.l.TruncateTo(to))
	for base := range r.acked {
		if base > to-4 {
			delete(r.acked, base)
		}
	}
	for range 8 {
		r.append(4)
	}
	_, err := r.l.FreeBelow(20)
	r.note("free", err)
	if ex, err := r.l.Export(r.l.LocalStart(), r.l.End()); r.note("export", err) && ex != nil {
		_, err := io.Copy(io.Discard, io.NewSectionReader(ex.Log.File, ex.Log.Off, ex.Log.Len))
		r.note("export", err)
		ex.Close()
	}
	_, _, err = r.l.OffsetForTimestamp(1_700_000_000_000)
	r.note("time", err)
	r.note("checkpoint", r.e.m.Checkpoint())
	r.read()
	r.note("delete", r.tryTier())
	r.inj.set(true)
	if r.e.m.Offline() == nil {
		checkLog(r.t, r.l)
	}
	r.inj.set(false)
}

func (r *faultRun) read() {
	for off := r.l.LocalStart(); off < r.l.End(); {
		s, err := r.l.Read(off, 500, r.l.End(), true)
		if !r.note("read", err) {
			return
		}
		if s.Len > 0 {
			s.Release()
		}
		off = s.NextOffset
	}
}

// tryTier has a second log start from the tier and go.
func (r *faultRun) tryTier() error {
	l, err := r.e.m.Create("other", testID, 1, r.e.cfg)
	if err != nil {
		return err
	}
	if _, err := l.AppendAsLeader(batch(r.t, 2, record.Options{}), 1, OriginClient); err != nil {
		return err
	}
	if err := l.StartFromTier(100, 40, []EpochStart{{0, 0}, {3, 60}}, nil); err != nil {
		return err
	}
	if _, err := l.AppendAsLeader(batch(r.t, 2, record.Options{}), 4, OriginClient); err != nil {
		return err
	}
	return r.e.m.Delete("other", 1)
}

// TestDiskFullCostsOneAppend: half of a batch is written, then the disk is full.
func TestDiskFullCostsOneAppend(t *testing.T) {
	mem := NewMemFS()
	ffs := newFaultFS(mem, func(errorfs.OpKind, string) error { return nil })
	e := newEnv(t, ffs, testConfig())
	l := e.log()
	appendN(t, l, 5, 3)
	ffs.partial = func(path string) bool { return strings.HasSuffix(path, logSuffix) }
	for range 3 {
		_, err := l.AppendAsLeader(batch(t, 3, record.Options{}), 0, OriginClient)
		wantCode(t, err, protocol.KafkaStorageError)
	}
	if l.End() != 15 || e.m.Offline() != nil || e.rec.Count("log_disk_full") != 1 {
		t.Fatalf("end %d, offline %v, told %d times", l.End(), e.m.Offline(), e.rec.Count("log_disk_full"))
	}
	ffs.partial = nil
	appendN(t, l, 5, 3)
	checkLog(t, l)
	readAll(t, l, 0)
	e.reopen()
	checkLog(t, e.log())
	must(t, e.m.Close(t.Context(), 1))
}

// TestFsyncErrorIsFinal: after a failed fsync nothing is acknowledged any more,
// and a later fsync that works changes nothing.
func TestFsyncErrorIsFinal(t *testing.T) {
	inj := &injector{n: 1 << 30, err: syscall.EIO, only: func(op errorfs.OpKind) bool { return op == errorfs.OpFileSyncData }}
	cfg := testConfig()
	e := newEnv(t, newFaultFS(NewMemFS(), inj.hook), cfg)
	l := e.log()
	appendN(t, l, 2, 3)
	must(t, l.Flush())
	cfg.FlushMessages = 1
	l.SetConfig(cfg)
	inj.mu.Lock()
	inj.n = 1
	inj.mu.Unlock()
	appendN(t, l, 1, 3)
	_, err := e.rec.Wait(t.Context(), "log_dir_offline")
	must(t, err)
	if l.DurableEnd() != 6 {
		t.Fatalf("durable end is %d", l.DurableEnd())
	}
	wantCode(t, l.Flush(), protocol.KafkaStorageError)
	_, err = l.AppendAsLeader(batch(t, 1, record.Options{}), 0, OriginClient)
	wantCode(t, err, protocol.KafkaStorageError)
	wantCode(t, e.m.Close(t.Context(), 1), protocol.KafkaStorageError)
	if l.DurableEnd() != 6 {
		t.Fatalf("durable end is %d", l.DurableEnd())
	}
}
