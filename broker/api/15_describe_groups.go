package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/group"
	"varve/protocol"
)

// groupOperations is what everyone may do with a group without an authorizer (AclEntry.supportedOperations).
const groupOperations = opRead | opDescribe | opDelete | opDescribeConfigs | opAlterConfigs

// DescribeGroups, key 15, versions 0 to 6 (DescribeGroupsRequest.json).
//
// A group that does not exist is in state Dead without an error, from version 6 on with GroupIdNotFound (KIP-1043).
// Subscriptions are told of stable groups only. From version 3 on operations are told if asked for.
func (d *Dispatcher) describeGroups(c call, req *kmsg.DescribeGroupsRequest, done func(kmsg.Response)) {
	g := newGather(len(req.Groups), func(all []*kmsg.DescribeGroupsResponseGroup) {
		resp := kmsg.NewPtrDescribeGroupsResponse()
		for _, one := range all {
			one.AuthorizedOperations = noOperations
			if req.IncludeAuthorizedOperations && protocol.ErrorCode(one.ErrorCode) == protocol.None {
				one.AuthorizedOperations = groupOperations
			}
			resp.Groups = append(resp.Groups, *one)
		}
		done(resp)
	})
	for i, id := range req.Groups {
		d.o.Groups.Describe(c.client(), &group.Describe{Group: id, Version: req.Version}, func(one *kmsg.DescribeGroupsResponseGroup) { g.put(i, one) })
	}
}
