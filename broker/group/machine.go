package group

import (
	"cmp"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
	"varve/protocol/event"
)

// Ticket names a request until it is answered. It must be comparable; nil is none.
type Ticket any

// Event is what a Machine steps on: Request, Appended, Tick, TopicsGone, Loaded or Stop.
type Event any

// Request is a client's. Body is a *kmsg.JoinGroupRequest, SyncGroupRequest, HeartbeatRequest, LeaveGroupRequest,
// OffsetCommitRequest or OffsetDeleteRequest, in the shape of its newest version; a *FetchOffsets, *Describe or *Delete; or
// a *List. The answer is the response of the same name.
type Request struct {
	Ticket     Ticket
	ClientID   string
	ClientHost string
	Unique     string // for a JoinGroup without a member id: what makes a new one unique
	Body       any
}

// FetchOffsets asks for offsets of one group; nil Topics are all. The answer is a *kmsg.OffsetFetchResponseGroup.
type FetchOffsets struct {
	Group         kmsg.OffsetFetchRequestGroup
	RequireStable bool
}

// Describe asks for one group. The answer is a *kmsg.DescribeGroupsResponseGroup.
type Describe struct {
	Group   string
	Version int16 // of the request
}

// Delete removes one group. The answer is a *kmsg.DeleteGroupsResponseGroup.
type Delete struct{ Group string }

// List asks for all groups of these states and types, all when there are none. The answer is a
// []kmsg.ListGroupsResponseGroup.
type List struct{ States, Types []string }

// Appended says how an append ended. Appended events come in the order of the appends.
type Appended struct {
	ID  uint64
	Err protocol.ErrorCode
}

// Tick lets timers act that are due. Expire says whether retention may act.
type Tick struct{ Expire bool }

// TopicsGone says that topics were deleted.
type TopicsGone struct{ Topics []string }

// Loaded ends a load: sessions begin.
type Loaded struct {
	TopicExists func(name string) bool
}

// Stop ends a Machine: all that waits is answered with Err.
type Stop struct{ Err protocol.ErrorCode }

// Effects are what a step wants done, each list in its order.
type Effects struct {
	Answers []Answer
	Appends []Append
	Events  []event.Event
}

// Answer goes to the request with this ticket.
type Answer struct {
	To     Ticket
	Result any
}

// Append asks for records to be appended as one batch.
type Append struct {
	ID      uint64
	Records []Record
}

// Machine is the state of one partition of OffsetsTopic. It is not safe for concurrent use.
type Machine struct {
	conf    Settings
	groups  map[string]*group
	timers  timers
	flight  []*operation   // whose appends are under way, in the order of the log
	storing map[string]int // offsets whose appends are under way, by group: they are not in the group yet
	lastID  uint64
	now     time.Time // of the step
	out     Effects
	expires bool // of the step: retention may act
}

// operation is what happens once its records are stored.
type operation struct {
	last uint64 // id of its last append
	err  protocol.ErrorCode
	then []func(protocol.ErrorCode)
}

// NewMachine returns an empty one.
func NewMachine(conf Settings) *Machine {
	return &Machine{conf: conf, groups: map[string]*group{}, timers: newTimers(), storing: map[string]int{}}
}

// Next returns the earliest time at which a Tick does something.
func (m *Machine) Next() (time.Time, bool) { return m.timers.next() }

// Groups and Offsets count what the machine holds.
func (m *Machine) Groups() int { return len(m.groups) }

// Offsets counts the committed offsets.
func (m *Machine) Offsets() (n int) {
	for _, g := range m.groups {
		for _, parts := range g.offsets {
			n += len(parts)
		}
	}
	return n
}

// Step takes one event. What it returns belongs to the caller.
func (m *Machine) Step(now time.Time, ev Event) Effects {
	m.now = now
	switch ev := ev.(type) {
	case *Request:
		m.request(ev)
	case Appended:
		m.appended(ev)
	case Tick:
		m.tick(ev)
	case TopicsGone:
		m.topicsGone(ev.Topics)
	case Loaded:
		m.loaded(ev)
	case Stop:
		m.stop(ev.Err)
	}
	out := m.out
	m.out = Effects{}
	return out
}

func (m *Machine) request(r *Request) {
	switch body := r.Body.(type) {
	case *kmsg.JoinGroupRequest:
		m.join(r, body)
	case *kmsg.SyncGroupRequest:
		m.sync(r, body)
	case *kmsg.HeartbeatRequest:
		m.heartbeat(r, body)
	case *kmsg.LeaveGroupRequest:
		m.leave(r, body)
	case *kmsg.OffsetCommitRequest:
		m.commit(r, body)
	case *kmsg.OffsetDeleteRequest:
		m.afterCommits(body.Group, func() { m.deleteOffsets(r, body) })
	case *FetchOffsets:
		m.fetch(r, body)
	case *Describe:
		m.describe(r, body)
	case *Delete:
		m.afterCommits(body.Group, func() { m.deleteGroup(r, body) })
	case *List:
		m.list(r, body)
	case allOffsets:
		m.answer(r.Ticket, m.everyOffset())
	case someOffsets:
		m.answer(r.Ticket, m.someOffsets(body.max))
	case putOffsets:
		m.put(r, body.offsets)
	}
}

