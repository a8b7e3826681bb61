package commitlog

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

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
	// The two bands above the reserve: as wide as it and three times as wide, but small parts of the disk.
	tightShare = 50
	shortShare = 20
	// guardLookShare is the part of the narrowest band that may be appended between two looks at the disk.
	guardLookShare = 4
	// fullHold is how long nothing else is told after a write met a full disk: with a quota it says that it has room.
	fullHold = time.Second
)

// DiskLevel says how much room the disk of the logs has.
type DiskLevel int32

// The levels, from much to none.
const (
	DiskRoomy   DiskLevel = iota
	DiskIsShort           // what is in the tier is freed ahead of local retention
	DiskIsTight           // and partitions with closed segments that wait for the tier take no appends
	DiskIsFull            // nor does any other
)

// String names a level in logs.
func (l DiskLevel) String() string { return [...]string{"roomy", "short", "tight", "full"}[l] }

// NoRoomError says that the disk has no room for what was to be written, or keeps it. Nothing was written; the same may
// work later. Its code is KafkaStorageError, which clients take for a reason to try again.
type NoRoomError struct {
	Level DiskLevel
	What  string
}

// Error implements error.
func (e *NoRoomError) Error() string { return e.What }

// Unwrap gives the code for clients.
func (e *NoRoomError) Unwrap() error {
	return protocol.Errorf(protocol.KafkaStorageError, "%s", e.What)
}

// diskGuard refuses appends before the disk is full, so that what must be written to go on (indexes, checkpoints,
// metadata) still fits; and before that those of partitions which only the tier can relieve and which wait for it, so that
// an outage of the store leaves room to all others. While there is room a look costs nothing but an addition.
type diskGuard struct {
	fs           FS
	dir          string
	events       event.Sink
	now          func() time.Time
	reserveBytes int64 // 0: never refuse by itself
	tightBytes   int64 // less room than this is tight
	shortBytes   int64 // less room than this is short

	unchecked atomic.Int64 // bytes appended since the last look
	level     atomic.Int32
	onShort   atomic.Pointer[func()]

	mu        sync.Mutex // of changes of the level
	told      DiskLevel
	fullUntil time.Time
}

func newDiskGuard(fsys FS, dir string, reserveBytes int64, now func() time.Time, events event.Sink) *diskGuard {
	g := &diskGuard{fs: fsys, dir: dir, events: events, now: now, reserveBytes: reserveBytes}
	u, err := fsys.GetDiskUsage(dir)
	total := int64(u.TotalBytes)
	if reserveBytes == AutoReserve {
		g.reserveBytes = 0
		if err == nil {
			g.reserveBytes = min(max(total/reserveShare, minReserveBytes), maxReserveBytes, total/reserveMaxShare)
		}
	}
	if err == nil {
		g.tightBytes = g.reserveBytes + min(g.reserveBytes, total/tightShare)
		g.shortBytes = g.reserveBytes + min(3*g.reserveBytes, total/shortShare)
	}
	return g
}

// admit is asked before n bytes are appended; waits says that the partition waits for the tier. The error is a
// *NoRoomError.
func (g *diskGuard) admit(n int64, waits bool) error {
	level := DiskLevel(g.level.Load())
	if !level.refuses(waits) && (g.reserveBytes <= 0 || g.unchecked.Add(n) < (g.tightBytes-g.reserveBytes)/guardLookShare) {
		return nil
	}
	level, room := g.look()
	switch {
	case !level.refuses(waits):
		return nil
	case level == DiskIsFull:
		return &NoRoomError{level, fmt.Sprintf("the disk of %s has %d bytes left and keeps %d in reserve", g.dir, room, g.reserveBytes)}
	}
	return &NoRoomError{level, fmt.Sprintf("the disk of %s has %d bytes left, and this partition waits for its closed segments to be uploaded: "+
		"it takes appends again when they are, or with %d bytes left", g.dir, room, g.tightBytes)}
}

func (l DiskLevel) refuses(waits bool) bool { return l == DiskIsFull || l == DiskIsTight && waits }

