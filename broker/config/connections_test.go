package config

import (
	"maps"
	"testing"
)

func TestConnectionsPerIP(t *testing.T) {
	for list, want := range map[string]map[string]int{
		"":            {},
		"127.0.0.1:3": {"127.0.0.1": 3},
		" 10.0.0.1:0 , [::1]:7, ::ffff:1.2.3.4:9": {"10.0.0.1": 0, "::1": 7, "1.2.3.4": 9},
		"10.0.0.1": nil, "10.0.0.1:-1": nil, "somewhere:1": nil, "10.0.0.1:x": nil,
	} {
		got, ok := connectionsPerIP(list)
		if ok != (want != nil) || !maps.Equal(got, want) {
			t.Errorf("%q: %v, %v", list, got, ok)
		}
	}
}
