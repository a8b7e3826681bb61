package config

import (
	"maps"
	"strings"
	"testing"

	"varve/protocol"
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

// TestNobodyMayConnect: no connection from any address is refused as a configuration, when it is read and when it is changed.
func TestNobodyMayConnect(t *testing.T) {
	if _, _, err := load(t, "", "max.connections.per.ip=0"); err == nil || !strings.Contains(err.Error(), "max.connections.per.ip.overrides") {
		t.Errorf("read: %v", err)
	}
	set := func(c *Config, name, value string) error {
		_, err := c.AlterBroker(nil, []Change{{Op: OpSet, Name: name, Value: value}}, false, false)
		return err
	}
	if err := set(mustLoad(t, ""), "max.connections.per.ip", "0"); protocol.CodeOf(err) != protocol.InvalidRequest {
		t.Errorf("changed: %v", err)
	}
	some := mustLoad(t, "", "max.connections.per.ip=0", "max.connections.per.ip.overrides=127.0.0.1:3")
	if err := set(some, "max.connections.per.ip.overrides", ""); protocol.CodeOf(err) != protocol.InvalidRequest {
		t.Errorf("exceptions gone: %v", err)
	}
	if err := set(some, "max.connections.per.ip.overrides", "127.0.0.2:1"); err != nil {
		t.Errorf("other exceptions: %v", err)
	}
}
