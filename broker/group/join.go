package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

// memberIDRequired is the first version whose dynamic members get their id before they join (KIP-394).
const memberIDRequired = 4

// skipsAssignment is the first version in which a leader can be told not to assign (KIP-814).
const skipsAssignment = 9

func (m *Machine) join(r *Request, req *kmsg.JoinGroupRequest) {
	if err := m.checkJoin(req); err != protocol.None {
		m.answer(r.Ticket, FailJoin(req.MemberID, err))
		return
	}
	g := m.groups[req.Group]
	if g == nil {
		g = newGroup(req.Group, m.nowMs())
		m.groups[g.id] = g
	}
	defer m.forgetBare(g)
	unknown := req.MemberID == ""
	switch {
	case !m.accepts(g, req):
		m.answer(r.Ticket, FailJoin("", protocol.GroupMaxSizeReached))
		m.turnAway(g, req.MemberID)
	case !g.supports(req.ProtocolType, req.Protocols):
		m.answer(r.Ticket, FailJoin(req.MemberID, protocol.InconsistentGroupProtocol))
	case unknown && req.InstanceID != nil:
		m.joinStatic(r, req, g)
	case unknown:
		m.joinDynamic(r, req, g)
	default:
		m.rejoin(r, req, g)
	}
}

// checkJoin looks at what does not depend on the group's state.
func (m *Machine) checkJoin(req *kmsg.JoinGroupRequest) protocol.ErrorCode {
	session := time.Duration(req.SessionTimeoutMillis) * time.Millisecond
	_, exists := m.groups[req.Group]
	switch {
	case req.Group == "":
		return protocol.InvalidGroupID
	case session < m.conf.MinSession || session > m.conf.MaxSession:
		return protocol.InvalidSessionTimeout
	case !exists && req.MemberID != "":
		return protocol.UnknownMemberID
	case !exists && len(m.groups) >= maxGroupsPerPartition:
		return protocol.CoordinatorNotAvailable
	}
	return protocol.None
}

// accepts says whether the group has room (GroupMetadataManager.acceptJoiningMember). While members join, those count
// that wait, so that a group that is too large loses those that come last.
func (m *Machine) accepts(g *group, req *kmsg.JoinGroupRequest) bool {
	mem := g.byID[req.MemberID]
	bytes := g.bytes + protocolBytes(req.Protocols)
	if mem != nil {
		bytes -= protocolBytes(mem.protocols)
	}
	if bytes > maxGroupMemberBytes || req.MemberID == "" && len(g.pending) >= maxPendingMembersPerGroup {
		return false
	}
	switch g.state {
	case Preparing:
		return mem != nil && mem.join != nil || g.joining < m.conf.MaxSize
	case Completing, Stable:
		return mem != nil || len(g.members) < m.conf.MaxSize
	}
	return true
}

// turnAway takes a member out for which there is no room any more; the others share what it had.
func (m *Machine) turnAway(g *group, id string) {
	had := g.byID[id] != nil && (g.state == Stable || g.state == Completing)
	m.dropMember(g, id)
	if had {
		m.prepare(g, "member "+id+" takes too much room")
	}
}

func (m *Machine) joinStatic(r *Request, req *kmsg.JoinGroupRequest, g *group) {
	id := *req.InstanceID + "-" + r.Unique
	if holder, ok := g.statics[*req.InstanceID]; ok {
		m.replaceStatic(r, req, g, g.byID[holder], id)
		return
	}
	m.addMember(r, req, g, id)
}

func (m *Machine) joinDynamic(r *Request, req *kmsg.JoinGroupRequest, g *group) {
	id := r.ClientID + "-" + r.Unique
	if req.Version < memberIDRequired {
		m.addMember(r, req, g, id)
		return
	}
	g.pending[id] = struct{}{}
	m.armSession(g, id, time.Duration(req.SessionTimeoutMillis)*time.Millisecond)
	m.answer(r.Ticket, FailJoin(id, protocol.MemberIDRequired))
}

// rejoin is a JoinGroup with a member id.
func (m *Machine) rejoin(r *Request, req *kmsg.JoinGroupRequest, g *group) {
	if _, ok := g.pending[req.MemberID]; ok {
		if req.InstanceID != nil { // ids of static members are never pending
			m.answer(r.Ticket, FailJoin(req.MemberID, protocol.UnknownServerError))
			return
		}
		m.addMember(r, req, g, req.MemberID)
		return
	}
	if err := g.validate(req.MemberID, req.InstanceID); err != nil {
		m.answer(r.Ticket, FailJoin(req.MemberID, protocol.CodeOf(err)))
		return
	}
	mem := g.byID[req.MemberID]
	same := mem.sameProtocols(req.Protocols)
	switch {
	case g.state == Completing && same:
		// The answer to its last JoinGroup may have been lost.
		m.answer(r.Ticket, m.generationOf(g, mem, g.leader == mem.id))
	case g.state == Stable && same && g.leader != mem.id:
		m.answer(r.Ticket, m.generationOf(g, mem, false))
	default:
		// The leader may join again to have the partitions assigned anew.
		m.failJoin(g, mem, protocol.RebalanceInProgress) // an earlier one that it gave up
		g.update(mem, own(req.Protocols), req.SessionTimeoutMillis, rebalanceMs(req), r.Ticket)
		m.rebalance(g, "member "+mem.id+" joined again")
	}
}

