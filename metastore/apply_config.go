package metastore

import (
	"maps"

	"varve/metastore/metapb"
	"varve/protocol"
)

// maxConfigChanges bounds one command.
const maxConfigChanges = 1000

// alterTopicConfigs sets and removes overrides. The same command again finds the version moved and is refused.
func (t *tx) alterTopicConfigs(c *metapb.AlterTopicConfigs) (Result, error) {
	topic, err := t.topicOf(c.GetTopicId())
	if err != nil {
		return Result{}, err
	}
	next, err := t.alter(topic.Configs, topic.ConfigVersion, c.ExpectVersion, c.Changes)
	if err != nil || maps.Equal(next, topic.Configs) {
		return Result{}, err
	}
	changed := *topic
	changed.Configs, changed.ConfigVersion = next, t.index
	t.putTopic(&changed)
	t.record(&metapb.JournalRecord{Body: &metapb.JournalRecord_TopicConfigs{TopicConfigs: &metapb.TopicConfigs{TopicId: topic.ID[:], Configs: next}}})
	return Result{}, nil
}

func (t *tx) alterBrokerConfigs(c *metapb.AlterBrokerConfigs) (Result, error) {
	var old BrokerConfig
	if have, ok := t.img.configs.Get(c.GetBroker()); ok {
		old = *have
	}
	next, err := t.alter(old.Configs, old.Version, c.GetExpectVersion(), c.GetChanges())
	if err != nil || maps.Equal(next, old.Configs) {
		return Result{}, err
	}
	key := append([]byte{nsBrokerConfig}, c.Broker...)
	t.setProto(key, &metapb.BrokerConfigRow{Configs: next, Version: t.index})
	t.img.configs = t.img.configs.Set(c.Broker, &BrokerConfig{Configs: next, Version: t.index})
	t.changed.configs[c.Broker] = struct{}{}
	t.record(brokerConfigRecord(c.Broker, next))
	return Result{}, nil
}

func brokerConfigRecord(broker string, configs map[string]string) *metapb.JournalRecord {
	return &metapb.JournalRecord{Body: &metapb.JournalRecord_BrokerConfigs{BrokerConfigs: &metapb.BrokerConfigs{Broker: broker, Configs: configs}}}
}

func (t *tx) alter(old map[string]string, version, expect uint64, changes []*metapb.ConfigChange) (map[string]string, error) {
	if len(changes) > maxConfigChanges {
		return nil, malformed("%d config changes", len(changes))
	}
	if version != expect {
		return nil, protocol.Errorf(protocol.InvalidUpdateVersion, "configs were changed at index %d, not %d", version, expect)
	}
	next := maps.Clone(old)
	if next == nil {
		next = map[string]string{}
	}
	for _, c := range changes {
		switch {
		case c.GetKey() == "":
			return nil, malformed("config change without a key")
		case c.Value == nil:
			delete(next, c.Key)
		default:
			next[c.Key] = c.GetValue()
		}
	}
	if maps.Equal(next, old) {
		return next, nil
	}
	return next, t.journalHasRoom()
}
