package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/group"
	"varve/protocol"
)

// ListGroups, key 16, versions 0 to 5 (ListGroupsRequest.json).
//
// The groups that this broker coordinates, from version 4 on only those of the states asked for (KIP-518), from version 5
// on of the types (KIP-848; all are classic). CoordinatorLoadInProgress while some of them are being loaded.
func (d *Dispatcher) listGroups(c call, req *kmsg.ListGroupsRequest, done func(kmsg.Response)) {
	q := &group.List{States: req.StatesFilter, Types: req.TypesFilter}
	d.o.Groups.List(c.client(), q, func(groups []kmsg.ListGroupsResponseGroup, err protocol.ErrorCode) {
		resp := kmsg.NewPtrListGroupsResponse()
		if resp.ErrorCode = int16(err); err == protocol.None {
			resp.Groups = groups
		}
		done(resp)
	})
}
