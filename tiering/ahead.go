package tiering

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"varve/metastore"
	"varve/protocol"
	"varve/tiering/objstore"
)

// Read-ahead, in chunks.
const (
	minWindow    = (512 << 10) / chunkBytes
	maxWindow    = (64 << 20) / chunkBytes
	maxGet       = (8 << 20) / chunkBytes // one GET
	extentChunks = (1 << 20) / chunkBytes // windows up to here are fetched by one GET at a time
	maxStreams   = 1024

	// streamActive is how long a reader counts as one of those that share the memory.
	streamActive  = 3 * time.Second
	countInterval = 250 * time.Millisecond
)

// streams knows the readers that go through a partition in order, by the offset where
// each has to come back. A reader has no name: whoever asks for that offset is it.
type streams struct {
	now func() time.Time

	mu      sync.Mutex
	byPlace map[place]*list.Element
	lru     *list.List // of *stream
	active  int
	counted time.Time
}

type place struct {
	topic     protocol.UUID
	partition int32
	off       int64
}

// stream is one reader in order. Positions count chunks over all segments that it goes
// through, from where it was first seen.
type stream struct {
	at     place
	usedAt time.Time
	going  bool        // it came back once
	wasted atomic.Bool // what was fetched for it was pushed out before it came
	flow   objstore.Flow

	mu     sync.Mutex
	window int // chunks to have ahead of the reader, 0 = not known to go on
	here   spot
	pos    int64 // byte position in here's log where the read of off starts
	off    int64
	ahead  spot // what has been asked for ends here
	next   int  // chunk of ahead
	asking bool // the next segment's index is on its way
}

// spot is a segment in a stream.
type spot struct {
	row   metastore.RemoteSegment
	x     *SegmentIndex // nil: not known yet
	start int           // position of its first chunk
}

func (s spot) end() int { return s.start + len(s.x.Chunks) }

func newStreams(now func() time.Time) *streams {
	return &streams{now: now, byPlace: map[place]*list.Element{}, lru: list.New()}
}

// find returns the stream of whoever reads at p, or nil.
func (t *streams) find(p place) *stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byPlace[p]
	if e == nil {
		return nil
	}
	return e.Value.(*stream)
}

// move says that s, or a new stream, comes back at p.
func (t *streams) move(s *stream, p place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.byPlace[s.at]; e != nil && e.Value.(*stream) == s {
		t.remove(e)
	}
	if e := t.byPlace[p]; e != nil {
		t.remove(e) // two readers in step: one window serves both
	}
	s.going = !s.usedAt.IsZero()
	s.at, s.usedAt = p, t.now()
	t.byPlace[p] = t.lru.PushFront(s)
	if t.lru.Len() > maxStreams {
		t.remove(t.lru.Back())
	}
}

func (t *streams) remove(e *list.Element) {
	delete(t.byPlace, e.Value.(*stream).at)
	t.lru.Remove(e)
}

// share is how many chunks each active reader may have ahead of it.
func (t *streams) share(of int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if now.Sub(t.counted) > countInterval {
		t.counted, t.active = now, 0
		for e := t.lru.Front(); e != nil && now.Sub(e.Value.(*stream).usedAt) < streamActive; e = e.Next() {
			if e.Value.(*stream).going {
				t.active++
			}
		}
	}
	return max(of/max(t.active, 1), minWindow)
}

// came tells that the reader goes on at offset off, at pos of a segment. missed: it had to wait, so
// that a larger window may pay.
func (s *stream) came(row metastore.RemoteSegment, x *SegmentIndex, pos, off int64, missed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enter(row, x)
	s.pos, s.off = pos, off
	switch {
	case s.wasted.Swap(false):
		s.window = max(s.window/2, minWindow)
	case missed:
		s.window = min(max(s.window*2, minWindow), maxWindow)
	case s.window == 0:
		s.window = minWindow
	}
}

