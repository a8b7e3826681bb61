package api

import "github.com/twmb/franz-go/pkg/kmsg"

// DeleteGroups, key 42, versions 0 to 3 (DeleteGroupsRequest.json).
//
// Each group with its offsets, if it is empty: else NonEmptyGroup; GroupIdNotFound. A group that is named twice is
// answered once.
func (d *Dispatcher) deleteGroups(c call, req *kmsg.DeleteGroupsRequest, done func(kmsg.Response)) {
	groups := unique(req.Groups)
	g := newGather(len(groups), func(all []*kmsg.DeleteGroupsResponseGroup) {
		resp := kmsg.NewPtrDeleteGroupsResponse()
		for _, one := range all {
			resp.Groups = append(resp.Groups, *one)
		}
		done(resp)
	})
	for i, id := range groups {
		d.o.Groups.Delete(c.client(), id, func(one *kmsg.DeleteGroupsResponseGroup) { g.put(i, one) })
	}
}
