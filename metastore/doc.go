// Package metastore keeps the cluster's metadata: brokers, topics, partitions, configs, producer ids, and one row for each
// segment in the tier. It is a hashicorp/raft voter on raft-wal whose state machine is a Pebble.
//
// # What is where
//
// Everything but segment rows is also in memory, in an Image: immutable, replaced as a whole by each batch of commands, made of persistent
// maps so that a change of one partition copies little. Subscribers get ordered Deltas. Segment rows (100 million of them thinkable) and
// the tier state of partitions are read from Pebble, each by one ordered seek. keys.go has the table of keys, segment.go the byte table of
// a segment row, snapshot.go that of the snapshot stream, folder.go the layout of the folder.
//
// # Invariants
//
//   - A change is visible only after Raft committed it, and Propose returns after this node has applied it.
//
//   - Every command carries the versions it was computed from: broker epoch, leader and partition epoch, partition count, config version, next
//     producer id. A stale command is refused (InvalidUpdateVersion, StaleBrokerEpoch, FencedLeaderEpoch) and leaves no trace.
//     A command applied twice changes nothing the second time.
//
//   - The state machine is deterministic: the proposer stamps times and ids. Bytes that are no command are answered with an InvariantError.
//
//   - The state and the applied index are in one Pebble batch. Entries at or below the index are passed over.
//
//   - Remote segments (invariant 7): only a FINISHED row is readable. FINISHED needs the row in STARTED, its writer to lead the partition at the
//     leader epoch of the row, the base to be the tier's end (or the gap to lie wholly below log start), and the leader epochs to
//     continue the tier's. Only a row in STARTED can be refused; it then is in DELETE_STARTED, the one state that permits a DELETE.
//     FINISHED segments of a partition never overlap and leave no gap between log start and the tier's end.
//
//   - FINISHED rows with readable offsets go only when the topic's own configs say that it left the tier, from the end on. The tier's end falls
//     with them; the highest there ever was (settled) does not.
//
//   - A row that never was FINISHED stays until its upload deadline is past: it is the tombstone that catches a late PUT.
//
//   - Every FINISHED, REPLACE, log-start move, topic and config change, producer-id block and DELETE_STARTED is queued for the journal
//     in the same batch, until JournalClear. The queue is bounded: see DefaultJournalEntries.
//
//   - A deleted topic is gone at once; its rows follow to DELETE_STARTED in bounded steps, driven by a tombstone that the leader works off.
//
//   - Topics that a restore fills (apply_restore.go) are hidden: their rows stand among the others, their names are taken, and no reader finds
//     them until RestorePublish shows each one whole, held. Aborting drops their rows without announcing a deletion: the objects are the bucket's.
//
//   - Dump emits one consistent state while commands go on; during a restore it emits none.
//
// # Crash cases
//
// A first start that is cut off anywhere is begun again by the next one, also between Raft's term and the entry that names the voters.
//
// Pebble runs without a log of its own. After a crash it holds a prefix of the commands, whole batches with their index, and Raft replays the
// rest. Pebble is flushed and synced before a snapshot is complete, so Raft never cuts entries that Pebble lacks. A snapshot received
// from a leader is written down by Raft before Restore is called; a crash in between would leave a hole, so Open compares the
// newest snapshot's own index with Pebble's and restores first. Restore fills a new folder and switches a pointer file by rename: the
// old or the new state counts, whole, and the other is removed at the next start. A log that has lost its tail ends before the
// state: the leader fills it with entries that change nothing before it gives an index to a command.
//
// # Errors
//
// Refusals are *protocol.Error or protocol.ErrorCode; a folder of another node or cluster is a *ForeignError, a newer one a *NewerError,
// damaged rows a *protocol.CorruptionError. When a batch cannot be written the state machine stops (StateFailed) without moving its index.
//
// # Not here
//
// Deciding what to propose (metastore/controller), forming a cluster over the network, forwarding commands to the leader, writing the journal to
// the bucket (tiering), groups and transactions.
package metastore
