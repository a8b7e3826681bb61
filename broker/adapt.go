package broker

import (
	"context"
	"errors"
	"time"

	"varve/broker/admin"
	"varve/broker/api"
	"varve/broker/config"
	"varve/broker/replica"
	"varve/metastore/controller"
)

// controlPlane is the controller of this process as replicas see it.
type controlPlane struct{ *controller.Controller }

// AssignDirs implements replica.ControlPlane.
func (c controlPlane) AssignDirs(ctx context.Context, broker int32, epoch int64, dirs []replica.DirAssignment) error {
	out := make([]controller.DirAssignment, len(dirs))
	for i, d := range dirs {
		out[i] = controller.DirAssignment(d)
	}
	return c.Controller.AssignDirs(ctx, broker, epoch, out)
}

// topicControl is the controller as clients' requests see it.
type topicControl struct {
	*controller.Controller
	cfg *config.Config
}

// CreateTopics spells out remote.storage.enable for topics that are tiered by default: what has settled must stay
// readable when the default changes.
func (c topicControl) CreateTopics(ctx context.Context, topics []controller.CreateTopic, validateOnly bool) []controller.CreateResult {
	for i := range topics {
		topics[i].Configs = c.cfg.PinTiering(topics[i].Configs)
	}
	return c.Controller.CreateTopics(ctx, topics, validateOnly)
}

// sources are what the HTTP server reads: little while the node starts, everything once it serves.
func (b *Broker) sources(started bool) admin.Sources {
	s := admin.Sources{
		NodeID: b.cfg.NodeID(), Version: b.version, Events: b.counts, Network: b.net,
		Ready: func() error {
			if !b.ready.Load() {
				return errors.New("starting or draining")
			}
			return nil
		},
	}
	if !started {
		return s
	}
	s.Replicas, s.Disk = described{b.replicas}, b.logs.Disk
	s.Image = func() admin.Image { return b.meta.Image() }
	s.Requests, s.Lags = b.requests, b.lags
	if b.tier != nil {
		s.Tier, s.Store, s.Restore, s.TierURL = b.tier, b.usage, b.tier, b.tierText
	}
	return s
}

// requests are the counts of the dispatcher as the HTTP server shows them.
func (b *Broker) requests() []admin.Requests {
	counts := b.dispatch.Requests()
	out := make([]admin.Requests, len(counts))
	for i, r := range counts {
		out[i] = admin.Requests{API: r.API, Errors: r.Errors, Seconds: r.Seconds, Bounds: api.RequestBounds, Buckets: r.Buckets}
	}
	return out
}

// Bounds of the lags of groups in the metrics.
const (
	maxLags     = 10_000
	lagsTimeout = time.Second
)

// lags are those of groups that are coordinated here in partitions that are led here.
func (b *Broker) lags() (out []admin.Lag) {
	ctx, cancel := context.WithTimeout(b.life, lagsTimeout)
	defer cancel()
	for _, c := range b.groups.Committed(ctx, maxLags) {
		if hw, ok := b.replicas.HighWatermark(c.Topic, c.Partition); ok {
			out = append(out, admin.Lag{Group: c.Group, Topic: c.Topic, Partition: c.Partition, Lag: max(hw-c.Offset, 0)})
		}
	}
	return out
}

// described are the replicas as the HTTP server sees them.
type described struct{ *replica.Manager }

// Describe implements admin.Replicas.
func (d described) Describe() []replica.PartitionInfo { return d.DescribeAll() }