// look measures the room and changes the level to what it says.
func (g *diskGuard) look() (level DiskLevel, roomBytes int64) {
	g.unchecked.Store(0)
	u, err := g.fs.GetDiskUsage(g.dir)
	g.mu.Lock()
	defer g.mu.Unlock()
	room := int64(u.AvailBytes)
	switch {
	case err != nil || room >= g.shortBytes: // without a way to tell, the write itself will
		level = DiskRoomy
	case room < g.reserveBytes:
		level = DiskIsFull
	case room < g.tightBytes:
		level = DiskIsTight
	default:
		level = DiskIsShort
	}
	g.level.Store(int32(level))
	if level != g.told && !g.now().Before(g.fullUntil) {
		g.told = level
		g.tell(level, room)
	}
	return level, room
}

func (g *diskGuard) tell(level DiskLevel, room int64) {
	switch level {
	case DiskIsFull:
		g.events.Emit(DiskFull{What: "append", Dir: g.dir, Err: &NoRoomError{level, fmt.Sprintf("%d bytes are left, %d are kept in reserve", room, g.reserveBytes)}})
	case DiskRoomy:
		g.events.Emit(DiskRoom{Dir: g.dir, RoomBytes: room})
	default:
		g.events.Emit(DiskShort{Dir: g.dir, RoomBytes: room, Disk: level})
	}
	if fn := g.onShort.Load(); level != DiskRoomy && fn != nil {
		(*fn)()
	}
}

// roomy says whether blocks may be taken before they are needed. A look is at most a guardLookShare of a band old.
func (g *diskGuard) roomy() bool { return DiskLevel(g.level.Load()) == DiskRoomy }

// roomFor says whether n more bytes would leave the disk roomy.
func (g *diskGuard) roomFor(n int64) bool {
	u, err := g.fs.GetDiskUsage(g.dir)
	return g.roomy() && (err != nil || int64(u.AvailBytes)-n >= g.shortBytes)
}

// full takes note that a write failed for lack of room, whatever the disk says it has.
func (g *diskGuard) full(what string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fullUntil = g.now().Add(fullHold)
	g.level.Store(int32(DiskIsFull))
	if g.told != DiskIsFull {
		g.told = DiskIsFull
		g.events.Emit(DiskFull{What: what, Dir: g.dir, Err: err})
	}
}

// tick looks at the disk although nothing may be appended, and wakes who can free something.
func (g *diskGuard) tick() {
	if g.reserveBytes <= 0 && DiskLevel(g.level.Load()) == DiskRoomy {
		return
	}
	if level, _ := g.look(); level != DiskRoomy {
		if fn := g.onShort.Load(); fn != nil {
			(*fn)()
		}
	}
}

// OnDiskShort names what is called, and must not block, whenever the disk is short, about once a second while it is.
func (m *Manager) OnDiskShort(fn func()) { m.disk.onShort.Store(&fn) }

// DiskShortBytes is how much is to be freed for the disk not to be short any more, 0 when it is not.
func (m *Manager) DiskShortBytes() int64 {
	if m.disk.reserveBytes <= 0 {
		return 0
	}
	u, err := m.disk.fs.GetDiskUsage(m.disk.dir)
	if err != nil {
		return 0
	}
	return max(m.disk.shortBytes-int64(u.AvailBytes), 0)
}

// DiskState is the room on the disk of the logs and the steps below which less and less is taken. Without a reserve there are no steps.
type DiskState struct {
	RoomBytes                            int64 // -1: it cannot be told
	ShortBytes, TightBytes, ReserveBytes int64
	Level                                DiskLevel // as the guard saw it last
}

// Disk measures the room now.
func (m *Manager) Disk() DiskState {
	g := m.disk
	st := DiskState{RoomBytes: -1, ShortBytes: g.shortBytes, TightBytes: g.tightBytes, ReserveBytes: g.reserveBytes, Level: DiskLevel(g.level.Load())}
	if u, err := g.fs.GetDiskUsage(g.dir); err == nil {
		st.RoomBytes = int64(u.AvailBytes)
	}
	return st
}

// Settled says up to where the log is in the tier, or with -1 that nothing of it is on its way there. While the disk is
// tight, a log whose closed segments are not takes no appends.
func (l *Log) Settled(end int64) { l.settled.Store(end + 1) }

// WaitsForTier reports whether a closed segment is still to be uploaded, as far as Settled said.
func (l *Log) WaitsForTier() bool {
	to := l.settled.Load()
	return to > 0 && l.active().base > to-1
}
