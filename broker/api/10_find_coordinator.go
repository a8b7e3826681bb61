package api

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

// coordinatorOfGroup is the key type of groups (FindCoordinatorRequest.CoordinatorType).
const coordinatorOfGroup = 0

// findCoordinatorTimeout bounds the creation of the offsets topic; the request has no timeout of its own.
const findCoordinatorTimeout = 15 * time.Second

// FindCoordinator, key 10, versions 0 to 6 (FindCoordinatorRequest.json).
//
// One key up to version 3, several from version 4 on (KIP-699); keys are group ids. The first call creates the offsets
// topic and waits for it. CoordinatorNotAvailable when nobody leads the group's partition. Nobody here coordinates
// transactions or share groups: those key types are InvalidRequest, which clients report instead of asking for ever.
func (d *Dispatcher) findCoordinator(c call, req *kmsg.FindCoordinatorRequest) kmsg.Response {
	ctx, cancel := context.WithTimeout(c.ctx, findCoordinatorTimeout)
	defer cancel()
	resp := kmsg.NewPtrFindCoordinatorResponse()
	if req.Version < 4 {
		one := d.coordinatorOf(ctx, c, req.CoordinatorType, req.CoordinatorKey)
		resp.ErrorCode, resp.ErrorMessage = one.ErrorCode, one.ErrorMessage
		resp.NodeID, resp.Host, resp.Port = one.NodeID, one.Host, one.Port
		return resp
	}
	for _, key := range req.CoordinatorKeys {
		resp.Coordinators = append(resp.Coordinators, d.coordinatorOf(ctx, c, req.CoordinatorType, key))
	}
	return resp
}

func (d *Dispatcher) coordinatorOf(ctx context.Context, c call, keyType int8, key string) kmsg.FindCoordinatorResponseCoordinator {
	out := kmsg.NewFindCoordinatorResponseCoordinator()
	out.Key, out.NodeID, out.Port = key, -1, -1
	fail := func(err protocol.ErrorCode) kmsg.FindCoordinatorResponseCoordinator {
		out.ErrorCode, out.ErrorMessage = int16(err), ptr(err.Text())
		return out
	}
	if keyType != coordinatorOfGroup {
		return fail(protocol.InvalidRequest)
	}
	id, err := d.o.Groups.Locate(ctx, key)
	if err != protocol.None {
		return fail(err)
	}
	n, ok := nodeOf(d.o.Cluster(), id, c.conn.Listener)
	if !ok || n.fenced {
		return fail(protocol.CoordinatorNotAvailable)
	}
	out.NodeID, out.Host, out.Port = n.id, n.host, n.port
	return out
}
