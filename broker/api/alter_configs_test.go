package api

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

const (
	kindTopic  = kmsg.ConfigResourceTypeTopic
	kindBroker = kmsg.ConfigResourceTypeBroker
)

// change is one key of an IncrementalAlterConfigs request; a value of "\x00" is null.
type change struct {
	key   string
	op    kmsg.IncrementalAlterConfigOp
	value string
}

func alterRequest(version int16, kind kmsg.ConfigResourceType, name string, changes ...change) *kmsg.IncrementalAlterConfigsRequest {
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r.Version = version
	res := kmsg.IncrementalAlterConfigsRequestResource{ResourceType: kind, ResourceName: name}
	for _, c := range changes {
		kv := kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: c.key, Op: c.op}
		if c.value != "\x00" {
			kv.Value = kmsg.StringPtr(c.value)
		}
		res.Configs = append(res.Configs, kv)
	}
	r.Resources = append(r.Resources, res)
	return r
}

func (b *bench) alter(kind kmsg.ConfigResourceType, name string, changes ...change) protocol.ErrorCode {
	b.t.Helper()
	r := ask[*kmsg.IncrementalAlterConfigsResponse](b, alterRequest(1, kind, name, changes...)).Resources[0]
	if (r.ErrorCode == 0) != (r.ErrorMessage == nil) || r.ResourceName != name || r.ResourceType != kind {
		b.t.Fatalf("%+v", r)
	}
	return protocol.ErrorCode(r.ErrorCode)
}

// described returns one key of a resource, nil when it is not there.
func (b *bench) described(kind kmsg.ConfigResourceType, name, key string) *kmsg.DescribeConfigsResponseResourceConfig {
	b.t.Helper()
	r := kmsg.NewPtrDescribeConfigsRequest()
	r.Version, r.IncludeSynonyms = 4, true
	r.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kind, ResourceName: name, ConfigNames: []string{key}}}
	resp := ask[*kmsg.DescribeConfigsResponse](b, r).Resources[0]
	if resp.ErrorCode != 0 {
		b.t.Fatalf("describe %s: %d", name, resp.ErrorCode)
	}
	if len(resp.Configs) == 0 {
		return nil
	}
	return &resp.Configs[0]
}

// shows compares an entry with "value source [synonym=value source]...".
func (b *bench) shows(kind kmsg.ConfigResourceType, name, key, want string) {
	b.t.Helper()
	e := b.described(kind, name, key)
	got := "none"
	if e != nil {
		value := "null"
		if e.Value != nil {
			value = *e.Value
		}
		got = fmt.Sprintf("%s %d", value, e.Source)
		for _, s := range e.ConfigSynonyms {
			got += fmt.Sprintf(" [%s=%s %d]", s.Name, *s.Value, s.Source)
		}
	}
	if got != want {
		b.t.Fatalf("%s of %q shows %s, want %s", key, name, got, want)
	}
}

func TestAlterTopicConfigs(t *testing.T) {
	for v := int16(0); v <= 1; v++ {
		b := newBench(t)
		b.cluster.topics["b"].Configs = map[string]string{"remote.storage.enable": "false"}
		ask[*kmsg.IncrementalAlterConfigsResponse](b, alterRequest(v, kindTopic, "a", change{"retention.ms", 0, "99"}, change{"segment.ms", 0, "5"}))
		b.shows(kindTopic, "a", "retention.ms", "99 1 [retention.ms=99 1] [log.retention.hours=168 5]")
		if got := b.alter(kindTopic, "a", change{"retention.ms", 1, "\x00"}, change{"segment.ms", 1, "x"}); got != 0 {
			t.Fatal(got)
		}
		b.shows(kindTopic, "a", "retention.ms", "604800000 5 [log.retention.hours=168 5]")
		for _, c := range []struct {
			op    kmsg.IncrementalAlterConfigOp
			value string
			want  string
		}{{2, "compact", "delete,compact"}, {2, "compact,delete", "delete,compact"}, {3, "delete", "compact"}, {3, "delete", "compact"}, {3, "compact", ""}, {2, "delete", "delete"}} {
			if got := b.alter(kindTopic, "b", change{"cleanup.policy", c.op, c.value}); got != 0 {
				t.Fatalf("%+v: %v", c, got)
			}
			if e := b.described(kindTopic, "b", "cleanup.policy"); *e.Value != c.want {
				t.Fatalf("%+v: %s", c, *e.Value)
			}
		}
	}
}

