package config

import (
	"maps"
	"strings"
	"testing"

	"varve/protocol"
)

// The strongest of a broker's dynamic value, all brokers', the file's and the default holds, for readers and descriptions.
func TestDynamicPrecedence(t *testing.T) {
	c := mustLoad(t, "", "log.retention.ms=400")
	check := func(want string, source Source) {
		t.Helper()
		if got := c.String("log.retention.ms"); got != want || c.Int64("log.retention.ms") < 300 {
			t.Fatalf("%s, want %s", got, want)
		}
		topic, err := c.Topic(nil)
		if d := find(t, c.DescribeTopic(nil), "retention.ms"); err != nil || d.Value != want || d.Source != source || textOf(topic.RetentionMs) != want {
			t.Fatalf("%+v %+v %v", d, topic, err)
		}
	}
	check("400", SourceStatic)
	for _, step := range []struct {
		own, all map[string]string
		want     string
		source   Source
	}{
		{nil, map[string]string{"log.retention.ms": "300"}, "300", SourceDynamicDefault},
		{map[string]string{"log.retention.ms": "500"}, map[string]string{"log.retention.ms": "300"}, "500", SourceDynamicBroker},
		{map[string]string{"log.retention.ms": "500"}, nil, "500", SourceDynamicBroker},
		{nil, nil, "400", SourceStatic},
	} {
		if err := c.SetDynamic(step.own, step.all); err != nil {
			t.Fatal(err)
		}
		check(step.want, step.source)
	}
}

// What an older or newer version left in the metastore does not keep a node from running.
func TestDynamicValuesThatDoNotFit(t *testing.T) {
	c := mustLoad(t, "")
	err := c.SetDynamic(
		map[string]string{"node.id": "9", "no.such.key": "1", "message.max.bytes": "2000"},
		map[string]string{"log.retention.ms": "x", "ssl.key.password": "secret"})
	if err == nil || c.NodeID() != 1 || c.Int("message.max.bytes") != 2000 || c.String("log.retention.ms") != "" {
		t.Fatalf("%v", err)
	}
	for _, key := range []string{"node.id", "no.such.key", "log.retention.ms", "ssl.key.password"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("%s is not named in %v", key, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("a secret is shown: %v", err)
	}
}

func TestAlterLeavesTheOldValuesAlone(t *testing.T) {
	c := mustLoad(t, "")
	old := map[string]string{"retention.ms": "1", "cleanup.policy": "delete", "remote.storage.enable": "true"}
	was := maps.Clone(old)
	next, err := c.AlterTopic(old, []Change{{"retention.ms", OpDelete, ""}, {"segment.ms", OpSet, "5"}, {"cleanup.policy", OpAppend, "delete"}}, false)
	if err != nil || !maps.Equal(old, was) || len(next) != 3 || next["segment.ms"] != "5" {
		t.Fatalf("%v %v %v", old, next, err)
	}
	next, err = c.AlterTopic(old, []Change{{"segment.ms", OpSet, "5"}}, true)
	if err != nil || len(next) != 2 || next["remote.storage.enable"] != "true" {
		t.Fatalf("replaced: %v %v", next, err)
	}
}

// A key that says it is dynamic can be set, one that does not cannot.
func TestEveryDynamicKeyCanBeSet(t *testing.T) {
	c := mustLoad(t, "")
	for _, k := range Keys() {
		if k.Scope != ScopeBroker || k.Default == "" && !k.Null || strings.HasPrefix(k.Name, "ssl.") || strings.HasPrefix(k.Name, "sasl.") {
			continue
		}
		value := k.Default
		if k.Null {
			value = "1000"
		}
		_, err := c.AlterBroker(nil, []Change{{k.Name, OpSet, value}}, false, true)
		if want := k.Dynamic != ReadOnly; (err == nil) != want || err != nil && protocol.CodeOf(err) != protocol.InvalidRequest {
			t.Errorf("%s: %v", k.Name, err)
		}
		_, err = c.AlterBroker(nil, []Change{{k.Name, OpSet, value}}, false, false)
		if want := k.Dynamic == ClusterWide; (err == nil) != want {
			t.Errorf("%s for all brokers: %v", k.Name, err)
		}
	}
}
