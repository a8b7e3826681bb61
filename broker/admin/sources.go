package admin

import (
	"context"
	"iter"
	"time"

	"varve/broker/commitlog"
	"varve/broker/netio"
	"varve/broker/replica"
	"varve/metastore"
	"varve/tiering"
	"varve/tiering/objstore"
)

// Replicas tells about this broker's partitions; *replica.Manager does.
type Replicas interface {
	Stats() replica.Stats
	Describe() []replica.PartitionInfo
}

// Tier tells how partitions have settled and compares the bucket with the metastore; *tiering.Manager does.
type Tier interface {
	Status() tiering.Status
	Verify(ctx context.Context, o tiering.VerifyOptions) (tiering.VerifyReport, error)
	Stored(ctx context.Context) ([]tiering.StoredTopic, error)
}

// Network tells about connections; *netio.Server does.
type Network interface{ Stats() netio.Stats }

// Image is the cluster's metadata at one moment; *metastore.Image is one.
type Image interface {
	ClusterID() string
	Controller() int32
	Index() uint64
	JournaledThrough() uint64
	JournalEntries() int64
	Brokers() []*metastore.Broker
	Topics() iter.Seq[*metastore.Topic]
	Topic(name string) (*metastore.Topic, bool)
	TopicCount() int
	PartitionCount() int
}

// StoreUsage tells what was asked of the object store; *objstore.Counters does.
type StoreUsage interface {
	Snapshot() []objstore.Usage
	Detailed() []objstore.Usage
}

// Sources are where the numbers come from. Any part may be nil and is then left out; a nil pointer must not be put into an
// interface. All are called on each request and must be quick.
type Sources struct {
	NodeID   int32
	Version  string
	Ready    func() error // why clients are not served; nil when they are
	Replicas Replicas
	Tier     Tier
	Restore  Restorer
	TierURL  string // canonical; "" without a tier
	Network  Network
	Disk     func() commitlog.DiskState
	Image    func() Image
	Store    StoreUsage
	Requests func() []Requests
	Lags     func() []Lag
	Events   *Events
	Now      func() time.Time // nil is time.Now
}

func (s Sources) now() time.Time {
	if s.Now == nil {
		return time.Now()
	}
	return s.Now()
}

func (s Sources) ready() error {
	if s.Ready == nil {
		return nil
	}
	return s.Ready()
}
