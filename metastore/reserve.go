package metastore

import (
	"errors"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"

	"varve/protocol/event"
)

const (
	reserveFile = "reserve"
	// reserveBytes is what the state machine and Raft can still write after the disk is full: Pebble and hashicorp/raft
	// both end the process when they cannot.
	reserveBytes = 16 << 20
	// reserveRoomFactor: the reserve is made anew once the disk has so many times its size.
	reserveRoomFactor = 4
)

// reserve is a file that only takes room. It is removed when the disk is full, before what failed is tried once more,
// and made anew when there is room. The file system it uses must not be the one it is the reserve of.
type reserve struct {
	fs     vfs.FS
	dir    string
	events event.Sink

	mu   sync.Mutex
	held bool
}

func (r *reserve) path() string { return r.fs.PathJoin(r.dir, reserveFile) }

// fill makes the file where the disk has plenty of room. That it cannot is no error: there is no reserve then.
func (r *reserve) fill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held {
		return
	}
	if _, err := r.fs.Stat(r.path()); err == nil {
		r.held = true
		return
	}
	u, err := r.fs.GetDiskUsage(r.dir)
	if err != nil || u.AvailBytes < reserveRoomFactor*reserveBytes {
		return
	}
	f, err := r.fs.Create(r.path(), vfs.WriteCategoryUnspecified)
	if err != nil {
		return
	}
	err = errors.Join(f.Preallocate(0, reserveBytes), f.Sync(), f.Close())
	if err != nil {
		_ = r.fs.Remove(r.path())
		return
	}
	r.held = true
}

// release gives the room to whoever needs it.
func (r *reserve) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = false
	if r.fs.Remove(r.path()) == nil {
		r.events.Emit(StorageTrouble{What: "the disk is full: the reserve is used for metadata; make room"})
	}
}

// roomyLog is Raft's log, which writes around Pebble's file system: what fails for lack of room is tried again with the
// reserve's.
type roomyLog struct {
	*wal.WAL
	reserve *reserve
}

var (
	_ raft.LogStore    = roomyLog{}
	_ raft.StableStore = roomyLog{}
)

func (l roomyLog) again(write func() error) error {
	err := write()
	if errors.Is(err, syscall.ENOSPC) {
		l.reserve.release()
		err = write()
	}
	return err
}

// StoreLog implements raft.LogStore.
func (l roomyLog) StoreLog(e *raft.Log) error {
	return l.again(func() error { return l.WAL.StoreLog(e) })
}

// StoreLogs implements raft.LogStore.
func (l roomyLog) StoreLogs(es []*raft.Log) error {
	return l.again(func() error { return l.WAL.StoreLogs(es) })
}

// DeleteRange implements raft.LogStore.
func (l roomyLog) DeleteRange(first, last uint64) error {
	return l.again(func() error { return l.WAL.DeleteRange(first, last) })
}

// Set implements raft.StableStore.
func (l roomyLog) Set(k, v []byte) error { return l.again(func() error { return l.WAL.Set(k, v) }) }

// SetUint64 implements raft.StableStore.
func (l roomyLog) SetUint64(k []byte, v uint64) error {
	return l.again(func() error { return l.WAL.SetUint64(k, v) })
}
