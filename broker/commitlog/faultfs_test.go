package commitlog

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// faultFS asks a hook before every operation.
type faultFS struct {
	vfs.FS
	mem     FS
	hook    atomic.Pointer[func(op errorfs.OpKind, path string) error]
	partial func(path string) bool
}

// opTruncate stands beside errorfs's kinds.
const opTruncate = errorfs.OpKind(1000)

func newFaultFS(mem FS, hook func(op errorfs.OpKind, path string) error) *faultFS {
	f := &faultFS{mem: mem}
	f.swap(hook)
	f.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error { return f.ask(op.Kind, op.Path) }))
	return f
}

// swap puts another hook in place.
func (f *faultFS) swap(hook func(op errorfs.OpKind, path string) error) { f.hook.Store(&hook) }

func (f *faultFS) ask(op errorfs.OpKind, path string) error { return (*f.hook.Load())(op, path) }

func (f *faultFS) Truncate(name string, sizeBytes int64) error {
	if err := f.ask(opTruncate, name); err != nil {
		return err
	}
	return f.mem.Truncate(name, sizeBytes)
}

func changes(op errorfs.OpKind) bool {
	return op == opTruncate || (op.ReadOrWrite() == errorfs.OpIsWrite && op != errorfs.OpFileClose)
}

var errPower = errors.New("power is off")

// power cuts before the nth change and keeps what the disk then held.
type power struct {
	mu      sync.Mutex
	mem     *MemFS
	at      int
	seen    int
	percent int
	rng     *rand.Rand
	left    *MemFS
}

func (p *power) hook(op errorfs.OpKind, _ string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !changes(op) {
		return nil
	}
	if p.left != nil {
		return errPower
	}
	if p.seen++; p.seen == p.at {
		p.left = p.mem.Crash(p.percent, p.rng)
		return errPower
	}
	return nil
}

func (p *power) off() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left != nil
}

// cut cuts now unless that has happened.
func (p *power) cut() *MemFS {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == nil {
		p.left = p.mem.Crash(p.percent, p.rng)
	}
	return p.left
}

// rngFor returns a fixed random source.
func rngFor(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 2)) }

var errFull = syscall.ENOSPC

// partialFile writes half of what it is given and then says that the disk is
// full, when asked to.
type partialFile struct {
	vfs.File
	fs   *faultFS
	name string
}

func (f *partialFile) WriteAt(p []byte, off int64) (int, error) {
	if f.fs.partial != nil && f.fs.partial(f.name) {
		n, err := f.File.WriteAt(p[:len(p)/2], off)
		return n, errors.Join(errFull, err)
	}
	return f.File.WriteAt(p, off)
}

// Close asks too, and closes whatever the answer is: errorfs has the kind and asks nobody.
func (f *partialFile) Close() error {
	_ = f.fs.ask(errorfs.OpFileClose, f.name)
	return f.File.Close()
}

func (f *faultFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	return &partialFile{file, f, name}, nil
}

func (f *faultFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name, category, opts...)
	if err != nil {
		return nil, err
	}
	return &partialFile{file, f, name}, nil
}
