package api

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

// TestNoAuthorizer: each rule and each filter has an answer of its own.
func TestNoAuthorizer(t *testing.T) {
	b := newBench(t)
	samples := aclSamples()
	want := int16(protocol.SecurityDisabled)
	for v := int16(1); v <= 3; v++ {
		versioned := func(key int16) kmsg.Request {
			r := samples[key]()
			r.SetVersion(v)
			return r
		}
		if r := ask[*kmsg.DescribeACLsResponse](b, versioned(29)); r.ErrorCode != want || *r.ErrorMessage != "No Authorizer is configured on the broker" {
			t.Errorf("%+v", r)
		}
		if r := ask[*kmsg.CreateACLsResponse](b, versioned(30)); len(r.Results) != 1 || r.Results[0].ErrorCode != want || *r.Results[0].ErrorMessage != "No Authorizer is configured." {
			t.Errorf("%+v", r)
		}
		if r := ask[*kmsg.DeleteACLsResponse](b, versioned(31)); len(r.Results) != 2 || r.Results[1].ErrorCode != want || *r.Results[1].ErrorMessage != "No Authorizer is configured." {
			t.Errorf("%+v", r)
		}
	}
}

// TestUnknownAccessRules: a rule or filter that says UNKNOWN of itself ends the connection, whichever of its four parts does.
func TestUnknownAccessRules(t *testing.T) {
	for part := range 5 {
		of := [4]int8{1, 1, 1, 1}
		if part < len(of) {
			of[part] = 0
		}
		err := knownACL(kmsg.ACLResourceType(of[0]), kmsg.ACLResourcePatternType(of[1]), kmsg.ACLOperation(of[2]), kmsg.ACLPermissionType(of[3]))
		if (err != nil) != (part < len(of)) {
			t.Errorf("part %d: %v", part, err)
		}
	}
}
