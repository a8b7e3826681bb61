package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strings"
	"time"

	"varve/protocol"
	"varve/protocol/record"
)

// loadState is what the directory's checkpoints say of a log.
type loadState struct {
	clean         bool
	recoveryPoint int64
	logStart      int64 // -1 unknown
}

// folder is what lies in a partition folder.
type folder struct {
	bases   []int64
	indexes map[string]bool
}

// sweep lists a partition folder and removes what an interrupted step left
// there: temporary files, copies in the making, unused spare files, indexes without a log.
func sweep(fsys FS, dir string) (folder, error) {
	f := folder{indexes: map[string]bool{}}
	names, err := fsys.List(dir)
	if err != nil {
		return f, err
	}
	slices.Sort(names)
	for _, name := range names {
		if off, suffix, ok := parseFileName(name); ok && suffix == logSuffix {
			f.bases = append(f.bases, off)
		}
	}
	for _, name := range names {
		if !strings.HasSuffix(name, aheadSuffix) {
			continue
		}
		if err := f.adopt(fsys, dir, name); err != nil {
			return f, err
		}
	}
	for _, name := range names {
		off, suffix, ok := parseFileName(name)
		isIndex := ok && (suffix == indexSuffix || suffix == timeSuffix || suffix == txnSuffix)
		_, hasLog := slices.BinarySearch(f.bases, off)
		left := isIndex && !hasLog
		for _, s := range []string{tmpSuffix, cleanedSuffix, deletedSuffix, aheadSuffix, ".swap"} {
			left = left || (len(name) > len(s) && name[len(name)-len(s):] == s)
		}
		if left {
			if err := removeIfThere(fsys, fsys.PathJoin(dir, name)); err != nil {
				return f, err
			}
		} else if isIndex {
			f.indexes[name] = true
		}
	}
	return f, nil
}

// adopt gives a spare that was in use when the node stopped its name, by the offset of its first batch. Whether that is one,
// and follows what is there, recovery finds out; but a segment is never put among others.
func (f *folder) adopt(fsys FS, dir, name string) error {
	file, err := fsys.Open(fsys.PathJoin(dir, name))
	if err != nil {
		return err
	}
	var head [8]byte
	n, err := file.ReadAt(head[:], 0)
	if err = errors.Join(unlessEOF(err), file.Close()); err != nil || n < len(head) {
		return err
	}
	base := int64(binary.BigEndian.Uint64(head[:]))
	if last := len(f.bases) - 1; last < 0 || base <= f.bases[last] {
		return nil
	}
	f.bases = append(f.bases, base)
	return fsys.Rename(fsys.PathJoin(dir, name), fsys.PathJoin(dir, fileName(base, logSuffix)))
}

func unlessEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// load opens the segments of a partition folder and brings them into a state
// that holds all invariants, whatever the last stop was like.
func (l *Log) load(st loadState) error {
	began := time.Now()
	found, err := sweep(l.m.fs, l.dir)
	if err != nil {
		return err
	}
	epochs, err := l.loadEpochs()
	if err != nil {
		return err
	}
	l.logStart.Store(max(st.logStart, 0))
	if len(found.bases) == 0 {
		if err := l.startEmpty(l.logStart.Load(), newProducers()); err != nil {
			return err
		}
		return l.finishLoad(epochs, st)
	}
	if st.logStart < 0 {
		l.logStart.Store(found.bases[0])
	}
	r := recovery{l: l, st: st, epochs: epochs, event: LogRecovered{Partition: l.tp.String(), RecoveryPoint: st.recoveryPoint}}
	if err := r.open(found); err != nil {
		return err
	}
	if err := r.run(); err != nil {
		return err
	}
	l.setSegments(r.segs)
	end := r.segs[len(r.segs)-1].next()
	l.end.Store(end)
	l.recoveryPoint.Store(min(st.recoveryPoint, end))
	if st.clean {
		l.recoveryPoint.Store(end)
	}
	if err := l.finishLoad(r.epochs, st); err != nil {
		return err
	}
	if !st.clean {
		r.event.End, r.event.Took = end, time.Since(began)
		l.m.opts.Events.Emit(r.event)
	}
	return nil
}