// bytePos is where in a segment's log a read of off starts, if that is where the stream
// stands: another reader in step may have moved it on since it was found. s may be nil.
func (s *stream) bytePos(row metastore.RemoteSegment, off int64) (int64, bool) {
	if s == nil {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pos, s.off == off && s.here.x != nil && s.here.row.ID == row.ID
}

// segment is the one in which the stream goes on at off; x is nil when that is not known. s may be nil.
func (s *stream) segment(off int64) (row metastore.RemoteSegment, x *SegmentIndex) {
	if s == nil {
		return row, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off != off || off >= s.here.row.Next {
		return row, nil
	}
	return s.here.row, s.here.x
}

// enter makes a segment the one that is read.
func (s *stream) enter(row metastore.RemoteSegment, x *SegmentIndex) {
	switch {
	case s.here.x != nil && s.here.row.ID == row.ID:
	case s.ahead.x != nil && s.ahead.row.ID == row.ID:
		s.here = s.ahead
	case s.here.x != nil && s.ahead.x != nil && s.here.row.Next == row.Base && s.ahead.row.Base >= row.Next:
		s.here = spot{row, x, s.here.end()} // read-ahead is in a later one already
	default:
		s.here = spot{row, x, 0}
		s.ahead, s.next, s.asking = s.here, 0, false
	}
}

// pump fetches ahead until the stream's window is full, or memory is.
func (m *Manager) pump(s *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.window == 0 || s.here.x == nil {
		return
	}
	s.window = min(s.window, m.streams.share(m.mem.aheadMax()))
	for m.pumpOne(s) {
	}
}

// pumpOne makes one step and says whether another may follow.
func (m *Manager) pumpOne(s *stream) bool {
	reader := s.here.start + int(s.pos/chunkBytes)
	if s.ahead.start+s.next < reader {
		s.ahead, s.next = s.here, int(s.pos/chunkBytes)
	}
	left := len(s.ahead.x.Chunks) - s.next
	if left <= s.window && !m.nextIndex(s) && left == 0 {
		return false
	}
	if left == 0 {
		return m.intoNext(s)
	}
	n := min(getChunks(s.window), left)
	if s.ahead.start+s.next+n > reader+s.window {
		return false
	}
	at, fresh, full := m.mem.wantAhead(s, blockKey{s.ahead.row.ID, s.next}, n, m.sameSource)
	s.next = at + len(fresh)
	if len(fresh) > 0 {
		m.fill(run{row: s.ahead.row, x: s.ahead.x, chunks: fresh, ahead: true, flow: &s.flow})
	}
	if full {
		s.window = max(s.window/2, minWindow)
	}
	return !full
}

// getChunks is the size of the GETs that fill a window: a quarter of it, so that some
// are under way while the reader works on another.
func getChunks(window int) int { return min(max(window/4, min(window, extentChunks)), maxGet) }

// nextIndex has the index of the segment after s.ahead fetched before the reader needs
// it. It says whether it is there.
func (m *Manager) nextIndex(s *stream) bool {
	row, ok, err := m.o.Meta.SegmentAt(s.ahead.row.TopicID, s.ahead.row.Partition, s.ahead.row.Next)
	if err != nil || !ok {
		return false
	}
	if m.indexes.get(row.ID) != nil {
		return true
	}
	if !s.asking {
		s.asking = true
		m.startIndex(row, true, func() {
			s.mu.Lock()
			s.asking = false
			s.mu.Unlock()
			if m.indexes.get(row.ID) != nil {
				m.pump(s)
			}
		})
	}
	return false
}

// intoNext moves read-ahead on to the next segment, whose index is there.
func (m *Manager) intoNext(s *stream) bool {
	row, ok, err := m.o.Meta.SegmentAt(s.ahead.row.TopicID, s.ahead.row.Partition, s.ahead.row.Next)
	if err != nil || !ok {
		return false
	}
	x := m.indexes.get(row.ID)
	if x == nil {
		return false
	}
	s.ahead, s.next = spot{row, x, s.ahead.end()}, 0
	return true
}
