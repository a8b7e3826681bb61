package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

// DescribeClientQuotas, key 48, versions 0 and 1 (DescribeClientQuotasRequest.json).
//
// There are no quotas, so that no entry matches any filter. Filters are checked all the same: an empty or repeated
// entity type, a match that does not go with its type, and ip together with another type are InvalidRequest, entity
// types that Kafka does not know UnsupportedVersion (ClientQuotasImage.describe).
func (d *Dispatcher) describeClientQuotas(req *kmsg.DescribeClientQuotasRequest) kmsg.Response {
	resp := kmsg.NewPtrDescribeClientQuotasResponse()
	if err := checkQuotaFilter(req.Components); err != nil {
		resp.ErrorCode, resp.ErrorMessage = code(err), message(err)
		return resp
	}
	resp.Entries = []kmsg.DescribeClientQuotasResponseEntry{}
	return resp
}

func checkQuotaFilter(components []kmsg.DescribeClientQuotasRequestComponent) error {
	seen := map[string]bool{}
	for _, c := range components {
		switch {
		case c.EntityType == "":
			return protocol.Errorf(protocol.InvalidRequest, "Invalid empty entity type.")
		case seen[c.EntityType]:
			return protocol.Errorf(protocol.InvalidRequest, "Entity type %s cannot appear more than once in the filter.", c.EntityType)
		case c.EntityType != "ip" && c.EntityType != "user" && c.EntityType != "client-id":
			return protocol.Errorf(protocol.UnsupportedVersion, "Unsupported entity type %s", c.EntityType)
		}
		seen[c.EntityType] = true
		switch c.MatchType {
		case kmsg.QuotasMatchTypeExact:
			if c.Match == nil {
				return protocol.Errorf(protocol.InvalidRequest, "Request specified MATCH_TYPE_EXACT, but set match string to null.")
			}
		case kmsg.QuotasMatchTypeDefault, kmsg.QuotasMatchTypeAny:
			if c.Match != nil {
				return protocol.Errorf(protocol.InvalidRequest, "Request specified a match type without a match string, but also specified one.")
			}
		default:
			return protocol.Errorf(protocol.InvalidRequest, "Unknown match type %d", int8(c.MatchType))
		}
	}
	if seen["ip"] && len(seen) > 1 {
		return protocol.Errorf(protocol.InvalidRequest, "Invalid entity filter component combination. IP filter component should not be used with user or clientId filter component.")
	}
	return nil
}
