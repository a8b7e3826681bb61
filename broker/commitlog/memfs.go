package commitlog

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"reflect"
	"sync"
	"unsafe"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// MemFS is a crashable memory file system for tests of this package and of
// those above: Pebble's, plus truncation.
type MemFS struct{ *vfs.MemFS }

// NewMemFS returns an empty one.
func NewMemFS() *MemFS { return &MemFS{vfs.NewCrashableMem()} }

// Crash returns what a power cut now would leave: everything synced, and each
// unsynced block and directory entry with a chance of unsyncedPercent.
func (m *MemFS) Crash(unsyncedPercent int, rng *rand.Rand) *MemFS {
	return &MemFS{m.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsyncedPercent, RNG: rng})}
}

// Truncate implements FS. Pebble's memory file keeps its bytes to itself, and
// every way round (copy and rename) has another crash behaviour than a real
// truncation, so this reaches for the field by reflection; it fails loudly
// should the field ever move.
func (m *MemFS) Truncate(name string, sizeBytes int64) error {
	f, err := m.OpenReadWrite(name, writeCategory)
	if err != nil {
		return err
	}
	defer f.Close()
	node := reflect.ValueOf(f).Elem().FieldByName("n")
	if !node.IsValid() || node.Kind() != reflect.Pointer {
		return errors.New("vfs memory file has changed its shape")
	}
	state := node.Elem().FieldByName("mu")
	data, mu := state.FieldByName("data"), state.FieldByName("Mutex")
	if !data.IsValid() || !mu.IsValid() || data.Type() != reflect.TypeFor[[]byte]() {
		return errors.New("vfs memory file has changed its shape")
	}
	lock := (*sync.Mutex)(unsafe.Pointer(mu.UnsafeAddr()))
	bytes := (*[]byte)(unsafe.Pointer(data.UnsafeAddr()))
	lock.Lock()
	defer lock.Unlock()
	if sizeBytes < 0 || sizeBytes > int64(len(*bytes)) {
		return &fs.PathError{Op: "truncate", Path: name, Err: fs.ErrInvalid}
	}
	*bytes = (*bytes)[:sizeBytes:sizeBytes]
	return nil
}
