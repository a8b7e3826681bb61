package commitlog

// Blocks are reserved ahead of the writes of a segment that grows: a write then finds its blocks mapped, which costs a
// third less than having the file system account for each new page. What is ahead is a part of what is there, so that a
// partition that trickles reserves nothing to speak of.
const (
	reserveFromBytes = 1 << 20 // smaller segments reserve nothing
	reserveStepBytes = 8 << 20 // the most that is reserved ahead
	reserveAhead     = 4       // a fourth of the segment's size is
	// reserveFromShare of a segment's bound is where small ones begin.
	reserveFromShare = 4
)

// reserve asks for blocks before a write up to end, which goes beyond those reserved. It is a request: when it cannot
// be met (the file system has no such thing, the disk is full) the write itself will say what there is to say.
func (s *segment) reserve(end, segmentBytes int64, disk *diskGuard) {
	if end < min(reserveFromBytes, segmentBytes/reserveFromShare) || !disk.roomy() {
		return
	}
	from := max(s.reservedBytes, s.size())
	s.reservedBytes = max(end, min(end+min(end/reserveAhead, reserveStepBytes), segmentBytes))
	_ = s.log.preallocate(from, s.reservedBytes-from)
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
