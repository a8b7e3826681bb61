package group

import (
	"context"
	"strconv"
	"time"
	"unicode/utf16"

	"varve/metastore/controller"
	"varve/protocol"
)

const (
	createTimeout  = 10 * time.Second
	createdWait    = 2 * time.Second      // for the partitions to be coordinated here, once
	createdRecheck = 5 * time.Millisecond // during that
)

// partitionOf is where a group's records are: Java's hash of its id (GroupCoordinatorService.partitionFor).
func partitionOf(group string, partitions int) int32 {
	var h int32
	for _, u := range utf16.Encode([]rune(group)) {
		h = 31*h + int32(u)
	}
	if h < 0 {
		h = max(-h, 0) // the least int32 has no opposite
	}
	return h % int32(partitions)
}

// shardOf returns the shard of a group, or why there is none.
func (c *Coordinator) shardOf(group string) (*shard, protocol.ErrorCode) {
	t, ok := c.o.Meta.Image().Topic(OffsetsTopic)
	if !ok || len(t.Partitions) == 0 {
		return nil, protocol.NotCoordinator
	}
	p := t.Partitions[partitionOf(group, len(t.Partitions))]
	if s := (*c.shards.Load())[p.Index]; s != nil {
		return s, protocol.None
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.Leader == c.o.NodeID && !c.released {
		return nil, protocol.CoordinatorLoadInProgress // about to be
	}
	return nil, protocol.NotCoordinator
}

// Locate names the broker that coordinates a group. The topic is created if it is not there; CoordinatorNotAvailable
// when that fails, or nobody leads the group's partition.
func (c *Coordinator) Locate(ctx context.Context, group string) (node int32, err protocol.ErrorCode) {
	t, ok := c.o.Meta.Image().Topic(OffsetsTopic)
	if !ok {
		if err := c.create(ctx); err != nil {
			c.o.Events.Emit(TopicNotCreated{Err: err})
			return -1, protocol.CoordinatorNotAvailable
		}
		if t, ok = c.o.Meta.Image().Topic(OffsetsTopic); !ok {
			return -1, protocol.CoordinatorNotAvailable
		}
	}
	c.awaitLoad(ctx, group)
	p := t.Partitions[partitionOf(group, len(t.Partitions))]
	if p.Leader < 0 {
		return -1, protocol.CoordinatorNotAvailable
	}
	return p.Leader, protocol.None
}

// create makes the topic, once at a time.
func (c *Coordinator) create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	select {
	case <-c.creating:
		defer func() { c.creating <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.topicExists(OffsetsTopic) {
		return nil
	}
	err := c.o.CreateTopic(ctx, c.Topic())
	if protocol.CodeOf(err) == protocol.TopicAlreadyExists {
		return nil
	}
	return err
}

// awaitLoad waits a moment for a shard that is being loaded here: the topic was just created, or the broker started. So
// the client's first request finds it; some clients take CoordinatorLoadInProgress for a failure.
func (c *Coordinator) awaitLoad(ctx context.Context, group string) {
	if s, _ := c.shardOf(group); s != nil && s.isActive() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, createdWait)
	defer cancel()
	tick := time.NewTicker(createdRecheck)
	defer tick.Stop()
	for {
		s, err := c.shardOf(group)
		if s != nil && s.isActive() || err == protocol.NotCoordinator {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *shard) isActive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase == active
}

// Topic is the offsets topic as it is created: compacted, never tiered, with no more replicas than there are brokers.
func (c *Coordinator) Topic() controller.CreateTopic {
	conf := c.o.Config
	brokers := max(len(c.o.Meta.Image().Brokers()), 1)
	return controller.CreateTopic{
		Name:              OffsetsTopic,
		Partitions:        int32(conf.Int("offsets.topic.num.partitions")),
		ReplicationFactor: int16(min(conf.Int("offsets.topic.replication.factor"), brokers)),
		Configs: map[string]string{
			"cleanup.policy":   "compact",
			"compression.type": "producer",
			"segment.bytes":    strconv.Itoa(conf.Int("offsets.topic.segment.bytes")),
		},
	}
}
