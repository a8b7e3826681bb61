// Package commitlog is a partition's log on local disk, in Apache Kafka's own
// format, and the log directory that holds many of them.
//
// # Files
//
//	<dir>/.lock                                held while a process uses the directory
//	<dir>/meta.properties                      cluster, node and directory id
//	<dir>/.kafka_cleanshutdown                 the last stop was clean, at this broker epoch
//	<dir>/recovery-point-offset-checkpoint     below it everything is durable
//	<dir>/log-start-offset-checkpoint          first offset that exists, here or in the tier
//	<dir>/replication-offset-checkpoint        high watermarks
//	<dir>/<topic>-<partition>/
//	    partition.metadata                     topic id
//	    leader-epoch-checkpoint                where each leader epoch began
//	    <base, 20 digits>.log                  record batches, version 2
//	    <base>.index .timeindex .txnindex      sparse indexes: index.go has the entries
//	    <offset>.snapshot                      producer state before that offset: snapshot.go
//	    <base>.ahead                           the log file of the segment after, empty until a roll uses it: ahead.go
//	<dir>/<topic>-<partition>.<uuid>-delete    on its way out, or not yet complete
//
// Blocks behind the end of a log file that grows may be reserved; they never show
// in its size, and go when it is sealed or closed, after a crash when the segment is
// sealed in the next life. Where a segment fills soon the next one's file is made and
// reserved meanwhile, so that no append waits for the file system to find blocks.
//
// Index files are as long as their entries: those of the active segment are in
// memory but for full blocks, and are written out when it is sealed.
//
// # What an append waits for
//
// Under its lock an append asks the file system for nothing but the write of its own
// bytes to a file that is open. All else is done by others who do not hold the lock
// while the disk works: index blocks, blocks reserved ahead, the next file (ahead.go);
// a roll's rename, indexes and producer snapshot (finishRoll); flushes, checkpoints,
// freeing, closing of files. The exceptions:
//
//   - A roll without a file made ahead makes one: the segment was slow, or filled faster
//     than the disk made the file. SegmentRolled says Prepared: false. So does a roll wait
//     when the one before it is not finished yet.
//   - Entries of an index beyond spillMaxBytes, when nobody wrote them for so long.
//   - The log's file is opened again when the bound of descriptors has closed it.
//   - A new leader epoch, a truncation and a failed roll are made durable first.
//   - How much room the disk has is asked once per a fourth of diskGuard's narrowest band
//     of bytes, by statfs, which Linux's file systems answer from memory.
//
// In the kernel the write itself may wait for write-back of the file's last page, and for
// fallocate while blocks are reserved for the file that grows; reserve.go says what is
// done about the lock of the file's blocks.
//
// # Invariants
//
//   - Offsets in a log rise; a segment's base is the end of the one before it,
//     and a hole at or past the recovery point is never kept.
//   - A batch's CRC was checked before its bytes were written; they are written
//     once, in one call, and never change.
//   - Whatever a checkpoint says was true when it was written and still is:
//     recovery points are lowered on disk before a truncation, log starts are
//     written before the files below them go, and what a deleted partition left
//     in a checkpoint is taken out before its name is used again.
//   - After a failed fsync (or any failure other than a full disk) the directory
//     is offline until the process restarts: errors are KAFKA_STORAGE_ERROR and
//     nothing becomes durable any more. A full disk refuses one append or roll.
//   - Before it is full the disk is short, then tight: whoever can is asked to free
//     something, then logs with closed segments that wait for the tier take no
//     appends, and below the reserve none does (diskguard.go).
//   - A slice that was handed out stays readable, with the same bytes, until it
//     is released: removal only unlinks names, and a truncation copies a file
//     that somebody reads instead of cutting it.
//   - What readers remember of a segment (where batches begin, blocks of indexes)
//     is true as long as the segment, or its index since the last truncation, is;
//     a truncation replaces the one and counts up the other.
//   - Of a log one roll at most is not finished. Till then its old segment counts as the
//     active one for flushes: the recovery point reaches its end and not beyond, and it
//     cannot be freed; its indexes are in memory.
//   - Readers take no lock of the writer's. End, LogStart and the like are atomic;
//     the segment list is replaced, not changed; where a segment ends, in bytes
//     and offsets, is one word; a truncation makes readers look again.
//   - An idle log has no goroutine and no timer, and holds one descriptor at
//     most: the active segment's, while it has unsynced bytes. A bounded cache
//     holds the rest. Descriptors are closed under no lock.
//
// # Crash cases
//
// After a stop without the clean-shutdown marker every segment that reaches the
// recovery point is walked: headers below it, whole batches with their CRC from
// it on. The log is cut at the first batch that is torn, broken or out of order;
// segments behind a cut or a hole go. Indexes are rebuilt on the way; not even
// those of a segment that ends right at the recovery point are trusted, because it may
// have been flushed before it was sealed. Producer state is the newest snapshot
// whose CRC is right plus the batches since. Leader epochs beyond the end are
// dropped, and an epoch that the checkpoint missed is taken from the batches.
//
// Removals of several files are made durable one after the other: from the end
// for truncations, from the front for retention, so that what a crash leaves is
// one range. A partition is created under a name that the next start removes, and
// renamed when complete. If records below the log start are lost, the log begins
// empty at the log start, as in Kafka.
//
// When a roll was not finished the new segment's file may have its old name: it gets the
// right one from its first batch, or goes if that is not there. The old segment ends at
// the recovery point at most, so that its indexes are not trusted.
//
// The tests cut the power between any two changes of the disk, and fail each
// operation once.
//
// # Non-goals
//
// Deciding what to keep (retention), compaction, the high watermark (it is only
// stored here), replication, verification of transactions, message formats
// older than 2, several directories in one Manager, downgrade conversion.
//
// Sources: UnifiedLog.java, LocalLog.java, LogSegment.java, LogLoader.java,
// LogValidator.java, ProducerStateManager.java, ProducerAppendInfo.java,
// LeaderEpochFileCache.java, OffsetIndex.java, TimeIndex.java,
// TransactionIndex.java, CheckpointFile.java, LogManager.scala; KIP-98, KIP-101,
// KIP-858, KIP-966.
package commitlog
