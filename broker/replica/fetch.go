package replica

import (
	"context"
	"slices"
	"time"

	"varve/broker/commitlog"
	"varve/protocol"
)

// hotGrace is how long a fetch that already has hot records, or an error to tell, waits for partitions that are read
// from the tier. Chunks that are in the cache come within it; so a busy hot partition does not starve a cold one, whose
// chunks reach the cache between two fetches.
const hotGrace = 10 * time.Millisecond

// coldGrace is the same for a fetch whose records all came from the tier: its partitions move forward together, but one
// that the store holds up does not stop the others.
const coldGrace = 100 * time.Millisecond

// Fetch answers a fetch request. It blocks until there are MinBytes, or something to tell, or MaxWait is over (for
// partitions in the tier: remote.fetch.max.wait.ms), or ctx or Run ends; what there is then is returned. Results are in
// the request's order and own their spans.
func (m *Manager) Fetch(ctx context.Context, req *FetchRequest) []FetchResult {
	f := m.newFetch(req, len(req.Partitions))
	for i := range req.Partitions {
		f.slots = append(f.slots, fetchSlot{q: &req.Partitions[i], place: i})
	}
	f.run(ctx)
	return f.finish()
}

func (m *Manager) newFetch(req *FetchRequest, slots int) *fetch {
	return &fetch{m: m, req: req, budget: int64(req.MaxBytes), slots: make([]fetchSlot, 0, slots), start: m.now()}
}

// run reads all slots, then waits until the request is to be answered.
func (f *fetch) run(ctx context.Context) {
	until := f.start.Add(min(f.req.MaxWait, startGrace))
	for i := range f.slots {
		ended, q := f.ended, f.slots[i].q
		f.read(i, true)
		if f.slots[i].res.Err != protocol.NotLeaderOrFollower {
			continue
		}
		f.settle()
		if f.m.awaitLead(ctx, until, q.Topic, q.TopicID, q.Partition) {
			f.ended = ended
			f.read(i, false)
		}
	}
	f.settle()
	f.startCold(ctx)
	f.wait(ctx)
}

// fetch is one request while it is worked on.
type fetch struct {
	m      *Manager
	req    *FetchRequest
	slots  []fetchSlot
	start  time.Time
	budget int64 // bytes of MaxBytes that are left
	bytes  int64 // in results
	ended  bool  // an error or a diverging epoch ends the wait
	hot    int   // slots with local records: with the first one size limits begin to hold
	gotOne bool  // a cold partition has records: that is enough, as in Kafka's DelayedRemoteFetch
	colds  int   // cold slots without an answer
	cold   *coldFetch
	wake   *fetchWait
	of     *Session // nil: the request stands for itself

	reached []resolution // by this follower's offsets, and not yet answered
}

// settle answers the produce requests that a follower's fetch has brought to their end, those of all its partitions
// together.
func (f *fetch) settle() {
	resolveAll(f.reached)
	f.reached = f.reached[:0]
}

// fetchSlot is one partition of a fetch.
type fetchSlot struct {
	q        *FetchPartition
	place    int // by which wake knows it
	p        *partition
	res      FetchResult
	bytes    int64 // in res
	reserved int64 // of the budget, for an answer from the tier
	minOne   bool  // of the cold read
	cold     bool  // is, or has to be, asked of the tier
	asked    bool
	watched  *partition // asked to tell of the next change; it may have done so
}

// read reads partition i from its local log and accounts for it; what was read before is given back. count is set at
// the first time.
func (f *fetch) read(i int, count bool) {
	s := &f.slots[i]
	q := s.q
	f.drop(s)
	p, err := f.m.find(q.Topic, q.TopicID, q.Partition)
	if err != nil {
		s.res = failedFetch(err)
		if s.res.Err == protocol.NotLeaderOrFollower {
			s.res.Leader, s.res.LeaderEpoch = f.m.leaderOf(q.Topic, q.TopicID, q.Partition)
		}
		f.ended = true
		return
	}
	s.p = p
	f.watch(s) // first: a change that comes after the read is not missed
	if count {
		p.count.fetches.Add(1)
	}
	limit := min(f.budget, int64(max(q.MaxBytes, 0)))
	s.res, s.cold = p.read(f.req, q, int(limit), f.hot == 0)
	if f.req.ReplicaID >= 0 && s.res.Err == protocol.None && s.res.Diverging == nil {
		f.reached = append(f.reached, p.followerAt(f.req.ReplicaID, q.Offset)...)
	}
	switch {
	case s.res.Err != protocol.None || s.res.Diverging != nil:
		f.ended = true
	case s.cold:
		// Later partitions get what this one may not need (KIP-405 in 4.2): several cold ones stay inside MaxBytes.
		s.minOne = f.colds == 0
		s.reserved = limit
		f.budget -= limit
		f.colds++
	default:
		f.take(s)
		if s.bytes > 0 {
			f.hot++
		}
	}
}

