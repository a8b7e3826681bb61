package metastore

import (
	"bytes"
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"varve/metastore/metapb"
	"varve/protocol"
)

// Tier returns what is known of a partition in the tier; the zero state when nothing of it ever was there.
//
// Errors: UnknownTopicID; *protocol.CorruptionError.
func (s *Store) Tier(topic protocol.UUID, partition int32) (TierState, error) {
	if _, ok := s.Image().Partition(topic, partition); !ok {
		return TierState{}, protocol.Errorf(protocol.UnknownTopicID, "no partition %s-%d", topic, partition)
	}
	h, err := s.fsm.acquire()
	if err != nil {
		return TierState{}, err
	}
	defer h.release()
	t, err := readTier(h.db, topic, partition)
	return t, err
}

// SegmentAt finds the FINISHED segment that claims the offset, by one ordered seek. Nothing of a deleted topic is ever found.
func (s *Store) SegmentAt(topic protocol.UUID, partition int32, off int64) (seg RemoteSegment, ok bool, err error) {
	err = s.finished(topic, partition, off, func(r RemoteSegment) bool {
		seg, ok = r, r.Base <= off
		return false
	})
	if !ok {
		return RemoteSegment{}, false, err
	}
	return seg, ok, err
}

// SegmentsFrom calls fn with the FINISHED segments in order of their offsets, from the one that claims off, or the first one above it, until
// fn returns false.
func (s *Store) SegmentsFrom(topic protocol.UUID, partition int32, off int64, fn func(RemoteSegment) bool) error {
	return s.finished(topic, partition, off, fn)
}

func (s *Store) finished(topic protocol.UUID, partition int32, off int64, fn func(RemoteSegment) bool) error {
	img := s.Image()
	if _, ok := img.Partition(topic, partition); !ok || off < 0 {
		return nil
	}
	h, err := s.fsm.acquire()
	if err != nil {
		return err
	}
	defer h.release()
	prefix := partKey(nsFinished, topic, partition)
	it, err := h.db.NewIter(prefixOptions(prefix))
	if err != nil {
		return err
	}
	defer it.Close()
	// The last row with a base at or below off is the only one that can hold it.
	ok := it.SeekLT(offsetKey(prefix, off+1))
	if !ok {
		ok = it.First()
	}
	for ; ok; ok = it.Next() {
		seg, err := s.decodeRow(it.Key(), it.Value())
		if err != nil {
			return err
		}
		if seg.Next <= off {
			continue
		}
		if !fn(seg) {
			break
		}
	}
	return it.Error()
}

// decodeRow reads a segment row with its interned location; a location younger than the image the caller saw is in the newest one.
func (s *Store) decodeRow(key, value []byte) (RemoteSegment, error) {
	topic, partition, ok := splitPartKey(key)
	if !ok {
		return RemoteSegment{}, &protocol.CorruptionError{Where: "metastore segment key", What: "too short"}
	}
	seg, loc, err := decodeSegment(value, topic, partition)
	if err != nil {
		return seg, err
	}
	seg.Location, err = s.fsm.location(loc)
	return seg, err
}

// Cursor is a place in the order of pending segments; the zero Cursor is before the first one.
type Cursor struct{ key []byte }

// PendingSegments returns up to limit segments in DELETE_STARTED, then those in STARTED, of all partitions and of deleted topics, and
// the cursor to go on from; fewer than limit means that these were the last.
func (s *Store) PendingSegments(after Cursor, limit int) (segs []RemoteSegment, next Cursor, err error) {
	next = after
	for _, ns := range []byte{nsDeleting, nsStarted} {
		opts := prefixOptions([]byte{ns})
		if bytes.Compare(after.key, opts.UpperBound) >= 0 {
			continue
		}
		if bytes.Compare(after.key, opts.LowerBound) > 0 {
			opts.LowerBound = append(bytes.Clone(after.key), 0)
		}
		if err = s.pending(opts, limit, &segs, &next); err != nil || len(segs) >= limit {
			return segs, next, err
		}
	}
	return segs, next, nil
}

// IsPending reports whether a partition has a segment with this id in STARTED or DELETE_STARTED.
func (s *Store) IsPending(topic protocol.UUID, partition int32, id protocol.UUID) (bool, error) {
	h, err := s.fsm.acquire()
	if err != nil {
		return false, err
	}
	defer h.release()
	key := segmentKey(nsStarted, &RemoteSegment{ID: id, TopicID: topic, Partition: partition})
	for _, ns := range []byte{nsStarted, nsDeleting} {
		key[0] = ns
		_, closer, err := h.db.Get(key)
		if err == nil {
			return true, closer.Close()
		}
		if !errors.Is(err, pebble.ErrNotFound) {
			return false, err
		}
	}
	return false, nil
}

// PendingOf returns all segments of one partition in STARTED and DELETE_STARTED.
func (s *Store) PendingOf(topic protocol.UUID, partition int32) ([]RemoteSegment, error) {
	var segs []RemoteSegment
	var at Cursor
	for _, ns := range []byte{nsStarted, nsDeleting} {
		if err := s.pending(prefixOptions(partKey(ns, topic, partition)), 1<<30, &segs, &at); err != nil {
			return nil, err
		}
	}
	return segs, nil
}

func (s *Store) pending(opts *pebble.IterOptions, limit int, segs *[]RemoteSegment, at *Cursor) error {
	h, err := s.fsm.acquire()
	if err != nil {
		return err
	}
	defer h.release()
	it, err := h.db.NewIter(opts)
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok && len(*segs) < limit; ok = it.Next() {
		seg, err := s.decodeRow(it.Key(), it.Value())
		if err != nil {
			return err
		}
		*segs = append(*segs, seg)
		at.key = bytes.Clone(it.Key())
	}
	return it.Error()
}

// maxJournalReadBytes is where JournalPending stops: after an outage the outbox may be far larger than memory.
const maxJournalReadBytes = 8 << 20

// JournalPending returns the oldest entries of the outbox, at most maxEntries and about 8 MiB of them, with the first and last Raft index
// among them (0 when there are none).
func (s *Store) JournalPending(maxEntries int) (entries []*metapb.JournalEntry, first, last uint64, err error) {
	h, err := s.fsm.acquire()
	if err != nil {
		return nil, 0, 0, err
	}
	defer h.release()
	it, err := h.db.NewIter(prefixOptions([]byte{nsJournal}))
	if err != nil {
		return nil, 0, 0, err
	}
	defer it.Close()
	size := 0
	for ok := it.First(); ok && len(entries) < maxEntries && size < maxJournalReadBytes; ok = it.Next() {
		size += len(it.Value())
		e := &metapb.JournalEntry{}
		if err := proto.Unmarshal(it.Value(), e); err != nil {
			return nil, 0, 0, &protocol.CorruptionError{Where: "metastore journal entry", What: err.Error()}
		}
		entries = append(entries, e)
	}
	if len(entries) > 0 {
		first, last = entries[0].Index, entries[len(entries)-1].Index
	}
	return entries, first, last, it.Error()
}

// JournaledThrough is the Raft index up to which the journal is known to be in the bucket.
func (s *Store) JournaledThrough() uint64 { return s.Image().JournaledThrough() }