// loadEpochs reads the leader epoch checkpoint. A damaged one is rebuilt from
// what recovery scans.
func (l *Log) loadEpochs() ([]EpochStart, error) {
	path := l.path(epochFile)
	data, err := readFile(l.m.fs, path, maxCheckpointBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	epochs, err := decodeEpochs(data, path)
	if err != nil {
		l.m.opts.Events.Emit(CheckpointDamaged{File: path, Err: err})
		return nil, nil
	}
	return epochs, nil
}

// finishLoad settles what depends on where the log ends.
func (l *Log) finishLoad(epochs []EpochStart, st loadState) error {
	l.epochs = newEpochCache(l.m.fs, l.path(epochFile), epochs)
	end := l.end.Load()
	if end < l.logStart.Load() {
		// The unclean stop lost records below the log start: begin there.
		segs := l.segments()
		if err := l.dropFromEnd(segs); err != nil {
			return err
		}
		if err := l.startEmpty(l.logStart.Load(), newProducers()); err != nil {
			return err
		}
		end = l.end.Load()
	}
	if err := l.m.lowerRecoveryPoint(l.tp, end); err != nil {
		return err
	}
	if err := l.dropSnapshots(func(at int64) bool { return at > end }); err != nil {
		return err
	}
	// An epoch that begins right at the end is kept: its leader may have written
	// nothing, or the log start may have reached the end.
	if err := l.epochs.truncateEnd(end + 1); err != nil {
		return err
	}
	if err := l.epochs.truncateStart(l.logStart.Load()); err != nil {
		return err
	}
	if l.recoveryPoint.Load() < end || !st.clean {
		_, err := l.flush(true)
		return err
	}
	return nil
}

// recovery brings the segments of one folder into order.
type recovery struct {
	l      *Log
	st     loadState
	segs   []*segment
	epochs []EpochStart
	event  LogRecovered
}

// open makes segments of the files, trusting sizes and names.
func (r *recovery) open(found folder) error {
	c := r.l.m.cache
	for i, base := range found.bases {
		s := newSegment(c, r.l.dir, base)
		last := i == len(found.bases)-1
		s.log = c.oldFile(s.log.path, last)
		st, err := c.fs.Stat(s.log.path)
		if err != nil {
			return err
		}
		s.createdMs = min(st.ModTime().UnixMilli(), r.l.m.nowMs())
		if st.Size() > math.MaxInt32 {
			return &protocol.CorruptionError{Where: s.log.path, What: "log file is larger than a segment can be"}
		}
		next := base
		if !last {
			next = min(found.bases[i+1], base+math.MaxInt32+1)
		}
		s.setEnds(st.Size(), next)
		for _, x := range s.indexes() {
			if !found.indexes[c.fs.PathBase(x.file.path)] {
				continue
			}
			x.file = c.oldFile(x.file.path, true)
			ist, err := c.fs.Stat(x.file.path)
			if err != nil {
				return err
			}
			x.onDisk = int(ist.Size()) / x.width
			if ist.Size()%int64(x.width) != 0 {
				x.onDisk = -1 // sound says no
			}
		}
		r.segs = append(r.segs, s)
	}
	return nil
}

// run checks or rebuilds each segment and computes the producer state.
func (r *recovery) run() error {
	first := len(r.segs) // first one to be recovered
	for i, s := range r.segs {
		last := i == len(r.segs)-1
		if r.needsScan(s, last) {
			first = i
			break
		}
		err := r.trust(s, last)
		var corrupt *protocol.CorruptionError
		if errors.As(err, &corrupt) {
			first = i // the folder was touched while the broker was down
			break
		}
		if err != nil {
			return err
		}
	}
	if first == len(r.segs) {
		ps, err := r.l.producersAt(r.segs, r.segs[first-1].next())
		if err != nil {
			return err
		}
		r.l.producers.become(ps)
		return nil
	}
	ps, err := r.l.producersAt(r.segs[:max(first, 1)], r.segs[first].base)
	if err != nil {
		return err
	}
	r.l.producers.become(ps)
	for i := first; i < len(r.segs); i++ {
		whole, err := r.scan(r.segs[i], i == len(r.segs)-1)
		if err != nil {
			return err
		}
		hole := i+1 < len(r.segs) && r.segs[i].next() != r.segs[i+1].base && r.segs[i+1].base >= r.st.recoveryPoint
		if !whole || hole {
			if err := r.dropAfter(i); err != nil {
				return err
			}
		}
		if i < len(r.segs)-1 {
			if err := r.seal(r.segs[i], r.segs[i+1].base); err != nil {
				return err
			}
		}
	}
	return nil
}

// needsScan: after an unclean stop nothing that reaches the recovery point is
// trusted, not even the indexes of a segment that ends there, because a segment
// may have been flushed before it was sealed.
func (r *recovery) needsScan(s *segment, last bool) bool {
	if !r.st.clean && (last || s.next() >= r.st.recoveryPoint) {
		return true
	}
	return !s.sound(last)
}

// sound holds the index files against the log's size and the segment's range, by
// their last entries.
func (s *segment) sound(last bool) bool {
	var e [maxEntryBytes]byte
	v := s.view()
	bound := v.next
	if last {
		bound = s.base + int64(1)<<31
	}
	for _, x := range s.indexes() {
		if x.onDisk < 0 || (!x.file.exists && x != s.txns) {
			return false
		}
		ok, err := x.last(e[:])
		if err != nil {
			return false
		}
		if !ok {
			continue
		}
		at, pos := s.base, int64(0)
		switch x {
		case s.offsets:
			at, pos = offsetEntry(e[:])
			at += s.base
		case s.times:
			_, at = timeEntry(e[:])
			at += s.base
		case s.txns:
			at = txnEntry(e[:]).LastOffset
		}
		if at < s.base || at >= bound || pos < 0 || pos >= max(v.size, 1) {
			return false
		}
	}
	return true
}

// trust takes over a segment as its indexes describe it. Of a sealed one that
// is one entry of the time index; of the active one, the end as well.
func (r *recovery) trust(s *segment, last bool) error {
	if !last {
		var e [timeEntryBytes]byte
		ok, err := s.times.last(e[:])
		if ok {
			ts, rel := timeEntry(e[:])
			s.maxTimestamp.Store(ts)
			s.maxTimestampOffset, s.lastTimeEntry = s.base+rel, ts
		}
		return err
	}
	pos, err := s.lastIndexed()
	if err != nil {
		return err
	}
	if err := s.log.acquire(); err != nil {
		return err
	}
	defer s.log.release()
	v := s.view()
	scan := s.scan(pos, v)
	defer scan.close()
	for {
		h, _, _, err := scan.next()
		if errors.Is(err, io.EOF) {
			s.setEnds(v.size, v.next)
			return s.loadSums()
		}
		if err != nil {
			return err
		}
		v.next = h.NextOffset()
	}
}

// scan walks a segment from its start, rebuilding indexes, producers and
// epochs. Batches at or past the recovery point have their CRC checked; the
// file is cut at the first that is not whole. It reports whether none was cut.
func (r *recovery) scan(s *segment, last bool) (whole bool, err error) {
	r.event.Segments++
	r.l.dirDirty.Store(true) // the indexes become new files
	v := s.view()
	for _, x := range s.indexes() {
		if err := x.file.remove(); err != nil {
			return false, err
		}
		x.file = s.log.cache.newFile(x.file.path)
		x.onDisk, x.tail, x.firsts = 0, nil, nil
	}
	s.resetState()
	s.reservedBytes.Store(v.size + 1) // what the life before had reserved is not known: enough for giveBack to act
	if err := s.log.acquire(); err != nil {
		return false, err
	}
	defer s.log.release()
	if err := r.walkDurable(s, v); err != nil {
		return false, err
	}
	cause := r.walkChecked(s, v)
	var broken *protocol.CorruptionError
	if cause != nil && !errors.As(cause, &broken) {
		return false, cause
	}
	kept := s.size()
	if kept == v.size {
		return true, nil
	}
	r.event.TruncatedBytes += v.size - kept
	r.event.Cause = cause.Error()
	if err := s.log.truncate(kept); err != nil {
		return false, err
	}
	return false, s.log.sync()
}

// walkDurable takes in what lies below the recovery point by its headers. It
// stops early, without an error, where a header makes no sense; walkChecked
// then finds out.
func (r *recovery) walkDurable(s *segment, v view) error {
	if r.st.recoveryPoint <= s.base {
		return nil
	}
	scan := s.scan(0, v)
	defer scan.close()
	for {
		h, pos, size, err := scan.next()
		var corrupt *protocol.CorruptionError
		if errors.Is(err, io.EOF) || errors.As(err, &corrupt) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.LastOffset() >= r.st.recoveryPoint || !r.follows(s, h) {
			return nil
		}
		if h.Control() {
			b, err := readBatch(s.log, s.log.path, pos, size)
			if err != nil {
				return err
			}
			h = b
		}
		r.take(s, h, pos, size)
	}
}

// walkChecked takes in the rest. A CorruptionError says why it ended before
// the end of v.
func (r *recovery) walkChecked(s *segment, v view) error {
	scan := batchScan{src: s.log, pos: s.size(), end: v.size}
	broken := func(pos int64, err error) error {
		return &protocol.CorruptionError{Where: fmt.Sprintf("%s at byte %d", s.log.path, pos), What: err.Error()}
	}
	for {
		b, pos, err := scan.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		var code *protocol.Error
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &code) {
			return broken(pos, err)
		}
		if err != nil {
			return err
		}
		if err := b.CheckCRC(); err != nil {
			return broken(pos, err)
		}
		if !r.follows(s, b) {
			return broken(pos, fmt.Errorf("%s follows offset %d", b, s.next()-1))
		}
		r.take(s, b, pos, int64(b.Size()))
	}
}

