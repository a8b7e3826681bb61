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
