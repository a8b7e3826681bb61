package group

import (
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

// State of a group, by the names that Kafka's tools show (ClassicGroupState.java).
type State string

// The states of a group.
const (
	Empty      State = "Empty"
	Preparing  State = "PreparingRebalance"
	Completing State = "CompletingRebalance"
	Stable     State = "Stable"
	Dead       State = "Dead" // is not there
)

// consumerProtocol is the protocol type of consumers (ConsumerProtocol.PROTOCOL_TYPE).
const consumerProtocol = "consumer"

// group is one group. Members are in the order in which they came: the first is the leader's successor.
type group struct {
	id           string
	state        State
	previous     State
	stateMs      int64 // since when, by the wall clock; noTimestamp unknown
	generation   int32
	protocolType string  // "" none: offsets only
	protocol     *string // nil none
	leader       string  // "" none

	members []*member
	byID    map[string]*member
	statics map[string]string   // instance id to member id
	pending map[string]struct{} // ids that were given out and not used yet
	unsyncd map[string]struct{} // members that have not synced in this generation
	support map[string]int      // members by protocol
	joining int                 // members whose JoinGroup waits
	bytes   int                 // of members

	grown          bool // members came during the initial delay
	delay, delayed time.Duration

	topics     map[string]struct{} // subscribed to
	topicsRead bool                // whether topics is known

	offsets map[string]map[int32]offset // by topic and partition
}

func newGroup(id string, nowMs int64) *group {
	return &group{
		id: id, state: Empty, previous: Dead, stateMs: nowMs,
		byID: map[string]*member{}, statics: map[string]string{}, pending: map[string]struct{}{}, unsyncd: map[string]struct{}{},
		support: map[string]int{}, offsets: map[string]map[int32]offset{},
	}
}

// member is one member of a group.
type member struct {
	id                     string
	instance               *string // group.instance.id of a static member
	clientID, clientHost   string
	sessionMs, rebalanceMs int32
	protocols              []kmsg.JoinGroupRequestProtocol // in its order of preference
	assignment             []byte
	isNew                  bool // its first JoinGroup waits: it does not know its id yet
	join, sync             Ticket
}

func (m *member) session() time.Duration { return time.Duration(m.sessionMs) * time.Millisecond }

func (m *member) metadata(protocol *string) []byte {
	for i := range m.protocols {
		if protocol != nil && m.protocols[i].Name == *protocol {
			return m.protocols[i].Metadata
		}
	}
	return nil
}

// sameProtocols says whether a JoinGroup brings what the member has already.
func (m *member) sameProtocols(protocols []kmsg.JoinGroupRequestProtocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(a, b kmsg.JoinGroupRequestProtocol) bool {
		return a.Name == b.Name && string(a.Metadata) == string(b.Metadata)
	})
}

// heard says that the coordinator itself holds the member up, so that it cannot be expected to send heartbeats.
func (m *member) heard() bool { return !m.isNew && (m.join != nil || m.sync != nil) }

func (m *member) size() int {
	n := len(m.id) + len(m.clientID) + len(m.clientHost) + len(m.assignment)
	return n + protocolBytes(m.protocols)
}

func protocolBytes(protocols []kmsg.JoinGroupRequestProtocol) (n int) {
	for i := range protocols {
		n += len(protocols[i].Name) + len(protocols[i].Metadata)
	}
	return n
}

// own copies protocols, which alias the request's frame. Of one name the first counts.
func own(protocols []kmsg.JoinGroupRequestProtocol) []kmsg.JoinGroupRequestProtocol {
	out := make([]kmsg.JoinGroupRequestProtocol, 0, len(protocols))
	seen := make(map[string]struct{}, len(protocols))
	for i := range protocols {
		if _, twice := seen[protocols[i].Name]; twice {
			continue
		}
		seen[protocols[i].Name] = struct{}{}
		out = append(out, kmsg.JoinGroupRequestProtocol{Name: protocols[i].Name, Metadata: slices.Clone(protocols[i].Metadata)})
	}
	return out
}

func (g *group) add(m *member) {
	if m.instance != nil {
		g.statics[*m.instance] = m.id
	}
	if g.leader == "" {
		g.leader = m.id
	}
	g.members = append(g.members, m)
	g.byID[m.id] = m
	g.bytes += m.size()
	g.count(m, 1)
	if m.join != nil {
		g.joining++
	}
	delete(g.pending, m.id)
}

// count adds a member's protocols to what the group supports, or takes them out.
func (g *group) count(m *member, by int) {
	for i := range m.protocols {
		name := m.protocols[i].Name
		if g.support[name] += by; g.support[name] == 0 {
			delete(g.support, name)
		}
	}
}

// remove takes a member or a pending member out. Its waiting requests were answered before.
func (g *group) remove(id string) {
	if m := g.byID[id]; m != nil {
		delete(g.byID, id)
		g.members = slices.DeleteFunc(g.members, func(o *member) bool { return o == m })
		g.bytes -= m.size()
		g.count(m, -1)
		if m.join != nil {
			g.joining--
		}
		if m.instance != nil {
			delete(g.statics, *m.instance)
		}
	}
	if g.leader == id {
		g.leader = ""
		if len(g.members) > 0 {
			g.leader = g.members[0].id
		}
	}
	delete(g.pending, id)
	delete(g.unsyncd, id)
}

