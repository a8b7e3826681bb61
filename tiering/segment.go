package tiering

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"sort"

	"google.golang.org/protobuf/proto"

	"varve/broker/commitlog"
	"varve/protocol"
	"varve/tiering/tierpb"
)

// SegmentIndex is everything of an object but its log bytes, checked.
type SegmentIndex struct {
	Footer           *tierpb.Footer
	Chunks           []Chunk
	OffsetIndex      []byte // Kafka's .index entries; positions are relative to the log
	TimeIndex        []byte // Kafka's .timeindex entries
	TxnIndex         []byte // Kafka's .txnindex entries
	ProducerSnapshot []byte // Kafka's .snapshot file
	Epochs           []commitlog.EpochStart
	bytes            int64 // memory held, for the cache's bound
}

// parseIndex reads an object's tail: all that follows its log bytes. tailOff is
// where the tail starts in the object. Errors: *protocol.CorruptionError,
// *FormatError. The index keeps tail.
func parseIndex(where string, tail []byte, tailOff int64) (*SegmentIndex, error) {
	f, footerOff, err := parseFooter(where, tail)
	if err != nil {
		return nil, err
	}
	x := &SegmentIndex{Footer: f, bytes: int64(len(tail))}
	var epochs, chunks []byte
	into := map[tierpb.SectionKind]*[]byte{
		tierpb.SectionKind_SECTION_OFFSET_INDEX:      &x.OffsetIndex,
		tierpb.SectionKind_SECTION_TIME_INDEX:        &x.TimeIndex,
		tierpb.SectionKind_SECTION_TXN_INDEX:         &x.TxnIndex,
		tierpb.SectionKind_SECTION_PRODUCER_SNAPSHOT: &x.ProducerSnapshot,
		tierpb.SectionKind_SECTION_LEADER_EPOCHS:     &epochs,
		tierpb.SectionKind_SECTION_CHUNK_TABLE:       &chunks,
	}
	var logBytes int64 = -1
	for _, s := range f.Sections {
		if s.Kind == tierpb.SectionKind_SECTION_LOG {
			logBytes = s.Length
			continue
		}
		dst := into[s.Kind]
		if dst == nil {
			continue // added later, and not marked as required
		}
		delete(into, s.Kind)
		lo := s.Offset - tailOff
		if lo < 0 || s.Length < 0 || lo > footerOff || s.Length > footerOff-lo {
			return nil, corrupt(where, "section %v lies outside of the tail", s.Kind)
		}
		*dst = tail[lo : lo+s.Length : lo+s.Length]
		if crc32.Checksum(*dst, castagnoli) != s.Crc32C {
			return nil, corrupt(where, "CRC32C of section %v", s.Kind)
		}
	}
	if len(into) != 0 || logBytes != tailOff || f.LogBytes != tailOff {
		return nil, corrupt(where, "%d sections missing, log of %d bytes, tail at %d", len(into), logBytes, tailOff)
	}
	if x.Epochs, err = parseEpochs(where, epochs); err != nil {
		return nil, err
	}
	x.Chunks, err = parseChunks(where, chunks, tailOff)
	x.bytes += int64(len(x.Chunks)) * chunkEntrySize
	return x, err
}

// parseFooter checks trailer and footer at the end of b and returns where in b
// the footer starts.
func parseFooter(where string, b []byte) (*tierpb.Footer, int64, error) {
	if len(b) < trailerBytes {
		return nil, 0, corrupt(where, "%d bytes are too few for a trailer", len(b))
	}
	t := b[len(b)-trailerBytes:]
	if string(t[12:]) != formatMagic {
		return nil, 0, corrupt(where, "no magic at the end")
	}
	if v := binary.BigEndian.Uint16(t[8:]); v != formatVersion {
		return nil, 0, &FormatError{fmt.Sprintf("version %d in %s", v, where)}
	}
	n := int64(binary.BigEndian.Uint32(t))
	if n > int64(len(b)-trailerBytes) {
		return nil, 0, corrupt(where, "footer of %d bytes in %d", n, len(b))
	}
	off := int64(len(b)-trailerBytes) - n
	footer := b[off : off+n]
	if crc32.Update(crc32.Checksum(footer, castagnoli), castagnoli, t[8:]) != binary.BigEndian.Uint32(t[4:]) {
		return nil, 0, corrupt(where, "CRC32C of the footer")
	}
	f := &tierpb.Footer{}
	if err := proto.Unmarshal(footer, f); err != nil {
		return nil, 0, corrupt(where, "footer: %v", err)
	}
	if bits := f.RequiredFeatures &^ knownFeatures; bits != 0 {
		return nil, 0, &FormatError{fmt.Sprintf("required features %#x in %s", bits, where)}
	}
	if f.Transform != 0 {
		return nil, 0, &FormatError{fmt.Sprintf("transform %d in %s", f.Transform, where)}
	}
	if len(f.TopicId) != 16 || len(f.SegmentId) != 16 || f.Base < 0 || f.Next <= f.Base {
		return nil, 0, corrupt(where, "footer claims offsets [%d, %d)", f.Base, f.Next)
	}
	return f, off, nil
}

