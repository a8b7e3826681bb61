package api

import "github.com/twmb/franz-go/pkg/kmsg"

// LeaveGroup, key 13, versions 0 to 5 (LeaveGroupRequest.json).
//
// One member up to version 2; several from version 3 on, static ones also by their instance id alone (KIP-345), each with
// its own code: UnknownMemberId, FencedInstanceId.
func (d *Dispatcher) leaveGroup(c call, req *kmsg.LeaveGroupRequest, done func(kmsg.Response)) {
	if req.Version < 3 {
		one := kmsg.NewLeaveGroupRequestMember()
		one.MemberID = req.MemberID
		req.Members = []kmsg.LeaveGroupRequestMember{one}
	}
	d.o.Groups.Leave(c.client(), req, func(resp *kmsg.LeaveGroupResponse) {
		if req.Version < 3 && resp.ErrorCode == 0 && len(resp.Members) == 1 {
			resp.ErrorCode = resp.Members[0].ErrorCode
		}
		done(resp)
	})
}
