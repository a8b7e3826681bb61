package edge

import "github.com/twmb/franz-go/pkg/kmsg"

// aclCases are calls about access rules, of which there are none without an authorizer.
func aclCases() []Case {
	describe := func(version int16, operation kmsg.ACLOperation) func(*env) (kmsg.Request, error) {
		r := kmsg.NewPtrDescribeACLsRequest()
		r.Version, r.ResourceType, r.ResourcePatternType, r.Operation, r.PermissionType = version, 1, 1, operation, 1
		return plain(r)
	}
	rule := func(resource kmsg.ACLResourceType) kmsg.CreateACLsRequestCreation {
		c := kmsg.NewCreateACLsRequestCreation()
		c.ResourceType, c.ResourceName, c.ResourcePatternType, c.Principal, c.Host, c.Operation, c.PermissionType = resource, topicA, 3, "User:edge", "*", 3, 3
		return c
	}
	create := func(rules ...kmsg.CreateACLsRequestCreation) func(*env) (kmsg.Request, error) {
		r := kmsg.NewPtrCreateACLsRequest()
		r.Version, r.Creations = 2, rules
		return plain(r)
	}
	remove := func(resources ...kmsg.ACLResourceType) func(*env) (kmsg.Request, error) {
		r := kmsg.NewPtrDeleteACLsRequest()
		r.Version = 2
		for _, resource := range resources {
			f := kmsg.NewDeleteACLsRequestFilter()
			f.ResourceType, f.ResourcePatternType, f.Operation, f.PermissionType = resource, 1, 1, 1
			r.Filters = append(r.Filters, f)
		}
		return plain(r)
	}
	return []Case{
		{Name: "describe access rules", request: describe(2, 1)},
		{Name: "describe access rules, 1", request: describe(1, 1)},
		{Name: "describe access rules, 3", request: describe(3, 1)},
		{Name: "describe access rules of an unknown operation", request: describe(2, 0)},
		{Name: "describe access rules of an operation to come", request: describe(2, 99)},
		{Name: "create an access rule", request: create(rule(2))},
		{Name: "create two access rules", request: create(rule(2), rule(4))},
		{Name: "create no access rules", request: create()},
		{Name: "create an access rule for an unknown resource", request: create(rule(0))},
		{Name: "create an access rule for a resource to come", request: create(rule(99))},
		{Name: "delete access rules", request: remove(2)},
		{Name: "delete access rules by two filters", request: remove(2, 4)},
		{Name: "delete no access rules", request: remove()},
		{Name: "delete access rules of an unknown resource", request: remove(0)},
	}
}
