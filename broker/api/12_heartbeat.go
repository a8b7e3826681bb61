package api

import "github.com/twmb/franz-go/pkg/kmsg"

// Heartbeat, key 12, versions 0 to 4 (HeartbeatRequest.json).
//
// Errors: RebalanceInProgress while members are to join again, IllegalGeneration, UnknownMemberId, FencedInstanceId,
// NotCoordinator; none while the group is being loaded.
func (d *Dispatcher) heartbeat(c call, req *kmsg.HeartbeatRequest, done func(kmsg.Response)) {
	d.o.Groups.Heartbeat(c.client(), req, func(resp *kmsg.HeartbeatResponse) { done(resp) })
}