func (f *fetch) take(s *fetchSlot) {
	s.bytes = protocol.SpansLen(s.res.Spans)
	f.bytes += s.bytes
	f.budget = max(f.budget-s.bytes, 0)
}

// drop gives back what a slot holds of the local log.
func (f *fetch) drop(s *fetchSlot) {
	if s.bytes > 0 {
		f.hot--
	}
	protocol.ReleaseSpans(s.res.Spans)
	f.bytes -= s.bytes
	f.budget += s.bytes
	s.res, s.bytes = FetchResult{}, 0
}

// enough says whether there is what the client waits for, whatever may still come from the tier.
func (f *fetch) enough() bool {
	return f.ended || f.gotOne || f.bytes >= int64(f.req.MinBytes) || f.req.MaxWait <= 0 || len(f.slots) == 0 && f.of == nil
}

// wait returns when the request is to be answered.
func (f *fetch) wait(ctx context.Context) {
	if f.colds == 0 && f.enough() {
		return
	}
	f.m.fetching.Add(1)
	defer f.m.fetching.Add(-1)
	f.listen()
	defer f.unwatch()
	limit := f.req.MaxWait
	if f.colds > 0 {
		limit = f.m.remoteMaxWait()
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	grace := false
	for {
		if f.colds == 0 && f.enough() {
			return
		}
		if f.colds > 0 && !grace && f.enough() && (f.bytes > 0 || f.ended) {
			grace = true
			timer.Reset(min(f.grace(), max(limit-f.m.now().Sub(f.start), 0)))
		}
		select {
		case <-f.wake.wake:
			for _, place := range f.wake.take() {
				f.changed(place)
			}
			f.settle()
			f.startCold(ctx) // what was freed meanwhile
		case <-f.coldDone():
			f.takeCold()
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		case <-f.m.stopping:
			return
		}
	}
}

func (f *fetch) grace() time.Duration {
	if f.hot > 0 || f.ended {
		return hotGrace
	}
	return coldGrace
}

// listen asks the hot partitions to tell of changes, and looks again at those without records: a change may have come
// before. A session listens all the time.
func (f *fetch) listen() {
	if f.wake != nil {
		return
	}
	f.wake = newFetchWait()
	for i := range f.slots {
		s := &f.slots[i]
		switch {
		case s.p == nil || s.cold || s.res.Err != protocol.None:
		case s.bytes == 0:
			f.read(i, false)
		default:
			f.watch(s)
		}
	}
	f.settle()
}

// watch asks a slot's partition to tell of its next change.
func (f *fetch) watch(s *fetchSlot) {
	if f.wake == nil {
		return
	}
	if s.watched != nil && s.watched != s.p {
		s.watched.fetches.remove(f.wake, s.place)
	}
	s.watched = nil
	if s.p.fetches.add(f.wake, s.place, f.req.ReplicaID != ConsumerID) {
		s.watched = s.p
	}
}

// changed looks again at what has told of a change. What is asked of the tier waits for its answer.
func (f *fetch) changed(place int) {
	i, first := place, false
	if f.of != nil {
		if i, first = f.of.slotOf(f, place); i < 0 {
			return
		}
	}
	if !f.slots[i].asked {
		f.read(i, first)
	}
}

func (f *fetch) unwatch() {
	if f.of != nil {
		return
	}
	for i := range f.slots {
		if s := &f.slots[i]; s.watched != nil {
			s.watched.fetches.remove(f.wake, s.place)
		}
	}
}

// finish ends cold reads and hands the results over.
func (f *fetch) finish() []FetchResult {
	if f.cold != nil {
		f.takeCold()
		f.cold.close()
	}
	out := make([]FetchResult, len(f.slots))
	for i := range f.slots {
		s := &f.slots[i]
		out[i] = s.res
		if s.p == nil {
			continue
		}
		if f.req.ReplicaID == ConsumerID {
			s.p.count.bytesOut.Add(s.bytes)
		}
		if s.res.Err == protocol.UnknownServerError {
			s.p.count.failedFetches.Add(1)
		}
	}
	return out
}

func failedFetch(err error) FetchResult {
	return FetchResult{
		Err: protocol.CodeOf(err), HighWatermark: -1, LastStable: -1, LogStart: -1,
		Leader: -1, LeaderEpoch: -1, PreferredReplica: -1,
	}
}

// read answers a fetch from the local log, or says that the offset is in the tier only (Partition.readRecords,
// LocalLog.read). Offsets above what the reader may see, up to the log's end, are an empty answer; others are
// OffsetOutOfRange.
func (p *partition) read(req *FetchRequest, q *FetchPartition, maxBytes int, minOne bool) (res FetchResult, cold bool) {
	res, cold, err := p.readLocal(req, q, maxBytes, minOne)
	if err != nil {
		r := p.role.Load()
		res = failedFetch(err)
		switch res.Err {
		case protocol.NotLeaderOrFollower, protocol.FencedLeaderEpoch:
			res.Leader, res.LeaderEpoch = r.leader, r.leaderEpoch
		case protocol.KafkaStorageError:
			p.storageFailed(err)
		case protocol.UnknownServerError:
			p.m.events.Emit(PartitionFailed{Topic: p.topic, Partition: p.index, Doing: "fetch", Err: err})
		}
		return res, false
	}
	return res, cold
}

func (p *partition) readLocal(req *FetchRequest, q *FetchPartition, maxBytes int, minOne bool) (FetchResult, bool, error) {
	p.roleMu.RLock()
	defer p.roleMu.RUnlock()
	r := p.role.Load()
	if err := r.fence(q.CurrentLeaderEpoch); err != nil {
		return FetchResult{}, false, err
	}
	follower := req.ReplicaID >= 0
	if follower && (req.ReplicaID == p.m.nodeID || !slices.Contains(r.replicas, req.ReplicaID)) {
		if q.CurrentLeaderEpoch == NoEpoch {
			return FetchResult{}, false, protocol.NotLeaderOrFollower
		}
		return FetchResult{}, false, protocol.UnknownLeaderEpoch
	}
	hw, end := p.hw.Load(), r.log.End()
	res := FetchResult{
		HighWatermark: hw, LastStable: r.log.LastStable(hw), LogStart: r.log.LogStart(),
		Leader: -1, LeaderEpoch: -1, PreferredReplica: -1,
	}
	if q.LastFetchedEpoch != NoEpoch {
		diverging, err := p.divergence(r, q)
		if err != nil || diverging != nil {
			res.Diverging = diverging
			return res, false, err
		}
	}
	if q.Offset < res.LogStart || q.Offset > end {
		return FetchResult{}, false, protocol.Errorf(protocol.OffsetOutOfRange, "offset %d is not in [%d, %d]", q.Offset, res.LogStart, end)
	}
	if req.ReadCommitted && !follower {
		res.Aborted = []commitlog.AbortedTxn{}
	}
	limit := end
	if !follower {
		limit = hw
		if req.ReadCommitted {
			limit = res.LastStable
		}
	}
	cold, err := p.slice(r, q, &res, maxBytes, limit, minOne)
	if cold && follower {
		return FetchResult{}, false, protocol.OffsetMovedToTieredStorage
	}
	return res, cold, err
}

// slice reads the local log into res; cold says that the offset is not there, but in the tier.
func (p *partition) slice(r *role, q *FetchPartition, res *FetchResult, maxBytes int, limit int64, minOne bool) (cold bool, err error) {
	if q.Offset < r.log.LocalStart() {
		return r.tiered, outOfRangeUnless(r.tiered)
	}
	if q.Offset >= limit {
		return false, nil
	}
	s, err := r.log.Read(q.Offset, maxBytes, limit, minOne)
	if protocol.CodeOf(err) == protocol.OffsetOutOfRange && r.tiered && q.Offset < r.log.LocalStart() {
		return true, nil // freed since it was looked at
	}
	if err != nil {
		return false, err
	}
	if s.Len == 0 {
		protocol.ReleaseSpans([]protocol.Span{s.Span})
		res.more = true
		return false, nil
	}
	res.Spans = []protocol.Span{s.Span}
	if res.Aborted != nil {
		aborted, err := r.log.AbortedIn(q.Offset, s.NextOffset)
		if err != nil {
			protocol.ReleaseSpans(res.Spans)
			res.Spans = nil
			freed := protocol.CodeOf(err) == protocol.OffsetOutOfRange && r.tiered && q.Offset >= r.log.LogStart()
			return freed, outUnless(freed, err)
		}
		res.Aborted = append(res.Aborted, aborted...)
	}
	return false, nil
}

func outUnless(ok bool, err error) error {
	if ok {
		return nil
	}
	return err
}

func outOfRangeUnless(ok bool) error {
	if ok {
		return nil
	}
	return protocol.OffsetOutOfRange
}

// divergence compares the epoch of a follower's last record with the leader's lineage (KIP-595, Partition.readRecords).
func (p *partition) divergence(r *role, q *FetchPartition) (*EpochEnd, error) {
	end := p.epochEnd(r, q.LastFetchedEpoch)
	if end.Epoch < 0 || end.End < 0 {
		return nil, protocol.Errorf(protocol.OffsetOutOfRange, "end of leader epoch %d is not known", q.LastFetchedEpoch)
	}
	if start := r.log.LogStart(); q.Offset < start {
		return nil, protocol.Errorf(protocol.OffsetOutOfRange, "offset %d is below log start %d", q.Offset, start)
	}
	if end.Epoch < q.LastFetchedEpoch || end.End < q.Offset {
		return &end, nil
	}
	return nil, nil
}
