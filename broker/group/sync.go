package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

// protocolNamed is the first version of SyncGroup that must name protocol type and protocol (KIP-559).
const protocolNamed = 5

func (m *Machine) sync(r *Request, req *kmsg.SyncGroupRequest) {
	g := m.groups[req.Group]
	if err := checkSync(g, req); err != protocol.None {
		m.answer(r.Ticket, FailSync(err))
		return
	}
	mem := g.byID[req.MemberID]
	switch g.state {
	case Preparing:
		m.answer(r.Ticket, FailSync(protocol.RebalanceInProgress))
	case Completing:
		m.answerSync(mem, FailSync(protocol.RebalanceInProgress)) // an earlier one that it gave up
		mem.sync = r.Ticket
		m.synced(g, mem)
		if g.leader == mem.id {
			m.storeAssignment(g, req)
		}
	case Stable:
		m.synced(g, mem)
		m.answer(r.Ticket, assignmentOf(g, mem))
	}
}

func checkSync(g *group, req *kmsg.SyncGroupRequest) protocol.ErrorCode {
	switch {
	case req.Version >= protocolNamed && (req.ProtocolType == nil || req.Protocol == nil):
		return protocol.InconsistentGroupProtocol
	case req.Group == "":
		return protocol.InvalidGroupID
	case g == nil || g.state == Empty:
		return protocol.UnknownMemberID
	}
	if err := g.validate(req.MemberID, req.InstanceID); err != nil {
		return protocol.CodeOf(err)
	}
	switch {
	case req.Generation != g.generation:
		return protocol.IllegalGeneration
	case req.ProtocolType != nil && *req.ProtocolType != g.protocolType,
		req.Protocol != nil && g.protocol != nil && *req.Protocol != *g.protocol:
		return protocol.InconsistentGroupProtocol
	}
	return protocol.None
}

// synced notes that a member has sent its SyncGroup.
func (m *Machine) synced(g *group, mem *member) {
	if delete(g.unsyncd, mem.id); len(g.unsyncd) == 0 {
		m.timers.cancel(timerKey{kind: timerSync, group: g.id})
	}
}

// storeAssignment stores what the leader assigned; then the group is stable and all members learn their part. Members
// that the leader left out get nothing.
func (m *Machine) storeAssignment(g *group, req *kmsg.SyncGroupRequest) {
	assigned := make(map[string][]byte, len(req.GroupAssignment))
	for i := range req.GroupAssignment {
		a := &req.GroupAssignment[i]
		if g.byID[a.MemberID] != nil {
			assigned[a.MemberID] = slices.Clone(a.MemberAssignment)
		}
	}
	generation := g.generation
	m.write([]Record{groupRecord(g, assigned)}, func(err protocol.ErrorCode) {
		if g.state != Completing || g.generation != generation {
			return // another rebalance answered all
		}
		if err != protocol.None {
			m.emit(StoreFailed{Group: g.id, Doing: "store its assignment", Code: err})
			m.failSyncs(g, err)
			m.prepare(g, "the assignment could not be stored")
			return
		}
		for _, mem := range g.members {
			g.assign(mem, assigned[mem.id])
			if mem.sync != nil {
				m.answerSync(mem, assignmentOf(g, mem))
				m.armSession(g, mem.id, mem.session())
			}
		}
		m.transition(g, Stable)
		m.emit(Changed{Group: g.id, State: Stable, Generation: g.generation, Members: len(g.members), Reason: "assigned"})
	})
}

func (g *group) assign(m *member, assignment []byte) {
	g.bytes += len(assignment) - len(m.assignment)
	m.assignment = assignment
}

func assignmentOf(g *group, mem *member) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.ProtocolType, resp.Protocol, resp.MemberAssignment = &g.protocolType, g.protocol, mem.assignment
	return resp
}

func (m *Machine) answerSync(mem *member, resp *kmsg.SyncGroupResponse) {
	m.answer(mem.sync, resp)
	mem.sync = nil
}

// FailSync is the answer to a SyncGroup that failed.
func FailSync(err protocol.ErrorCode) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.ErrorCode = int16(err)
	return resp
}

func (m *Machine) heartbeat(r *Request, req *kmsg.HeartbeatRequest) {
	m.answer(r.Ticket, FailHeartbeat(m.beat(req)))
}

// beat keeps a member alive, and tells it when it has to join again.
func (m *Machine) beat(req *kmsg.HeartbeatRequest) protocol.ErrorCode {
	g := m.groups[req.Group]
	switch {
	case req.Group == "":
		return protocol.InvalidGroupID
	case g == nil:
		return protocol.UnknownMemberID
	}
	if err := g.validate(req.MemberID, req.InstanceID); err != nil {
		return protocol.CodeOf(err)
	}
	if req.Generation != g.generation {
		return protocol.IllegalGeneration
	}
	m.armSession(g, req.MemberID, g.byID[req.MemberID].session())
	if g.state == Preparing {
		return protocol.RebalanceInProgress
	}
	return protocol.None
}

// FailHeartbeat is the answer to a Heartbeat with a code.
func FailHeartbeat(err protocol.ErrorCode) *kmsg.HeartbeatResponse {
	resp := kmsg.NewPtrHeartbeatResponse()
	resp.ErrorCode = int16(err)
	return resp
}

// leave removes members; an administrator may name static ones by their instance ids alone (KIP-345).
func (m *Machine) leave(r *Request, req *kmsg.LeaveGroupRequest) {
	g := m.groups[req.Group]
	if req.Group == "" {
		m.answer(r.Ticket, FailLeave(protocol.InvalidGroupID))
		return
	}
	resp := kmsg.NewPtrLeaveGroupResponse()
	left := false
	for i := range req.Members {
		in := &req.Members[i]
		out := kmsg.NewLeaveGroupResponseMember()
		out.MemberID, out.InstanceID = in.MemberID, in.InstanceID
		err := protocol.UnknownMemberID
		if g != nil {
			err = m.leaveOne(g, in)
		}
		out.ErrorCode = int16(err)
		left = left || err == protocol.None
		resp.Members = append(resp.Members, out)
	}
	m.answer(r.Ticket, resp)
	if !left {
		return
	}
	if g.state == Stable || g.state == Completing {
		m.prepare(g, "members left")
	} else {
		m.completeIfJoined(g)
	}
	m.forgetBare(g)
}

func (m *Machine) leaveOne(g *group, in *kmsg.LeaveGroupRequestMember) protocol.ErrorCode {
	id := in.MemberID
	if _, ok := g.pending[id]; ok {
		m.dropMember(g, id)
		return protocol.None
	}
	if id == "" && in.InstanceID != nil {
		id = g.statics[*in.InstanceID]
	}
	if err := g.validate(id, in.InstanceID); err != nil {
		return protocol.CodeOf(err)
	}
	m.dropMember(g, id)
	m.emit(MemberGone{Group: g.id, Member: id, Reason: "left"})
	return protocol.None
}

// FailLeave is the answer to a LeaveGroup that failed as a whole.
func FailLeave(err protocol.ErrorCode) *kmsg.LeaveGroupResponse {
	resp := kmsg.NewPtrLeaveGroupResponse()
	resp.ErrorCode = int16(err)
	return resp
}
