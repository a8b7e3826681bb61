package metastore

import (
	"encoding/binary"
	"fmt"
	"maps"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"varve/metastore/metapb"
	"varve/protocol"
)

// loaded is what the state machine keeps in memory of a Pebble.
type loaded struct {
	img       *Image
	locations []string
}

// load reads the image back; segment rows are not touched.
func load(r pebble.Reader) (loaded, error) {
	l := loaded{img: newImage()}
	topics := map[protocol.UUID]*Topic{}
	steps := []struct {
		ns byte
		fn func(key, value []byte) error
	}{
		{nsApplied, l.loadApplied},
		{nsCluster, l.loadCluster},
		{nsBroker, l.loadBroker},
		{nsBrokerConfig, l.loadBrokerConfig},
		{nsTopic, func(k, v []byte) error { return loadTopic(topics, k, v) }},
		{nsPartition, func(k, v []byte) error { return loadPartition(topics, k, v) }},
		{nsTombstone, l.loadTombstone},
		{nsRestore, l.loadRestore},
		{nsRestoring, l.loadRestoring},
		{nsClaim, l.loadClaim},
		{nsLocation, func(_, v []byte) error { l.locations = append(l.locations, string(v)); return nil }},
	}
	for _, s := range steps {
		if err := eachRow(r, []byte{s.ns}, s.fn); err != nil {
			return l, err
		}
	}
	for id, t := range topics {
		for i, p := range t.Partitions {
			if p == nil {
				return l, badRow(nsPartition, fmt.Errorf("partition %d of %s is missing", i, t.Name))
			}
		}
		l.img.topics = l.img.topics.Set(t.Name, t)
		l.img.byID = l.img.byID.Set(string(id[:]), t)
		l.img.partitions += len(t.Partitions)
	}
	return l, nil
}

func eachRow(r pebble.Reader, prefix []byte, fn func(key, value []byte) error) error {
	it, err := r.NewIter(prefixOptions(prefix))
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		if err := fn(it.Key(), it.Value()); err != nil {
			return err
		}
	}
	return it.Error()
}

func badRow(ns byte, err error) error {
	return &protocol.CorruptionError{Where: fmt.Sprintf("metastore row %q", ns), What: err.Error()}
}

// unmarshal reads a row into m.
func unmarshal(ns byte, value []byte, m proto.Message) error {
	if err := proto.Unmarshal(value, m); err != nil {
		return badRow(ns, err)
	}
	return nil
}

func (l *loaded) loadApplied(_, value []byte) error {
	if len(value) != 8 {
		return badRow(nsApplied, fmt.Errorf("%d bytes", len(value)))
	}
	l.img.index = binary.BigEndian.Uint64(value)
	return nil
}

func (l *loaded) loadCluster(_, value []byte) error {
	row := &metapb.ClusterRow{}
	err := unmarshal(nsCluster, value, row)
	l.img.cluster = clusterOf(row)
	return err
}

func (l *loaded) loadBroker(_, value []byte) error {
	row := &metapb.Broker{}
	if err := unmarshal(nsBroker, value, row); err != nil {
		return err
	}
	b, err := brokerOf(row)
	if err != nil {
		return badRow(nsBroker, err)
	}
	l.img.brokers = l.img.brokers.Set(b.ID, b)
	return nil
}

func (l *loaded) loadBrokerConfig(key, value []byte) error {
	row := &metapb.BrokerConfigRow{}
	if err := unmarshal(nsBrokerConfig, value, row); err != nil {
		return err
	}
	l.img.configs = l.img.configs.Set(string(key[1:]), &BrokerConfig{Configs: notNil(row.Configs), Version: row.Version})
	return nil
}

func (l *loaded) loadTombstone(key, value []byte) error {
	row := &metapb.TombstoneRow{}
	if err := unmarshal(nsTombstone, value, row); err != nil {
		return err
	}
	l.img.tombstones = l.img.tombstones.Set(string(key[1:]), row)
	return nil
}

func loadTopic(topics map[protocol.UUID]*Topic, key, value []byte) error {
	row := &metapb.TopicRow{}
	if err := unmarshal(nsTopic, value, row); err != nil {
		return err
	}
	id, ok := uuidOf(key[1:])
	if !ok || row.Partitions < 0 || row.Partitions > MaxPartitionsPerTopic {
		return badRow(nsTopic, fmt.Errorf("id of %d bytes, %d partitions", len(key)-1, row.Partitions))
	}
	topics[id] = &Topic{
		Name: row.Name, ID: id, Configs: notNil(row.Configs), ConfigVersion: row.ConfigVersion, Partitions: make([]*Partition, row.Partitions), Held: row.Held,
	}
	return nil
}

func loadPartition(topics map[protocol.UUID]*Topic, key, value []byte) error {
	row := &metapb.Partition{}
	if err := unmarshal(nsPartition, value, row); err != nil {
		return err
	}
	id, n, ok := splitPartKey(key)
	t := topics[id]
	if !ok || t == nil || n < 0 || int(n) >= len(t.Partitions) {
		return badRow(nsPartition, fmt.Errorf("no topic for partition %d", n))
	}
	p, err := partitionOf(row, n)
	if err != nil {
		return badRow(nsPartition, err)
	}
	t.Partitions[n] = p
	return nil
}

func notNil(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return maps.Clone(m)
}
