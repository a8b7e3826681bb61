package commitlog

import (
	"errors"
	"io"

	"varve/protocol"
	"varve/protocol/record"
)

// maxReadTries bounds how often a reader starts over because a truncation came
// between; the next try holds truncations off.
const maxReadTries = 8

// stable runs fn until no truncation came between its beginning and its end,
// in which case its error may be an artefact. fn must give back what it took
// when it fails and may run more than once.
func (l *Log) stable(fn func() error) error {
	for range maxReadTries {
		before := l.reading.Load()
		if before%2 == 0 {
			err := fn()
			if l.reading.Load() == before && !errors.Is(err, errGone) {
				return l.readError(err)
			}
		}
		l.waitStructure()
	}
	l.structure.Lock()
	defer l.structure.Unlock()
	return l.readError(fn())
}

// waitStructure waits for a truncation or removal under way.
func (l *Log) waitStructure() {
	l.structure.Lock()
	defer l.structure.Unlock()
}

// Read returns whole batches beginning with the one that holds off, all of them
// wholly below limit, up to maxBytes in one segment. With minOne the first
// batch comes even when it is larger. An empty slice means that there is
// nothing below limit, or that the first batch does not fit.
//
// The error is OffsetOutOfRange outside of [LocalStart, End]. The bytes of the
// slice stay readable until it is released, whatever happens to the log.
func (l *Log) Read(off int64, maxBytes int, limit int64, minOne bool) (Slice, error) {
	var out Slice
	err := l.stable(func() error {
		if out.Release != nil {
			out.Release() // of a try that a truncation spoilt
		}
		var err error
		out, err = l.read(off, int64(maxBytes), limit, minOne)
		return err
	})
	return out, err
}

func (l *Log) read(off, maxBytes, limit int64, minOne bool) (Slice, error) {
	end := l.end.Load()
	if off > end || off < l.LocalStart() {
		return Slice{}, protocol.Errorf(protocol.OffsetOutOfRange, "offset %d is outside of [%d, %d]", off, l.LocalStart(), end)
	}
	limit = min(limit, end)
	segs := l.segments()
	for i := max(0, floorSegment(segs, off)); off < limit && i < len(segs) && segs[i].base < limit; i++ {
		out, past, err := segs[i].read(off, maxBytes, limit, minOne)
		if err != nil || out.Len > 0 {
			return out, err
		}
		if !past {
			break
		}
	}
	return Slice{FirstOffset: off, NextOffset: off}, nil
}

// read is Log.Read within one segment; past says that off lies beyond its last
// batch.
func (s *segment) read(off, maxBytes, limit int64, minOne bool) (out Slice, past bool, err error) {
	if err := s.log.acquire(); err != nil {
		return Slice{}, false, err
	}
	out, past, err = s.cut(off, maxBytes, limit, minOne)
	if err != nil || out.Len == 0 {
		s.log.release()
		return Slice{}, past, err
	}
	out.File, out.Release = s.log, s.log.releaseFn
	return out, false, nil
}

func (s *segment) cut(off, maxBytes, limit int64, minOne bool) (out Slice, past bool, err error) {
	v := s.view()
	base, pos, err := s.start(off, v)
	if err != nil || pos == v.size {
		return Slice{}, true, err
	}
	end, next := v.size, v.next
	if limit < v.next {
		if next, end, err = s.start(limit, v); err != nil {
			return Slice{}, false, err
		}
	}
	if end-pos > maxBytes {
		if end, next, err = s.boundary(pos, pos+max(maxBytes, 0), v); err != nil {
			return Slice{}, false, err
		}
		if end == pos && minOne {
			if end, next, err = s.after(pos, v); err != nil {
				return Slice{}, false, err
			}
		}
	}
	if end > pos {
		s.hints.put(next-s.base, end)
	}
	out.Off, out.Len = pos, max(end-pos, 0)
	out.FirstOffset, out.NextOffset = base, next
	return out, false, nil
}

// start returns where the batch that holds off begins, or the one that comes next; v's end when there is none in it.
// Readers ask for where they stopped: that is remembered.
func (s *segment) start(off int64, v view) (base, pos int64, err error) {
	if pos, ok := s.hints.find(off - s.base); ok && pos <= v.size {
		return off, pos, nil
	}
	base, pos, _, err = s.find(off, v)
	return base, pos, err
}

