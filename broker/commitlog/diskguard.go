package commitlog

import (
	"sync/atomic"

	"varve/protocol"
	"varve/protocol/event"
)

// AutoReserve as ManagerOptions.DiskReserveBytes takes a fiftieth of the disk, at least 16 MiB and at most 1 GiB, but
// never more than an eighth.
const AutoReserve = -1

const (
	minReserveBytes = 16 << 20
	maxReserveBytes = 1 << 30
	reserveShare    = 50
	reserveMaxShare = 8
	// guardLookShare is the part of the reserve that may be appended between two looks at the disk.
	guardLookShare = 4
)

// diskGuard refuses appends before the disk is full, so that what must be written to go on (indexes, checkpoints,
// metadata) still fits. While there is room a look costs nothing but an addition.
type diskGuard struct {
	fs           FS
	dir          string
	events       event.Sink
	reserveBytes int64 // 0: never refuses by itself

	unchecked atomic.Int64 // bytes appended since the last look
	low       atomic.Bool
	tight     atomic.Bool // at the last look there was not twice the reserve
}

func newDiskGuard(fsys FS, dir string, reserveBytes int64, events event.Sink) *diskGuard {
	g := &diskGuard{fs: fsys, dir: dir, events: events, reserveBytes: reserveBytes}
	if reserveBytes != AutoReserve {
		return g
	}
	g.reserveBytes = 0
	if u, err := fsys.GetDiskUsage(dir); err == nil {
		total := int64(u.TotalBytes)
		g.reserveBytes = min(max(total/reserveShare, minReserveBytes), maxReserveBytes, total/reserveMaxShare)
	}
	return g
}

// admit is asked before n bytes are appended. The error is KafkaStorageError.
func (g *diskGuard) admit(n int64) error {
	if !g.low.Load() && (g.reserveBytes <= 0 || g.unchecked.Add(n) < g.reserveBytes/guardLookShare) {
		return nil
	}
	g.unchecked.Store(0)
	u, err := g.fs.GetDiskUsage(g.dir)
	if err != nil {
		g.low.Store(false) // no way to tell: the write itself will
		return nil
	}
	room := int64(u.AvailBytes)
	g.tight.Store(room < 2*g.reserveBytes)
	if room >= g.reserveBytes {
		if g.low.CompareAndSwap(true, false) {
			g.events.Emit(DiskRoom{Dir: g.dir, RoomBytes: room})
		}
		return nil
	}
	err = protocol.Errorf(protocol.KafkaStorageError, "the disk of %s has %d bytes left and keeps %d in reserve", g.dir, room, g.reserveBytes)
	g.full("append", err)
	return err
}

// roomy says whether blocks may be taken before they are needed: at the last look there was twice the reserve. A look is
// at most a guardLookShare of it old.
func (g *diskGuard) roomy() bool { return !g.tight.Load() }

// full takes note that something was refused for lack of room, and tells of the first time.
func (g *diskGuard) full(what string, err error) {
	if g.low.CompareAndSwap(false, true) {
		g.events.Emit(DiskFull{What: what, Dir: g.dir, Err: err})
	}
}
