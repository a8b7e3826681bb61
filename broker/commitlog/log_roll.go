package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"sync"

	"varve/protocol"
)

// unfinishedRoll is what a roll leaves to be done once appends go on: nothing of it is needed to write or to read.
type unfinishedRoll struct {
	old, next *segment
	snapshot  []byte // producers' state before next
	prepared  bool   // no append had to wait for the disk
}

// roll ends the active segment and begins a new one at base, whose first batch will be at offset first. With a spare it does
// not wait for the disk; what is left to be done for the old segment finishRoll does. When there is no new segment the old
// one stays active, and the new one is durably gone before anything can be written at its offsets. An empty segment is
// dropped instead of sealed. The caller holds mu.
func (l *Log) roll(base, first int64) error {
	if err := l.finishRoll(); err != nil { // of the roll before, if that is so short a time ago
		return l.diskError("sealing a segment", err)
	}
	old := l.active()
	// A crash may leave a spare that is in use under its old name: then its first batch says what it is.
	prepared := l.spare != nil && base == first && old.size() > 0
	next, err := l.openSegment(base, prepared)
	if err != nil {
		return l.diskError("new segment", err)
	}
	cfg := l.cfg.Load()
	l.producers.expire(l.m.nowMs(), cfg.ProducerIDExpirationMs)
	segs := slices.Clone(l.segments())
	if old.size() == 0 {
		segs = segs[:len(segs)-1]
	} else {
		old.end()
		l.unfinished.Store(&unfinishedRoll{old: old, next: next, snapshot: l.producers.encode(), prepared: prepared})
	}
	l.setSegments(append(segs, next))
	l.spareAsked, l.spareBytes = false, 0
	l.dirDirty.Store(true)
	l.m.flusher.askSealed(l)
	if old.size() > 0 {
		return nil
	}
	l.leftover = old
	return l.clearLeftover()
}

// finishRoll does what the last roll left. After an error the log is readable and durable as before, and it may be called
// again.
func (l *Log) finishRoll() error {
	if l.unfinished.Load() == nil {
		return nil
	}
	l.finishing.Lock()
	defer l.finishing.Unlock()
	r := l.unfinished.Load()
	if r == nil {
		return nil
	}
	if err := r.next.log.settleName(); err != nil {
		return err
	}
	if err := r.old.sealIndexes(); err != nil {
		return err
	}
	if err := l.writeSnapshot(r.next.base, r.snapshot); err != nil {
		return err
	}
	l.dirDirty.Store(true)
	l.unfinished.Store(nil)
	l.m.opts.Events.Emit(SegmentRolled{Partition: l.tp.String(), Base: r.old.base, Next: r.next.base, Bytes: r.old.size(), Prepared: r.prepared})
	return nil
}

// unsyncedSnapshots are the offsets of producer snapshots that the next flush makes durable.
type unsyncedSnapshots struct {
	mu      sync.Mutex
	offsets []int64
}

func (u *unsyncedSnapshots) add(offsets ...int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.offsets = append(u.offsets, offsets...)
}

func (u *unsyncedSnapshots) take() []int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := u.offsets
	u.offsets = nil
	return out
}

// takeSnapshot writes the producers' state as it is before offset off.
func (l *Log) takeSnapshot(off int64) error { return l.writeSnapshot(off, l.producers.encode()) }

// writeSnapshot writes the snapshot before offset off. The next flush makes it durable; a torn one is known by its CRC.
func (l *Log) writeSnapshot(off int64, snapshot []byte) error {
	f, err := l.m.fs.Create(l.path(fileName(off, snapshotSuffix)), writeCategory)
	if err != nil {
		return err
	}
	_, err = f.Write(snapshot)
	l.snapshots.add(off)
	l.dirDirty.Store(true)
	return errors.Join(err, f.Close())
}

func (l *Log) syncSnapshot(off int64) error {
	f, err := l.m.fs.Open(l.path(fileName(off, snapshotSuffix)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.SyncData(), f.Close())
}

// flushState is what one flush makes durable.
type flushState struct {
	end       int64
	sealed    []*segment
	active    *segment // nil when only closed segments are
	snapshots []int64
}

// Flush makes everything that was appended before the call durable. An error
// takes the directory offline: what the disk holds after a failed fsync is
// unknown, and a second try would report success over lost bytes.
func (l *Log) Flush() error { return l.flushAndTell(true) }

// flushAndTell is Flush, of all or of the closed segments only, and what follows from it.
func (l *Log) flushAndTell(whole bool) error {
	err := l.m.offlineError()
	if err == nil {
		var unfinished error
		unfinished, err = l.flush(whole)
		switch {
		case noDescriptor(err):
			l.flushOwed.Store(true) // nothing was synced and failed: a later one may work
			return l.diskError("flush", err)
		case err != nil:
			err = l.m.goOffline(fmt.Errorf("flush of %s: %w", l.tp, err))
		case unfinished != nil:
			l.flushOwed.Store(true)
			err = l.diskError("sealing a segment", unfinished)
		}
	}
	l.mu.Lock()
	callbacks := l.onDurable
	l.mu.Unlock()
	for _, fn := range callbacks {
		fn()
	}
	return err
}

// flush first finishes the last roll. Without room for that what is appended becomes durable all the same, as far as one
// unfinished segment reaches, and unfinished says why not further.
func (l *Log) flush(whole bool) (unfinished, err error) {
	unfinished = l.finishRoll()
	if unfinished != nil && !isFull(unfinished) {
		return nil, unfinished
	}
	l.flushing.Lock()
	defer l.flushing.Unlock()
	state := l.beginFlush(whole)
	err = l.syncAll(state)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.snapshots.add(state.snapshots...)
		l.dirDirty.Store(true)
		return nil, err
	}
	for _, s := range state.sealed {
		s.unsyncedSeal = false
	}
	l.recoveryPoint.Store(max(l.recoveryPoint.Load(), state.end))
	return unfinished, nil
}

