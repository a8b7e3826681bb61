// Package record is Kafka's record batch of magic 2: a zero-copy view, full
// validation, iteration, building and rewriting, the four compression codecs,
// and control records.
//
// # Layout of a batch (big endian, DefaultRecordBatch.java)
//
//	offset size
//	0      8    base offset             outside of the CRC
//	8      4    length of what follows  outside of the CRC
//	12     4    partition leader epoch  outside of the CRC
//	16     1    magic, 2                outside of the CRC
//	17     4    CRC32C of the bytes from 21 on
//	21     2    attributes: bits 0-2 codec, 3 log append time, 4 transactional,
//	            5 control, 6 delete horizon
//	23     4    last offset delta
//	27     8    base timestamp, or the delete horizon, ms
//	35     8    max timestamp, ms
//	43     8    producer id, -1 none
//	51     2    producer epoch
//	53     4    base sequence
//	57     4    record count
//	61     -    records, compressed as one run when the codec says so
//
// A record: varint length, attributes (1 byte), varlong timestamp delta, varint
// offset delta, varint key length (-1 null), key, value likewise, varint header
// count, per header key and value. Varints are zigzag.
//
// # Invariants
//
//   - No input makes anything here panic, and no length that stands in the
//     bytes is believed before the bytes behind it have been seen: memory in use
//     grows with what a decompressor really produced, and decompression ends
//     with an error at [MaxDecompressedBytes] (or a lower bound of the caller).
//   - A [Batch] is exactly one batch: [Next] cut it to its length and checked
//     its magic. Accessors rely on that and on nothing else. Bytes of a Batch are changed
//     only by its Set methods.
//   - [Batch.Validate] of an uncompressed batch does not allocate.
//   - What an iterator hands out is valid until its next step only.
//
// # Crash cases
//
// None: no state, no I/O. A torn write shows as io.ErrUnexpectedEOF from [Next]
// or as a CRC mismatch.
//
// # Non-goals
//
// Magic 0 and 1 (clients have sent 2 since Kafka 0.11), offset assignment policy
// and producer state (broker/commitlog).
//
// Sources: DefaultRecordBatch.java, DefaultRecord.java, LogValidator.java,
// ControlRecordType.java, EndTransactionMarker.java, package common/compress.
package record
