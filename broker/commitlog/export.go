package commitlog

import (
	"errors"
	"io"
	"slices"

	"varve/protocol"
	"varve/protocol/record"
)

// Export is a sealed range [Base, Next) for the tier. Indexes are in Kafka's file
// formats, offsets relative to Base and positions relative to the start of Log.
// Close must be called once.
type Export struct {
	Base, Next     int64
	FirstTimestamp int64 // base timestamp of the first batch, ms
	MaxTimestamp   int64 // ms, -1 none
	Log            protocol.Span

	OffsetIndex      []byte
	TimeIndex        []byte
	TxnIndex         []byte
	ProducerSnapshot []byte       // state before Next
	Epochs           []EpochStart // of [0, Next)
}

// Close releases the segment's file.
func (e *Export) Close() {
	if e.Log.Release != nil {
		e.Log.Release()
		e.Log.Release = nil
	}
}

// Export returns the oldest sealed range that begins at from and whose end is at
// or below limit; nil when there is none (yet). From may lie inside a segment,
// because replicas roll at different offsets: the range then begins with the
// batch that holds it, and the indexes are rebuilt for the part. The error is
// OffsetOutOfRange when from is not local.
func (l *Log) Export(from, limit int64) (*Export, error) {
	l.structure.Lock()
	defer l.structure.Unlock()
	_ = l.finishRoll() // it spares reading the log for the producers' state; who needs it done hears of its error
	segs := l.segments()
	i := floorSegment(segs, from)
	if i < 0 || from > l.end.Load() {
		return nil, protocol.Errorf(protocol.OffsetOutOfRange, "export from %d, local is [%d, %d]", from, segs[0].base, l.end.Load())
	}
	for i < len(segs)-1 && segs[i].next() <= from {
		i++ // from lies in a gap behind the segment's last batch
	}
	if i == len(segs)-1 || segs[i].next() > limit {
		return nil, nil
	}
	e, err := l.export(segs[i], from, segs[i].next())
	if err != nil {
		return nil, l.readError(err)
	}
	return e, nil
}

// ExportPart returns what one segment, the active one too, has of [from, to): up to its end, or to. It serves ranges that were sealed
// or merged elsewhere, which begin and end with whole batches. The error is OffsetOutOfRange when not all of the range is
// local, InvalidRequest when a batch lies across to.
func (l *Log) ExportPart(from, to int64) (*Export, error) {
	l.structure.Lock()
	defer l.structure.Unlock()
	_ = l.finishRoll() // it spares reading the log for the producers' state; who needs it done hears of its error
	segs := l.segments()
	i := floorSegment(segs, from)
	if end := l.end.Load(); i < 0 || from >= to || to > end {
		return nil, protocol.Errorf(protocol.OffsetOutOfRange, "export of [%d, %d), local is [%d, %d]", from, to, segs[0].base, end)
	}
	for i < len(segs)-1 && segs[i].next() <= from {
		i++
	}
	e, err := l.export(segs[i], from, min(to, segs[i].next()))
	if protocol.CodeOf(err) == protocol.InvalidRequest {
		return nil, err
	}
	if err != nil {
		return nil, l.readError(err)
	}
	return e, nil
}

