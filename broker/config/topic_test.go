package config

import (
	"errors"
	"strings"
	"testing"

	"varve/protocol"
)

func TestTheTableIsSound(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Keys() {
		id := string(rune('0'+k.Scope)) + k.Name
		if seen[id] || k.Name == "" || k.Doc == "" || !strings.HasSuffix(k.Doc, ".") || k.Type == 0 {
			t.Errorf("%s: twice, or without name, type or sentence", k.Name)
		}
		seen[id] = true
		if !k.Null {
			if _, err := k.Parse(k.Default); err != nil {
				t.Errorf("%s: default %q: %v", k.Name, k.Default, err)
			}
		}
	}
	if len(seen) < 380 {
		t.Errorf("only %d keys", len(seen))
	}
}

func TestTopicDefaultsAreThoseOfTheirSynonyms(t *testing.T) {
	c := mustLoad(t, "# no tier\n")
	for _, d := range c.DescribeTopic(nil) {
		k := topicTable[d.Name]
		if d.Null || d.Value != k.Default || d.Source != SourceDefault {
			t.Errorf("%s: %q (%d), want %q", d.Name, d.Value, d.Source, k.Default)
		}
		for _, s := range topicSynonyms[d.Name] {
			if _, ok := brokerTable[s.key]; !ok {
				t.Errorf("%s: synonym %s is not in the table", d.Name, s.key)
			}
			if brokerTable[s.key].Acts != k.Acts {
				t.Errorf("%s acts: %v, its synonym %s: %v", d.Name, k.Acts, s.key, brokerTable[s.key].Acts)
			}
		}
	}
	topic, err := c.Topic(nil)
	if err != nil {
		t.Fatal(err)
	}
	if topic.SegmentBytes != 1<<30 || topic.RetentionMs != 604800000 || topic.LocalRetentionMs != 604800000 || topic.RemoteStorage || topic.SegmentMs != 604800000 {
		t.Errorf("%+v", topic)
	}
	if !topic.CleanupDelete || topic.CleanupCompact || topic.CompressionType != "producer" || topic.MaxMessageBytes != 1048588 || topic.FlushMs != 1<<63-1 {
		t.Errorf("%+v", topic)
	}
}

func TestTieredTopicDefaults(t *testing.T) {
	const day = 24 * 60 * 60 * 1000
	plain := mustLoad(t, "")
	topic := func(c *Config, overrides map[string]string) Topic {
		t.Helper()
		topic, err := c.Topic(overrides)
		if err != nil {
			t.Fatal(err)
		}
		return topic
	}
	if got := topic(plain, nil); !got.RemoteStorage || got.SegmentBytes != 256<<20 || got.LocalRetentionMs != day || got.LocalRetentionBytes != -1 {
		t.Errorf("%+v", got)
	}
	if got := topic(plain, map[string]string{"retention.ms": "1000", "retention.bytes": "500"}); got.LocalRetentionMs != 1000 || got.LocalRetentionBytes != 500 {
		t.Errorf("%+v", got)
	}
	if got := topic(plain, map[string]string{"cleanup.policy": "compact"}); got.RemoteStorage || got.SegmentBytes != 1<<30 || got.LocalRetentionMs != got.RetentionMs {
		t.Errorf("%+v", got)
	}
	if got := topic(plain, map[string]string{"remote.log.copy.disable": "true"}); got.LocalRetentionMs != got.RetentionMs {
		t.Errorf("%+v", got)
	}
	if got := topic(plain, map[string]string{"remote.copy.lag.ms": "172800000"}); got.LocalRetentionMs != 2*day {
		t.Errorf("%+v", got)
	}
	if got := topic(plain, map[string]string{"segment.bytes": "4194304", "local.retention.bytes": "8388608", "retention.ms": "-1"}); got.SegmentBytes != 4<<20 || got.LocalRetentionBytes != 8<<20 || got.RetentionMs != -1 || got.LocalRetentionMs != day {
		t.Errorf("%+v", got)
	}
	given := mustLoad(t, "", "log.segment.bytes=2097152", "log.local.retention.ms=5", "log.retention.hours=-1")
	if got := topic(given, nil); got.SegmentBytes != 2<<20 || got.LocalRetentionMs != 5 || got.RetentionMs != -1 {
		t.Errorf("%+v", got)
	}
	if got := topic(given, map[string]string{"internal.segment.bytes": "10"}); got.SegmentBytes != 10 {
		t.Errorf("%+v", got)
	}
}

