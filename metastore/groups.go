package metastore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"varve/protocol"
)

// Groups stand over the FINISHED rows of a partition, so that the first one with a property is found without looking
// at all that precede it: by the highest timestamp, which need not rise from row to row, and by having transactions. A
// group covers the rows from the base in its key up to the next group's. What it says of them is an upper bound: a row
// that goes takes nothing back, so that a deletion reads no other rows; a group goes with its last row.
//
// Row of a group, version 1, little-endian:
//
//	0 1  version (1)
//	1 1  bit 0: some row has transactions
//	2 4  rows
//	6 8  the highest of their max timestamps, ms
const (
	groupRowVersion = 1
	groupRowLen     = 14
	groupHasTxns    = 1

	// maxGroupRows is about the square root of the largest partition thought of (a million segments halved): a search
	// steps over the groups and then over the rows of one.
	maxGroupRows = 512
)

type group struct {
	hasTxns      bool
	rows         uint32
	maxTimestamp int64
}

func (g group) encode() []byte {
	b := []byte{groupRowVersion, 0}
	if g.hasTxns {
		b[1] = groupHasTxns
	}
	b = binary.LittleEndian.AppendUint32(b, g.rows)
	return binary.LittleEndian.AppendUint64(b, uint64(g.maxTimestamp))
}

func decodeGroup(b []byte) (group, error) {
	if len(b) != groupRowLen || b[0] != groupRowVersion {
		return group{}, &protocol.CorruptionError{Where: "metastore segment group", What: fmt.Sprintf("version or length wrong in %d bytes", len(b))}
	}
	return group{b[1]&groupHasTxns != 0, binary.LittleEndian.Uint32(b[2:]), int64(binary.LittleEndian.Uint64(b[6:]))}, nil
}

// groupOf finds the group that covers a base offset, with its key; nil when there is none.
func (t *tx) groupOf(prefix []byte, base int64) (key []byte, g group) {
	it, err := t.batch.NewIter(prefixOptions(prefix))
	if err != nil {
		t.fail(err)
		return nil, g
	}
	if it.SeekLT(offsetKey(prefix, base+1)) {
		key = bytes.Clone(it.Key())
		g, err = decodeGroup(it.Value())
		t.fail(err)
	}
	t.fail(it.Error())
	t.fail(it.Close())
	return key, g
}

// groupAdd counts a FINISHED row in that is about to be written.
func (t *tx) groupAdd(s *RemoteSegment) {
	prefix := partKey(nsGroup, s.TopicID, s.Partition)
	key, g := t.groupOf(prefix, s.Base)
	known := t.get(segmentKey(nsFinished, s)) != nil
	if key == nil || g.rows >= maxGroupRows && !known && t.lastOfGroup(prefix, key, s) {
		key, g = offsetKey(prefix, s.Base), group{maxTimestamp: s.MaxTimestamp}
	}
	if !known {
		g.rows++
	}
	g.hasTxns, g.maxTimestamp = g.hasTxns || s.HasTxns, max(g.maxTimestamp, s.MaxTimestamp)
	t.set(key, g.encode())
}

// groupTail is the last group of a partition while rows are appended behind all others.
type groupTail struct {
	prefix []byte
	key    []byte // nil: there is no group yet
	g      group
	end    int64 // the least base that a row behind all others may have
	dirty  bool
}

// tailGroup prepares appending from s on; nothing may be appended when a row at or above its base is there.
func (t *tx) tailGroup(s *RemoteSegment) *groupTail {
	g := &groupTail{prefix: partKey(nsGroup, s.TopicID, s.Partition), end: s.Base}
	rows := partKey(nsFinished, s.TopicID, s.Partition)
	t.scan(rows, offsetKey(rows, s.Base), func(_, _ []byte) bool { g.end = math.MaxInt64; return false })
	g.key, g.g = t.groupOf(g.prefix, s.Base)
	return g
}

func (g *groupTail) takes(s *RemoteSegment) bool { return s.Base >= g.end }

func (t *tx) addToTail(g *groupTail, s *RemoteSegment) {
	if g.key == nil || g.g.rows >= maxGroupRows {
		t.closeTail(g)
		g.key, g.g = offsetKey(g.prefix, s.Base), group{maxTimestamp: s.MaxTimestamp}
	}
	g.g.rows++
	g.g.hasTxns, g.g.maxTimestamp = g.g.hasTxns || s.HasTxns, max(g.g.maxTimestamp, s.MaxTimestamp)
	g.end, g.dirty = s.Base+1, true
}

// closeTail writes the group that was added to.
func (t *tx) closeTail(g *groupTail) {
	if g != nil && g.dirty {
		t.set(g.key, g.g.encode())
		g.dirty = false
	}
}

// lastOfGroup says whether no row above s is in the group: else a group that begins at s would take rows over that it
// says nothing of.
func (t *tx) lastOfGroup(prefix, key []byte, s *RemoteSegment) (last bool) {
	above, next := int64(-1), int64(-1)
	first := func(dst *int64) func(k, _ []byte) bool {
		return func(k, _ []byte) bool {
			*dst = int64(binary.BigEndian.Uint64(k[len(prefix):]))
			return false
		}
	}
	rows := partKey(nsFinished, s.TopicID, s.Partition)
	t.scan(rows, offsetKey(rows, s.Base+1), first(&above))
	t.scan(prefix, append(bytes.Clone(key), 0), first(&next))
	return above < 0 || next >= 0 && above >= next
}

// groupDrop counts a FINISHED row out.
func (t *tx) groupDrop(s *RemoteSegment) {
	key, g := t.groupOf(partKey(nsGroup, s.TopicID, s.Partition), s.Base)
	switch {
	case key == nil:
	case g.rows <= 1:
		t.del(key)
	default:
		g.rows--
		t.set(key, g.encode())
	}
}

