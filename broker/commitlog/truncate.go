package commitlog

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"varve/protocol"
	"varve/protocol/record"
)

// TruncateTo drops everything from off on; a batch that off falls into goes
// whole, so End may end up below off. An off below the first segment leaves an
// empty log that begins there. It is durable on return: the recovery point is
// lowered on disk first, and the cut is synced before anything can be written
// over it, so that old and new bytes never mix.
func (l *Log) TruncateTo(off int64) error {
	if off < 0 {
		return &protocol.InvariantError{What: fmt.Sprintf("truncation of %s to %d", l.tp, off)}
	}
	l.lockAll()
	defer l.unlockAll()
	if err := l.writableWhole(); err != nil {
		return err
	}
	if off >= l.end.Load() {
		return nil
	}
	off, err := l.batchStart(off)
	if err != nil {
		return l.readError(err)
	}
	if err := l.lowerRecoveryPoint(off); err != nil {
		return l.diskError("recovery point checkpoint", err)
	}
	var cut *segmentCut
	if i := floorSegment(l.segments(), off); i >= 0 {
		if cut, err = l.cutSegment(l.segments()[i], off); err != nil {
			return l.diskError("truncation", err)
		}
	}
	was := l.end.Load()
	if err := l.truncate(cut, off); err != nil {
		return l.m.goOffline(fmt.Errorf("truncation of %s to %d: %w", l.tp, off, err))
	}
	l.m.opts.Events.Emit(LogTruncated{Partition: l.tp.String(), From: was, To: l.end.Load()})
	return nil
}

// truncate ends the log at off, with cut, or begins it there when that is below
// all segments. There is no way back from the middle of it.
func (l *Log) truncate(cut *segmentCut, off int64) (err error) {
	l.reading.Add(1)
	defer l.reading.Add(1)
	if cut != nil {
		err = l.cutAt(cut, off)
	} else if err = l.dropFromEnd(l.segments()); err == nil {
		l.logStart.Store(min(l.logStart.Load(), off))
		err = l.startEmpty(off, newProducers())
	}
	if err != nil {
		return err
	}
	// Last: epochs forgotten before their records would be missing after a
	// crash, too many are dropped when the log is loaded.
	return l.epochs.truncateEnd(l.end.Load())
}

// batchStart returns where the batch begins that off falls into, else off.
func (l *Log) batchStart(off int64) (int64, error) {
	i := floorSegment(l.segments(), off)
	if i < 0 {
		return off, nil
	}
	s := l.segments()[i]
	if err := s.log.acquire(); err != nil {
		return 0, err
	}
	defer s.log.release()
	base, _, _, err := s.find(off, s.view())
	return min(base, off), err
}

// writableWhole is writable, once the last roll is finished.
func (l *Log) writableWhole() error {
	if err := l.writable(); err != nil {
		return err
	}
	return l.diskError("sealing a segment", l.finishRoll())
}

func (l *Log) lockAll() {
	l.structure.Lock()
	l.flushing.Lock()
	l.mu.Lock()
}

func (l *Log) unlockAll() {
	l.mu.Unlock()
	l.flushing.Unlock()
	l.structure.Unlock()
}

// lowerRecoveryPoint makes sure that no checkpoint claims that bytes from off
// on are durable.
func (l *Log) lowerRecoveryPoint(off int64) error {
	if l.recoveryPoint.Load() > off {
		l.recoveryPoint.Store(off)
	}
	return l.m.lowerRecoveryPoint(l.tp, off)
}

func (l *Log) cutAt(kept *segmentCut, off int64) error {
	segs := l.segments()
	i := floorSegment(segs, off)
	if err := l.dropFromEnd(segs[i+1:]); err != nil {
		return err
	}
	if err := kept.finish(); err != nil {
		return err
	}
	l.setSegments(append(slices.Clone(segs[:i]), kept.seg))
	l.end.Store(kept.seg.next())
	l.logStart.Store(min(l.logStart.Load(), l.end.Load()))
	l.recoveryPoint.Store(min(l.recoveryPoint.Load(), l.end.Load()))
	if err := l.dropSnapshots(func(at int64) bool { return at > l.end.Load() }); err != nil {
		return err
	}
	ps, err := l.producersAt(l.segments(), l.end.Load())
	if err != nil {
		return err
	}
	l.producers.become(ps)
	return nil
}

// dropFromEnd removes segments, the highest first and each durably before the
// next, so that a crash leaves no hole.
func (l *Log) dropFromEnd(segs []*segment) error {
	for _, s := range slices.Backward(segs) {
		if err := s.remove(); err != nil {
			return err
		}
		if err := syncDir(l.m.fs, l.dir); err != nil {
			return err
		}
	}
	return nil
}

// dropSnapshots durably removes the producer snapshots that which names.
func (l *Log) dropSnapshots(which func(at int64) bool) error {
	offsets, err := l.snapshotOffsets()
	if err != nil {
		return err
	}
	removed := false
	for _, at := range offsets {
		if !which(at) {
			continue
		}
		if err := removeIfThere(l.m.fs, l.path(fileName(at, snapshotSuffix))); err != nil {
			return err
		}
		removed = true
	}
	if !removed {
		return nil
	}
	return syncDir(l.m.fs, l.dir)
}

