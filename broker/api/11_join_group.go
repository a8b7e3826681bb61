package api

import "github.com/twmb/franz-go/pkg/kmsg"

// JoinGroup, key 11, versions 0 to 9 (JoinGroupRequest.json).
//
// The answer comes when all members have joined, or the rebalance timeout of the group is over; the connection serves
// nothing else meanwhile, as in Kafka. In version 0 the session timeout is that too. From version 4 on a dynamic member
// is first given its id with MemberIdRequired (KIP-394); version 5 brings static members (KIP-345), version 9 tells a
// static leader that came back not to assign (KIP-814). Errors: InvalidGroupId, InvalidSessionTimeout, UnknownMemberId,
// InconsistentGroupProtocol, FencedInstanceId, GroupMaxSizeReached, NotCoordinator, CoordinatorLoadInProgress.
func (d *Dispatcher) joinGroup(c call, req *kmsg.JoinGroupRequest, done func(kmsg.Response)) {
	d.o.Groups.Join(c.client(), req, func(resp *kmsg.JoinGroupResponse) {
		if req.Version < 7 && resp.Protocol == nil {
			resp.Protocol = new(string) // null is allowed from version 7 on
		}
		done(resp)
	})
}
