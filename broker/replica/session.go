package replica

import (
	"context"

	"varve/protocol"
)

// FetchSession is a set of partitions that one client fetches again and again; *Session. It is used by one caller at a
// time.
type FetchSession interface {
	// Add takes a partition in and returns the place by which it is named from then on.
	Add(q FetchPartition) (place int)
	// Change replaces what is asked of a partition.
	Change(place int, q FetchPartition)
	// Remove takes a partition out. Its place may be given to another one.
	Remove(place int)
	// Fetch is Manager.Fetch for those partitions that may have anything new; those of the request are not looked at.
	Fetch(ctx context.Context, req *FetchRequest) []SessionResult
	// Redo makes the next Fetch look at all partitions: what the last one said has not reached the client.
	Redo()
	// Close ends the session.
	Close()
}

// SessionResult is what a FetchSession says of one partition.
type SessionResult struct {
	Place int
	FetchResult
}

// Session is a FetchSession of a Manager. Partitions that had nothing to say tell the session when that changes; until
// then they cost nothing, neither when a fetch begins nor when it is woken. All others are read by each Fetch, those
// whose records did not fit in first, those that brought some last.
type Session struct {
	m     *Manager
	wait  *fetchWait
	parts []*sessionPart // by place; nil is free
	free  []int
	queue []*sessionPart // to be read, in order

	committed bool  // as whom the partitions were read last
	replicaID int32 // the same
}

var _ FetchSession = (*Session)(nil)

type sessionPart struct {
	q       FetchPartition
	place   int
	watched *partition // tells of the next change
	queued  bool
	gone    bool
	slot    int // of the running fetch; -1 none
}

// NewSession returns a session without partitions.
func (m *Manager) NewSession() FetchSession { return &Session{m: m, wait: newFetchWait()} }

// Add implements FetchSession.
func (s *Session) Add(q FetchPartition) (place int) {
	if n := len(s.free); n > 0 {
		place, s.free = s.free[n-1], s.free[:n-1]
	} else {
		place = len(s.parts)
		s.parts = append(s.parts, nil)
	}
	s.parts[place] = &sessionPart{q: q, place: place, slot: -1}
	s.enqueue(s.parts[place])
	return place
}

// Change implements FetchSession.
func (s *Session) Change(place int, q FetchPartition) {
	p := s.parts[place]
	p.q = q
	s.enqueue(p)
}

// Remove implements FetchSession.
func (s *Session) Remove(place int) {
	p := s.parts[place]
	p.unwatch(s.wait)
	p.gone = true
	s.parts[place] = nil
	s.free = append(s.free, place)
}

// Redo implements FetchSession.
func (s *Session) Redo() {
	for _, p := range s.parts {
		if p != nil {
			s.enqueue(p)
		}
	}
}

// Close implements FetchSession.
func (s *Session) Close() {
	for _, p := range s.parts {
		if p != nil {
			p.unwatch(s.wait)
		}
	}
	s.parts, s.free, s.queue = nil, nil, nil
}

func (p *sessionPart) unwatch(w *fetchWait) {
	if p.watched != nil {
		p.watched.fetches.remove(w, p.place)
		p.watched = nil
	}
}

func (s *Session) enqueue(p *sessionPart) {
	if !p.queued {
		p.queued = true
		s.queue = append(s.queue, p)
	}
}

// Fetch implements FetchSession.
func (s *Session) Fetch(ctx context.Context, req *FetchRequest) []SessionResult {
	if req.ReadCommitted != s.committed || req.ReplicaID != s.replicaID {
		s.committed, s.replicaID = req.ReadCommitted, req.ReplicaID
		s.Redo()
	}
	for _, place := range s.wait.take() {
		if p := s.parts[place]; p != nil {
			s.enqueue(p)
		}
	}
	queue := s.queue
	s.queue = nil
	f := s.m.newFetch(req, len(queue))
	f.of, f.wake = s, s.wait
	for _, p := range queue {
		if !p.gone {
			s.addSlot(f, p)
		}
		p.queued = false
	}
	f.run(ctx)
	results := f.finish()
	out := make([]SessionResult, len(results))
	for i := range results {
		out[i] = SessionResult{Place: f.slots[i].place, FetchResult: results[i]}
	}
	s.settle(f, results)
	return out
}

func (s *Session) addSlot(f *fetch, p *sessionPart) {
	p.slot = len(f.slots)
	f.slots = append(f.slots, fetchSlot{q: &p.q, place: p.place, watched: p.watched})
}

// slotOf finds the slot of a place that has told of a change, and says whether it is new; -1 when the place is free.
func (s *Session) slotOf(f *fetch, place int) (slot int, first bool) {
	p := s.parts[place]
	if p == nil {
		return -1, false
	}
	if first = p.slot < 0; first {
		s.addSlot(f, p)
	}
	return p.slot, first
}

// settle decides which of the partitions that were read will be read again without a word from them.
func (s *Session) settle(f *fetch, results []FetchResult) {
	var served []*sessionPart
	for i := range f.slots {
		slot, r := &f.slots[i], &results[i]
		p := s.parts[slot.place]
		p.watched, p.slot = slot.watched, -1
		switch {
		case len(r.Spans) > 0:
			served = append(served, p)
		case r.Err != protocol.None || r.Diverging != nil || r.more || slot.cold || slot.watched == nil:
			s.enqueue(p)
		}
	}
	for _, p := range served {
		s.enqueue(p)
	}
}