func (l *Log) syncAll(state flushState) error {
	for _, s := range state.sealed {
		if err := s.sync(true); err != nil && !errors.Is(err, errGone) {
			return err
		}
	}
	if state.active != nil {
		if err := state.active.sync(false); err != nil && !errors.Is(err, errGone) {
			return err
		}
	}
	for _, off := range state.snapshots {
		if err := l.syncSnapshot(off); err != nil {
			return err
		}
	}
	if l.dirDirty.Swap(false) {
		if err := syncDir(l.m.fs, l.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// beginFlush picks what has to be synced for everything below End, or below the
// active segment, to be durable. A segment whose roll is not finished counts as the active one: the recovery point may
// reach its end, and then the next start does not believe its indexes.
func (l *Log) beginFlush(whole bool) flushState {
	l.mu.Lock()
	defer l.mu.Unlock()
	segs, active, end := l.segments(), l.active(), l.end.Load()
	if r := l.unfinished.Load(); r != nil {
		segs, active, end = segs[:len(segs)-1], r.old, r.old.next()
	}
	state := flushState{end: min(end, active.base), snapshots: l.snapshots.take()}
	if whole {
		state.end, state.active = end, active
		l.unflushedFrom.Store(0)
		l.flushOwed.Store(false)
	}
	for _, s := range segs[:len(segs)-1] {
		if s.unsyncedSeal || s.next() > l.recoveryPoint.Load() {
			state.sealed = append(state.sealed, s)
		}
	}
	return state
}

// flushDue reports whether flush.ms has passed for the oldest unflushed append, or a flush is owed.
func (l *Log) flushDue(nowMs int64) bool {
	from := l.unflushedFrom.Load()
	return l.flushOwed.Load() || from != 0 && nowMs-from >= l.cfg.Load().FlushMs
}

// FirstUnstable is the first offset of a transaction that is open or whose end
// is not yet below the high watermark; false if there is none.
func (l *Log) FirstUnstable() (int64, bool) {
	off := l.producers.firstUnstable.Load()
	return off, off != math.MaxInt64
}

// LastStable is the end of what read_committed sees, given the high watermark:
// no transaction below it is undecided.
func (l *Log) LastStable(hw int64) int64 {
	if l.producers.firstUnstable.Load() >= hw {
		return hw
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.producers.replicated(hw)
	return min(hw, l.producers.firstUnstable.Load())
}

// AbortedIn returns the aborted transactions that touch [from, to), as fetch
// answers for read_committed name them (LogSegment.collectAbortedTxns). The error
// is OffsetOutOfRange when from is not local, or is not any more: what segments
// knew that went meanwhile would be missing.
func (l *Log) AbortedIn(from, to int64) ([]AbortedTxn, error) {
	var out []AbortedTxn
	err := l.stable(func() (err error) {
		segs := l.segments()
		if out, err = abortedIn(segs[max(0, floorSegment(segs, from)):], from, to); err != nil {
			return err
		}
		if start := l.segments()[0].base; from < start {
			return protocol.Errorf(protocol.OffsetOutOfRange, "aborted transactions from %d on: the local log begins at %d", from, start)
		}
		return nil
	})
	return out, err
}

func abortedIn(segs []*segment, from, to int64) (out []AbortedTxn, err error) {
	for _, s := range segs {
		first, err := s.txns.search(func(e []byte) bool { return txnEntry(e).LastOffset >= from }, nil)
		if err != nil {
			return nil, err
		}
		entries, err := s.txns.bytes(first, max(first, s.txns.count()))
		if err != nil {
			return nil, err
		}
		for ; len(entries) > 0; entries = entries[txnEntryBytes:] {
			t := txnEntry(entries)
			if t.FirstOffset < to {
				out = append(out, t)
			}
			if t.LastStableOffset >= to {
				return out, nil
			}
		}
	}
	return out, nil
}
