package metastore

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"varve/protocol"
)

// history is a long run of commands, each applied twice, with the state and image at its end.
func history(t *testing.T, seed uint64, commands int) (logs []*raft.Log, rows, image string) {
	r := newRig(t)
	g := newGenerator(seed, r.f)
	for range commands {
		r.now += 10
		r.apply(g.command())
	}
	return r.logs, dump(t, r.f), describe(r.f.hub.img.Load())
}

// TestCrashAnywhere cuts the power after every entry, with any part of what was not synced lost, and replays the log on what is left.
func TestCrashAnywhere(t *testing.T) {
	logs, rows, image := history(t, 1, 150)
	rnd := rand.New(rand.NewPCG(7, 7))
	for cut := 0; cut <= len(logs); cut += 1 + rnd.IntN(12) {
		mem := vfs.NewCrashableMem()
		f := openFSM(t, mem)
		for at := 0; at < cut; {
			n := min(1+rnd.IntN(8), cut-at)
			f.ApplyBatch(logs[at : at+n])
			at += n
			if rnd.IntN(10) == 0 {
				if err := f.handle.db.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		crashed := openFSM(t, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rnd.IntN(101), RNG: rnd}))
		if crashed.applied > uint64(cut) {
			t.Fatalf("applied %d after %d entries", crashed.applied, cut)
		}
		if crashed.applied > 0 {
			if _, err := load(crashed.handle.db); err != nil {
				t.Fatal(err)
			}
		}
		crashed.ApplyBatch(logs)
		if got := dump(t, crashed); got != rows {
			t.Fatalf("cut at %d, resumed from another state:\n%s\nwant\n%s", cut, got, rows)
		}
		if got := describe(crashed.hub.img.Load()); got != image {
			t.Fatalf("cut at %d:\n%s\nwant\n%s", cut, got, image)
		}
	}
}

// TestLoadedImageIsTheSame compares the image that grew by commands with the one read back.
func TestLoadedImageIsTheSame(t *testing.T) {
	for seed := range uint64(4) {
		r := newRig(t)
		g := newGenerator(seed, r.f)
		for range 100 {
			r.apply(g.command())
		}
		l, err := load(r.f.handle.db)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := describe(l.img), describe(r.f.hub.img.Load()); got != want {
			t.Fatalf("read back\n%s\nin memory\n%s", got, want)
		}
	}
}

// memSink takes a snapshot in memory.
type memSink struct {
	bytes.Buffer
	closed bool
}

func (s *memSink) ID() string    { return "mem" }
func (s *memSink) Cancel() error { return nil }
func (s *memSink) Close() error  { s.closed = true; return nil }

func snapshotOf(t *testing.T, f *fsm) []byte {
	t.Helper()
	snap, err := f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	sink := &memSink{}
	if err := snap.Persist(sink); err != nil || !sink.closed {
		t.Fatal(err)
	}
	return sink.Bytes()
}

// TestSnapshotRestore moves the state to another node that has a state of its own, and goes on there.
func TestSnapshotRestore(t *testing.T) {
	logs, rows, image := history(t, 2, 120)
	half := len(logs) / 2
	a := openFSM(t, vfs.NewMem())
	a.ApplyBatch(logs[:half])
	snap := snapshotOf(t, a)
	b := openFSM(t, vfs.NewMem())
	b.ApplyBatch(logs[:half/3])
	if err := b.Restore(io.NopCloser(bytes.NewReader(snap))); err != nil {
		t.Fatal(err)
	}
	if dump(t, b) != dump(t, a) || b.applied != uint64(half) {
		t.Fatalf("restored state differs, applied %d of %d", b.applied, half)
	}
	b.ApplyBatch(logs)
	if dump(t, b) != rows || describe(b.hub.img.Load()) != image {
		t.Fatal("state differs after the rest of the log")
	}
}

// crashSink cuts the power at the moment when the snapshot becomes complete.
type crashSink struct {
	memSink
	mem  *vfs.MemFS
	left *vfs.MemFS
}