func TestRetentionPrecedence(t *testing.T) {
	for _, tc := range []struct {
		sets []string
		want int64
	}{
		{[]string{"log.retention.hours=1"}, 3_600_000},
		{[]string{"log.retention.hours=1", "log.retention.minutes=2"}, 120_000},
		{[]string{"log.retention.hours=1", "log.retention.minutes=2", "log.retention.ms=3"}, 3},
		{[]string{"log.retention.minutes=-1"}, -1},
		{[]string{"log.retention.hours=2147483647"}, 2147483647 * 3_600_000},
	} {
		topic, err := mustLoad(t, "", tc.sets...).Topic(nil)
		if err != nil || topic.RetentionMs != tc.want {
			t.Errorf("%v: %d, %v, want %d", tc.sets, topic.RetentionMs, err, tc.want)
		}
	}
}

func TestRefusedTopicConfigs(t *testing.T) {
	tiered, plain := mustLoad(t, ""), mustLoad(t, "# no tier\n")
	for _, tc := range []struct {
		c         *Config
		overrides string // k=v;k=v
		want      string
	}{
		{tiered, "cleanup.policy=foo", "cleanup.policy=foo: allowed: one of compact, delete"},
		{tiered, "retention.ms=abc", "retention.ms=abc: allowed: a whole number"},
		{tiered, "retention.ms=-2", "allowed: at least -1"},
		{tiered, "segment.bytes=14", "allowed: at least 1048576"},
		{tiered, "preallocate=yes", "allowed: true or false"},
		{tiered, "compression.gzip.level=0", "allowed: between 1 and 9, or -1"},
		{tiered, "max.message.bytes=", "allowed: a whole number"},
		{tiered, "leader.replication.throttled.replicas=x", "allowed: * or a list of partition:broker"},
		{tiered, "retention.mss=1", "unknown topic configuration retention.mss; did you mean retention.ms?"},
		{tiered, "log.retention.hours=1", "the topic's own key is retention.ms"},
		{tiered, "min.compaction.lag.ms=10;max.compaction.lag.ms=5", "more than max.compaction.lag.ms=5"},
		{tiered, "remote.storage.enable=true;cleanup.policy=compact", "Remote log storage is unsupported for the compacted topics"},
		{tiered, "remote.storage.enable=true;cleanup.policy=compact,delete", "Remote log storage is unsupported for the compacted topics"},
		{tiered, "retention.ms=1000;local.retention.ms=2000", "Invalid value 2000 for configuration local.retention.ms: Value must not be more than retention.ms property value: 1000"},
		{tiered, "retention.ms=1000;local.retention.ms=-1", "Invalid value -1 for configuration local.retention.ms: Value must not be -1 as retention.ms value is set as 1000."},
		{tiered, "retention.bytes=1000;local.retention.bytes=2000", "Invalid value 2000 for configuration local.retention.bytes: Value must not be more than retention.bytes property value: 1000"},
		{tiered, "remote.log.copy.disable=true;local.retention.ms=1000", "the `local.retention.ms` and `retention.ms` must be set to the identical value"},
		{tiered, "remote.copy.lag.ms=99999999999;local.retention.ms=1000", "remote.copy.lag.ms=99999999999 is more than local.retention.ms, which is 1000"},
		{tiered, "remote.copy.lag.bytes=9999;local.retention.bytes=1000", "remote.copy.lag.bytes=9999 is more"},
		{plain, "remote.storage.enable=true", "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."},
	} {
		overrides := map[string]string{}
		for _, kv := range strings.Split(tc.overrides, ";") {
			k, v, _ := strings.Cut(kv, "=")
			overrides[k] = v
		}
		err := tc.c.ValidateTopic(overrides)
		var typed *protocol.Error
		if !errors.As(err, &typed) || typed.Code != protocol.InvalidConfig || !strings.Contains(typed.Message, tc.want) {
			t.Errorf("%s: got %v, want %q", tc.overrides, err, tc.want)
		}
	}
	for _, ok := range []string{"retention.ms= 5 ", "retention.bytes=-5", "cleanup.policy=", "leader.replication.throttled.replicas=*", "preallocate=TRUE", "retention.ms=+5"} {
		k, v, _ := strings.Cut(ok, "=")
		if err := tiered.ValidateTopic(map[string]string{k: v}); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
	if err := plain.ValidateTopic(map[string]string{"retention.ms": "1000", "local.retention.ms": "2000"}); err != nil {
		t.Errorf("local retention of an untiered topic does not matter: %v", err)
	}
}

func TestPinTiering(t *testing.T) {
	tiered, plain := mustLoad(t, ""), mustLoad(t, "# no tier\n")
	for _, tc := range []struct {
		c    *Config
		in   map[string]string
		want string
	}{
		{tiered, nil, "true"},
		{tiered, map[string]string{"remote.storage.enable": "false"}, "false"},
		{tiered, map[string]string{"cleanup.policy": "compact"}, ""},
		{plain, nil, ""},
	} {
		if got := tc.c.PinTiering(tc.in)["remote.storage.enable"]; got != tc.want {
			t.Errorf("%v: %q, want %q", tc.in, got, tc.want)
		}
	}
}

func find(t *testing.T, all []Described, name string) Described {
	t.Helper()
	for _, d := range all {
		if d.Name == name {
			return d
		}
	}
	t.Fatalf("%s is not described", name)
	return Described{}
}

func TestDescribe(t *testing.T) {
	c := mustLoad(t, "", "log.retention.minutes=5", "ssl.key.password=secret")
	d := find(t, c.DescribeTopic(map[string]string{"retention.ms": "7"}), "retention.ms")
	want := []Synonym{{"retention.ms", "7", false, SourceTopic}, {"log.retention.minutes", "5", false, SourceStatic}, {"log.retention.hours", "168", false, SourceDefault}}
	if d.Value != "7" || d.Source != SourceTopic || len(d.Synonyms) != 3 || d.Synonyms[0] != want[0] || d.Synonyms[1] != want[1] || d.Synonyms[2] != want[2] {
		t.Errorf("%+v", d)
	}
	topics := c.DescribeTopic(nil)
	if d := find(t, topics, "retention.ms"); d.Value != "300000" || d.Source != SourceStatic {
		t.Errorf("%+v", d)
	}
	if d := find(t, topics, "segment.bytes"); d.Value != "268435456" || d.Source != SourceDefault || d.Synonyms[0].Value != "268435456" {
		t.Errorf("%+v", d)
	}
	if d := find(t, topics, "remote.storage.enable"); d.Value != "true" || d.Type != TypeBool || d.ReadOnly {
		t.Errorf("%+v", d)
	}
	if d := find(t, c.DescribeTopic(map[string]string{"cleanup.policy": "compact"}), "remote.storage.enable"); d.Value != "false" || d.Source != SourceDefault {
		t.Errorf("%+v", d)
	}
	brokers := c.DescribeBroker()
	if d := find(t, brokers, "ssl.key.password"); !d.Null || d.Value != "" || !d.Sensitive || d.Synonyms[0].Value != "" {
		t.Errorf("%+v", d)
	}
	if d := find(t, brokers, "log.retention.ms"); !d.Null || d.Source != SourceStatic || d.Synonyms[0].Name != "log.retention.minutes" || d.ReadOnly {
		t.Errorf("%+v", d)
	}
	if d := find(t, brokers, "node.id"); d.Value != "1" || !d.ReadOnly || d.Type != TypeInt {
		t.Errorf("%+v", d)
	}
}

func TestNearest(t *testing.T) {
	words := []string{"topic", "tier", "dump", "version", "server"}
	for in, want := range map[string]string{"tpoic": "topic", "teir": "tier", "servr": "server", "verison": "version", "dmp": "dump", "elephant": "", "": ""} {
		if got, _ := Nearest(in, words); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestMarkdownNamesEveryKey(t *testing.T) {
	page := Markdown()
	for _, k := range Keys() {
		if strings.Contains(page, "| `"+k.Name+"` |") == k.Internal {
			t.Errorf("%s: shown or left out wrongly", k.Name)
		}
	}
}
