package tiering

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"path"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"varve/metastore/metapb"
	"varve/protocol"
	"varve/tiering/objstore"
)

// A snapshot is one object, or several when it is large: parts, and at last the
// object that names them. Only with the last one is there a snapshot. Version 1,
// integers big-endian:
//
//	 0  8  magic "VARVESNP"
//	 8  2  format version = 1
//	10  2  0 = the last object, 1 = a part
//	12  4  number of records in this object
//	16  8  raft index of the state; the object's key holds it too
//	24  8  time at which it was taken, ms
//	32  8  required features; a reader that does not know a bit refuses the snapshot
//	40 16  random id, the same in all objects of one snapshot
//	56  4  number of parts before this object
//	60  4  bytes of the payload
//	64  4  CRC32C of the header without this field, of the table and of the payload
//	68     in the last object, for each part: bytes uint32, CRC32C of the whole object uint32
//	       payload: each record as length uint32 and a metapb.SnapshotRecord
//
// Keys: meta/snapshot/<raft index, 20 digits>, and for a part behind that
// "-<id, 22 characters>-<number, 10 digits>".
const (
	snapVersion     = 1
	snapMagic       = "VARVESNP"
	snapHeaderBytes = 68
	// knownSnapFeatures are the required-feature bits that this code understands.
	knownSnapFeatures = 0

	// snapPartBytes is what an object holds before the next one begins; a single record may exceed it.
	snapPartBytes = 8 << 20
	// maxSnapObjectBytes is what a reader accepts.
	maxSnapObjectBytes = 64 << 20
	maxSnapParts       = 1 << 20
)

// SnapshotHead is what the head of a snapshot object says.
type SnapshotHead struct {
	Index    uint64
	TakenMs  int64
	Features uint64
	ID       protocol.UUID
	Part     bool // one of several, not the last
	Number   int  // parts before this object
	Records  int
	table    []byte
	payload  []byte
}

// Parts is the number of objects that belong to the snapshot besides this one.
func (h *SnapshotHead) Parts() int { return len(h.table) / 8 }

func snapPrefix(prefix, cluster string) string {
	return path.Join(prefix, cluster, "meta", "snapshot") + "/"
}

func snapKey(prefix, cluster string, index uint64) string {
	return snapPrefix(prefix, cluster) + fmt.Sprintf("%020d", index)
}

func snapPartKey(prefix, cluster string, index uint64, id protocol.UUID, part int) string {
	return snapKey(prefix, cluster, index) + fmt.Sprintf("-%s-%010d", id, part)
}

// ParseSnapshotKey returns the raft index that the key of a snapshot's object names, and whether it is that of a part.
func ParseSnapshotKey(key string) (index uint64, part bool, err error) {
	const dir, digits = "/meta/snapshot/", 20
	i := strings.LastIndex(key, dir)
	name := key[max(0, i+len(dir)):]
	if i < 0 || len(name) != digits && len(name) != digits+1+uuidTextLen+1+10 {
		return 0, false, fmt.Errorf("tiering: %.200q is not the key of a snapshot", key)
	}
	index, err = strconv.ParseUint(name[:digits], 10, 64)
	return index, len(name) > digits, err
}

// snapWriter cuts records into objects and hands each on as soon as it is full.
type snapWriter struct {
	head            SnapshotHead
	prefix, cluster string
	put             func(key string, last bool, b []byte) error
	buf             []byte
	n               int
	table           []byte
}

func newSnapWriter(prefix, cluster string, takenMs int64) *snapWriter {
	return &snapWriter{head: SnapshotHead{TakenMs: takenMs, ID: protocol.NewUUID()}, prefix: prefix, cluster: cluster}
}

// SnapshotSize says what a snapshot takes in the bucket.
type SnapshotSize struct {
	Index uint64 // raft index of the state
	Parts int    // objects
	Bytes int64
}