func TestAlterConfigsErrors(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		kind kmsg.ConfigResourceType
		name string
		ch   change
		want protocol.ErrorCode
	}{
		{kindTopic, "a", change{"retention.ms", 0, "x"}, protocol.InvalidConfig},
		{kindTopic, "a", change{"no.such.key", 0, "x"}, protocol.InvalidConfig},
		{kindTopic, "a", change{"retention.ms", 0, "\x00"}, protocol.InvalidRequest},
		{kindTopic, "a", change{"retention.ms", 4, "1"}, protocol.InvalidRequest},
		{kindTopic, "a", change{"retention.ms", -1, "1"}, protocol.InvalidRequest},
		{kindTopic, "a", change{"retention.ms", 2, "1"}, protocol.InvalidConfig},
		{kindTopic, "a", change{"retention.ms", 3, "1"}, protocol.InvalidConfig},
		{kindTopic, "a", change{"no.such.key", 1, ""}, 0},
		{kindTopic, "", change{"retention.ms", 0, "1"}, protocol.InvalidRequest},
		{kindTopic, "no!", change{"retention.ms", 0, "1"}, protocol.InvalidTopicException},
		{kindTopic, "nobody", change{"retention.ms", 0, "1"}, protocol.UnknownTopicOrPartition},
		{kindTopic, "nobody", change{"retention.ms", 0, "x"}, protocol.InvalidConfig},
		{kindBroker, "2", change{"log.retention.ms", 0, "1"}, protocol.InvalidRequest},
		{kindBroker, "x", change{"log.retention.ms", 0, "1"}, protocol.InvalidRequest},
		{kindBroker, "1", change{"log.retention.ms", 0, "0"}, protocol.InvalidRequest},
		{kindBroker, "1", change{"log.retention.ms", 0, "x"}, protocol.InvalidRequest},
		{kindBroker, "1", change{"log.retention.ms", 2, "5"}, protocol.InvalidConfig},
		{kindBroker, "1", change{"node.id", 0, "5"}, protocol.InvalidRequest},
		{kindBroker, "1", change{"listeners", 0, "PLAINTEXT://:1"}, protocol.InvalidRequest},
		{kindBroker, "1", change{"no.such.key", 0, "5"}, protocol.InvalidRequest},
		{kindBroker, "1", change{"ssl.keystore.location", 0, "5"}, protocol.InvalidRequest},
		{kindBroker, "", change{"num.partitions", 0, "5"}, protocol.InvalidRequest},
		{kindBroker, "", change{"log.local.retention.ms", 0, "999999999999"}, protocol.InvalidRequest},
		{kmsg.ConfigResourceTypeBrokerLogger, "1", change{"root", 0, "INFO"}, protocol.InvalidRequest},
		{0, "a", change{"x", 0, "5"}, protocol.InvalidRequest},
		{16, "a", change{"x", 0, "5"}, protocol.InvalidRequest},
		{32, "a", change{"x", 0, "5"}, protocol.InvalidRequest},
	} {
		if got := b.alter(c.kind, c.name, c.ch); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if got := b.alter(kindTopic, "a", change{"retention.ms", 0, "1"}, change{"retention.ms", 1, ""}); got != protocol.InvalidRequest {
		t.Errorf("a key twice: %v", got)
	}
	b.shows(kindTopic, "a", "retention.ms", "5000 1 [retention.ms=5000 1] [log.retention.hours=168 5]")
	twice := alterRequest(1, kindTopic, "a", change{"retention.ms", 0, "1"})
	twice.Resources = append(twice.Resources, twice.Resources[0], alterRequest(1, kindTopic, "b", change{"retention.ms", 0, "1"}).Resources[0])
	for i, r := range ask[*kmsg.IncrementalAlterConfigsResponse](b, twice).Resources {
		if (r.ErrorCode == int16(protocol.InvalidRequest)) != (i < 2) {
			t.Errorf("%d: %+v", i, r)
		}
	}
}

func TestAlterBrokerConfigs(t *testing.T) {
	b := newBench(t, "log.retention.hours=100")
	set := func(name, key, value string) {
		t.Helper()
		if got := b.alter(kindBroker, name, change{key, 0, value}); got != 0 {
			t.Fatal(got)
		}
	}
	set("", "log.retention.ms", "7000000000")
	b.shows(kindBroker, "", "log.retention.ms", "7000000000 3 [log.retention.ms=7000000000 3]")
	b.shows(kindBroker, "1", "log.retention.ms", "7000000000 3 [log.retention.ms=7000000000 3] [log.retention.hours=100 4] [log.retention.hours=168 5]")
	b.shows(kindTopic, "b", "retention.ms", "7000000000 3 [log.retention.ms=7000000000 3] [log.retention.hours=100 4] [log.retention.hours=168 5]")
	set("1", "log.retention.ms", "8000000000")
	b.shows(kindTopic, "b", "retention.ms", "8000000000 2 [log.retention.ms=8000000000 2] [log.retention.ms=7000000000 3] [log.retention.hours=100 4] [log.retention.hours=168 5]")
	only := alterRequest(1, kindBroker, "1", change{"log.retention.ms", 0, "1"})
	only.ValidateOnly = true
	if r := ask[*kmsg.IncrementalAlterConfigsResponse](b, only).Resources[0]; r.ErrorCode != 0 {
		t.Fatalf("%+v", r)
	}
	b.shows(kindBroker, "", "message.max.bytes", "none")
	set("", "message.max.bytes", "2000")
	b.shows(kindTopic, "b", "max.message.bytes", "2000 3 [message.max.bytes=2000 3] [message.max.bytes=1048588 5]")
	if got := b.alter(kindBroker, "1", change{"log.retention.ms", 1, "\x00"}); got != 0 {
		t.Fatal(got)
	}
	b.shows(kindTopic, "b", "retention.ms", "7000000000 3 [log.retention.ms=7000000000 3] [log.retention.hours=100 4] [log.retention.hours=168 5]")
}