// snapshotOffsets lists the producer snapshots, oldest first.
func (l *Log) snapshotOffsets() ([]int64, error) {
	names, err := l.m.fs.List(l.dir)
	if err != nil {
		return nil, err
	}
	var out []int64
	for _, name := range names {
		if off, suffix, ok := parseFileName(name); ok && suffix == snapshotSuffix {
			out = append(out, off)
		}
	}
	slices.Sort(out)
	return out, nil
}

// segmentCut is a segment about to end earlier.
type segmentCut struct {
	seg  *segment // takes the old one's place
	size int64
	next int64
	copy string // where the kept bytes were copied to, "" to cut in place
}

// cutSegment prepares to end s at off, where no batch spans. While readers hold the file its kept
// part is copied, so that nobody is cut off.
func (l *Log) cutSegment(s *segment, off int64) (*segmentCut, error) {
	if err := s.log.acquire(); err != nil {
		return nil, err
	}
	_, pos, _, err := s.find(off, s.view())
	s.log.release()
	if err != nil {
		return nil, err
	}
	c := &segmentCut{size: pos, next: off}
	c.seg = &segment{base: s.base, offsets: s.offsets, times: s.times, txns: s.txns,
		createdMs: s.createdMs, jitterMs: s.jitterMs, log: l.m.cache.oldFile(s.log.path, true)}
	if s.log.abandonIfUnpinned() {
		return c, nil
	}
	c.copy = s.log.path + cleanedSuffix
	if err := l.copyPrefix(s.log, c.copy, pos); err != nil {
		return nil, errors.Join(err, removeIfThere(l.m.fs, c.copy))
	}
	s.log.abandon()
	return c, nil
}

const copyChunkBytes = 1 << 20