func parseEpochs(where string, b []byte) ([]commitlog.EpochStart, error) {
	if len(b)%epochEntrySize != 0 {
		return nil, corrupt(where, "leader epochs of %d bytes", len(b))
	}
	out := make([]commitlog.EpochStart, 0, len(b)/epochEntrySize)
	for ; len(b) > 0; b = b[epochEntrySize:] {
		out = append(out, commitlog.EpochStart{Epoch: int32(binary.BigEndian.Uint32(b)), Start: int64(binary.BigEndian.Uint64(b[4:]))})
	}
	return out, nil
}

// parseChunks checks that the table covers the log without gap, in chunks of the
// one legal size.
func parseChunks(where string, b []byte, logBytes int64) ([]Chunk, error) {
	want := (logBytes + chunkBytes - 1) / chunkBytes
	if int64(len(b)) != want*chunkEntrySize {
		return nil, corrupt(where, "chunk table of %d bytes for a log of %d", len(b), logBytes)
	}
	out := make([]Chunk, 0, want)
	for off := int64(0); len(b) > 0; b, off = b[chunkEntrySize:], off+chunkBytes {
		c := Chunk{
			int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:])),
			binary.BigEndian.Uint32(b[16:]), binary.BigEndian.Uint32(b[20:]),
		}
		if c.Logical != off || c.Stored != off || int64(c.Length) != min(chunkBytes, logBytes-off) {
			return nil, corrupt(where, "chunk %d is %d+%d", len(out), c.Stored, c.Length)
		}
		out = append(out, c)
	}
	return out, nil
}

func corrupt(where, format string, args ...any) error {
	return &protocol.CorruptionError{Where: where, What: fmt.Sprintf(format, args...)}
}

// position returns where in the log to start looking for off: at or before the
// batch that holds it (OffsetIndex.lookup).
func (x *SegmentIndex) position(off int64) int64 {
	return lookup(x.OffsetIndex, 8, x.Footer.LogBytes, func(e []byte) bool {
		return x.Footer.Base+int64(int32(binary.BigEndian.Uint32(e))) <= off
	}, func(e []byte) int64 { return int64(int32(binary.BigEndian.Uint32(e[4:]))) })
}

// batchBefore returns where in the log a batch begins that ends at or before pos, as near to pos as the index knows; 0 when it
// knows of none.
func (x *SegmentIndex) batchBefore(pos int64) int64 {
	position := func(i int) int64 { return int64(int32(binary.BigEndian.Uint32(x.OffsetIndex[i*8+4:]))) }
	n := sort.Search(len(x.OffsetIndex)/8, func(i int) bool { return position(i) > pos })
	if n < 2 {
		return 0
	}
	return position(n - 2)
}

// positionOfTime returns where to start looking for the first record at or after
// ts: no earlier batch has one. An entry says that up to its offset no timestamp
// is above its own (TimeIndex.lookup).
func (x *SegmentIndex) positionOfTime(ts int64) int64 {
	off := lookup(x.TimeIndex, 12, 1<<62, func(e []byte) bool {
		return int64(binary.BigEndian.Uint64(e)) < ts
	}, func(e []byte) int64 { return x.Footer.Base + int64(int32(binary.BigEndian.Uint32(e[8:]))) })
	return x.position(off)
}