// boundary returns the last batch boundary in [from, to], where from is one,
// and the offset there.
func (s *segment) boundary(from, to int64, v view) (pos, next int64, err error) {
	pos, err = s.boundaryBelow(to)
	if err != nil {
		return 0, 0, err
	}
	scan := s.scan(max(from, pos), v)
	defer scan.close()
	for {
		h, pos, size, err := scan.next()
		if errors.Is(err, io.EOF) {
			return v.size, v.next, nil
		}
		if err != nil {
			return 0, 0, err
		}
		if pos+size > to {
			return pos, h.BaseOffset(), nil
		}
	}
}

// after returns where the batch at pos ends, and the base offset of the one that
// follows it, v's end when there is none.
func (s *segment) after(pos int64, v view) (end, next int64, err error) {
	scan := s.scan(pos, v)
	defer scan.close()
	_, _, size, err := scan.next()
	if err != nil {
		return 0, 0, err
	}
	h, _, _, err := scan.next()
	if errors.Is(err, io.EOF) {
		return pos + size, v.next, nil
	}
	if err != nil {
		return 0, 0, err
	}
	return pos + size, h.BaseOffset(), nil
}

// OffsetForTimestamp finds the first record at or after ts, judged by each
// batch's largest timestamp, in local segments and at or above log start. False
// when there is none.
func (l *Log) OffsetForTimestamp(ts int64) (out TimestampOffset, found bool, err error) {
	err = l.stable(func() error {
		out, found = TimestampOffset{}, false
		for _, s := range l.segments() {
			if s.maxTimestamp.Load() < ts || s.next() <= l.LogStart() {
				continue
			}
			out, found, err = s.findTimestamp(ts, l.LogStart())
			if err != nil || found {
				return err
			}
		}
		return nil
	})
	return out, found, err
}

// MaxTimestamp finds the first local record with the largest timestamp. False
// when no record has one.
func (l *Log) MaxTimestamp() (out TimestampOffset, found bool, err error) {
	err = l.stable(func() error {
		out, found = TimestampOffset{}, false
		var best *segment
		for _, s := range l.segments() {
			if ts := s.maxTimestamp.Load(); ts != record.NoTimestamp && (best == nil || ts > best.maxTimestamp.Load()) {
				best = s
			}
		}
		if best == nil {
			return nil
		}
		out, found, err = best.findTimestamp(best.maxTimestamp.Load(), l.LogStart())
		return err
	})
	return out, found, err
}

// findTimestamp returns the first record at or after ts and at or above from.
func (s *segment) findTimestamp(ts, from int64) (TimestampOffset, bool, error) {
	if err := s.log.acquire(); err != nil {
		return TimestampOffset{}, false, err
	}
	defer s.log.release()
	floor, err := s.timeFloor(ts)
	if err != nil {
		return TimestampOffset{}, false, err
	}
	pos, err := s.positionBefore(max(floor, from))
	if err != nil {
		return TimestampOffset{}, false, err
	}
	scan := s.scan(pos, s.view())
	defer scan.close()
	for {
		h, pos, size, err := scan.next()
		if errors.Is(err, io.EOF) {
			return TimestampOffset{}, false, nil
		}
		if err != nil {
			return TimestampOffset{}, false, err
		}
		if h.MaxTimestamp() < ts || h.LastOffset() < from {
			continue
		}
		b, err := readBatch(s.log, s.log.path, pos, size)
		if err != nil {
			return TimestampOffset{}, false, err
		}
		if out, ok, err := findInBatch(b, ts, from); err != nil || ok {
			return out, ok, err
		}
	}
}

func findInBatch(b record.Batch, ts, from int64) (out TimestampOffset, found bool, err error) {
	err = b.Times(func(offset, at int64) bool {
		if found = offset >= from && at >= ts; found {
			out = TimestampOffset{Timestamp: at, Offset: offset, LeaderEpoch: b.LeaderEpoch()}
		}
		return !found
	})
	return out, found, err
}