// update takes what a JoinGroup says of a member, which waits for its answer from now on.
func (g *group) update(m *member, protocols []kmsg.JoinGroupRequestProtocol, sessionMs, rebalanceMs int32, join Ticket) {
	g.bytes -= m.size()
	g.count(m, -1)
	m.protocols, m.sessionMs, m.rebalanceMs = protocols, sessionMs, rebalanceMs
	g.count(m, 1)
	g.bytes += m.size()
	g.setJoin(m, join)
}

func (g *group) setJoin(m *member, join Ticket) {
	switch {
	case m.join == nil && join != nil:
		g.joining++
	case m.join != nil && join == nil:
		g.joining--
	}
	m.join = join
}

// replaceStatic gives a static member's place to a new member id.
func (g *group) replaceStatic(old *member, id string) *member {
	renewed := *old
	renewed.id, renewed.join, renewed.sync, renewed.isNew = id, nil, nil, false
	g.bytes += len(id) - len(old.id)
	g.members[slices.Index(g.members, old)] = &renewed
	delete(g.byID, old.id)
	g.byID[id] = &renewed
	g.statics[*old.instance] = id
	if g.leader == old.id {
		g.leader = id
	}
	return &renewed
}

// allJoined says whether nobody has to be waited for.
func (g *group) allJoined() bool { return g.joining == len(g.members) && len(g.pending) == 0 }

// electJoined makes a member the leader that waits for this generation; false when there is none.
func (g *group) electJoined() bool {
	if lead := g.byID[g.leader]; lead == nil || lead.join != nil {
		return lead != nil
	}
	for _, m := range g.members {
		if m.join != nil {
			g.leader = m.id
			return true
		}
	}
	return false
}

// rebalanceTimeout is the longest of the members'.
func (g *group) rebalanceTimeout() time.Duration {
	longest := int32(0)
	for _, m := range g.members {
		longest = max(longest, m.rebalanceMs)
	}
	return time.Duration(longest) * time.Millisecond
}

// supports says whether a member with these protocols fits into the group.
func (g *group) supports(protocolType string, protocols []kmsg.JoinGroupRequestProtocol) bool {
	if g.state == Empty {
		return protocolType != "" && len(protocols) > 0
	}
	return g.protocolType == protocolType && slices.ContainsFunc(protocols, func(p kmsg.JoinGroupRequestProtocol) bool {
		return g.support[p.Name] == len(g.members)
	})
}

// vote chooses the protocol that most members like best among those that all support; of equals the one first named by
// the members in their order.
func (g *group) vote() string {
	votes := map[string]int{}
	var named []string
	for _, m := range g.members {
		for i := range m.protocols {
			name := m.protocols[i].Name
			if g.support[name] == len(g.members) {
				if votes[name]++; votes[name] == 1 {
					named = append(named, name)
				}
				break
			}
		}
	}
	best := ""
	for i, name := range named {
		if i == 0 || votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// validate says whether a request comes from a member of the group.
func (g *group) validate(id string, instance *string) error {
	if instance != nil {
		switch holder, ok := g.statics[*instance]; {
		case !ok:
			return protocol.UnknownMemberID
		case holder != id:
			return protocol.FencedInstanceID
		}
	}
	if g.byID[id] == nil {
		return protocol.UnknownMemberID
	}
	return nil
}

// readTopics finds out what the members subscribe to, from the version 0 prefix of the consumer protocol, which all its
// versions begin with.
func (g *group) readTopics() {
	g.topics, g.topicsRead = nil, false
	if g.protocolType != consumerProtocol || len(g.members) > 0 && g.protocol == nil {
		return
	}
	topics := map[string]struct{}{}
	for _, m := range g.members {
		names, ok := subscribed(m.metadata(g.protocol))
		if !ok {
			return
		}
		for _, name := range names {
			topics[name] = struct{}{}
		}
	}
	g.topics, g.topicsRead = topics, true
}

// subscribedTo says whether a topic's offsets are in use by members.
func (g *group) subscribedTo(topic string) bool {
	if !g.topicsRead {
		return g.protocolType == consumerProtocol
	}
	_, ok := g.topics[topic]
	return ok
}

// currentMembers is what the leader is told.
func (g *group) currentMembers() []kmsg.JoinGroupResponseMember {
	out := make([]kmsg.JoinGroupResponseMember, len(g.members))
	for i, m := range g.members {
		out[i] = kmsg.NewJoinGroupResponseMember()
		out[i].MemberID, out[i].InstanceID, out[i].ProtocolMetadata = m.id, m.instance, m.metadata(g.protocol)
	}
	return out
}

func (g *group) assignments() map[string][]byte {
	out := make(map[string][]byte, len(g.members))
	for _, m := range g.members {
		out[m.id] = m.assignment
	}
	return out
}

// put stores a committed offset, nil removes it.
func (g *group) put(topic string, partition int32, o *offset) {
	parts := g.offsets[topic]
	switch {
	case o == nil:
		if delete(parts, partition); len(parts) == 0 {
			delete(g.offsets, topic)
		}
		return
	case parts == nil:
		parts = map[int32]offset{}
		g.offsets[topic] = parts
	}
	parts[partition] = *o
}

// is compares a state with a filter, as Kafka does without regard to case.
func (s State) is(filter string) bool { return strings.EqualFold(string(s), filter) }
