package tiering

import (
	"encoding/binary"
	"maps"

	"varve/protocol"
	"varve/protocol/record"
)

// KafkaConfigs reads the topics' ids and configs out of Apache Kafka's metadata log, the partition __cluster_metadata-0 of each node's
// metadata log directory, and its snapshots. The zero value knows none.
//
// A record's value is a frame version (1), an API key and a version, all of them unsigned varints, and the message
// (AbstractApiMessageSerde.java). What is understood (TopicRecord.json, ConfigRecord.json, RemoveTopicRecord.json):
//
//	key 2  name compact string, topic id 16 bytes, tagged fields
//	key 4  resource type int8 (2 = topic), resource name, config name, value: compact strings, the value nullable
//	key 9  topic id 16 bytes
type KafkaConfigs struct {
	configs map[string]map[string]string
	names   map[protocol.UUID]string
}

const (
	kafkaTopicRecord       = 2
	kafkaConfigRecord      = 4
	kafkaRemoveTopicRecord = 9
	kafkaTopicResource     = 2
)

// Take reads a batch; batches come in order. Errors are *protocol.CorruptionError.
func (k *KafkaConfigs) Take(b record.Batch) error {
	if b.Control() {
		return nil
	}
	if k.configs == nil {
		k.configs, k.names = map[string]map[string]string{}, map[protocol.UUID]string{}
	}
	return b.Each(func(r *record.Record) error {
		m := kraftMessage{left: r.Value}
		if m.uvarint() != 1 {
			return corrupt("metadata record", "no frame of version 1 at offset %d", r.Offset)
		}
		key := m.uvarint()
		m.uvarint() // its version: what is read here is the same in all that there are
		k.take(key, &m)
		if m.short {
			return corrupt("metadata record", "record %d at offset %d is cut short", key, r.Offset)
		}
		return nil
	})
}

func (k *KafkaConfigs) take(key uint64, m *kraftMessage) {
	switch key {
	case kafkaTopicRecord:
		name, _ := m.compactString()
		if id := m.bytes(16); id != nil {
			k.names[protocol.UUID(id)] = name
		}
	case kafkaRemoveTopicRecord:
		if id := m.bytes(16); id != nil {
			delete(k.configs, k.names[protocol.UUID(id)])
			delete(k.names, protocol.UUID(id))
		}
	case kafkaConfigRecord:
		kind := m.bytes(1)
		topic, _ := m.compactString()
		name, _ := m.compactString()
		value, there := m.compactString()
		switch {
		case m.short || kind[0] != kafkaTopicResource:
		case !there:
			delete(k.configs[topic], name)
		default:
			if k.configs[topic] == nil {
				k.configs[topic] = map[string]string{}
			}
			k.configs[topic][name] = value
		}
	}
}

// TopicID returns the id of the topic that has a name now; false when there is none.
func (k *KafkaConfigs) TopicID(name string) (protocol.UUID, bool) {
	for id, n := range k.names {
		if n == name {
			return id, true
		}
	}
	return protocol.UUID{}, false
}

// Topic returns the configs that a topic has of its own.
func (k *KafkaConfigs) Topic(name string) map[string]string { return maps.Clone(k.configs[name]) }

// kraftMessage reads a message from its start; short says that it ended too soon.
type kraftMessage struct {
	left  []byte
	short bool
}

func (m *kraftMessage) uvarint() uint64 {
	v, n := binary.Uvarint(m.left)
	if n <= 0 {
		m.short, m.left = true, nil
		return 0
	}
	m.left = m.left[n:]
	return v
}

func (m *kraftMessage) bytes(n uint64) []byte {
	if m.short || n > uint64(len(m.left)) {
		m.short, m.left = true, nil
		return nil
	}
	b := m.left[:n]
	m.left = m.left[n:]
	return b
}

// compactString is false for null.
func (m *kraftMessage) compactString() (string, bool) {
	n := m.uvarint()
	if n == 0 {
		return "", false
	}
	return string(m.bytes(n - 1)), true
}
