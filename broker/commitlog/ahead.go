package commitlog

import (
	"context"
)

// What appends need of the disk, but for the write itself, is done ahead of them or after them, by one goroutine for all
// logs: full blocks of the active segment's indexes are written, blocks are reserved for it (reserve.go), and the next
// segment's log file is made, with its blocks, while the one before it still has room. A roll then takes the open file and
// no more; its name follows later (log_roll.go). Otherwise an append waits while the file system looks for a free inode or
// free blocks, which may mean reading its bitmaps behind whatever else the disk is writing. Only a segment that will be
// full soon has a spare.
const (
	// spareFromShare of a segment's bound is where the next one is prepared.
	spareFromShare = 2
	// spareKeepMs is how long a spare that nobody used is kept.
	spareKeepMs = 2 * reserveAheadMs
	// tendLogsMax bounds the logs that wait to be tended; one that finds no room asks again with its next append.
	tendLogsMax = 256
)

// spareFile is an empty log file without a segment.
type spareFile struct {
	file          *diskFile
	reservedBytes int64
}

// askTend has done for the active segment what is due. The caller holds l.mu.
func (l *Log) askTend(active *segment, cfg *Config) {
	due := l.wishSpare(active, cfg) || active.reserveDue(active.size(), int64(cfg.SegmentBytes)) && l.m.disk.roomy()
	for _, x := range active.indexes() {
		due = due || x.spillDue()
	}
	if !due || l.tendAsked.Swap(true) {
		return
	}
	select {
	case l.m.tending <- l:
	default:
		l.tendAsked.Store(false)
	}
}

// wishSpare says whether the next segment's file is to be made, because the active one will be full soon.
func (l *Log) wishSpare(active *segment, cfg *Config) bool {
	size, bound := active.size(), int64(cfg.SegmentBytes)
	if l.spareAsked || size < bound/spareFromShare || !l.m.disk.roomy() {
		return l.spareBytes > 0
	}
	soon := active.soonBytes(l.m.nowMs())
	if soon < bound-size || min(soon, bound) < reserveFromBytes {
		return false
	}
	l.spareAsked, l.spareBytes = true, min(soon, bound)
	return true
}

// tendAll tends the logs that ask for it, one at a time, until ctx ends.
func (m *Manager) tendAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case l := <-m.tending:
			l.tend()
		}
	}
}

// tend does what is due. What fails is for the appends to do, which say what there is to say.
func (l *Log) tend() {
	l.tendAsked.Store(false)
	for _, x := range l.active().indexes() {
		if x.spillDue() {
			_ = x.flush()
		}
	}
	l.reserveAhead()
	l.mu.Lock()
	bytes := l.spareBytes
	l.spareBytes = 0
	l.mu.Unlock()
	if bytes > 0 {
		l.makeSpare(bytes)
	}
}

// makeSpare prepares the next segment's file. A failure leaves none: the roll then makes the file, and says what there is
// to say. Structure keeps the folder from being given away meanwhile.
func (l *Log) makeSpare(reservedBytes int64) {
	l.structure.Lock()
	defer l.structure.Unlock()
	l.prepareSpare(reservedBytes)
}

// prepareSpare is makeSpare for those that hold structure. The file stays open: the roll shall not have to look for it.
func (l *Log) prepareSpare(reservedBytes int64) {
	cfg := l.cfg.Load()
	if cfg.Preallocate {
		reservedBytes = int64(cfg.SegmentBytes)
	}
	l.mu.Lock()
	wanted := l.closed == nil && l.leftover == nil && l.m.offlineError() == nil && l.spare == nil
	name := fileName(l.active().base, aheadSuffix)
	l.mu.Unlock()
	if !wanted || reservedBytes > 0 && !l.m.disk.roomFor(reservedBytes) {
		return
	}
	s := &spareFile{file: l.m.cache.newFile(l.path(name)), reservedBytes: reservedBytes}
	err := s.file.acquire()
	if err == nil {
		s.file.release()
		if reservedBytes > 0 {
			err = s.file.preallocate(0, reservedBytes)
			s.file.addBallast()
		}
	}
	if err != nil {
		_ = s.file.remove()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spare = s
	l.spareSince.Store(l.m.nowMs())
}

// useSpare makes the spare, if there is one, the log file of a new segment; finishRoll tells the disk. The caller holds l.mu.
func (l *Log) useSpare(s *segment) bool {
	spare := l.takeSpare()
	if spare == nil {
		return false
	}
	spare.file.become(s.log.path)
	s.log = spare.file
	s.reservedBytes.Store(spare.reservedBytes)
	s.ballast = spare.reservedBytes > 0
	return true
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
