package controller

import (
	"time"

	"varve/metastore"
	"varve/protocol"
	"varve/protocol/event"
)

// Defaults and bounds.
const (
	DefaultSessionTimeout = 9 * time.Second // broker.session.timeout.ms
	maxChangesPerCommand  = 2000            // partitions
	maxAttempts           = 8               // recomputations of one step
)

// TopicPolicy is what the controller needs to know of a topic's effective configuration.
type TopicPolicy struct {
	Tiered  bool // remote.storage.enable
	MinISR  int  // min.insync.replicas, at least 1
	Unclean bool // unclean.leader.election.enable
}

// Options configure a Controller.
type Options struct {
	// ValidateTopicConfig checks all overrides of a topic; its error is the client's answer. nil accepts everything.
	ValidateTopicConfig func(overrides map[string]string) error
	// TopicPolicy reads overrides and broker defaults. nil = not tiered, min ISR 1, no unclean elections.
	TopicPolicy              func(overrides map[string]string) TopicPolicy
	DefaultPartitions        int32 // num.partitions; 0 = 1
	DefaultReplicationFactor int16 // default.replication.factor; 0 = 1
	SessionTimeout           time.Duration
	Now                      func() time.Time // must have a monotonic reading where it matters
	Events                   event.Sink
}

// Registration is a broker that announces itself.
type Registration struct {
	ID          int32
	Incarnation protocol.UUID // new at each start of the process
	Dirs        []protocol.UUID
	Endpoints   []metastore.Endpoint
	Rack        string
	PrevEpoch   int64 // epoch saved at the last clean shutdown, -1 after an unclean one
}

// DirAssignment says in which directory a replica lives.
type DirAssignment struct {
	TopicID   protocol.UUID
	Partition int32
	Dir       protocol.UUID
}

// Assignment is a manual placement of one partition.
type Assignment struct {
	Partition int32
	Brokers   []int32
}

// CreateTopic asks for one topic.
type CreateTopic struct {
	Name              string
	Partitions        int32 // -1 = default
	ReplicationFactor int16 // -1 = default
	Assignments       []Assignment
	Configs           map[string]string
}

// CreateResult answers one CreateTopic. With validateOnly ID is zero.
type CreateResult struct {
	Name              string
	ID                protocol.UUID
	Partitions        int32
	ReplicationFactor int16
	Configs           map[string]string // the overrides
	Err               error             // *protocol.Error or protocol.ErrorCode
}

// DeleteTopic names a topic by name, or by id when Name is "".
type DeleteTopic struct {
	Name string
	ID   protocol.UUID
}

// DeleteResult answers one DeleteTopic with both name and id where they are known.
type DeleteResult struct {
	Name string
	ID   protocol.UUID
	Err  error
}

// CreatePartitions asks for a topic to have Count partitions in all.
type CreatePartitions struct {
	Topic       string
	Count       int32
	Assignments [][]int32 // of the new partitions; nil = placed by the controller
}

// TopicResult answers a request about one topic.
type TopicResult struct {
	Topic string
	Err   error
}

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// ElectResult answers an election of one partition.
type ElectResult struct {
	Topic     string
	Partition int32
	Err       error
}

// AlterPartition is a leader's proposal of a new in-sync set (KIP-497).
type AlterPartition struct {
	TopicID        protocol.UUID
	Partition      int32
	LeaderEpoch    int32
	PartitionEpoch int32
	NewISR         []int32
}

// AlterPartitionResult holds the partition as it is after the change, or the reason why there was none.
type AlterPartitionResult struct {
	TopicID   protocol.UUID
	Partition int32
	State     *metastore.Partition
	Err       error
}

// ConfigChange changes overrides of one topic, or the dynamic values of a broker when Topic is "" (Broker -1: of all brokers).
type ConfigChange struct {
	Topic  string
	Broker int32
	// Edit returns the new values, all of them, or the client's answer. It leaves old alone, depends on nothing else, and is called
	// again when another change came first.
	Edit func(old map[string]string) (map[string]string, error)
}
