package metastore

import (
	"cmp"
	"iter"
	"slices"
	"strconv"

	"github.com/benbjohnson/immutable"

	"varve/metastore/metapb"
	"varve/protocol"
)

// Image is the whole of the cluster's metadata but for the rows of remote segments, as of one Raft index. It and all that it
// hands out is immutable: callers must not change a slice or map in it.
type Image struct {
	index      uint64
	controller int32
	cluster    cluster
	brokers    *immutable.SortedMap[int32, *Broker]
	topics     *immutable.SortedMap[string, *Topic] // by name
	byID       *immutable.Map[string, *Topic]       // by the 16 bytes of the id
	configs    *immutable.SortedMap[string, *BrokerConfig]
	tombstones *immutable.SortedMap[string, *metapb.TombstoneRow] // by topic id
	partitions int
	restoring  restoring
}

// cluster is everything of which there is one.
type cluster struct {
	ID               string
	FeatureLevel     uint32
	NextProducerID   int64
	LastTopicDelete  uint64
	Journal          bool
	JournaledThrough uint64
	JournalEntries   int64
	RestoredIndex    uint64
	SnapshotIndex    uint64
}

// Topic is one topic. The partition's number is its place in Partitions.
type Topic struct {
	Name          string
	ID            protocol.UUID
	Configs       map[string]string // overrides only
	ConfigVersion uint64            // raft index of the last change of Configs
	Partitions    []*Partition
	Held          bool // restored: retention waits until it is released
}

// Partition is the state of one partition that the controller decides.
type Partition struct {
	Index          int32
	Replicas       []int32
	Dirs           []protocol.UUID // one per replica; zero = not yet assigned
	ISR            []int32
	ELR            []int32 // eligible leader replicas (KIP-966)
	Leader         int32   // -1 = none
	LeaderEpoch    int32
	PartitionEpoch int32
}

// Broker is one registration.
type Broker struct {
	ID          int32
	Epoch       int64 // raft index of the registration
	Incarnation protocol.UUID
	Dirs        []protocol.UUID
	Endpoints   []Endpoint
	Rack        string
	Fenced      bool
}

// Endpoint is one advertised listener.
type Endpoint struct {
	Name     string
	Protocol string // PLAINTEXT, SSL, ...
	Host     string
	Port     int32
}

// BrokerConfig is the dynamic configuration of one broker, or of all (name "").
type BrokerConfig struct {
	Configs map[string]string
	Version uint64 // raft index of the last change
}

func newImage() *Image {
	return &Image{
		controller: -1,
		brokers:    immutable.NewSortedMap[int32, *Broker](int32Comparer{}),
		topics:     immutable.NewSortedMap[string, *Topic](stringComparer{}),
		byID:       immutable.NewMap[string, *Topic](nil),
		configs:    immutable.NewSortedMap[string, *BrokerConfig](stringComparer{}),
		tombstones: immutable.NewSortedMap[string, *metapb.TombstoneRow](stringComparer{}),
		restoring:  noRestore(),
	}
}

type int32Comparer struct{}

func (int32Comparer) Compare(a, b int32) int { return cmp.Compare(a, b) }

type stringComparer struct{}

func (stringComparer) Compare(a, b string) int { return cmp.Compare(a, b) }

// ClusterID is "" until the cluster has been bootstrapped.
func (i *Image) ClusterID() string { return i.cluster.ID }

// FeatureLevel is the finalized feature level.
func (i *Image) FeatureLevel() uint32 { return i.cluster.FeatureLevel }

// Index is the Raft index of the last command in the image.
func (i *Image) Index() uint64 { return i.index }

// Controller is the node id of the Raft leader as this node knows it, -1 when it knows none.
func (i *Image) Controller() int32 { return i.controller }

// Broker finds a registration.
func (i *Image) Broker(id int32) (*Broker, bool) { return i.brokers.Get(id) }

// Brokers returns all registrations in order of their ids.
func (i *Image) Brokers() []*Broker {
	out := make([]*Broker, 0, i.brokers.Len())
	for it := i.brokers.Iterator(); !it.Done(); {
		_, b, _ := it.Next()
		out = append(out, b)
	}
	return out
}

// Topic finds a topic by name.
func (i *Image) Topic(name string) (*Topic, bool) { return i.topics.Get(name) }

// TopicByID finds a topic by id.
func (i *Image) TopicByID(id protocol.UUID) (*Topic, bool) { return i.byID.Get(string(id[:])) }

// Topics iterates over all topics in order of their names.
func (i *Image) Topics() iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		for it := i.topics.Iterator(); !it.Done(); {
			_, t, _ := it.Next()
			if !yield(t) {
				return
			}
		}
	}
}

// TopicCount is the number of topics.
func (i *Image) TopicCount() int { return i.topics.Len() }

// PartitionCount is the number of partitions of all topics.
func (i *Image) PartitionCount() int { return i.partitions }

// Partition finds one partition.
func (i *Image) Partition(topic protocol.UUID, partition int32) (*Partition, bool) {
	t, ok := i.TopicByID(topic)
	if !ok || partition < 0 || int(partition) >= len(t.Partitions) {
		return nil, false
	}
	return t.Partitions[partition], true
}

// BrokerConfig returns the dynamic configuration of one broker; id -1 is the default for all brokers.
func (i *Image) BrokerConfig(id int32) BrokerConfig {
	if c, ok := i.configs.Get(BrokerConfigName(id)); ok {
		return *c
	}
	return BrokerConfig{}
}

// NextProducerID is the first producer id that was not given out yet.
func (i *Image) NextProducerID() int64 { return i.cluster.NextProducerID }

// JournaledThrough is the Raft index up to which the journal is in the bucket.
func (i *Image) JournaledThrough() uint64 { return i.cluster.JournaledThrough }

// JournalEntries is the number of entries that wait in the outbox.
func (i *Image) JournalEntries() int64 { return i.cluster.JournalEntries }

// BrokerConfigName is the key of a broker's dynamic configuration: the node id, or "" for -1, all brokers.
func BrokerConfigName(id int32) string {
	if id < 0 {
		return ""
	}
	return strconv.Itoa(int(id))
}

// IsLeader reports whether the broker leads the partition.
func (p *Partition) IsLeader(broker int32) bool { return p.Leader == broker && broker >= 0 }

// HasReplica reports whether the broker holds a replica.
func (p *Partition) HasReplica(broker int32) bool { return slices.Contains(p.Replicas, broker) }

// DirOf is the directory the broker's replica is assigned to; ok is false when it holds none.
func (p *Partition) DirOf(broker int32) (dir protocol.UUID, ok bool) {
	n := slices.Index(p.Replicas, broker)
	if n < 0 || n >= len(p.Dirs) {
		return protocol.UUID{}, false
	}
	return p.Dirs[n], true
}

// HasDir reports whether the registration names the directory.
func (b *Broker) HasDir(dir protocol.UUID) bool { return slices.Contains(b.Dirs, dir) }
