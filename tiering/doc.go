// Package tiering settles the sealed segments of led partitions in an object
// store and reads old offsets from there.
//
// A replica leader hands a [Partition] to [Manager.Lead]; from then on its sealed,
// committed segments are uploaded oldest first, its local log is freed once the
// metastore says that the tier has the range, and total retention moves its log
// start. [Manager.Read] and its neighbours answer for offsets that are no longer
// local. On the controller the same Manager deletes objects and writes the journal.
//
// # Invariants
//
// Numbers are those of DESIGN section 3.
//
//   - 6: one immutable, self-describing object per segment; format.go has the bytes.
//   - 7: an upload begins at the tier's end, has an id of its own, and is STARTED
//     before its PUT. What becomes of it is the metastore's decision only; an attempt
//     that failed, or whose outcome is unknown, goes to DELETE_STARTED and never
//     straight to a DELETE. A row that was never FINISHED stays as a tombstone for
//     twice the upload deadline, the PUT itself is cancelled after one.
//   - 8: nothing at or above the last stable offset is uploaded; each batch's CRC is
//     rechecked while the object's checksums are made, and the store checks the same
//     CRC32C over what arrives.
//   - 10: log start moves in the metastore, at the replica, rows go to DELETE_STARTED,
//     the entry that says so is in the journal, the delay passes, objects go, rows go.
//     Every step may be the last before a crash; the next one finds the rest in the
//     metastore alone.
//   - 11: no byte from the store or the cache reaches a reader unchecked. What is sent out of an object's own file is checked
//     before, and once more when the page cache has dropped it since; who writes to such a file in between is found out by the
//     client's own check of each batch.
//   - 12: nothing here is on the path of produce or hot reads. Uploads have their own
//     workers; retention, deletes, journal and reads do not wait for them. A short disk
//     frees early what is in the tier; the log is told up to where that is.
//   - 13: deleting by age, and any deleting of objects, stops while the wall clock
//     disagrees with CLOCK_BOOTTIME, with the controller's clock, or with what was
//     believed before the last start (clock.go). Limits of size go on.
//   - 17: deletes re-read the owner object before each batch.
//
// # Order of uploads
//
// queue.go: partitions queue by when they came, less what their backlog buys, so that the
// largest and oldest goes first and none waits for ever. Where nobody waits, several
// segments of one partition are on their way at once; FINISHED comes in order. gate.go:
// a store that takes nothing is tried by one task at a time, so that an outage leaves few
// rows behind. A task that does not return is named and freed (dispatch.go). Merges come
// last, one at a time (merge.go, mergeplan.go).
//
// # Snapshots and restores
//
//   - 17: a restore (restore.go) claims the old owner object, waits for its delete deadline, reads, and
//     nothing is deleted before a snapshot of this cluster's own holds what it took in. Restored topics are
//     held, and their old folder is left alone, until they are released.
//   - A snapshot (bucketsnap.go) never drops group offsets because a coordinator is absent; no journal
//     object goes that a kept snapshot needs.
//
// # Crash cases
//
// failpoint.go lists every step; a test crashes before each and then compares the
// bucket with the metastore object by object. Between STARTED and FINISHED: the next
// leadership moves the row to DELETE_STARTED, the controller deletes the object if it
// is there. After FINISHED: the local part is freed by a later round. Between the two
// moves of log start: the next round tells the replica again. Between DELETE and the
// end of the row: deleting what is absent succeeds. Between a journal object and the
// clearing of the outbox: the next controller meets 412, compares and clears. A merge
// that ends before REPLACE leaves what an upload would; its file on local disk has no
// name. Uploads in parts that a process left open are ended by the controller (sweep.go).
//
// # Bounds
//
// An upload holds the segment's indexes and one chunk, never a part of the log; a merge
// also a file of its result's size on local disk. At most four segments of a partition
// are on their way, one merge on a broker. A partition has at most 16 failed attempts that
// still have to be deleted. An idle partition costs an entry in a map, which one ticker
// walks. Reads hold what the next section says.
//
// # Reads
//
// memory.go holds chunks, counted by who holds them, within Options.ReadMemoryBytes for
// all readers and what is being sent to them; beside it one batch at a time that is larger
// than 8 MiB, which is copied, and 64 MiB of parsed indexes. It is not on the heap, and
// neighbouring chunks lie side by side where that can be (arena.go): up to 1 MiB is read from
// the store at once, and sent at once. fill.go brings runs of chunks
// by one GET each and hands every chunk out as it arrives; a GET that breaks off is
// continued by another. There is one fill per chunk, 64 at most, and none belongs to a
// reader. Under a bound on bandwidth, fills that somebody waits for go first, and readers get
// equal shares whatever number of GETs each has; for places among the 64 those that are
// waited for need none of the 48 for read-ahead. ahead.go knows readers that go on in order by the offset where they come back;
// the window ahead of one doubles from 512 KiB to 64 MiB while it has to wait, and is
// halved when memory is short, or when what was fetched is pushed out before it comes. It
// reaches into the next segment, whose index is asked for first. Three quarters of the
// memory are for read-ahead, in equal shares; the last quarter is for whom a client waits,
// who may also push out what is fetched ahead: so each reader gets on, whatever the others
// want, and with no cache on disk at all. A client that holds its answers unread holds
// memory until the connection's stall timeout; others then get less, or wait.
//
// objectfile.go: the objects of a `dir` store are files of this machine. Their chunks are read through the store as others are, with
// its deadlines, bounds and counters, into a buffer that stays in the processor's cache, and checked; what is sent then are
// ranges of the file, by sendfile. They count within ReadMemoryBytes, since they have to be in the page cache, but take no memory.
// At most 256 such files are open, each until the last chunk and the last answer in it are let go; beyond that, and where a file
// system has no descriptors, chunks are read into memory.
//
// A read looks at few batch headers: where batches begin is in the offset index.
//
// cache.go keeps chunks on disk that were fetched twice, or out of order, or left memory
// unread: one pass over months of history does not go through the disk that producers
// write to. What a `dir` store keeps on this machine is not kept once more. Its writes are queued, and dropped when the disk is slow.
//
// A time, or a transaction, is found in the metastore without walking rows
// (metastore/groups.go), and in a segment by its index and one range: two GETs.
//
// # Non-goals
//
// Compaction of segments (a later issue); replication and leadership (broker/replica); anything about how bytes reach a bucket
// (tiering/objstore).
package tiering