// WriteSnapshot cuts the records that fill emits, a SnapshotCluster first, into the objects of one snapshot in a cluster's folder
// and hands each to put as soon as it is full: one of them is in memory at a time. Only with the last one, which is to be put if
// absent, is there a snapshot. Errors are those of fill and put.
func WriteSnapshot(prefix, cluster string, takenMs int64, fill func(add func(*metapb.SnapshotRecord) error) error, put func(key string, last bool, b []byte) error) (size SnapshotSize, err error) {
	w := newSnapWriter(prefix, cluster, takenMs)
	w.put = func(key string, last bool, b []byte) error {
		size.Bytes += int64(len(b))
		return put(key, last, b)
	}
	if err = fill(w.add); err == nil {
		err = w.flush(true)
	}
	size.Index, size.Parts = w.head.Index, len(w.table)/8
	return size, err
}

// add takes a record. The first one is a SnapshotCluster, which has the index.
func (w *snapWriter) add(r *metapb.SnapshotRecord) error {
	if c := r.GetCluster(); c != nil {
		w.head.Index = c.Index
	}
	if len(w.buf) >= snapPartBytes {
		if err := w.flush(false); err != nil {
			return err
		}
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		return fmt.Errorf("tiering: snapshot record: %w", err)
	}
	w.buf = append(binary.BigEndian.AppendUint32(w.buf, uint32(len(raw))), raw...)
	w.n++
	return nil
}

func (w *snapWriter) flush(last bool) error {
	part := len(w.table) / 8
	b := make([]byte, snapHeaderBytes, snapHeaderBytes+len(w.table)+len(w.buf))
	copy(b, snapMagic)
	be := binary.BigEndian
	be.PutUint16(b[8:], snapVersion)
	if !last {
		be.PutUint16(b[10:], 1)
	}
	be.PutUint32(b[12:], uint32(w.n))
	be.PutUint64(b[16:], w.head.Index)
	be.PutUint64(b[24:], uint64(w.head.TakenMs))
	be.PutUint64(b[32:], w.head.Features)
	copy(b[40:], w.head.ID[:])
	be.PutUint32(b[56:], uint32(part))
	be.PutUint32(b[60:], uint32(len(w.buf)))
	if last {
		b = append(b, w.table...)
	}
	b = append(b, w.buf...)
	be.PutUint32(b[64:], snapCRC(b))
	w.table = be.AppendUint32(be.AppendUint32(w.table, uint32(len(b))), crc32.Checksum(b, castagnoli))
	w.buf, w.n = w.buf[:0], 0
	key := snapKey(w.prefix, w.cluster, w.head.Index)
	if !last {
		key = snapPartKey(w.prefix, w.cluster, w.head.Index, w.head.ID, part)
	}
	return w.put(key, last, b)
}

func snapCRC(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:64], castagnoli), castagnoli, b[snapHeaderBytes:])
}

// parseSnapHead reads the fixed part of a head, whose checksum is over the whole object.
func parseSnapHead(b []byte) (h SnapshotHead, err error) {
	const where = "snapshot object"
	be := binary.BigEndian
	if len(b) < snapHeaderBytes || string(b[:8]) != snapMagic {
		return h, corrupt(where, "no header in %d bytes", len(b))
	}
	if v := be.Uint16(b[8:]); v != snapVersion {
		return h, &FormatError{fmt.Sprintf("version %d of a snapshot", v)}
	}
	h = SnapshotHead{
		Part: be.Uint16(b[10:]) != 0, Records: int(be.Uint32(b[12:])), Index: be.Uint64(b[16:]), TakenMs: int64(be.Uint64(b[24:])),
		Features: be.Uint64(b[32:]), ID: protocol.UUID(b[40:56]), Number: int(be.Uint32(b[56:])),
	}
	return h, nil
}

// DecodeSnapshot reads one object of a snapshot and calls fn with its records.
// Errors: *protocol.CorruptionError, *FormatError, fn's.
func DecodeSnapshot(b []byte, fn func(*metapb.SnapshotRecord) error) (SnapshotHead, error) {
	const where = "snapshot object"
	h, err := parseSnapHead(b)
	if err != nil {
		return h, err
	}
	if snapCRC(b) != binary.BigEndian.Uint32(b[64:]) {
		return h, corrupt(where, "CRC32C")
	}
	if bits := h.Features &^ knownSnapFeatures; bits != 0 {
		return h, &FormatError{fmt.Sprintf("required features %#x of a snapshot", bits)}
	}
	table := 0
	if !h.Part {
		table = 8 * h.Number
	}
	n := int64(binary.BigEndian.Uint32(b[60:]))
	if h.Number > maxSnapParts || int64(len(b)) != snapHeaderBytes+int64(table)+n {
		return h, corrupt(where, "%d bytes, header says %d parts and a payload of %d", len(b), h.Number, n)
	}
	h.table, h.payload = b[snapHeaderBytes:snapHeaderBytes+table], b[snapHeaderBytes+table:]
	return h, h.each(fn)
}