func (m *Machine) answer(to Ticket, result any) {
	if to != nil {
		m.out.Answers = append(m.out.Answers, Answer{To: to, Result: result})
	}
}

func (m *Machine) emit(e event.Event) { m.out.Events = append(m.out.Events, e) }

func (m *Machine) nowMs() int64 { return m.now.UnixMilli() }

// write asks for records to be stored, over several appends if they are many. then is called with None, or the first
// error as clients are to see it.
func (m *Machine) write(records []Record, then func(protocol.ErrorCode)) {
	for len(records) > 0 {
		n, bytes := 0, 0
		for n < len(records) && (n == 0 || bytes+recordBytes(records[n]) <= m.conf.MaxAppendBytes) {
			bytes += recordBytes(records[n])
			n++
		}
		m.lastID++
		m.out.Appends = append(m.out.Appends, Append{ID: m.lastID, Records: records[:n:n]})
		records = records[n:]
	}
	m.flight = append(m.flight, &operation{last: m.lastID, then: []func(protocol.ErrorCode){then}})
}

// writeOffsets stores offsets, puts them into their groups, and calls then.
func (m *Machine) writeOffsets(offsets []parsed, then func(protocol.ErrorCode)) {
	records := make([]Record, 0, len(offsets))
	for _, p := range offsets {
		records = append(records, offsetRecord(p.group, p.topic, p.partition, *p.offset))
		m.storing[p.group]++
	}
	m.write(records, func(err protocol.ErrorCode) {
		for _, p := range offsets {
			if m.storing[p.group]--; m.storing[p.group] == 0 {
				delete(m.storing, p.group)
			}
			if err == protocol.None {
				m.putOffset(p.group, p.topic, p.partition, p.offset)
			}
		}
		then(err)
	})
}

// recordOverheadBytes is what a record takes in a batch beyond key and value, at most.
const recordOverheadBytes = 40

func recordBytes(r Record) int { return len(r.Key) + len(r.Value) + recordOverheadBytes }

// afterWrites calls fn once everything that is under way now has been stored, or has failed.
func (m *Machine) afterWrites(fn func()) {
	if len(m.flight) == 0 {
		fn()
		return
	}
	last := m.flight[len(m.flight)-1]
	last.then = append(last.then, func(protocol.ErrorCode) { fn() })
}

// afterCommits is for what removes offsets: it must know those of the group that are being stored, or they would come after it.
func (m *Machine) afterCommits(group string, fn func()) {
	if m.storing[group] == 0 {
		fn()
		return
	}
	m.afterWrites(fn)
}

func (m *Machine) appended(ev Appended) {
	if len(m.flight) == 0 {
		return
	}
	op := m.flight[0]
	if op.err == protocol.None {
		op.err = clientError(ev.Err)
	}
	if ev.ID != op.last {
		return
	}
	m.flight = slices.Delete(m.flight, 0, 1)
	for _, then := range op.then {
		then(op.err)
	}
}

// clientError is what clients are told of a failed append (CoordinatorOperationExceptionHelper.java).
func clientError(err protocol.ErrorCode) protocol.ErrorCode {
	switch err {
	case protocol.UnknownTopicOrPartition, protocol.NotEnoughReplicas, protocol.NotEnoughReplicasAfterAppend, protocol.RequestTimedOut:
		return protocol.CoordinatorNotAvailable
	case protocol.NotLeaderOrFollower, protocol.FencedLeaderEpoch, protocol.UnknownLeaderEpoch, protocol.KafkaStorageError:
		return protocol.NotCoordinator
	case protocol.MessageTooLarge, protocol.RecordListTooLarge:
		return protocol.UnknownServerError
	}
	return err
}

func (m *Machine) tick(t Tick) {
	m.expires = t.Expire
	// One at a time: what one does may put off another.
	for n := 0; n < maxTimersPerTick; n++ {
		key, ok := m.timers.pop(m.now)
		if !ok {
			return
		}
		m.timeout(key)
	}
}

func (m *Machine) timeout(key timerKey) {
	if key.kind == timerExpire {
		m.expireOffsets()
		return
	}
	g := m.groups[key.group]
	if g == nil {
		return
	}
	switch key.kind {
	case timerSession:
		m.sessionOver(g, key.member)
	case timerJoin:
		m.joinOver(g)
	case timerSync:
		m.syncOver(g)
	}
	m.forgetBare(g)
}

// sorted are the groups in the order of their ids, so that a step has one outcome.
func (m *Machine) sorted() []*group {
	all := make([]*group, 0, len(m.groups))
	for _, g := range m.groups {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *group) int { return cmp.Compare(a.id, b.id) })
	return all
}

