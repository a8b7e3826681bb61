package commitlog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS is the file system below a log directory: Pebble's vfs, which brings a
// crashable memory FS and fault injection, plus truncation.
type FS interface {
	vfs.FS
	// Truncate cuts the file to sizeBytes, also for those that have it open. It
	// is durable only after a Sync of the file.
	Truncate(name string, sizeBytes int64) error
}

type diskFS struct{ vfs.FS }

// DiskFS is the operating system's file system.
func DiskFS() FS { return diskFS{vfs.Default} }

// Truncate implements FS.
func (diskFS) Truncate(name string, sizeBytes int64) error { return os.Truncate(name, sizeBytes) }

// writeCategory labels our writes for vfs's own accounting; nothing reads it.
const writeCategory = vfs.WriteCategoryUnspecified

// syncDir makes creations, removals and renames in dir durable.
func syncDir(fsys FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}

// writeFileAtomic replaces name with data so that after a crash either the old
// or the whole new content is there; on return the new one is durable.
func writeFileAtomic(fsys FS, name string, data []byte) error {
	tmp := name + ".tmp"
	f, err := fsys.Create(tmp, writeCategory)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, removeIfThere(fsys, tmp))
	}
	if err := fsys.Rename(tmp, name); err != nil {
		return err
	}
	return syncDir(fsys, filepath.Dir(name))
}

// readFile returns the whole content, bounded by maxBytes.
func readFile(fsys FS, name string, maxBytes int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > maxBytes {
		return nil, &fs.PathError{Op: "read", Path: name, Err: syscall.EFBIG}
	}
	data := make([]byte, st.Size())
	if len(data) == 0 {
		return data, nil
	}
	if n, err := f.ReadAt(data, 0); n < len(data) {
		return nil, err
	}
	return data, nil
}

func removeIfThere(fsys FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// isFull reports whether err says that there is no room (or no descriptor),
// which refuses one append but leaves the log usable.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || noDescriptor(err)
}

// noDescriptor reports whether a file could not be opened because too many are.
func noDescriptor(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
