package commitlog

// Blocks are reserved ahead of the writes of a segment that grows: a write then finds its blocks mapped, which costs a
// third less than having the file system account for each new page. What is ahead is a part of what is there, so that a
// partition that trickles reserves nothing to speak of, and more only for one that will fill it soon: to reserve may
// have to wait for the disk, which a write into reserved blocks never does.
const (
	reserveFromBytes = 1 << 20 // smaller segments reserve nothing
	reserveStepBytes = 8 << 20 // the most that is reserved ahead of a slow segment
	reserveAhead     = 4       // a fourth of the segment's size is
	// reserveFromShare of a segment's bound is where small ones begin.
	reserveFromShare = 4
	// reserveAheadMs is for how long what is reserved shall last, at the rate that the segment has grown with. Beside
	// a slow segment's step that holds for as much again as is there.
	reserveAheadMs = 60_000
)

// reserve asks for blocks before a write up to end, which goes beyond those reserved. It is a request: when it cannot
// be met (the file system has no such thing, the disk is full) the write itself will say what there is to say.
func (s *segment) reserve(end, segmentBytes, nowMs int64, disk *diskGuard) {
	if end < min(reserveFromBytes, segmentBytes/reserveFromShare) || !disk.roomy() {
		return
	}
	from := max(s.reservedBytes, s.size())
	step := min(end/reserveAhead, reserveStepBytes)
	if soon := min(s.soonBytes(nowMs), end); soon > step && disk.roomFor(soon) {
		step = soon
	}
	s.reservedBytes = max(end, min(end+step, segmentBytes))
	_ = s.log.preallocate(from, s.reservedBytes-from)
}

// soonBytes is what will come within reserveAheadMs when it goes on as it did since the segment began.
func (s *segment) soonBytes(nowMs int64) int64 {
	return int64(float64(s.size()) * reserveAheadMs / float64(max(nowMs-s.createdMs, 1)))
}

// giveBack frees the blocks behind the end of a segment that grows no more. A failure costs room on the disk and no
// more than that; one that means more comes back from the sync that follows.
func (s *segment) giveBack() {
	size := s.size()
	if s.reservedBytes <= size || s.log.acquire() != nil {
		return
	}
	defer s.log.release()
	s.reservedBytes = size
	s.log.dropAhead(size)
}
