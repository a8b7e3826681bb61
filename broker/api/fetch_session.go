package api

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/replica"
	"varve/protocol"
)

// Session epochs with a meaning of their own (FetchMetadata.java).
const (
	initialSessionEpoch int32 = 0  // begin a session
	finalSessionEpoch   int32 = -1 // end it, or have none
)

// sessionEvictionAge is how long a session is safe from others that want its slot, and after how long without a request
// it goes first (FetchSession.java, MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS).
const sessionEvictionAge = 2 * time.Minute

// maxSessionPartitions bounds the partitions of all sessions, about 300 bytes each. A client whose session does not fit
// is answered in full each time.
const maxSessionPartitions = 1 << 20

// fetchSessions are the incremental fetch sessions of this broker (KIP-227, FetchSession.java): at most
// max.incremental.fetch.session.cache.slots. A new one takes the slot of one that was not used for two minutes, else of
// the least of those that are older than two minutes and not greater than it; followers' sessions are greater than
// consumers', and larger ones than smaller ones. Sessions outlive their connection.
type fetchSessions struct {
	slots int
	open  func() replica.FetchSession
	now   func() time.Time

	mu         sync.Mutex
	byID       map[int32]*fetchSession
	partitions int // of all sessions
}

func (f *fetchSessions) init(slots int, open func() replica.FetchSession) {
	f.slots, f.open, f.now = slots, open, time.Now
	f.byID = map[int32]*fetchSession{}
}

// fetchSession is one session. Its requests run one at a time; one that comes while another still waits ends that one.
type fetchSession struct {
	id         int32
	privileged bool // of a follower
	byID       bool // topics go by id
	created    time.Time

	used time.Time // under fetchSessions.mu
	size int       // partitions, under fetchSessions.mu

	mu     sync.Mutex
	epoch  int32 // of the next request
	cancel context.CancelFunc
	late   bool // the running request was overtaken by the next one
	closed bool

	run     sync.Mutex // held by the running request; guards what follows
	reads   replica.FetchSession
	parts   map[fetchKey]*sessionPartition
	byPlace []*sessionPartition
}

// sessionPartition is one partition of a session.
type sessionPartition struct {
	key   fetchKey
	topic string // its name, also when it goes by id; "" until it is known
	place int
	told  toldPartition
}

// toldPartition is what the client was told of a partition; -1 for what it was not told, or what it may have to hear again.
type toldPartition struct{ highWatermark, logStart int64 }

// create makes a session of what a full request asked for and was told; 0 when there is no room for one.
func (f *fetchSessions) create(privileged, byID bool, asks []fetchAsk, told []toldPartition) int32 {
	s := &fetchSession{privileged: privileged, byID: byID, epoch: nextSessionEpoch(initialSessionEpoch), size: len(asks)}
	f.mu.Lock()
	s.created = f.now()
	s.used = s.created
	evicted, ok := f.makeRoom(s)
	if ok {
		for s.id == 0 || f.byID[s.id] != nil {
			s.id = rand.Int32N(math.MaxInt32)
		}
		f.byID[s.id] = s
		f.partitions += s.size
		s.run.Lock()
	}
	f.mu.Unlock()
	if evicted != nil {
		evicted.close()
	}
	if !ok {
		return 0
	}
	s.reads, s.parts = f.open(), make(map[fetchKey]*sessionPartition, len(asks))
	for i := range asks {
		s.put(&asks[i]).told = told[i]
	}
	s.run.Unlock()
	s.reap() // if it was evicted meanwhile
	return s.id
}

// makeRoom finds a slot for s, and takes out the session that has to go for it. The caller holds mu.
func (f *fetchSessions) makeRoom(s *fetchSession) (evicted *fetchSession, ok bool) {
	if f.slots <= 0 || f.partitions+s.size > maxSessionPartitions {
		return nil, false
	}
	if len(f.byID) < f.slots {
		return nil, true
	}
	var oldest, least *fetchSession
	for _, o := range f.byID {
		if oldest == nil || o.used.Before(oldest.used) {
			oldest = o
		}
		evictable := s.created.Sub(o.created) > sessionEvictionAge || s.privileged && !o.privileged
		if evictable && (least == nil || o.less(least)) {
			least = o
		}
	}
	switch {
	case s.created.Sub(oldest.used) > sessionEvictionAge:
		f.drop(oldest)
		return oldest, true
	case least == nil || s.less(least):
		return nil, false
	}
	f.drop(least)
	return least, true
}

// less orders sessions by how little is lost with them. A new one has id 0.
func (s *fetchSession) less(o *fetchSession) bool {
	if s.privileged != o.privileged {
		return o.privileged
	}
	if s.size != o.size {
		return s.size < o.size
	}
	return s.id < o.id
}

// drop takes a session out. The caller holds mu and closes it later.
func (f *fetchSessions) drop(s *fetchSession) {
	if f.byID[s.id] == s {
		delete(f.byID, s.id)
		f.partitions -= s.size
	}
}

// remove ends a session if there is one.
func (f *fetchSessions) remove(id int32) {
	f.mu.Lock()
	s := f.byID[id]
	if s != nil {
		f.drop(s)
	}
	f.mu.Unlock()
	if s != nil {
		s.close()
	}
}

func (f *fetchSessions) find(id int32) *fetchSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byID[id]
}

// touch notes that a session was used and what its size is now; false when it was evicted or there is no room for it.
func (f *fetchSessions) touch(s *fetchSession, size int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byID[s.id] != s || f.partitions+size-s.size > maxSessionPartitions {
		return false
	}
	f.partitions += size - s.size
	s.used, s.size = f.now(), size
	return true
}