// copyPrefix copies the first sizeBytes of a file into another, durably.
func (l *Log) copyPrefix(from *diskFile, to string, sizeBytes int64) error {
	if err := from.acquire(); err != nil {
		return err
	}
	defer from.release()
	f, err := l.m.fs.Create(to, writeCategory)
	if err != nil {
		return err
	}
	buf := make([]byte, min(copyChunkBytes, sizeBytes))
	for at := int64(0); at < sizeBytes && err == nil; {
		var n int
		n, err = from.ReadAt(buf[:min(int64(len(buf)), sizeBytes-at)], at)
		if n > 0 {
			_, err = f.Write(buf[:n])
			at += int64(n)
		}
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// finish cuts log and indexes and makes the cut durable.
func (c *segmentCut) finish() error {
	s := c.seg
	fsys := s.log.cache.fs
	if c.copy != "" {
		if err := fsys.Rename(c.copy, s.log.path); err != nil {
			return err
		}
	} else if err := s.log.truncate(c.size); err != nil {
		return err
	}
	if err := s.log.sync(); err != nil {
		return err
	}
	s.setEnds(c.size, c.next)
	for _, cut := range []struct {
		x      *index
		beyond func(e []byte) bool
	}{
		{s.offsets, func(e []byte) bool { rel, _ := offsetEntry(e); return s.base+rel >= c.next }},
		{s.times, func(e []byte) bool { _, rel := timeEntry(e); return s.base+rel >= c.next }},
		{s.txns, func(e []byte) bool { return txnEntry(e).LastOffset >= c.next }},
	} {
		n, err := cut.x.search(cut.beyond, nil)
		if err != nil {
			return err
		}
		if err := cut.x.truncate(n); err != nil {
			return err
		}
	}
	if err := syncDir(fsys, fsys.PathDir(s.log.path)); err != nil {
		return err
	}
	return s.loadSums()
}

// loadSums computes what is kept beside the indexes from them and the batches
// after the last indexed one.
func (s *segment) loadSums() error {
	s.maxTimestamp.Store(record.NoTimestamp)
	s.maxTimestampOffset, s.lastTimeEntry, s.firstTimestamp = -1, record.NoTimestamp, record.NoTimestamp
	var e [maxEntryBytes]byte
	ok, err := s.times.last(e[:])
	if err != nil {
		return err
	}
	if ok {
		ts, rel := timeEntry(e[:])
		s.lastTimeEntry, s.maxTimestampOffset = ts, s.base+rel
		s.maxTimestamp.Store(ts)
	}
	pos, err := s.lastIndexed()
	if err != nil {
		return err
	}
	v := s.view()
	s.bytesSinceIndex = v.size - pos
	if err := s.log.acquire(); err != nil {
		return err
	}
	defer s.log.release()
	scan := s.scan(pos, v)
	defer scan.close()
	for {
		h, at, _, err := scan.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if at == 0 {
			s.firstTimestamp = h.MaxTimestamp()
		}
		if ts := h.MaxTimestamp(); ts > s.maxTimestamp.Load() {
			s.maxTimestampOffset = h.LastOffset()
			s.maxTimestamp.Store(ts)
		}
	}
	if pos == 0 || v.size == 0 {
		return nil
	}
	first := s.scan(0, v)
	defer first.close()
	h, _, _, err := first.next()
	if err == nil {
		s.firstTimestamp = h.MaxTimestamp()
	}
	return err
}

// startEmpty begins again at next with the given producer state, once all
// segments are gone.
func (l *Log) startEmpty(next int64, ps *producers) error {
	if err := l.dropSnapshots(func(int64) bool { return true }); err != nil {
		return err
	}
	l.producers.become(ps)
	if len(ps.byID) > 0 {
		if err := l.takeSnapshot(next); err != nil {
			return err
		}
		if err := l.syncSnapshot(next); err != nil {
			return err
		}
	}
	s, err := l.openSegment(next, false)
	if err != nil {
		return err
	}
	if err := s.log.sync(); err != nil {
		return err
	}
	l.setSegments([]*segment{s})
	l.end.Store(next)
	l.recoveryPoint.Store(next)
	return syncDir(l.m.fs, l.dir)
}

// StartFromTier drops everything local and begins empty at next, the tier's
// end, with the tier's leader epochs and producer state (nil for none).
func (l *Log) StartFromTier(next, logStart int64, epochs []EpochStart, producerSnapshot []byte) error {
	if next < 0 || logStart < 0 || logStart > next {
		return &protocol.InvariantError{What: fmt.Sprintf("start of %s at %d with log start %d", l.tp, next, logStart)}
	}
	if err := checkEpochs(epochs, "leader epochs from the tier"); err != nil {
		return err
	}
	ps := newProducers()
	if len(producerSnapshot) > 0 {
		var err error
		if ps, err = decodeProducers(producerSnapshot, "producer snapshot from the tier"); err != nil {
			return err
		}
	}
	l.lockAll()
	defer l.unlockAll()
	if err := l.writableWhole(); err != nil {
		return err
	}
	if err := l.lowerRecoveryPoint(next); err != nil {
		return l.diskError("recovery point checkpoint", err)
	}
	l.reading.Add(1)
	defer l.reading.Add(1)
	was := l.end.Load()
	err := l.dropFromEnd(l.segments())
	if err == nil {
		err = l.epochs.replace(slices.Clone(epochs))
	}
	if err == nil {
		l.logStart.Store(logStart)
		err = l.startEmpty(next, ps)
	}
	if err == nil {
		err = l.m.checkpointLogStart()
	}
	l.m.opts.Events.Emit(LogRestarted{Partition: l.tp.String(), OldEnd: was, Start: next, LogStart: logStart})
	return l.diskError("start from the tier", err)
}

// SetLogStart raises the first offset that exists; lower ones change nothing.
// The error is OffsetOutOfRange above End. It frees nothing: see FreeBelow.
func (l *Log) SetLogStart(off int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	if off > l.end.Load() {
		return protocol.Errorf(protocol.OffsetOutOfRange, "log start %d is beyond the end %d", off, l.end.Load())
	}
	if off <= l.logStart.Load() {
		return nil
	}
	l.logStart.Store(off)
	return nil
}

// LowerLogStart makes offsets below the local ones exist again: the checkpoint was
// lost, so that the log was taken to begin with its first file, and the tier holds
// what lies below. Higher offsets change nothing.
func (l *Log) LowerLogStart(off int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	if off >= 0 && off < l.logStart.Load() {
		l.logStart.Store(off)
	}
	return nil
}

// FreeBelow removes sealed segments that lie wholly below off, oldest first; the
// active one stays. LocalStart moves before any file goes. Readers keep what
// they hold. It returns the bytes of the log files removed.
func (l *Log) FreeBelow(off int64) (freedBytes int64, err error) {
	l.structure.Lock()
	defer l.structure.Unlock()
	unfinished := l.finishRoll() // in which case what it is of stays
	segs := l.segments()
	kept := len(segs) - 1
	if unfinished != nil {
		kept--
	}
	n := 0
	for n < kept && segs[n+1].base <= off {
		n++
	}
	if n == 0 {
		return 0, nil
	}
	if err := l.writableNow(); err != nil {
		return 0, err
	}
	// Once the files are gone a restart knows the log start from here only.
	if err := l.m.checkpointLogStart(); err != nil {
		return 0, l.diskError("log start checkpoint", err)
	}
	l.mu.Lock()
	l.setSegments(slices.Clone(l.segments()[n:]))
	l.mu.Unlock()
	if err := l.epochs.truncateStart(l.logStart.Load()); err != nil { // no append waits for its fsync
		return 0, l.diskError("leader epoch checkpoint", err)
	}
	for _, s := range segs[:n] {
		freedBytes += s.size()
		if err = s.remove(); err == nil {
			err = syncDir(l.m.fs, l.dir)
		}
		if err != nil {
			return freedBytes, l.diskError("removal of a segment", err)
		}
	}
	err = l.dropSnapshots(func(at int64) bool { return at < segs[n].base })
	l.m.opts.Events.Emit(SegmentsFreed{Partition: l.tp.String(), Segments: n, Bytes: freedBytes, LocalStart: l.LocalStart()})
	return freedBytes, l.diskError("removal of a producer snapshot", err)
}

func (l *Log) writableNow() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writable()
}
