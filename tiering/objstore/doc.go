// Package objstore is varve's only way to an object store: one small Store
// contract, drivers that keep it (dir, mem, s3, minio), and wrappers that add
// deadlines, retries, bandwidth bounds, counters and scripted faults.
//
// # Contract
//
// Every driver passes the same test suite (contract_test.go), which is the precise
// wording of this list:
//
//   - Put is atomic: a reader sees the old object, or none, or the whole new one.
//     When Put returned nil the object survives a crash of the machine it is on.
//     After an error the object may be there or not (a lost reply looks like a
//     failure), except after ErrPrecondition, ErrForbidden and ErrBucketMissing,
//     where this call has stored nothing - unless a retry stood in between: a
//     retried conditional Put can meet its own first success and report
//     ErrPrecondition. The caller then reads the object and compares.
//   - Bodies are rewindable (io.ReaderAt) and are streamed: no driver holds more
//     than a copy buffer of a body, whatever its size. A body that ends early or a
//     CRC that disagrees is a *protocol.CorruptionError and stores nothing.
//   - Get returns exactly the bytes asked for, clipped to the object's end; a body
//     that ends early is an error on Read (never a silent io.EOF). A range that
//     starts at or behind the end of the object yields an empty body.
//   - A body whose bytes are a file's on this machine tells which (LocalFileOf), through
//     every wrapper that does not change them.
//   - List is in byte order of the keys and never holds more than one page (one
//     folder for dir) in memory.
//   - Delete of an absent key is success. What could not be deleted is named.
//   - Every call ends soon after its context does. Cancelling the context of a Get
//     ends reads of its body as well.
//   - Keys: ValidateKey. The rule is the strictest of the drivers', so that a tier
//     can be copied between them.
//
// # Errors
//
// ErrNotFound, ErrPrecondition, ErrForbidden and ErrBucketMissing are answers of
// the store. *RetryableError is everything that may pass: throttling, 5xx,
// timeouts, resets, short bodies. *protocol.CorruptionError means stored or sent
// bytes are not what they should be. *URLError is a bad tier URL and names the fix.
// No error text carries credentials. To Head, a missing bucket is a missing object: HTTP
// has no body to tell them apart.
//
// # Crash cases
//
// The dir driver writes a temporary file, syncs it, then links or renames it into
// place and syncs the folders: a crash between any two steps leaves the old state or
// the new one, and leftovers that the first Put of the next process removes. The
// network drivers abort a multipart upload that failed; when the process dies
// first, or the store is gone, the parts stay in the bucket and are billed. List does
// not show them; AbortUploads ends them (on MinIO those of exact keys), and so does the bucket's lifecycle rule
// AbortIncompleteMultipartUpload (one day is enough).
//
// # On the wire
//
// Both SDKs run without their own retries, checksums, part buffers and worker pools. A
// body is sent with UNSIGNED-PAYLOAD, over plain HTTP too, and with its CRC32C in front,
// which is signed with the headers: the server checks what arrives, and what it reports
// is compared. Parts are sections of the source, a few in flight at a time; one that fails
// or does not move is sent again by itself, and when the answer to a completion is lost
// the object tells whether it was made.
//
// # Non-goals
//
// No rename, no append, no object metadata, no listing by delimiter, no
// client-side encryption. Case-insensitive file systems are not supported by dir.
package objstore