func (h *SnapshotHead) each(fn func(*metapb.SnapshotRecord) error) error {
	const where = "snapshot object"
	count := 0
	for p := h.payload; len(p) > 0; count++ {
		if len(p) < 4 || int64(binary.BigEndian.Uint32(p)) > int64(len(p)-4) {
			return corrupt(where, "record %d cut short", count)
		}
		n := binary.BigEndian.Uint32(p)
		r := &metapb.SnapshotRecord{}
		if err := proto.Unmarshal(p[4:4+n], r); err != nil {
			return corrupt(where, "record %d: %v", count, err)
		}
		p = p[4+n:]
		if err := fn(r); err != nil {
			return err
		}
	}
	if count != h.Records {
		return corrupt(where, "%d records, header says %d", count, h.Records)
	}
	return nil
}

// snapReader reads a whole snapshot, one object in memory at a time.
type snapReader struct {
	get             func(ctx context.Context, key string, check func([]byte) error) error
	prefix, cluster string
}

// read calls fn with all records in their order and returns the head of the last object.
// Errors: objstore.ErrNotFound, *protocol.CorruptionError, *FormatError, fn's, those of the store.
func (r *snapReader) read(ctx context.Context, index uint64, fn func(*metapb.SnapshotRecord) error) (SnapshotHead, error) {
	var head SnapshotHead
	key := snapKey(r.prefix, r.cluster, index)
	var tail []*metapb.SnapshotRecord
	err := r.get(ctx, key, func(b []byte) (err error) {
		tail = tail[:0]
		head, err = DecodeSnapshot(b, func(rec *metapb.SnapshotRecord) error { tail = append(tail, rec); return nil })
		if err == nil && (head.Part || head.Index != index) {
			err = corrupt(key, "it is part %d of the snapshot at %d", head.Number, head.Index)
		}
		return err
	})
	if err != nil {
		return head, err
	}
	for part := range head.Parts() {
		if err := r.part(ctx, &head, part, fn); err != nil {
			return head, err
		}
	}
	for _, rec := range tail {
		if err := fn(rec); err != nil {
			return head, err
		}
	}
	return head, nil
}

func (r *snapReader) part(ctx context.Context, head *SnapshotHead, part int, fn func(*metapb.SnapshotRecord) error) error {
	key := snapPartKey(r.prefix, r.cluster, head.Index, head.ID, part)
	entry := head.table[8*part:]
	var records []*metapb.SnapshotRecord
	err := r.get(ctx, key, func(b []byte) error {
		if uint32(len(b)) != binary.BigEndian.Uint32(entry) || crc32.Checksum(b, castagnoli) != binary.BigEndian.Uint32(entry[4:]) {
			return corrupt(key, "not what the snapshot's last object says")
		}
		records = records[:0]
		_, err := DecodeSnapshot(b, func(rec *metapb.SnapshotRecord) error { records = append(records, rec); return nil })
		return err
	})
	if err != nil {
		return err
	}
	for _, rec := range records {
		if err := fn(rec); err != nil {
			return err
		}
	}
	return nil
}

// maxCheckedGets is how often bytes that fail their check are fetched again: a fault of the way passes, one of the bucket
// stays.
const maxCheckedGets = 3

// getChecked reads a whole object and lets check decode it.
func getChecked(ctx context.Context, store objstore.Store, key string, maxBytes int64, cause string, check func([]byte) error) error {
	var err error
	for range maxCheckedGets {
		var b []byte
		if b, err = getWhole(ctx, store, key, maxBytes, cause); err != nil {
			if isCorrupt(err) || objstore.IsRetryable(err) {
				continue
			}
			return err
		}
		if err = check(b); !isCorrupt(err) {
			return err
		}
	}
	return fmt.Errorf("%s: %w", key, err)
}
