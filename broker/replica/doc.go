// Package replica holds what this broker does for each partition it has a replica of: the partition's role at its
// leader epoch, the high watermark, waiting produce and fetch requests, and the join of the local log with the tier.
// A [Manager] holds all of them and follows the metastore's Image.
//
// # Invariants
//
//   - A partition is served only by the replica that the Image names as leader, at that leader epoch, after its log was
//     compared with the tier (DESIGN invariant 9), and only if the Image names this broker's log folder for it: so that
//     a folder that vanished can always be told from one that never was.
//   - Appends run under the shared half of the partition's role lock and role changes under the exclusive half: no
//     batch is written at an epoch that has ended.
//   - Consumers see offsets below the high watermark; read_committed below the last stable offset. The high watermark is
//     the least durable end of the in-sync replicas, never falls while a leader epoch lasts, and does not rise while the
//     in-sync set is smaller than min.insync.replicas (Partition.scala, KIP-966).
//   - Each append request is answered exactly once: at once where nothing has to be waited for, else by the one who
//     moves the last high watermark it waits for, by its deadline, by the end of leadership, or by Run's end.
//   - A fetch that waits is woken by what it waits for; nothing is scheduled for a partition at which no one waits. An
//     idle partition has no goroutine and no timer; one ticker rolls, and deletes by retention, for all.
//   - Fetches of partitions in the tier never delay those that are answered from the local log by more than a few
//     milliseconds, and a store that does not answer is an empty partition in the response, not an error.
//
// # Crash cases
//
//   - After a restart the high watermark starts at its checkpoint (at most the log's end) and rises with the election; an
//     acknowledged record was below the checkpointed or re-elected high watermark in every in-sync log.
//   - A partition folder that the Image says is here but is not: the controller is told (ReplicaLost) before anything
//     is created; what was lost, up to the high-watermark checkpoint, is an event and stays in the status.
//   - Between the creation of a folder and AssignDirs nothing was served, so an empty folder found then is used.
//   - The election of a partition whose log ends below the tier's end is repeated until the tier answers; nothing local
//     has been dropped before it did.
//
// # Non-goals
//
// Fetching as a follower and changing the in-sync set (the partition's own later issue), transactions' coordination,
// fetch sessions (package api), anything on the wire.
package replica
