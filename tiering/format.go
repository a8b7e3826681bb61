package tiering

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"google.golang.org/protobuf/proto"

	"varve/broker/commitlog"
	"varve/protocol"
	"varve/tiering/tierpb"
)

// Object format, version 1. All integers are big-endian; all checksums CRC32C.
//
//	log bytes           as in the local segment file: record batches, magic 2
//	offset index        Kafka's .index: 8 bytes an entry (offset - base int32, position int32)
//	time index          Kafka's .timeindex: 12 bytes an entry (timestamp int64, offset - base int32)
//	transaction index   Kafka's .txnindex: 34 bytes an entry
//	producer snapshot   Kafka's .snapshot, state at the segment's next base offset
//	leader epochs       12 bytes an entry (epoch int32, start offset int64)
//	chunk table         24 bytes an entry, see below
//	footer              tierpb.Footer; its section table places and checks all of the above
//	trailer             20 bytes, see below
//
// Everything after the log bytes is adjacent and is fetched with one GET; its
// place also stands in the metastore's row.
//
//	chunk table entry                   trailer
//	 0  8  logical offset in the log     0  4  length of the footer
//	 8  8  stored offset in the object   4  4  CRC32C of the footer and of bytes 8..20 of the trailer
//	16  4  stored length                 8  2  format version = 1
//	20  4  CRC32C of the stored bytes   10  2  reserved = 0
//	                                    12  8  magic "VARVESEG"
//
// A chunk is 128 KiB of the log, the last one what remains. Version 1 stores the
// log as it is (transform 0), so logical and stored places are equal.
const (
	formatVersion  = 1
	formatMagic    = "VARVESEG"
	trailerBytes   = 20
	chunkBytes     = 128 << 10
	chunkEntrySize = 24
	epochEntrySize = 12

	// maxIndexBytes bounds what follows the log bytes, and so what a reader allocates.
	maxIndexBytes = 128 << 20
	// knownFeatures are the required-feature bits that this code understands.
	knownFeatures = 0
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// FormatError says that an object is whole but not for this version of varve to
// read: a newer format, an unknown transform or an unknown required feature.
type FormatError struct{ What string }

// Error implements error.
func (e *FormatError) Error() string {
	return "tiering: object format not supported: " + e.What + "; a newer varve wrote it, upgrade this one"
}

// Chunk is one entry of the chunk table: the unit in which log bytes are checked.
type Chunk struct {
	Logical int64  // byte position in the log
	Stored  int64  // byte position in the object
	Length  uint32 // stored bytes
	CRC32C  uint32 // of the stored bytes
}

// SegmentSource is what an object is made of. The identity fields of Footer are
// the caller's; EncodeSegment fills counts and sections in a copy.
type SegmentSource struct {
	Log              io.ReaderAt
	LogBytes         int64
	OffsetIndex      []byte
	TimeIndex        []byte
	TxnIndex         []byte
	ProducerSnapshot []byte
	Epochs           []commitlog.EpochStart
	Footer           *tierpb.Footer
}

// EncodedSegment is an object ready to be stored. It is an io.ReaderAt over the
// log's source and the tail in memory, so a PUT streams it in bounded memory.
type EncodedSegment struct {
	Size     int64
	IndexOff int64  // where the tail starts = length of the log
	CRC32C   uint32 // of all bytes
	Footer   *tierpb.Footer
	log      io.ReaderAt
	tail     []byte
}

// IndexLen returns the bytes from IndexOff to the end.
func (e *EncodedSegment) IndexLen() int64 { return int64(len(e.tail)) }

// ReadAt implements io.ReaderAt.
func (e *EncodedSegment) ReadAt(p []byte, off int64) (int, error) {
	var n int
	for len(p) > 0 {
		if off >= e.Size {
			return n, io.EOF
		}
		var got int
		if off >= e.IndexOff {
			got = copy(p, e.tail[off-e.IndexOff:])
		} else {
			part := p[:min(int64(len(p)), e.IndexOff-off)]
			var err error
			got, err = e.log.ReadAt(part, off)
			if got < len(part) {
				if err == nil || err == io.EOF {
					err = io.ErrUnexpectedEOF
				}
				return n + got, err
			}
		}
		n, off, p = n+got, off+int64(got), p[got:]
	}
	return n, nil
}

// EncodeSegment reads the log once, rechecks each batch's CRC and order on the
// way, and returns the object. A batch that is not what was appended is a
// *protocol.CorruptionError. Memory: the indexes, and one chunk of the log.
func EncodeSegment(src SegmentSource) (*EncodedSegment, error) {
	f := proto.CloneOf(src.Footer)
	scan := newBatchScan(f.Base, f.Next)
	table := make([]byte, 0, (src.LogBytes/chunkBytes+1)*chunkEntrySize)
	buf := make([]byte, min(chunkBytes, src.LogBytes))
	var whole uint32
	for off := int64(0); off < src.LogBytes; off += chunkBytes {
		b := buf[:min(chunkBytes, src.LogBytes-off)]
		if n, err := src.Log.ReadAt(b, off); n < len(b) {
			return nil, readError("local segment", off, n, len(b), err)
		}
		if err := scan.feed(b); err != nil {
			return nil, err
		}
		whole = crc32.Update(whole, castagnoli, b)
		table = appendChunk(table, Chunk{off, off, uint32(len(b)), crc32.Checksum(b, castagnoli)})
	}
	if err := scan.finish(); err != nil {
		return nil, err
	}
	f.RecordCount, f.BatchCount, f.LogBytes = scan.records, scan.batches, src.LogBytes
	f.MaxProducerId = scan.maxProducerID
	e := &EncodedSegment{IndexOff: src.LogBytes, Footer: f, log: src.Log}
	f.Sections = []*tierpb.Section{{Kind: tierpb.SectionKind_SECTION_LOG, Length: src.LogBytes, Crc32C: whole}}
	e.addSection(tierpb.SectionKind_SECTION_OFFSET_INDEX, src.OffsetIndex)
	e.addSection(tierpb.SectionKind_SECTION_TIME_INDEX, src.TimeIndex)
	e.addSection(tierpb.SectionKind_SECTION_TXN_INDEX, src.TxnIndex)
	e.addSection(tierpb.SectionKind_SECTION_PRODUCER_SNAPSHOT, src.ProducerSnapshot)
	e.addSection(tierpb.SectionKind_SECTION_LEADER_EPOCHS, appendEpochs(nil, src.Epochs))
	e.addSection(tierpb.SectionKind_SECTION_CHUNK_TABLE, table)
	return e.seal(whole)
}

func (e *EncodedSegment) addSection(kind tierpb.SectionKind, b []byte) {
	e.Footer.Sections = append(e.Footer.Sections, &tierpb.Section{
		Kind: kind, Offset: e.IndexOff + int64(len(e.tail)), Length: int64(len(b)), Crc32C: crc32.Checksum(b, castagnoli),
	})
	e.tail = append(e.tail, b...)
}

// seal appends footer and trailer.
func (e *EncodedSegment) seal(logCRC uint32) (*EncodedSegment, error) {
	footer, err := proto.MarshalOptions{Deterministic: true}.Marshal(e.Footer)
	if err != nil {
		return nil, fmt.Errorf("tiering: footer: %w", err)
	}
	var t [trailerBytes]byte
	binary.BigEndian.PutUint32(t[0:], uint32(len(footer)))
	binary.BigEndian.PutUint16(t[8:], formatVersion)
	copy(t[12:], formatMagic)
	crc := crc32.Update(crc32.Checksum(footer, castagnoli), castagnoli, t[8:])
	binary.BigEndian.PutUint32(t[4:], crc)
	e.tail = append(append(e.tail, footer...), t[:]...)
	if len(e.tail) > maxIndexBytes {
		return nil, &protocol.InvariantError{What: fmt.Sprintf("indexes of %d bytes in one segment, more than %d", len(e.tail), maxIndexBytes)}
	}
	e.Size = e.IndexOff + int64(len(e.tail))
	e.CRC32C = crc32.Update(logCRC, castagnoli, e.tail)
	return e, nil
}

func appendChunk(dst []byte, c Chunk) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(c.Logical))
	dst = binary.BigEndian.AppendUint64(dst, uint64(c.Stored))
	dst = binary.BigEndian.AppendUint32(dst, c.Length)
	return binary.BigEndian.AppendUint32(dst, c.CRC32C)
}

func appendEpochs(dst []byte, epochs []commitlog.EpochStart) []byte {
	for _, e := range epochs {
		dst = binary.BigEndian.AppendUint32(dst, uint32(e.Epoch))
		dst = binary.BigEndian.AppendUint64(dst, uint64(e.Start))
	}
	return dst
}

func readError(where string, off int64, got, want int, err error) error {
	if err == nil || err == io.EOF || err == io.ErrUnexpectedEOF {
		return &protocol.CorruptionError{Where: where, What: fmt.Sprintf("%d of %d bytes at position %d", got, want, off)}
	}
	return fmt.Errorf("tiering: read %s: %w", where, err)
}
