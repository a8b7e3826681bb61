package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"

	"varve/protocol"
)

// roll seals the active segment and begins a new one at base. On any failure
// the old segment stays active, and the new one is durably gone before anything
// can be written at its offsets. An empty segment is dropped instead of sealed.
func (l *Log) roll(base int64) error {
	old := l.active()
	next, err := l.openSegment(base)
	if err != nil {
		return l.diskError("new segment", err)
	}
	cfg := l.cfg.Load()
	l.producers.expire(l.m.nowMs(), cfg.ProducerIDExpirationMs)
	segs := slices.Clone(l.segments())
	if old.size() == 0 {
		segs = segs[:len(segs)-1]
	} else if err = old.seal(); err == nil {
		err = l.takeSnapshot(base)
	}
	if err != nil {
		l.giveUp(next)
		return l.diskError("sealing a segment", err)
	}
	l.setSegments(append(segs, next))
	l.dirDirty.Store(true)
	l.m.opts.Events.Emit(SegmentRolled{Partition: l.tp.String(), Base: old.base, Next: base, Bytes: old.size()})
	l.m.flusher.askSealed(l)
	if old.size() > 0 {
		return nil
	}
	l.leftover = old
	return l.clearLeftover()
}

// takeSnapshot writes the producers' state as it is before offset off. The next
// flush makes it durable; a torn one is known by its CRC.
func (l *Log) takeSnapshot(off int64) error {
	f, err := l.m.fs.Create(l.path(fileName(off, snapshotSuffix)), writeCategory)
	if err != nil {
		return err
	}
	_, err = f.Write(l.producers.encode())
	l.unsyncedSnapshots = append(l.unsyncedSnapshots, off)
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
		err = l.flush(whole)
		if noDescriptor(err) {
			l.flushOwed.Store(true) // nothing was synced and failed: a later one may work
			return l.diskError("flush", err)
		}
		if err != nil {
			err = l.m.goOffline(fmt.Errorf("flush of %s: %w", l.tp, err))
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

func (l *Log) flush(whole bool) error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	state := l.beginFlush(whole)
	err := l.syncAll(state)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.unsyncedSnapshots = append(l.unsyncedSnapshots, state.snapshots...)
		l.dirDirty.Store(true)
		return err
	}
	for _, s := range state.sealed {
		s.unsyncedSeal = false
	}
	l.recoveryPoint.Store(max(l.recoveryPoint.Load(), state.end))
	return nil
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
// active segment, to be durable.
func (l *Log) beginFlush(whole bool) flushState {
	l.mu.Lock()
	defer l.mu.Unlock()
	segs, active := l.segments(), l.active()
	state := flushState{end: min(l.end.Load(), active.base), snapshots: l.unsyncedSnapshots}
	if whole {
		state.end, state.active = l.end.Load(), active
		l.unflushedFrom.Store(0)
		l.flushOwed.Store(false)
	}
	l.unsyncedSnapshots = nil
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