// rebalanceMs is the session timeout in version 0, which has no other.
func rebalanceMs(req *kmsg.JoinGroupRequest) int32 {
	if req.Version == 0 {
		return req.SessionTimeoutMillis
	}
	return req.RebalanceTimeoutMillis
}

func (m *Machine) addMember(r *Request, req *kmsg.JoinGroupRequest, g *group, id string) {
	mem := &member{
		id: id, instance: req.InstanceID, clientID: r.ClientID, clientHost: r.ClientHost,
		sessionMs: req.SessionTimeoutMillis, rebalanceMs: rebalanceMs(req),
		protocols: own(req.Protocols), isNew: true, join: r.Ticket,
	}
	if g.state == Preparing && g.previous == Empty {
		g.grown = true
	}
	if len(g.members) == 0 {
		g.protocolType = req.ProtocolType
	}
	g.add(mem)
	m.armSession(g, id, newMemberJoinTimeout)
	m.rebalance(g, "member "+id+" joined")
}

// replaceStatic lets a restarted static member take its old place. In a stable group that keeps its protocol nobody
// else notices (KIP-345).
func (m *Machine) replaceStatic(r *Request, req *kmsg.JoinGroupRequest, g *group, old *member, id string) {
	leader := g.leader
	m.failJoin(g, old, protocol.FencedInstanceID)
	m.answerSync(old, FailSync(protocol.FencedInstanceID))
	m.cancelSession(g, old.id)
	before := *old
	mem := g.replaceStatic(old, id)
	delete(g.unsyncd, old.id)
	g.update(mem, own(req.Protocols), req.SessionTimeoutMillis, rebalanceMs(req), r.Ticket)
	m.armSession(g, id, mem.session())
	switch {
	case g.state == Stable && g.protocol != nil && g.vote() == *g.protocol:
		m.storeStatic(r, req.Version, g, mem, before, leader)
	case g.state == Stable || g.state == Completing:
		// The assignment that the leader is working on names the old id.
		m.prepare(g, "static member "+id+" joined again")
	default:
		m.completeIfJoined(g)
	}
}

// storeStatic answers the JoinGroup of a static member once its new id is stored; a failure puts the old one back.
func (m *Machine) storeStatic(r *Request, version int16, g *group, mem *member, before member, leader string) {
	m.write([]Record{groupRecord(g, g.assignments())}, func(err protocol.ErrorCode) {
		if mem.join != r.Ticket || g.byID[mem.id] != mem {
			return // a rebalance took it in, or it is gone: it was answered then
		}
		switch {
		case err != protocol.None:
			resp := m.generationOf(g, mem, false)
			resp.MemberID, resp.LeaderID, resp.ErrorCode = "", leader, int16(err)
			m.answerJoin(g, mem, resp)
			m.cancelSession(g, mem.id)
			back := g.replaceStatic(mem, before.id)
			g.update(back, before.protocols, before.sessionMs, before.rebalanceMs, nil)
			m.armSession(g, back.id, back.session())
		case version >= skipsAssignment:
			lead := g.leader == mem.id
			resp := m.generationOf(g, mem, lead)
			resp.SkipAssignment = lead
			m.answerJoin(g, mem, resp)
		default:
			// Told of the old leader's id, a leader that came back does not take itself for it and assigns nothing.
			resp := m.generationOf(g, mem, false)
			resp.LeaderID = leader
			m.answerJoin(g, mem, resp)
		}
	})
}

// generationOf tells a member of the present generation.
func (m *Machine) generationOf(g *group, mem *member, withMembers bool) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Generation, resp.MemberID, resp.LeaderID, resp.Protocol = g.generation, mem.id, g.leader, g.protocol
	if g.protocolType != "" {
		resp.ProtocolType = &g.protocolType
	}
	if withMembers {
		resp.Members = g.currentMembers()
	}
	return resp
}

func (m *Machine) answerJoin(g *group, mem *member, resp *kmsg.JoinGroupResponse) {
	m.answer(mem.join, resp)
	g.setJoin(mem, nil)
}

// failJoin answers a member's waiting JoinGroup, if there is one.
func (m *Machine) failJoin(g *group, mem *member, err protocol.ErrorCode) {
	if mem.join == nil {
		return
	}
	id := mem.id
	if err == protocol.UnknownMemberID {
		id = "" // it asks for a new one
	}
	m.answerJoin(g, mem, FailJoin(id, err))
}

// FailJoin is the answer to a JoinGroup that failed.
func FailJoin(memberID string, err protocol.ErrorCode) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Generation, resp.MemberID, resp.ErrorCode = -1, memberID, int16(err)
	return resp
}
