package commitlog

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"varve/protocol"
	"varve/protocol/record"
)

// Suffixes of a partition folder's files (LogFileUtils.java).
const (
	logSuffix      = ".log"
	indexSuffix    = ".index"
	timeSuffix     = ".timeindex"
	txnSuffix      = ".txnindex"
	snapshotSuffix = ".snapshot"
	cleanedSuffix  = ".cleaned" // a copy in the making
	deletedSuffix  = ".deleted" // left by Apache Kafka
	tmpSuffix      = ".tmp"
	aheadSuffix    = ".ahead" // the log file of a segment to come
)

func fileName(offset int64, suffix string) string { return fmt.Sprintf("%020d%s", offset, suffix) }

// parseFileName takes a segment file's name apart.
func parseFileName(name string) (offset int64, suffix string, ok bool) {
	digits, ext, found := strings.Cut(name, ".")
	if !found || len(digits) != 20 {
		return 0, "", false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, "", false
		}
	}
	offset, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, "", false
	}
	return offset, "." + ext, true
}

// segment is a run of offsets [base, next) in one log file with its indexes.
// Only the last one of a log grows. Fields without a note are changed by the
// writer, under the log's lock.
type segment struct {
	base int64
	log  *diskFile
	// ends is where the segment ends, in bytes and in offsets, in one word so
	// that readers see both of the same moment; stored after the bytes are
	// written. Upper half: next offset - base; lower half: valid bytes.
	ends atomic.Uint64

	offsets, times, txns *index
	hints                hints

	maxTimestamp       atomic.Int64 // record.NoTimestamp for none
	maxTimestampOffset int64        // last offset of the first batch that has it
	lastTimeEntry      int64        // newest timestamp in the time index

	firstTimestamp  int64 // largest timestamp of the first batch, record.NoTimestamp unknown
	createdMs       int64
	jitterMs        int64
	bytesSinceIndex int64
	unsyncedSeal    bool // sealed, and not yet synced as a whole

	reserving     sync.Mutex   // of blocks being reserved or given back, so that none are left behind
	reservedBytes atomic.Int64 // of the log file: blocks up to here may be there already; changed under reserving
	ballast       bool         // may be there too; under reserving
}

func newSegment(cache *fileCache, dir string, base int64) *segment {
	path := func(suffix string) string { return filepath.Join(dir, fileName(base, suffix)) }
	s := &segment{
		base:    base,
		log:     cache.newFile(path(logSuffix)),
		offsets: newIndex(cache.newFile(path(indexSuffix)), offsetEntryBytes),
		times:   newIndex(cache.newFile(path(timeSuffix)), timeEntryBytes),
		txns:    newIndex(cache.newFile(path(txnSuffix)), txnEntryBytes),
	}
	s.resetState()
	return s
}

func (s *segment) resetState() {
	s.setEnds(0, s.base)
	s.maxTimestamp.Store(record.NoTimestamp)
	s.maxTimestampOffset = -1
	s.lastTimeEntry = record.NoTimestamp
	s.firstTimestamp = record.NoTimestamp
	s.bytesSinceIndex = 0
}

// view is what of a segment is valid at one moment.
type view struct{ size, next int64 }

func (s *segment) view() view {
	e := s.ends.Load()
	return view{size: int64(e & math.MaxUint32), next: s.base + int64(e>>32)}
}

func (s *segment) setEnds(size, next int64) { s.ends.Store(uint64(next-s.base)<<32 | uint64(size)) }

func (s *segment) size() int64 { return s.view().size }
func (s *segment) next() int64 { return s.view().next }

func (s *segment) indexes() []*index { return []*index{s.offsets, s.times, s.txns} }

// note takes a batch that stands at pos into the indexes and sums
// (LogSegment.append).
func (s *segment) note(b record.Batch, pos, size int64, intervalBytes int32) {
	last := b.LastOffset()
	if pos == 0 {
		s.firstTimestamp = b.MaxTimestamp()
	}
	if ts := b.MaxTimestamp(); ts > s.maxTimestamp.Load() {
		s.maxTimestamp.Store(ts)
		s.maxTimestampOffset = last
	}
	if s.bytesSinceIndex > int64(intervalBytes) {
		var e [offsetEntryBytes]byte
		putOffsetEntry(e[:], int32(last-s.base), int32(pos))
		s.offsets.append(e[:])
		s.noteTime()
		s.bytesSinceIndex = 0
	}
	s.bytesSinceIndex += size
	s.setEnds(pos+size, last+1)
}

// noteTime adds the largest timestamp so far to the time index unless that
// already says it (TimeIndex.maybeAppend).
func (s *segment) noteTime() {
	ts := s.maxTimestamp.Load()
	if ts <= s.lastTimeEntry {
		return
	}
	var e [timeEntryBytes]byte
	putTimeEntry(e[:], ts, int32(s.maxTimestampOffset-s.base))
	s.times.append(e[:])
	s.lastTimeEntry = ts
}

func (s *segment) noteAborted(t AbortedTxn) {
	var e [txnEntryBytes]byte
	putTxnEntry(e[:], t)
	s.txns.append(e[:])
}

// seal ends the segment: it grows no more.
func (s *segment) seal() error {
	s.end()
	return s.sealIndexes()
}

