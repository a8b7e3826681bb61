package controller

import (
	"log/slog"

	"varve/protocol"
)

// BrokerRegistered says that a broker has registered and is fenced.
type BrokerRegistered struct {
	ID    int32
	Epoch int64
	Clean bool // it came with the epoch of its last registration
}

// Name implements event.Event.
func (BrokerRegistered) Name() string { return "broker_registered" }

// Level implements event.Event.
func (BrokerRegistered) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e BrokerRegistered) Attrs() []slog.Attr {
	return []slog.Attr{slog.Int("broker", int(e.ID)), slog.Int64("epoch", e.Epoch), slog.Bool("clean", e.Clean)}
}

// BrokerFenceChanged says that a broker may serve, or no longer.
type BrokerFenceChanged struct {
	ID     int32
	Epoch  int64
	Fenced bool
}

// Name implements event.Event.
func (e BrokerFenceChanged) Name() string {
	if e.Fenced {
		return "broker_fenced"
	}
	return "broker_unfenced"
}

// Level implements event.Event.
func (e BrokerFenceChanged) Level() slog.Level {
	if e.Fenced {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// Attrs implements event.Event.
func (e BrokerFenceChanged) Attrs() []slog.Attr {
	return []slog.Attr{slog.Int("broker", int(e.ID)), slog.Int64("epoch", e.Epoch)}
}

// TopicCreated says that a topic exists.
type TopicCreated struct {
	Topic      string
	ID         protocol.UUID
	Partitions int32
}

// Name implements event.Event.
func (TopicCreated) Name() string { return "topic_created" }

// Level implements event.Event.
func (TopicCreated) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e TopicCreated) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("topic", e.Topic), slog.String("id", e.ID.String()), slog.Int("partitions", int(e.Partitions))}
}

// TopicDeleted says that a topic is gone from the metadata.
type TopicDeleted struct {
	Topic string
	ID    protocol.UUID
}

// Name implements event.Event.
func (TopicDeleted) Name() string { return "topic_deleted" }

// Level implements event.Event.
func (TopicDeleted) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e TopicDeleted) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("topic", e.Topic), slog.String("id", e.ID.String())}
}

// UncleanElection says that a leader was chosen that may lack acknowledged records.
type UncleanElection struct{ Partition TopicPartition }

// Name implements event.Event.
func (UncleanElection) Name() string { return "unclean_election" }

// Level implements event.Event.
func (UncleanElection) Level() slog.Level { return slog.LevelWarn }

// Attrs implements event.Event.
func (e UncleanElection) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("topic", e.Partition.Topic), slog.Int("partition", int(e.Partition.Partition))}
}

// ReplicaErased says that a replica lost its folder or directory.
type ReplicaErased struct {
	Partition TopicPartition
	Broker    int32
}

// Name implements event.Event.
func (ReplicaErased) Name() string { return "replica_erased" }

// Level implements event.Event.
func (ReplicaErased) Level() slog.Level { return slog.LevelError }

// Attrs implements event.Event.
func (e ReplicaErased) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("topic", e.Partition.Topic), slog.Int("partition", int(e.Partition.Partition)), slog.Int("broker", int(e.Broker))}
}
