package commitlog

import (
	"context"
)

// A segment's log file is made, and its blocks are reserved, while the one before it still has room: a roll then only
// gives the file its name. Otherwise an append waits while the file system looks for free blocks, which may mean reading
// its bitmaps behind whatever else the disk is writing; nor may it be done beside the appends to the same file, which
// the kernel has wait for it. Only a segment that will be full soon has a spare.
const (
	// spareFromShare of a segment's bound is where the next one is prepared.
	spareFromShare = 2
	// spareKeepMs is how long a spare that nobody used is kept.
	spareKeepMs = 2 * reserveAheadMs
	// spareWishesMax bounds those that wait to be prepared; one that finds no room asks again with its next append.
	spareWishesMax = 256
)

// spareFile is an empty log file without a segment.
type spareFile struct {
	file          *diskFile
	reservedBytes int64
}

// spareWish asks for the spare of a log.
type spareWish struct {
	l             *Log
	reservedBytes int64
}

// askSpare has the next segment's file made when the active one will be full soon. The caller holds l.mu.
func (l *Log) askSpare(active *segment, cfg *Config) {
	size, bound := active.size(), int64(cfg.SegmentBytes)
	if l.spareAsked || size < bound/spareFromShare || !l.m.disk.roomy() {
		return
	}
	soon := active.soonBytes(l.m.nowMs())
	if soon < bound-size || min(soon, bound) < reserveFromBytes {
		return
	}
	select {
	case l.m.spares <- spareWish{l, min(soon, bound)}:
		l.spareAsked = true
	default:
	}
}

// makeSpares serves the wishes of all logs, one at a time, until ctx ends.
func (m *Manager) makeSpares(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-m.spares:
			w.l.makeSpare(w.reservedBytes)
		}
	}
}

// makeSpare prepares the next segment's file. A failure leaves none: the roll then makes the file, and says what there is
// to say. Structure keeps the folder from being given away meanwhile.
func (l *Log) makeSpare(reservedBytes int64) {
	l.structure.Lock()
	defer l.structure.Unlock()
	l.mu.Lock()
	wanted := l.writable() == nil && l.spare == nil
	name := fileName(l.active().base, aheadSuffix)
	l.mu.Unlock()
	if !wanted || !l.m.disk.roomFor(reservedBytes) {
		return
	}
	s := &spareFile{file: l.m.cache.newFile(l.path(name)), reservedBytes: reservedBytes}
	err := s.file.preallocate(0, reservedBytes)
	s.file.closeIdle() // the active segment's log is the only descriptor an idle partition keeps
	if err != nil {
		_ = s.file.remove()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spare = s
	l.spareSince.Store(l.m.nowMs())
}

// useSpare makes the spare, if there is one, the log file of a new segment. The caller holds l.mu, or nobody else knows l.
func (l *Log) useSpare(s *segment) {
	spare := l.takeSpare()
	if spare == nil {
		return
	}
	if err := spare.file.rename(s.log.path); err != nil {
		_ = spare.file.remove() // what is wrong with the folder shows when the file is made
		return
	}
	s.log, s.reservedBytes = spare.file, spare.reservedBytes
}

// takeSpare takes the spare, if there is one, away from the log. The caller holds l.mu.
func (l *Log) takeSpare() *spareFile {
	s := l.spare
	l.spare, l.spareAsked = nil, false
	l.spareSince.Store(0)
	return s
}

// expireSpare removes a spare that was not used in time, or that stands where room is short, with what it holds of the
// disk.
func (l *Log) expireSpare(nowMs int64) {
	if since := l.spareSince.Load(); since == 0 || nowMs-since < spareKeepMs && l.m.disk.roomy() {
		return
	}
	l.structure.Lock() // the name may be used again once the file is gone
	defer l.structure.Unlock()
	l.mu.Lock()
	var spare *spareFile
	if l.closed == nil {
		spare = l.takeSpare()
	}
	l.mu.Unlock()
	if spare != nil {
		_ = l.diskError("removing a spare file", spare.file.remove()) // it takes the directory offline, which all hear of
	}
}