// end is what of seal needs no disk.
func (s *segment) end() {
	s.noteTime()
	s.unsyncedSeal = true
}

// sealIndexes writes the indexes out to their exact size. It may be called again after an error.
func (s *segment) sealIndexes() error {
	return errors.Join(s.offsets.seal(true), s.times.seal(true), s.txns.seal(false))
}

// sync makes the segment durable; the indexes only when it is sealed, as those
// of the active one are rebuilt after a crash.
func (s *segment) sync(sealed bool) error {
	err := s.log.sync() // first: while it is written out the ballast is of use
	if err == nil && sealed && s.giveBack() {
		err = s.log.sync()
	}
	if err != nil || !sealed {
		return err
	}
	return errors.Join(s.offsets.sync(), s.times.sync(), s.txns.sync())
}

// remove unlinks all files, the log first: indexes without a log are swept at
// the next start, a log without indexes would be recovered.
func (s *segment) remove() error {
	err := s.log.remove()
	for _, x := range s.indexes() {
		err = errors.Join(err, x.file.remove())
	}
	return err
}

func (s *segment) abandon() {
	s.log.abandon()
	for _, x := range s.indexes() {
		x.file.abandon()
	}
}

// positionBefore returns where a batch begins that is not after the one that
// holds off.
func (s *segment) positionBefore(off int64) (int64, error) {
	return s.lastPosition(func(e []byte) bool {
		rel, _ := offsetEntry(e)
		return s.base+rel > off
	})
}

// boundaryBelow returns the last indexed place at or below pos where a batch
// begins.
func (s *segment) boundaryBelow(pos int64) (int64, error) {
	return s.lastPosition(func(e []byte) bool {
		_, at := offsetEntry(e)
		return at > pos
	})
}

// lastPosition returns the position in the last entry for which after is false, 0
// when there is none.
func (s *segment) lastPosition(after func(e []byte) bool) (int64, error) {
	var e [offsetEntryBytes]byte // zero: the segment's begin
	if _, err := s.offsets.search(after, e[:]); err != nil {
		return 0, err
	}
	return s.indexPosition(e[:])
}

func (s *segment) indexPosition(e []byte) (int64, error) {
	_, pos := offsetEntry(e)
	if pos < 0 {
		return 0, &protocol.CorruptionError{Where: s.offsets.file.path, What: fmt.Sprintf("an entry has position %d", pos)}
	}
	return pos, nil
}

// lastIndexed returns the position in the newest entry, 0 when there is none.
func (s *segment) lastIndexed() (int64, error) {
	var e [offsetEntryBytes]byte
	if _, err := s.offsets.last(e[:]); err != nil {
		return 0, err
	}
	return s.indexPosition(e[:])
}

// scan walks headers from pos to the end of v; the log file must be pinned.
func (s *segment) scan(pos int64, v view) headerScan {
	return scanHeaders(s.log, s.log.path, pos, v.size)
}

// find returns the first batch in v whose last offset is at or above off; size 0
// and v's end when there is none. The log file must be pinned.
func (s *segment) find(off int64, v view) (base, pos, size int64, err error) {
	pos, err = s.positionBefore(off)
	if err != nil {
		return 0, 0, 0, err
	}
	scan := s.scan(min(pos, v.size), v)
	defer scan.close()
	for {
		h, pos, size, err := scan.next()
		if errors.Is(err, io.EOF) {
			return v.next, v.size, 0, nil
		}
		if err != nil {
			return 0, 0, 0, err
		}
		if h.LastOffset() >= off {
			return h.BaseOffset(), pos, size, nil
		}
	}
}

// timeFloor returns the offset of the newest time index entry below ts, base
// when there is none: no record up to that offset is at or after ts.
func (s *segment) timeFloor(ts int64) (int64, error) {
	var e [timeEntryBytes]byte
	i, err := s.times.search(func(e []byte) bool {
		at, _ := timeEntry(e)
		return at >= ts
	}, e[:])
	if err != nil || i == 0 {
		return s.base, err
	}
	_, rel := timeEntry(e[:])
	return s.base + rel, nil
}

// mustRoll reports whether a run of size bytes up to offset last with largest
// timestamp ts goes into a new segment (LogSegment.shouldRoll).
func (s *segment) mustRoll(c *Config, size, last, ts int64, nowMs func() int64) bool {
	if !fitsRelative(s.base, last) {
		return true
	}
	return s.size() > 0 && (s.size() > int64(c.SegmentBytes)-size ||
		s.waitedMs(ts, nowMs) > c.SegmentMs-s.jitterMs || s.indexFull(c))
}

// waitedMs is the age that segment.ms is held against: by the records' time
// where they have one.
func (s *segment) waitedMs(ts int64, nowMs func() int64) int64 {
	if s.firstTimestamp >= 0 && ts >= 0 {
		return ts - s.firstTimestamp
	}
	return nowMs() - s.createdMs
}

func (s *segment) indexFull(c *Config) bool {
	return s.offsets.count() >= int(c.SegmentIndexBytes)/offsetEntryBytes ||
		s.times.count() >= int(c.SegmentIndexBytes)/timeEntryBytes-1
}
