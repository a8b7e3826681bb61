package group

import "time"

// Bounds that Kafka does not have, or not as settings.
const (
	maxGroupsPerPartition     = 1 << 20
	maxPendingMembersPerGroup = 10_000
	maxGroupMemberBytes       = 32 << 20 // ids, subscriptions and assignments of one group's members

	maxTimersPerTick = 10_000 // the next Tick takes the others

	newMemberJoinTimeout = 5 * time.Minute // a new member cannot send heartbeats while its first JoinGroup waits
	minJoinRetry         = 100 * time.Millisecond
)

// Settings of a Machine, from the configuration.
type Settings struct {
	MinSession, MaxSession time.Duration // group.min.session.timeout.ms, group.max.session.timeout.ms
	InitialDelay           time.Duration // group.initial.rebalance.delay.ms
	MaxSize                int           // members: group.max.size
	MaxOffsetMetadata      int           // UTF-16 units: offset.metadata.max.bytes
	Retention              time.Duration // offsets.retention.minutes
	RetentionCheck         time.Duration // offsets.retention.check.interval.ms
	MaxAppendBytes         int           // of records in one append; more are split over several
}
