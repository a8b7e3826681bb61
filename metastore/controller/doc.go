// Package controller decides what happens to brokers, topics and partitions. It runs on the Raft leader.
//
// # Shape
//
// The decisions are pure functions in the step*.go files: (Image, event) -> commands and a result, without clock, randomness or I/O.
// Times, topic ids and placement seeds come in with the event. Controller is the thin shell: it serializes events, runs the step on the newest
// image, proposes the commands, and runs the step again when a command was computed from a stale image.
//
// # Invariants
//
//   - Only an in-sync replica is elected, or with an empty ISR an eligible one (ELR, KIP-966). Anything else is an unclean election: asked for by
//     ElectLeaders, or by the topic's unclean.leader.election.enable.
//   - Eligible is who left the ISR while it was below min.insync.replicas, by the configs of now: beside an ISR that takes records alone nobody is.
//     A change of a topic's configs is followed at once; so unclean.leader.election.enable brings a topic without a leader back.
//   - A broker that registers without the epoch of its last registration (an unclean stop) or without the directory that holds a replica leaves
//     ISR and ELR before it is unfenced, unless the two hold no other and the directory is unchanged. An erased replica is never
//     cleanly electable; but the only replica of a tiered partition stays electable, because it restarts at the tier's end.
//   - Registration takes leadership away and unfencing elects: both raise the leader epoch.
//   - A new leader of the quorum gives every broker a full session before it fences one.
//
// # Crash cases
//
// A registration or fencing that concerns more partitions than one command may carry takes several, those that take leadership away first. After a
// crash in between, the broker registers again, or the new controller's first step elects where a partition has no leader but could have one.
//
// # Not here
//
// Reassignment, controlled shutdown, preferred-leader balancing, Kafka's broker RPCs, forwarding.
//
// Sources: ReplicationControlManager.java, PartitionChangeBuilder.java, ClusterControlManager.java, Topic.java of Apache Kafka; KIP-631, KIP-966.
package controller
