package objstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Dir is a Store in a folder. Several processes may share the folder: a lock file
// makes their changes of names one after the other, so that conditional puts hold
// between them too.
type Dir struct {
	fs   vfs.FS
	root string

	mu       sync.Mutex      // this process's half of the lock file
	durable  map[string]bool // folders whose own entry is known to be synced
	temp     string          // our folder for temporary files, "" before the first Put
	guard    io.Closer       // lock that tells others our temporary files are alive
	nextTemp atomic.Uint64
}

const (
	copyBufferBytes   = 256 << 10
	maxDurableFolders = 16384
	lockPoll          = 2 * time.Millisecond
	maxLockWait       = 30 * time.Second
	// heldHere is how vfs says that another Dir of this process has the lock.
	heldHere = "lock held by current process"
)

// NewDir returns the store in folder root of fsys. It touches nothing yet: the first
// Put makes the folder and removes what crashed writers left in it.
func NewDir(fsys vfs.FS, root string) *Dir {
	return &Dir{fs: fsys, root: root, durable: map[string]bool{}}
}

// String implements Store.
func (d *Dir) String() string { return URL{Scheme: "dir", Path: d.root}.String() }

func (d *Dir) path(elem ...string) string { return path.Join(append([]string{d.root}, elem...)...) }

// locked runs fn while no other process, and nobody else in this one, changes names.
func (d *Dir) locked(ctx context.Context, fn func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.makeDurable(d.root); err != nil {
		return err
	}
	start := time.Now()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		lock, err := d.fs.Lock(d.path(lockFile))
		if err == nil {
			return errors.Join(fn(), lock.Close())
		}
		if !errors.Is(err, syscall.EAGAIN) && !strings.Contains(err.Error(), heldHere) {
			return dirError("lock", d.root, err)
		}
		if time.Since(start) > maxLockWait {
			return &RetryableError{Err: fmt.Errorf("lock of %s held by another for %v: %w", d.root, maxLockWait, err)}
		}
		time.Sleep(lockPoll)
	}
}

// makeDurable creates a folder and syncs the entries on the way to it. A folder that
// is there already may have been made by a process that died before its sync.
func (d *Dir) makeDurable(folder string) error {
	if _, err := d.fs.Stat(folder); err == nil && d.durable[folder] {
		return nil
	}
	if len(d.durable) >= maxDurableFolders {
		clear(d.durable)
	}
	parent := path.Dir(folder)
	if folder != d.root {
		if err := d.makeDurable(parent); err != nil {
			return err
		}
	}
	if err := d.fs.MkdirAll(folder, 0o755); err != nil {
		return dirError("make folder", folder, err)
	}
	if err := d.syncFolder(parent); err != nil {
		return err
	}
	for above := parent; folder == d.root && above != path.Dir(above); {
		// What lies above the root is the operator's, but may have been ours to make.
		above = path.Dir(above)
		if err := d.syncFolder(above); err != nil && !errors.Is(err, ErrForbidden) {
			return err
		}
	}
	d.durable[folder] = true
	return nil
}