// endOfTime returns a position before which a record at or after ts ends, if one is
// there: the first entry whose timestamp is not below ts says up to which offset, the
// offset index where the batch of that offset ends at the latest.
func (x *SegmentIndex) endOfTime(ts int64) int64 {
	n := len(x.TimeIndex) / 12
	i := sort.Search(n, func(i int) bool { return int64(binary.BigEndian.Uint64(x.TimeIndex[i*12:])) >= ts })
	if i == n {
		return max(x.Footer.LogBytes-1, 0)
	}
	off := binary.BigEndian.Uint32(x.TimeIndex[i*12+8:])
	n = len(x.OffsetIndex) / 8
	i = sort.Search(n, func(i int) bool { return binary.BigEndian.Uint32(x.OffsetIndex[i*8:]) > off })
	if i == n {
		return max(x.Footer.LogBytes-1, 0)
	}
	return int64(binary.BigEndian.Uint32(x.OffsetIndex[i*8+4:]))
}

// lookup finds the last entry for which below holds and returns its value, 0
// when there is none or the value is not in [0, limit).
func lookup(index []byte, entry int, limit int64, below func([]byte) bool, value func([]byte) int64) int64 {
	lo, hi := 0, len(index)/entry
	for lo < hi {
		mid := (lo + hi) / 2
		if below(index[mid*entry:]) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return 0
	}
	if v := value(index[(lo-1)*entry:]); v >= 0 && v < limit {
		return v
	}
	return 0
}

// SegmentReader reads one object from a file or a store, for tools and tests. Serving
// reads through the cache instead.
type SegmentReader struct {
	*SegmentIndex
	r io.ReaderAt
}

// OpenSegment reads and checks the tail of the object of size bytes behind r.
// Errors: *protocol.CorruptionError, *FormatError, those of r.
func OpenSegment(r io.ReaderAt, size int64) (*SegmentReader, error) {
	const where = "tier object"
	if size < trailerBytes {
		return nil, corrupt(where, "%d bytes are too few for a trailer", size)
	}
	t, err := readRange(r, where, size-trailerBytes, trailerBytes)
	if err != nil {
		return nil, err
	}
	if string(t[12:]) != formatMagic {
		return nil, corrupt(where, "no magic at the end")
	}
	n := min(int64(binary.BigEndian.Uint32(t)), maxIndexBytes, size-trailerBytes)
	end, err := readRange(r, where, size-trailerBytes-n, n+trailerBytes)
	if err != nil {
		return nil, err
	}
	f, _, err := parseFooter(where, end)
	if err != nil {
		return nil, err
	}
	if f.LogBytes < 0 || f.LogBytes > size-trailerBytes || size-f.LogBytes > maxIndexBytes {
		return nil, corrupt(where, "log of %d bytes in an object of %d", f.LogBytes, size)
	}
	tail, err := readRange(r, where, f.LogBytes, size-f.LogBytes)
	if err != nil {
		return nil, err
	}
	x, err := parseIndex(where, tail, f.LogBytes)
	if err != nil {
		return nil, err
	}
	return &SegmentReader{x, r}, nil
}

// ReadChunk returns the checked bytes of chunk i, at most 128 KiB.
func (s *SegmentReader) ReadChunk(i int) ([]byte, error) {
	c := s.Chunks[i]
	b, err := readRange(s.r, "tier object", c.Stored, int64(c.Length))
	if err != nil {
		return nil, err
	}
	return b, c.check("tier object", b)
}

func (c Chunk) check(where string, b []byte) error {
	if len(b) != int(c.Length) || crc32.Checksum(b, castagnoli) != c.CRC32C {
		return corrupt(where, "CRC32C of the chunk at %d", c.Stored)
	}
	return nil
}

// WriteLog writes the checked log bytes to w, one chunk at a time.
func (s *SegmentReader) WriteLog(w io.Writer) error {
	for i := range s.Chunks {
		b, err := s.ReadChunk(i)
		if err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

func readRange(r io.ReaderAt, where string, off, length int64) ([]byte, error) {
	b := make([]byte, length)
	if n, err := r.ReadAt(b, off); n < len(b) {
		return nil, readError(where, off, n, len(b), err)
	}
	return b, nil
}
