// Package group coordinates consumer groups with Kafka's classic protocol: it answers JoinGroup, SyncGroup, Heartbeat,
// LeaveGroup, OffsetCommit, OffsetFetch, OffsetDelete, DescribeGroups, ListGroups and DeleteGroups, and keeps what must
// survive as records of __consumer_offsets in Kafka's own schema, so that Kafka's tools read them.
//
// A [Machine] is the state of one partition of that topic and a pure step function: an event and the time go in, answers,
// records to append and events to log come out. It has no clock, no I/O and no goroutine; what it does is written down as
// transcripts in testdata. A [Coordinator] is the shell around all machines of this broker: it follows leadership, loads
// the log, runs the steps, appends the records and hands answers on.
//
// # Invariants
//
//   - A machine exists only for a partition that this broker leads, at exactly one leader epoch; every append names that
//     epoch and is refused at another. What was loaded plus what was appended since is what the log holds.
//   - What a client is told to be stored is stored: the answers to commits, deletions, to the leader's SyncGroup and to a
//     static member that takes over its place go out only after the high watermark has passed their records, and offsets
//     can be fetched only from then on.
//   - Completed appends reach a machine in the order of the log.
//   - A generation has one leader and one protocol that all its members know; only the members of the present generation
//     commit, and nobody while the leader's assignment is awaited.
//   - Each request is answered exactly once: by a step, or with NotCoordinator when leadership ends.
//   - No goroutine belongs to a request, a member or a group: steps run on the goroutine that brings the event, and on one
//     goroutine of the Coordinator for timers and completed appends. An idle partition costs its memory only.
//   - Groups, members, pending members and their metadata are bounded; see limits.go.
//
// # Crash cases
//
//   - Members, their subscriptions and assignments, and offsets are back after a restart; sessions begin anew with it. A
//     rebalance under way is forgotten: members find their old generation, and rejoin if they had been waiting.
//   - An append that failed changes nothing in memory. If it reached the log all the same (it timed out, then was
//     replicated), its offsets appear at the next load: the client was told that it does not know.
//   - Offsets of topics that were deleted while nobody coordinated are removed at the end of loading.
//   - Records that cannot be read are skipped and told of; they never stop a load.
//
// # Non-goals
//
// Transactional offsets, the consumer protocol of KIP-848, share and streams groups, and compaction of the log, which is
// read whole.
//
// Sources: GroupMetadataManager.java, OffsetMetadataManager.java, ClassicGroup.java, GroupCoordinatorService.java,
// KafkaApis.scala; KIP-62, KIP-134, KIP-345, KIP-394, KIP-447, KIP-496, KIP-518, KIP-709, KIP-814, KIP-1043.
package group
