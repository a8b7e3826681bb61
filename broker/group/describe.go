package group

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

// notFoundVersion is the first version of DescribeGroups in which an unknown group is an error (KIP-1043).
const notFoundVersion = 6

// groupType is what all groups here are (Group.GroupType).
const groupType = "classic"

func (m *Machine) describe(r *Request, d *Describe) {
	g := m.groups[d.Group]
	if g == nil {
		resp := FailDescribe(d.Group, protocol.None)
		resp.State = string(Dead)
		if d.Version >= notFoundVersion {
			text := fmt.Sprintf("Group %s not found.", d.Group)
			resp.ErrorCode, resp.ErrorMessage = int16(protocol.GroupIDNotFound), &text
		}
		m.answer(r.Ticket, resp)
		return
	}
	resp := FailDescribe(g.id, protocol.None)
	resp.State, resp.ProtocolType = string(g.state), g.protocolType
	if g.state == Stable && g.protocol != nil {
		resp.Protocol = *g.protocol
	}
	for _, mem := range g.members {
		out := kmsg.NewDescribeGroupsResponseGroupMember()
		out.MemberID, out.InstanceID, out.ClientID, out.ClientHost = mem.id, mem.instance, mem.clientID, mem.clientHost
		out.MemberAssignment = mem.assignment
		if g.state == Stable {
			out.ProtocolMetadata = mem.metadata(g.protocol)
		}
		resp.Members = append(resp.Members, out)
	}
	m.answer(r.Ticket, resp)
}

// FailDescribe is the answer to a DescribeGroups for one group with a code and nothing else.
func FailDescribe(id string, err protocol.ErrorCode) *kmsg.DescribeGroupsResponseGroup {
	resp := kmsg.NewDescribeGroupsResponseGroup()
	resp.Group, resp.ErrorCode = id, int16(err)
	return &resp
}

func (m *Machine) list(r *Request, l *List) {
	var out []kmsg.ListGroupsResponseGroup
	typed := len(l.Types) == 0 || slices.ContainsFunc(l.Types, func(t string) bool { return strings.EqualFold(t, groupType) })
	for _, g := range m.sorted() {
		if !typed || len(l.States) > 0 && !slices.ContainsFunc(l.States, g.state.is) {
			continue
		}
		listed := kmsg.NewListGroupsResponseGroup()
		listed.Group, listed.ProtocolType, listed.GroupState, listed.GroupType = g.id, g.protocolType, string(g.state), groupType
		out = append(out, listed)
	}
	m.answer(r.Ticket, out)
}

// deleteGroup removes an empty group with its offsets.
func (m *Machine) deleteGroup(r *Request, d *Delete) {
	g := m.groups[d.Group]
	switch {
	case g == nil:
		m.answer(r.Ticket, FailDelete(d.Group, protocol.GroupIDNotFound))
		return
	case g.state != Empty:
		m.answer(r.Ticket, FailDelete(d.Group, protocol.NonEmptyGroup))
		return
	}
	for id := range g.pending {
		m.cancelSession(g, id)
	}
	clear(g.pending)
	m.remove(g.all(), []string{g.id}, func(err protocol.ErrorCode) { m.answer(r.Ticket, FailDelete(d.Group, err)) })
}

// FailDelete is the answer to a DeleteGroups for one group with a code.
func FailDelete(id string, err protocol.ErrorCode) *kmsg.DeleteGroupsResponseGroup {
	resp := kmsg.NewDeleteGroupsResponseGroup()
	resp.Group, resp.ErrorCode = id, int16(err)
	return &resp
}