// follows reports whether a batch can stand after what s holds.
func (r *recovery) follows(s *segment, h record.Batch) bool {
	return h.BaseOffset() >= 0 && h.LastOffsetDelta() >= 0 && h.LastOffset() >= s.next() &&
		(s.size() == 0 || h.BaseOffset() >= s.next()) && fitsRelative(s.base, h.LastOffset())
}

func (r *recovery) take(s *segment, b record.Batch, pos, size int64) {
	s.note(b, pos, size, r.l.cfg.Load().IndexIntervalBytes)
	r.l.track(s, b)
	if n := len(r.epochs); b.LeaderEpoch() >= 0 && (n == 0 || b.LeaderEpoch() > r.epochs[n-1].Epoch) {
		r.epochs = append(r.epochs, EpochStart{Epoch: b.LeaderEpoch(), Start: b.BaseOffset()})
	}
}

// dropAfter removes the segments after i, which would leave a hole.
func (r *recovery) dropAfter(i int) error {
	gone := r.segs[i+1:]
	if len(gone) == 0 {
		return nil
	}
	r.event.DroppedSegments += len(gone)
	if r.event.Cause == "" {
		r.event.Cause = fmt.Sprintf("the segment at %d ends at %d", r.segs[i].base, r.segs[i].next())
	}
	r.segs = r.segs[:i+1]
	r.segs[i].log.makeWritable()
	return r.l.dropFromEnd(gone)
}

// seal finishes a recovered segment that is not the last, and writes the
// producer snapshot at its end if the crash took it.
func (r *recovery) seal(s *segment, next int64) error {
	if err := s.seal(); err != nil {
		return err
	}
	path := r.l.path(fileName(next, snapshotSuffix))
	if data, err := readFile(r.l.m.fs, path, maxSnapshotBytes); err == nil {
		if _, err := decodeProducers(data, path); err == nil {
			return nil
		}
	}
	return r.l.takeSnapshot(next)
}
