package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

// DescribeAcls, CreateAcls and DeleteAcls, keys 29 to 31, versions 1 to 3 (DescribeAclsRequest.json, CreateAclsRequest.json,
// DeleteAclsRequest.json).
//
// There is no authorizer, which Apache Kafka without one tells by SecurityDisabled (AclApis.scala): of the whole, or on each
// rule to be made and each filter to delete by. What is UNKNOWN by its number closes the connection, as there.
var (
	describeWithoutAuthorizer = protocol.Errorf(protocol.SecurityDisabled, "No Authorizer is configured on the broker")
	alterWithoutAuthorizer    = protocol.Errorf(protocol.SecurityDisabled, "No Authorizer is configured.")
)

func describeACLs(req *kmsg.DescribeACLsRequest) (kmsg.Response, error) {
	if err := knownACL(req.ResourceType, req.ResourcePatternType, req.Operation, req.PermissionType); err != nil {
		return nil, err
	}
	resp := kmsg.NewPtrDescribeACLsResponse()
	resp.ErrorCode, resp.ErrorMessage = code(describeWithoutAuthorizer), message(describeWithoutAuthorizer)
	return resp, nil
}

func createACLs(req *kmsg.CreateACLsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrCreateACLsResponse()
	for _, c := range req.Creations {
		if err := knownACL(c.ResourceType, c.ResourcePatternType, c.Operation, c.PermissionType); err != nil {
			return nil, err
		}
		out := kmsg.NewCreateACLsResponseResult()
		out.ErrorCode, out.ErrorMessage = code(alterWithoutAuthorizer), message(alterWithoutAuthorizer)
		resp.Results = append(resp.Results, out)
	}
	return resp, nil
}

func deleteACLs(req *kmsg.DeleteACLsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDeleteACLsResponse()
	for _, f := range req.Filters {
		if err := knownACL(f.ResourceType, f.ResourcePatternType, f.Operation, f.PermissionType); err != nil {
			return nil, err
		}
		out := kmsg.NewDeleteACLsResponseResult()
		out.ErrorCode, out.ErrorMessage = code(alterWithoutAuthorizer), message(alterWithoutAuthorizer)
		resp.Results = append(resp.Results, out)
	}
	return resp, nil
}

// knownACL refuses what says of itself that it is not known; 0 does in each of the four.
func knownACL(resource kmsg.ACLResourceType, pattern kmsg.ACLResourcePatternType, operation kmsg.ACLOperation, permission kmsg.ACLPermissionType) error {
	if resource == 0 || pattern == 0 || operation == 0 || permission == 0 {
		return protocol.Errorf(protocol.InvalidRequest, "an access rule with UNKNOWN elements")
	}
	return nil
}
