package api

import "github.com/twmb/franz-go/pkg/kmsg"

// SyncGroup, key 14, versions 0 to 5 (SyncGroupRequest.json).
//
// The answer comes when the leader's assignment is stored. From version 5 on the request names protocol type and protocol,
// InconsistentGroupProtocol if not the group's (KIP-559). Other errors: IllegalGeneration, UnknownMemberId,
// FencedInstanceId, RebalanceInProgress, NotCoordinator, CoordinatorLoadInProgress.
func (d *Dispatcher) syncGroup(c call, req *kmsg.SyncGroupRequest, done func(kmsg.Response)) {
	d.o.Groups.Sync(c.client(), req, func(resp *kmsg.SyncGroupResponse) { done(resp) })
}