// AlterConfigs leaves nothing of what was there.
func TestReplaceConfigs(t *testing.T) {
	for v := int16(0); v <= 2; v++ {
		b := newBench(t)
		send := func(kind kmsg.ConfigResourceType, name string, validateOnly bool, configs map[string]*string) int16 {
			r := kmsg.NewPtrAlterConfigsRequest()
			r.Version, r.ValidateOnly = v, validateOnly
			res := kmsg.AlterConfigsRequestResource{ResourceType: kind, ResourceName: name}
			for k, value := range configs {
				res.Configs = append(res.Configs, kmsg.AlterConfigsRequestResourceConfig{Name: k, Value: value})
			}
			r.Resources = append(r.Resources, res)
			return ask[*kmsg.AlterConfigsResponse](b, r).Resources[0].ErrorCode
		}
		five := kmsg.StringPtr("5")
		for _, only := range []bool{true, false} {
			if got := send(kindTopic, "a", only, map[string]*string{"segment.ms": five}); got != 0 {
				t.Fatal(got)
			}
			if e := b.described(kindTopic, "a", "retention.ms"); (e.Source == 1) != only {
				t.Fatalf("validate only %v: %+v", only, e)
			}
		}
		if got := send(kindTopic, "a", false, map[string]*string{"segment.ms": nil}); got != int16(protocol.InvalidRequest) {
			t.Fatal(got)
		}
		if got := send(kmsg.ConfigResourceTypeBrokerLogger, "1", false, nil); got != int16(protocol.InvalidRequest) {
			t.Fatal(got)
		}
		if got := send(kindBroker, "1", false, map[string]*string{"log.retention.ms": five}); got != 0 {
			t.Fatal(got)
		}
		if got := send(kindBroker, "1", false, nil); got != 0 || b.described(kindBroker, "1", "log.retention.ms").Source == 2 {
			t.Fatal(got)
		}
	}
}

// A topic comes into the tier, leaves it only together with what is there, and may come again (KIP-950).
func TestAlterTiering(t *testing.T) {
	b := newBench(t)
	set := func(key, value string) change { return change{key, 0, value} }
	off, on, gone := set("remote.storage.enable", "false"), set("remote.storage.enable", "true"), set("remote.log.delete.on.disable", "true")
	tiered := func() string { return b.cluster.topics["a"].Configs["remote.storage.enable"] }
	b.cluster.topics["a"].Configs = map[string]string{"remote.storage.enable": "false"}
	for i, c := range []struct {
		changes []change
		code    protocol.ErrorCode
		tiered  string
	}{
		{[]change{on}, 0, "true"},
		{[]change{off}, protocol.InvalidConfig, "true"},
		{[]change{set("cleanup.policy", "compact")}, protocol.InvalidConfig, "true"},
		{[]change{{"remote.storage.enable", 1, "\x00"}}, 0, "true"}, // the default is spelt out
		{[]change{set("remote.log.copy.disable", "true"), set("local.retention.ms", "1000")}, protocol.InvalidConfig, "true"},
		{[]change{set("remote.log.copy.disable", "true"), set("local.retention.ms", "-2")}, 0, "true"},
		{[]change{{"remote.log.copy.disable", 1, "\x00"}}, 0, "true"},
		{[]change{off, gone}, 0, "false"},
		{[]change{set("cleanup.policy", "compact")}, 0, "false"},
		{[]change{on}, protocol.InvalidConfig, "false"},
		{[]change{on, set("cleanup.policy", "delete")}, 0, "true"},
		{[]change{off}, 0, "false"}, // the permission stands
		{[]change{off}, 0, "false"},
	} {
		if got := b.alter(kindTopic, "a", c.changes...); got != c.code || tiered() != c.tiered {
			t.Fatalf("%d: %v, tiered %s", i, got, tiered())
		}
	}
	b = newBench(t, "varve.topic.remote.storage.enable=false")
	b.cluster.topics["a"].Configs = map[string]string{"remote.storage.enable": "true"}
	drop := change{"remote.storage.enable", 1, "\x00"}
	if got := b.alter(kindTopic, "a", drop); got != protocol.InvalidConfig {
		t.Fatal(got)
	}
	if got := b.alter(kindTopic, "a", drop, gone); got != 0 || tiered() != "false" {
		t.Fatalf("%v: that it has left is not spelt out: %q", got, tiered())
	}
	if got := b.alter(kindTopic, "b", change{"retention.ms", 0, "1"}); got != 0 || len(b.cluster.topics["b"].Configs) != 2 {
		t.Fatalf("%v: %v", got, b.cluster.topics["b"].Configs)
	}
}
