package commitlog

// Blocks are reserved ahead of the writes of a segment that grows: a write then finds its blocks mapped, which costs a
// third less than having the file system account for each new page. What is ahead is a part of what is there, so that a
// partition that trickles reserves nothing to speak of, and more only for one that will fill it soon: to reserve may
// have to wait for the disk. It is done beside the appends; those to the same file wait in the kernel while it lasts, which
// is why a segment that fills soon has it done before it begins (ahead.go).
const (
	reserveFromBytes = 1 << 20 // smaller segments reserve nothing
	reserveStepBytes = 8 << 20 // the most that is reserved ahead of a slow segment
	reserveAhead     = 4       // a fourth of the segment's size is
	// reserveFromShare of a segment's bound is where small ones begin.
	reserveFromShare = 4
	// reserveAheadMs is for how long what is reserved shall last, at the rate that the segment has grown with. Beside
	// a slow segment's step that holds for as much again as is there.
	reserveAheadMs = 60_000

	// Ballast is a few blocks far behind the end of a file that has blocks reserved, apart from each other: one more than
	// the extents that ext4 keeps in an inode. With fewer extents in all, as a segment of one run of blocks has, write-back
	// of reserved blocks makes a block of the extent tree and frees it again a moment later, all the time. Without a journal
	// and with the mount option discard ext4 waits for the disk to discard that block (122 ms were seen), and holds the lock
	// of the file's blocks meanwhile, which the end of an append needs. Elsewhere ballast costs a few blocks for a while.
	ballastBlocks    = 5
	ballastBytes     = 4096      // of each, or a block where they are larger
	ballastFromBytes = 4 << 30   // behind the largest segment
	ballastStepBytes = 128 << 10 // from one to the next
)

// reserveDue says whether a segment of so many bytes will soon go beyond what is reserved for it, and may have more.
func (s *segment) reserveDue(size, segmentBytes int64) bool {
	have := s.reservedBytes.Load()
	return have < segmentBytes && size >= min(reserveFromBytes, segmentBytes/reserveFromShare) &&
		have-size < min(size/reserveAhead, reserveStepBytes)/2
}

// reserveAhead asks for blocks for the active segment, if it is time to.
func (l *Log) reserveAhead() {
	seg, bound := l.active(), int64(l.cfg.Load().SegmentBytes)
	seg.reserving.Lock()
	defer seg.reserving.Unlock()
	l.mu.Lock()
	grows := l.closed == nil && l.active() == seg
	size, soon := seg.size(), seg.soonBytes(l.m.nowMs())
	l.mu.Unlock()
	if grows && seg.reserveDue(size, bound) {
		seg.reserve(size, bound, soon, l.m.disk)
	}
}

// reserve asks for blocks behind end, of which soon will be needed before long. It is a request: when it cannot be met
// (the file system has no such thing, the disk is full) the write itself will say what there is to say. The caller holds
// reserving.
func (s *segment) reserve(end, segmentBytes, soon int64, disk *diskGuard) {
	if !disk.roomy() {
		return
	}
	from := max(s.reservedBytes.Load(), end)
	step := min(end/reserveAhead, reserveStepBytes)
	if soon = min(soon, end); soon > step && disk.roomFor(soon) {
		step = soon
	}
	to := max(end, min(end+step, segmentBytes))
	s.reservedBytes.Store(to)
	if !s.ballast {
		s.ballast = true
		s.log.addBallast()
	}
	if to > from {
		_ = s.log.preallocate(from, to-from)
	}
}

// soonBytes is what will come within reserveAheadMs when it goes on as it did since the segment began.
func (s *segment) soonBytes(nowMs int64) int64 {
	return int64(float64(s.size()) * reserveAheadMs / float64(max(nowMs-s.createdMs, 1)))
}

// addBallast asks for the file's ballast. Where it cannot be had the file does without.
func (d *diskFile) addBallast() {
	for i := range int64(ballastBlocks) {
		if d.preallocate(ballastFromBytes+i*ballastStepBytes, ballastBytes) != nil {
			return
		}
	}
}

// giveBack frees the blocks behind the end of a segment that grows no more, and says whether there may have been some. A
// failure costs room on the disk and no more than that; one that means more comes back from the sync that follows.
func (s *segment) giveBack() bool {
	s.reserving.Lock()
	defer s.reserving.Unlock()
	size := s.size()
	if s.reservedBytes.Load() <= size && !s.ballast || s.log.acquire() != nil {
		return false
	}
	defer s.log.release()
	s.reservedBytes.Store(size)
	s.ballast = false
	s.log.dropAhead(size)
	return true
}