// Replay takes a record of the log while it is loaded. known is false for records of other protocols. Errors are
// *protocol.CorruptionError and change nothing.
func (m *Machine) Replay(r Record) (known bool, err error) {
	p, known, err := parse(r)
	if err != nil || !known {
		return known, err
	}
	switch {
	case p.isOffset:
		m.putOffset(p.group, p.topic, p.partition, p.offset)
	case p.value == nil:
		m.dropGroup(p.group)
	default:
		m.restore(p.group, p.value)
	}
	return true, nil
}

// putOffset stores or removes an offset whose record is in the log.
func (m *Machine) putOffset(id, topic string, partition int32, o *offset) {
	g := m.groups[id]
	if g == nil {
		if o == nil {
			return
		}
		g = newGroup(id, noTimestamp)
		m.groups[id] = g
	}
	g.put(topic, partition, o)
}

// dropGroup takes out a group whose tombstone is in the log, unless it is in use again.
func (m *Machine) dropGroup(id string) {
	g := m.groups[id]
	if g == nil {
		return
	}
	if g.state != Empty || len(g.pending) > 0 || len(g.offsets) > 0 {
		return
	}
	delete(m.groups, id)
}

// restore takes a group's record over.
func (m *Machine) restore(id string, v *kmsg.GroupMetadataValue) {
	g := newGroup(id, v.CurrentStateTimestamp)
	if old := m.groups[id]; old != nil {
		g.offsets = old.offsets
	}
	g.generation, g.protocolType, g.protocol = v.Generation, v.ProtocolType, v.Protocol
	for i := range v.Members {
		in := &v.Members[i]
		if g.byID[in.MemberID] != nil {
			continue
		}
		restored := &member{
			id: in.MemberID, instance: in.InstanceID, clientID: in.ClientID, clientHost: in.ClientHost,
			sessionMs: in.SessionTimeoutMillis, rebalanceMs: in.RebalanceTimeoutMillis, assignment: slices.Clone(in.Assignment),
		}
		if restored.rebalanceMs == -1 {
			restored.rebalanceMs = restored.sessionMs
		}
		if v.Protocol != nil {
			restored.protocols = []kmsg.JoinGroupRequestProtocol{{Name: *v.Protocol, Metadata: slices.Clone(in.Subscription)}}
		}
		g.add(restored)
	}
	if v.Leader != nil && g.byID[*v.Leader] != nil {
		g.leader = *v.Leader
	}
	if len(g.members) > 0 {
		g.state = Stable
	}
	g.readTopics()
	m.groups[id] = g
}

// loaded begins sessions, makes room in groups that are larger than is allowed now, and removes offsets of topics that
// went while nobody looked.
func (m *Machine) loaded(ev Loaded) {
	m.timers.set(timerKey{kind: timerExpire}, m.now.Add(m.conf.RetentionCheck))
	gone := map[string]struct{}{}
	for _, g := range m.sorted() {
		for _, mem := range g.members {
			m.armSession(g, mem.id, mem.session())
		}
		if len(g.members) > m.conf.MaxSize {
			m.prepare(g, "loaded with more members than group.max.size")
		}
		for topic := range g.offsets {
			if !ev.TopicExists(topic) {
				gone[topic] = struct{}{}
			}
		}
	}
	if len(gone) > 0 {
		m.removeTopics(func(topic string) bool { _, ok := gone[topic]; return ok })
	}
}

// stop answers all that waits.
func (m *Machine) stop(err protocol.ErrorCode) {
	for len(m.flight) > 0 { // what waited for one may begin another
		op := m.flight[0]
		m.flight = m.flight[1:]
		for _, then := range op.then {
			then(err)
		}
	}
	m.out.Appends = nil
	for _, g := range m.sorted() {
		for _, mem := range g.members {
			m.failJoin(g, mem, err)
			m.answerSync(mem, FailSync(err))
		}
	}
	left := map[string]*group{} // offsets can still be read, for the last snapshot
	for id, g := range m.groups {
		left[id] = newGroup(id, noTimestamp)
		left[id].offsets = g.offsets
	}
	m.groups, m.timers = left, newTimers()
}

func (m *Machine) armSession(g *group, member string, after time.Duration) {
	m.timers.set(timerKey{timerSession, g.id, member}, m.now.Add(max(after, 0)))
}

func (m *Machine) cancelSession(g *group, member string) {
	m.timers.cancel(timerKey{timerSession, g.id, member})
}

// forgetBare drops a group of which there is no record and nothing to say: nobody joined in the end.
func (m *Machine) forgetBare(g *group) {
	if g.state == Empty && g.generation == 0 && len(g.pending) == 0 && len(g.offsets) == 0 && m.groups[g.id] == g {
		delete(m.groups, g.id)
	}
}