// SegmentByTime finds the first FINISHED segment, in the order of offsets, that reaches above from and has a record of
// ts (ms) or later, wherever in it.
func (s *Store) SegmentByTime(topic protocol.UUID, partition int32, from, ts int64) (RemoteSegment, bool, error) {
	return s.firstWhere(topic, partition, from,
		func(g group) bool { return g.maxTimestamp >= ts }, func(r *RemoteSegment) bool { return r.MaxTimestamp >= ts })
}

// SegmentWithTxns finds the first FINISHED segment, in the order of offsets, that reaches above from and has
// transactions.
func (s *Store) SegmentWithTxns(topic protocol.UUID, partition int32, from int64) (RemoteSegment, bool, error) {
	return s.firstWhere(topic, partition, from, func(g group) bool { return g.hasTxns }, func(r *RemoteSegment) bool { return r.HasTxns })
}

// MaxTimestamp is the highest timestamp (ms) of the FINISHED segments with a base at or above from; false when there is
// none.
func (s *Store) MaxTimestamp(topic protocol.UUID, partition int32, from int64) (best int64, ok bool, err error) {
	w, err := s.walk(topic, partition)
	if err != nil || w == nil {
		return 0, false, err
	}
	defer w.close()
	type candidate struct {
		base, limit int64 // of the group; its rows lie in between
		max         int64
	}
	var all []candidate
	for ok := w.groupAt(from); ok && w.err == nil; ok = w.groups.Next() {
		g, base := w.group()
		if len(all) > 0 {
			all[len(all)-1].limit = base
		}
		all = append(all, candidate{base, 1<<63 - 1, g.maxTimestamp})
	}
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(b.max, a.max) })
	for _, c := range all {
		if ok && c.max <= best {
			break
		}
		w.rowsFrom(max(c.base, from), c.limit, func(r *RemoteSegment) bool {
			if r.Base >= from && (!ok || r.MaxTimestamp > best) {
				best, ok = r.MaxTimestamp, true
			}
			return true
		})
	}
	return best, ok, w.err
}

func (s *Store) firstWhere(topic protocol.UUID, partition int32, from int64, inGroup func(group) bool, is func(*RemoteSegment) bool) (seg RemoteSegment, found bool, err error) {
	w, err := s.walk(topic, partition)
	if err != nil || w == nil {
		return RemoteSegment{}, false, err
	}
	defer w.close()
	start := from
	w.rowsFrom(from, from+1, func(r *RemoteSegment) bool { start = min(start, r.Base); return false })
	for ok := w.groupAt(start); ok && !found && w.err == nil; {
		g, base := w.group()
		if ok = w.groups.Next(); !inGroup(g) {
			continue
		}
		limit := int64(1<<63 - 1)
		if ok {
			_, limit = w.group()
		}
		w.rowsFrom(max(base, start), limit, func(r *RemoteSegment) bool {
			if r.Next > from && is(r) {
				seg, found = *r, true
			}
			return !found
		})
	}
	if found && w.err == nil {
		seg.Location, w.err = s.fsm.location(w.loc)
	}
	return seg, found && w.err == nil, w.err
}

// walker steps over the groups of a partition and the rows of some.
type walker struct {
	h          *handle
	topic      protocol.UUID
	partition  int32
	groups     *pebble.Iterator
	rows       *pebble.Iterator
	rowsPrefix []byte
	loc        uint32 // location of the last row
	err        error
}

// walk returns nil when the partition is not there.
func (s *Store) walk(topic protocol.UUID, partition int32) (*walker, error) {
	if _, ok := s.Image().Partition(topic, partition); !ok {
		return nil, nil
	}
	h, err := s.fsm.acquire()
	if err != nil {
		return nil, err
	}
	w := &walker{h: h, topic: topic, partition: partition, rowsPrefix: partKey(nsFinished, topic, partition)}
	// Both see one state: a row and its group are written together.
	snap := h.db.NewSnapshot()
	defer snap.Close()
	if w.groups, err = snap.NewIter(prefixOptions(partKey(nsGroup, topic, partition))); err == nil {
		if w.rows, err = snap.NewIter(prefixOptions(w.rowsPrefix)); err == nil {
			return w, nil
		}
		_ = w.groups.Close()
	}
	h.release()
	return nil, err
}

func (w *walker) close() {
	_ = w.groups.Close()
	_ = w.rows.Close()
	w.h.release()
}

// groupAt moves to the group that covers base, or to the first one above it.
func (w *walker) groupAt(base int64) bool {
	return w.groups.SeekLT(offsetKey(partKey(nsGroup, w.topic, w.partition), base+1)) || w.groups.First()
}

func (w *walker) group() (group, int64) {
	g, err := decodeGroup(w.groups.Value())
	w.fail(err)
	return g, int64(binary.BigEndian.Uint64(w.groups.Key()[partKeyLen:]))
}

// rowsFrom calls fn with the rows from the one that claims off on, or the first above it, with a base below limit.
func (w *walker) rowsFrom(off, limit int64, fn func(*RemoteSegment) bool) {
	ok := w.rows.SeekLT(offsetKey(w.rowsPrefix, off+1)) || w.rows.First()
	for ; ok && w.err == nil; ok = w.rows.Next() {
		seg, loc, err := decodeSegment(w.rows.Value(), w.topic, w.partition)
		if w.fail(err); err != nil || seg.Base >= limit {
			break
		}
		if w.loc = loc; seg.Next > off && !fn(&seg) {
			break
		}
	}
	w.fail(w.rows.Error())
}

func (w *walker) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}