// close gives up what the session holds, now or when its running request ends.
func (s *fetchSession) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.reap()
}

func (s *fetchSession) reap() {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed && s.run.TryLock() {
		s.reads.Close()
		s.parts, s.byPlace = nil, nil
		s.run.Unlock()
	}
}

// begin makes a request the running one, whose ctx ends when it is overtaken. end follows unless there is an error.
func (s *fetchSession) begin(ctx context.Context, req *kmsg.FetchRequest) (context.Context, protocol.ErrorCode) {
	s.mu.Lock()
	if s.epoch != req.SessionEpoch {
		s.mu.Unlock()
		return nil, protocol.InvalidFetchSessionEpoch
	}
	if s.byID != (req.Version >= 13) {
		s.mu.Unlock()
		return nil, protocol.FetchSessionTopicIDError
	}
	if s.cancel != nil {
		s.late = true
		s.cancel()
	}
	s.mu.Unlock()
	s.run.Lock()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		s.run.Unlock()
		return nil, protocol.FetchSessionIDNotFound
	case s.epoch != req.SessionEpoch:
		s.run.Unlock()
		return nil, protocol.InvalidFetchSessionEpoch
	}
	s.epoch = nextSessionEpoch(s.epoch)
	s.late = false
	ctx, s.cancel = context.WithCancel(ctx)
	return ctx, protocol.None
}

// end lets the next request run.
func (s *fetchSession) end() {
	s.mu.Lock()
	s.cancel()
	s.cancel = nil
	s.mu.Unlock()
	s.run.Unlock()
	s.reap()
}

func (s *fetchSession) overtaken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.late
}

// update puts in what the request names and takes out what it forgets.
func (s *fetchSession) update(req *kmsg.FetchRequest, asks []fetchAsk) {
	for i := range asks {
		s.put(&asks[i])
	}
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, partition := range t.Partitions {
			k := keyOf(req, t.Topic, t.TopicID, partition)
			if p := s.parts[k]; p != nil {
				s.reads.Remove(p.place)
				s.byPlace[p.place] = nil
				delete(s.parts, k)
			}
		}
	}
}

func (s *fetchSession) put(a *fetchAsk) *sessionPartition {
	if p := s.parts[a.key]; p != nil {
		s.reads.Change(p.place, a.q)
		return p
	}
	p := &sessionPartition{key: a.key, topic: a.key.topic, place: s.reads.Add(a.q), told: toldPartition{-1, -1}}
	s.parts[a.key] = p
	for p.place >= len(s.byPlace) {
		s.byPlace = append(s.byPlace, nil)
	}
	s.byPlace[p.place] = p
	return p
}

// nextSessionEpoch goes round, past the epochs with a meaning (FetchMetadata.java, nextEpoch).
func nextSessionEpoch(epoch int32) int32 {
	if epoch == math.MaxInt32 {
		return 1
	}
	return epoch + 1
}

// fetchIncremental answers a request that continues a session: with those partitions that have records, failed, or of
// which the client has not heard the high watermark or log start. A session without partitions ends.
func (d *Dispatcher) fetchIncremental(c call, req *kmsg.FetchRequest, id, epoch int32) []protocol.Span {
	out := fetchAnswer{d: d, c: c, req: req}
	s := d.sessions.find(id)
	if s == nil {
		out.resp.ErrorCode = protocol.FetchSessionIDNotFound
		return out.spans()
	}
	ctx, refused := s.begin(c.conn.Drain(), req)
	if refused != protocol.None {
		out.resp.ErrorCode = refused
		return out.spans()
	}
	defer s.end()
	asks := asksOf(req)
	s.update(req, asks)
	if len(s.parts) == 0 {
		d.sessions.remove(id)
		return d.fetchFull(c, req, asks, false)
	}
	if !d.sessions.touch(s, len(s.parts)) {
		d.sessions.remove(id)
		out.resp.ErrorCode = protocol.FetchSessionIDNotFound
		return out.spans()
	}
	results := s.reads.Fetch(ctx, d.fetchRequest(req))
	if s.overtaken() {
		for i := range results {
			protocol.ReleaseSpans(results[i].Spans)
		}
		s.reads.Redo()
		out.resp.ErrorCode, out.resp.SessionID = protocol.InvalidFetchSessionEpoch, s.id
		return out.spans()
	}
	out.resp.SessionID = s.id
	for i := range results {
		r := &results[i].FetchResult
		p := s.byPlace[results[i].Place]
		d.nameStale(p, r)
		if p.mustTell(r) {
			a := out.add(p.key, r)
			p.told = toldPartition{a.HighWatermark, a.LogStartOffset}
		}
	}
	return out.spans()
}

// mustTell says whether the client has to hear of a result (CachedPartition.maybeUpdateResponseData).
func (p *sessionPartition) mustTell(r *replica.FetchResult) bool {
	return len(r.Spans) > 0 || r.Err != protocol.None || r.Diverging != nil || r.PreferredReplica >= 0 ||
		p.told != toldPartition{r.HighWatermark, r.LogStart}
}

// nameStale tells of a topic id that was known to the session and no longer exists what a topic's name has become:
// another topic's, or nobody's.
func (d *Dispatcher) nameStale(p *sessionPartition, r *replica.FetchResult) {
	if !p.key.id.IsZero() && p.topic == "" {
		if t, ok := d.o.Cluster().TopicByID(p.key.id); ok {
			p.topic = t.Name
		}
	}
	if r.Err != protocol.UnknownTopicID || p.topic == "" {
		return
	}
	r.Err = protocol.UnknownTopicOrPartition
	if _, ok := d.o.Cluster().Topic(p.topic); ok {
		r.Err = protocol.InconsistentTopicID
	}
}