func (s *crashSink) Close() error {
	s.left = s.mem.CrashClone(vfs.CrashCloneCfg{})
	return nil
}

// TestSnapshotSyncsFirst: when a snapshot is complete, and Raft may cut its log, what it holds is durable in Pebble too.
func TestSnapshotSyncsFirst(t *testing.T) {
	logs, _, _ := history(t, 4, 40)
	mem := vfs.NewCrashableMem()
	f := openFSM(t, mem)
	f.ApplyBatch(logs)
	snap, err := f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	sink := &crashSink{mem: mem}
	if err := snap.Persist(sink); err != nil {
		t.Fatal(err)
	}
	if left := openFSM(t, sink.left); left.applied != f.applied || dump(t, left) != dump(t, f) {
		t.Fatalf("durable up to %d of %d", left.applied, f.applied)
	}
}

// TestSnapshotDamage: no cut and no flipped bit is taken for a snapshot, and the state stays.
func TestSnapshotDamage(t *testing.T) {
	r := newRig(t)
	r.must(createTopicCmd("t", 3))
	snap := snapshotOf(t, r.f)
	before := dump(t, r.f)
	for n := 0; n < len(snap); n += 7 {
		flipped := bytes.Clone(snap)
		flipped[n] ^= 0x40
		for _, bad := range [][]byte{snap[:n], flipped} {
			err := r.f.Restore(io.NopCloser(bytes.NewReader(bad)))
			var corrupt *protocol.CorruptionError
			if !errors.As(err, &corrupt) {
				t.Fatalf("byte %d: %v", n, err)
			}
		}
	}
	if dump(t, r.f) != before {
		t.Fatal("a damaged snapshot changed the state")
	}
}

// clonerFS takes a picture of what a power cut would leave just before the nth operation on the folder.
type clonerFS struct {
	*vfs.MemFS
	rnd   *rand.Rand
	left  int
	clone *vfs.MemFS
}

func (f *clonerFS) tick() {
	if f.left--; f.left == 0 {
		f.clone = f.MemFS.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: f.rnd.IntN(101), RNG: f.rnd})
	}
}

func (f *clonerFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.tick()
	return f.MemFS.Create(name, c)
}

func (f *clonerFS) Rename(from, to string) error {
	f.tick()
	return f.MemFS.Rename(from, to)
}

func (f *clonerFS) Remove(name string) error {
	f.tick()
	return f.MemFS.Remove(name)
}

func (f *clonerFS) RemoveAll(name string) error {
	f.tick()
	return f.MemFS.RemoveAll(name)
}

func (f *clonerFS) OpenDir(name string) (vfs.File, error) {
	f.tick()
	return f.MemFS.OpenDir(name)
}

// TestRestoreCrash cuts the power before each operation of Restore on the folder, and finds the old or the new state, whole.
func TestRestoreCrash(t *testing.T) {
	logs, _, _ := history(t, 3, 60)
	a := openFSM(t, vfs.NewMem())
	a.ApplyBatch(logs)
	snap, whole := snapshotOf(t, a), dump(t, a)
	rnd := rand.New(rand.NewPCG(3, 3))
	sawOld, sawNew := 0, 0
	for step := 1; ; step++ {
		fs := &clonerFS{MemFS: vfs.NewCrashableMem(), rnd: rnd}
		b := openFSM(t, fs)
		b.ApplyBatch(logs[:20])
		if err := flush(b.handle.db); err != nil {
			t.Fatal(err)
		}
		old := dump(t, b)
		fs.left = step
		if err := b.Restore(io.NopCloser(bytes.NewReader(snap))); err != nil {
			t.Fatal(err)
		}
		if fs.clone == nil {
			break
		}
		switch dump(t, openFSM(t, fs.clone)) {
		case old:
			sawOld++
		case whole:
			sawNew++
		default:
			t.Fatalf("step %d: neither the old nor the new state", step)
		}
	}
	if sawOld == 0 || sawNew == 0 {
		t.Fatalf("old state seen %d times, new state %d times", sawOld, sawNew)
	}
}