func (d *Dir) syncFolder(folder string) error {
	f, err := d.fs.OpenDir(folder)
	if err != nil {
		return dirError("sync folder", folder, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return dirError("sync folder", folder, err)
	}
	return nil
}

// prepare returns our folder for temporary files. The first time it makes it and
// removes those of the dead.
func (d *Dir) prepare(ctx context.Context) (string, error) {
	d.mu.Lock()
	temp := d.temp
	d.mu.Unlock()
	if temp != "" {
		return temp, nil
	}
	err := d.locked(ctx, func() error {
		if d.temp != "" {
			return nil
		}
		var id [8]byte
		rand.Read(id[:]) // never fails (Go 1.24)
		temp := d.path(tempFolder, hex.EncodeToString(id[:]))
		if err := d.fs.MkdirAll(temp, 0o755); err != nil {
			return dirError("make folder", temp, err)
		}
		guard, err := d.fs.Lock(path.Join(temp, lockFile))
		if err != nil {
			return dirError("lock", temp, err)
		}
		d.temp, d.guard = temp, guard
		return d.removeDead()
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.temp, err
}

// removeDead removes the temporary folders whose owners hold no lock on them.
func (d *Dir) removeDead() error {
	names, err := d.fs.List(d.path(tempFolder))
	if err != nil {
		return dirError("list", tempFolder, err)
	}
	for _, name := range names {
		folder := d.path(tempFolder, name)
		if folder == d.temp {
			continue
		}
		lock, err := d.fs.Lock(path.Join(folder, lockFile))
		if err != nil {
			continue // alive
		}
		if err := errors.Join(d.fs.RemoveAll(folder), lock.Close()); err != nil {
			return dirError("remove", folder, err)
		}
	}
	return nil
}

func (d *Dir) forgetTemp(folder string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.temp != folder {
		return nil // another Put did
	}
	err := d.guard.Close()
	d.temp, d.guard = "", nil
	clear(d.durable)
	return err
}

// Put implements Store.
func (d *Dir) Put(ctx context.Context, key string, body Body, opt PutOptions) (ObjectInfo, error) {
	if err := checkPut(key, body, opt); err != nil {
		return ObjectInfo{}, err
	}
	folder, err := d.prepare(ctx)
	if err != nil {
		return ObjectInfo{}, err
	}
	temp := path.Join(folder, strconv.FormatUint(d.nextTemp.Add(1), 10))
	t, err := d.writeTemp(ctx, temp, key, body, opt)
	if err == nil {
		err = d.commit(ctx, temp, key, opt)
	}
	if errors.Is(err, ErrNotFound) {
		// Somebody removed the tier's folder under us; the next attempt makes it again.
		err = &RetryableError{Err: fmt.Errorf("put %q: the tier's folder vanished (%v)", key, errors.Join(err, d.forgetTemp(folder)))}
	}
	if err != nil {
		d.fs.Remove(temp) // what stays is removed with the folder at the next start
		return ObjectInfo{}, err
	}
	return ObjectInfo{Key: key, Size: t.size, ETag: t.etag(), ModTime: time.Now()}, nil
}

// writeTemp writes body and trailer to a temporary file and syncs it.
func (d *Dir) writeTemp(ctx context.Context, temp, key string, body Body, opt PutOptions) (trailer, error) {
	f, err := d.fs.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return trailer{}, dirError("put", key, err)
	}
	t := trailer{size: body.Size}
	rand.Read(t.writeID[:])
	t.crc, err = copyBody(ctx, f, key, body)
	if err == nil {
		err = checkCRC(key, t.crc, opt)
	}
	if err == nil {
		if _, err = f.Write(t.append(nil)); err == nil {
			err = f.Sync()
		}
		err = dirError("put", key, err)
	}
	if cerr := f.Close(); err == nil && cerr != nil {
		err = dirError("put", key, cerr)
	}
	return t, err
}

// copyBody streams body to w and returns its CRC32C.
func copyBody(ctx context.Context, w io.Writer, key string, body Body) (uint32, error) {
	buf := make([]byte, min(copyBufferBytes, max(body.Size, 1)))
	crc := uint32(0)
	for off := int64(0); off < body.Size; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		chunk := buf[:min(int64(len(buf)), body.Size-off)]
		n, err := body.ReaderAt.ReadAt(chunk, off)
		if n < len(chunk) {
			return 0, bodyError(key, off+int64(n), body.Size, err)
		}
		crc = crc32.Update(crc, castagnoli, chunk)
		if _, err := w.Write(chunk); err != nil { // may scribble on chunk
			return 0, dirError("put", key, err)
		}
		off += int64(n)
	}
	return crc, ctx.Err()
}

// commit gives the temporary file its name, if opt allows.
func (d *Dir) commit(ctx context.Context, temp, key string, opt PutOptions) error {
	final := d.path(keyPath(key))
	return d.locked(ctx, func() error {
		if err := d.makeDurable(path.Dir(final)); err != nil {
			return err
		}
		if opt.IfMatch != "" {
			current, err := d.Head(ctx, key)
			if errors.Is(err, ErrNotFound) || (err == nil && current.ETag != opt.IfMatch) {
				return fmt.Errorf("put %q: %w", key, ErrPrecondition)
			}
			if err != nil {
				return err
			}
		}
		if !opt.IfNoneMatch {
			if err := d.fs.Rename(temp, final); err != nil {
				return dirError("put", key, err)
			}
			return d.syncFolder(path.Dir(final))
		}
		// A link, unlike a rename, never replaces: not even what a stranger put there.
		if err := d.fs.Link(temp, final); errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("put %q: %w", key, ErrPrecondition)
		} else if err != nil {
			return dirError("put", key, err)
		}
		if err := d.syncFolder(path.Dir(final)); err != nil {
			return err
		}
		d.fs.Remove(temp) // the object has its own name; a leftover is removed at the next start
		return nil
	})
}