func (l *Log) export(s *segment, from, to int64) (*Export, error) {
	if err := s.log.acquire(); err != nil {
		return nil, err
	}
	e := &Export{Base: from, Next: to, Log: protocol.Span{File: s.log, Len: s.size(), Release: s.log.release}}
	for _, entry := range l.epochs.entries() {
		if entry.Start < e.Next {
			e.Epochs = append(e.Epochs, entry)
		}
	}
	err := l.exportIndexes(s, e)
	if err == nil {
		e.ProducerSnapshot, err = l.snapshotAt(e.Next)
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

func (l *Log) exportIndexes(s *segment, e *Export) error {
	v, cut := s.view(), false
	if e.Next < v.next {
		next, end, _, err := s.find(e.Next, v)
		if err != nil {
			return err
		}
		if next < e.Next {
			return protocol.Errorf(protocol.InvalidRequest, "a batch from %d on lies across the end %d of what is exported", next, e.Next)
		}
		v.size, v.next, cut = end, e.Next, true
	}
	_, pos, size, err := s.find(e.Base, v)
	if err != nil {
		return err
	}
	if size == 0 {
		return &protocol.InvariantError{What: "an exported segment has no batch at its start"}
	}
	first := s.scan(pos, v)
	h, _, _, err := first.next()
	if err == nil {
		e.FirstTimestamp = h.BaseTimestamp()
	}
	first.close()
	if err != nil {
		return err
	}
	e.MaxTimestamp = s.maxTimestamp.Load()
	src := s
	if pos > 0 || e.Base != s.base || cut {
		if src, err = l.reindex(s, v, e.Base, pos); err != nil {
			return err
		}
		e.Log.Off, e.Log.Len = pos, v.size-pos
		e.MaxTimestamp = src.maxTimestamp.Load()
	}
	if e.OffsetIndex, err = src.offsets.bytes(0, src.offsets.count()); err != nil {
		return err
	}
	if e.TimeIndex, err = src.times.bytes(0, src.times.count()); err != nil {
		return err
	}
	firstTxn, err := s.txns.search(func(t []byte) bool { return txnEntry(t).LastOffset >= e.Base }, nil)
	if err != nil {
		return err
	}
	n, err := s.txns.search(func(t []byte) bool { return txnEntry(t).LastOffset >= e.Next }, nil)
	if err != nil {
		return err
	}
	e.TxnIndex, err = s.txns.bytes(firstTxn, n)
	return err
}

// reindex builds the indexes that the part of s from pos on would have had as a
// segment of its own that begins at base.
func (l *Log) reindex(s *segment, v view, base, pos int64) (*segment, error) {
	build := NewIndexBuilder(base, l.cfg.Load().IndexIntervalBytes)
	scan := s.scan(pos, v)
	defer scan.close()
	for {
		h, at, size, err := scan.next()
		if errors.Is(err, io.EOF) {
			build.part.noteTime()
			return build.part, nil
		}
		if err != nil {
			return nil, err
		}
		build.Add(h, at-pos, size)
	}
}

// snapshotAt returns the producer snapshot at off: the one written when a
// segment was sealed there, or one made again from an older one and the log.
func (l *Log) snapshotAt(off int64) ([]byte, error) {
	path := l.path(fileName(off, snapshotSuffix))
	if data, err := readFile(l.m.fs, path, maxSnapshotBytes); err == nil {
		if _, err := decodeProducers(data, path); err == nil {
			return data, nil
		}
	}
	ps, err := l.producersAt(l.segments(), off)
	if err != nil {
		return nil, err
	}
	return ps.encode(), nil
}

// producersAt returns the state before off: the newest valid snapshot at or
// below it, and what the log says since. Broken snapshots are passed over.
func (l *Log) producersAt(segs []*segment, off int64) (*producers, error) {
	offsets, err := l.snapshotOffsets()
	if err != nil {
		return nil, err
	}
	ps, from := newProducers(), segs[0].base
	for _, at := range slices.Backward(offsets) {
		if at > off {
			continue
		}
		path := l.path(fileName(at, snapshotSuffix))
		data, err := readFile(l.m.fs, path, maxSnapshotBytes)
		if err != nil {
			return nil, err
		}
		if found, err := decodeProducers(data, path); err == nil {
			ps, from = found, max(from, at)
			break
		}
	}
	for _, s := range segs {
		if s.next() <= from || s.base >= off {
			continue
		}
		if err := l.replay(ps, s, from, off); err != nil {
			return nil, err
		}
	}
	ps.expire(l.m.nowMs(), l.cfg.Load().ProducerIDExpirationMs)
	return ps, nil
}

// replay takes the batches of s in [from, to) into ps.
func (l *Log) replay(ps *producers, s *segment, from, to int64) error {
	if err := s.log.acquire(); err != nil {
		return err
	}
	defer s.log.release()
	v := s.view()
	_, pos, _, err := s.find(from, v)
	if err != nil {
		return err
	}
	scan := s.scan(pos, v)
	defer scan.close()
	for {
		h, at, size, err := scan.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.LastOffset() >= to {
			return nil
		}
		if h.ProducerID() == record.NoProducerID {
			continue
		}
		if err := l.replayBatch(ps, s, h, at, size); err != nil {
			return err
		}
	}
}

func (l *Log) replayBatch(ps *producers, s *segment, h record.Batch, at, size int64) error {
	marker := endMarker{}
	if h.Control() {
		b, err := readBatch(s.log, s.log.path, at, size)
		if err != nil {
			return err
		}
		if m, err := readMarker(b); err == nil {
			marker = m
		}
	}
	if ended, ok := ps.apply(h, marker, l.m.nowMs()); ok {
		ps.settle(ended)
	}
	return nil
}