// open opens an object's file and reads its trailer.
func (d *Dir) open(verb, key string) (vfs.File, trailer, time.Time, error) {
	name := d.path(keyPath(key))
	f, err := d.fs.Open(name)
	if err != nil {
		return nil, trailer{}, time.Time{}, dirError(verb, key, err)
	}
	t, mod, err := readTrailer(f, name)
	if err != nil {
		return nil, trailer{}, time.Time{}, errors.Join(err, f.Close())
	}
	return f, t, mod, nil
}

func readTrailer(f vfs.File, name string) (trailer, time.Time, error) {
	info, err := f.Stat()
	if err != nil {
		return trailer{}, time.Time{}, dirError("stat", name, err)
	}
	buf := make([]byte, min(trailerBytes, info.Size()))
	if len(buf) > 0 {
		if n, err := f.ReadAt(buf, info.Size()-int64(len(buf))); n < len(buf) {
			return trailer{}, time.Time{}, dirError("read", name, err)
		}
	}
	t, err := parseTrailer(name, buf, info.Size())
	return t, info.ModTime(), err
}

// Get implements Store. A body that is the whole object is checked against the
// stored CRC32C when its end is read; parts of it are their reader's to check.
func (d *Dir) Get(ctx context.Context, key string, off, length int64, _ string) (io.ReadCloser, error) {
	if err := checkGet(key, off); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, t, _, err := d.open("get", key)
	if err != nil {
		return nil, err
	}
	off = min(off, t.size)
	if length < 0 || length > t.size-off {
		length = t.size - off
	}
	src := &fileBody{ctx: ctx, f: &LocalFile{File: f}, r: io.NewSectionReader(f, off, length)}
	var crc *uint32
	if length == t.size {
		crc = &t.crc
	}
	return newExactBody(src, key, length, crc), nil
}

type fileBody struct {
	ctx context.Context
	f   *LocalFile
	r   *io.SectionReader
}

func (b *fileBody) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.r.Read(p)
}

func (b *fileBody) Close() error {
	if b.f.kept {
		return nil
	}
	return b.f.Close()
}

// Head implements Store.
func (d *Dir) Head(ctx context.Context, key string) (ObjectInfo, error) {
	if err := ValidateKey(key); err != nil {
		return ObjectInfo{}, err
	}
	if err := ctx.Err(); err != nil {
		return ObjectInfo{}, err
	}
	f, t, mod, err := d.open("head", key)
	if err != nil {
		return ObjectInfo{}, err
	}
	if err := f.Close(); err != nil {
		return ObjectInfo{}, dirError("head", key, err)
	}
	return ObjectInfo{Key: key, Size: t.size, ETag: t.etag(), ModTime: mod}, nil
}

// Delete implements Store.
func (d *Dir) Delete(ctx context.Context, keys []string) ([]KeyError, error) {
	keys, failed := validKeys(keys)
	if _, err := d.fs.Stat(d.root); errors.Is(err, fs.ErrNotExist) {
		return failed, ctx.Err()
	}
	err := d.locked(ctx, func() error {
		touched := map[string][]string{} // folder -> keys removed from it
		for _, key := range keys {
			name := d.path(keyPath(key))
			if err := d.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				failed = append(failed, KeyError{Key: key, Err: dirError("delete", key, err)})
				continue
			}
			// An absent key may be one whose removal was not synced before a crash.
			touched[path.Dir(name)] = append(touched[path.Dir(name)], key)
		}
		for folder, keys := range touched {
			if err := d.prune(folder); err != nil {
				for _, key := range keys {
					failed = append(failed, KeyError{Key: key, Err: err})
				}
			}
		}
		return nil
	})
	return failed, err
}

// prune removes folder if it is empty, and the folders above it that are empty then,
// and syncs the last one that stays.
func (d *Dir) prune(folder string) error {
	for folder != d.root {
		err := d.fs.Remove(folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			if _, serr := d.fs.Stat(folder); serr != nil {
				return dirError("prune", folder, serr)
			}
			break // not empty: each file system has its own word for it
		}
		delete(d.durable, folder)
		folder = path.Dir(folder)
	}
	return d.syncFolder(folder)
}

func (d *Dir) probe(ctx context.Context) (Report, error) {
	_, err := d.prepare(ctx)
	return Report{}, err
}

// dirError names what failed and sorts the errors of the file system.
func dirError(verb, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s %q: %w", verb, what, ErrNotFound)
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%s %q: %w (%w): give the user that runs varve write access to the folder", verb, what, ErrForbidden, err)
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return &RetryableError{Err: fmt.Errorf("%s %q: no space for the tier: %w", verb, what, err)}
	}
	return fmt.Errorf("%s %q: %w", verb, what, err)
}
