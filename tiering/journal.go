package tiering

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"varve/metastore/metapb"
)

// Journal object, version 2. Integers are big-endian.
//
//	 0  8  magic "VARVEJNL"
//	 8  2  format version = 2
//	10  2  reserved = 0
//	12  4  number of entries, at least 1
//	16  8  raft index of the first entry; the object's key holds it too
//	24  8  raft index of the last entry
//	32  4  bytes of the payload
//	36  4  CRC32C of the header without this field, and of the payload
//	40  8  raft index through which earlier objects go, 0 when there are none
//	48     payload: each entry as length uint32 and a metapb.JournalEntry
//
// Version 1 lacks the field at 40: its payload begins there. Indexes rise strictly
// inside an object. Two objects may overlap when a controller died between storing
// one and clearing the outbox and a log-start move was coalesced meanwhile: an entry
// with an index already seen says the same again and is skipped. An object that says
// it follows a higher index than the one before it ends with tells of one that is
// missing between them.
const (
	journalVersion     = 2
	journalMagic       = "VARVEJNL"
	journalHeaderBytes = 48
	journalHeaderV1    = 40

	// maxJournalEntries and maxJournalBytes bound one object; one entry may exceed the latter.
	maxJournalEntries = 10_000
	maxJournalBytes   = 4 << 20
	// maxJournalObjectBytes is what a reader accepts.
	maxJournalObjectBytes = 64 << 20
)

// EncodeJournal returns the journal object for entries, which are not empty and
// in order of their indexes. prev is the last index of the objects before it.
func EncodeJournal(prev uint64, entries []*metapb.JournalEntry) ([]byte, error) {
	if len(entries) == 0 {
		return nil, fmt.Errorf("tiering: a journal object needs an entry")
	}
	b := make([]byte, journalHeaderBytes, 4<<10)
	for _, e := range entries {
		raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(e)
		if err != nil {
			return nil, fmt.Errorf("tiering: journal entry %d: %w", e.Index, err)
		}
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(raw))), raw...)
	}
	copy(b, journalMagic)
	binary.BigEndian.PutUint16(b[8:], journalVersion)
	binary.BigEndian.PutUint32(b[12:], uint32(len(entries)))
	binary.BigEndian.PutUint64(b[16:], entries[0].Index)
	binary.BigEndian.PutUint64(b[24:], entries[len(entries)-1].Index)
	binary.BigEndian.PutUint32(b[32:], uint32(len(b)-journalHeaderBytes))
	binary.BigEndian.PutUint64(b[40:], prev)
	binary.BigEndian.PutUint32(b[36:], journalCRC(b))
	return b, nil
}

func journalCRC(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:36], castagnoli), castagnoli, b[40:])
}

// JournalObject is a journal object that was read and checked.
type JournalObject struct {
	Entries []*metapb.JournalEntry
	Prev    uint64 // through which earlier objects go
	Chained bool   // Prev is known: version 2
}

// DecodeJournal reads a journal object. Errors: *protocol.CorruptionError,
// *FormatError.
func DecodeJournal(b []byte) (o JournalObject, err error) {
	const where = "journal object"
	if len(b) < journalHeaderV1 || string(b[:8]) != journalMagic {
		return o, corrupt(where, "no header in %d bytes", len(b))
	}
	head := journalHeaderBytes
	switch v := binary.BigEndian.Uint16(b[8:]); {
	case v == 1:
		head = journalHeaderV1
	case v != journalVersion:
		return o, &FormatError{fmt.Sprintf("version %d of a journal object", v)}
	case len(b) < head:
		return o, corrupt(where, "no header in %d bytes", len(b))
	default:
		o.Prev, o.Chained = binary.BigEndian.Uint64(b[40:]), true
	}
	if n := binary.BigEndian.Uint32(b[32:]); int64(n) != int64(len(b)-head) {
		return o, corrupt(where, "payload of %d bytes, header says %d", len(b)-head, n)
	}
	if journalCRC(b) != binary.BigEndian.Uint32(b[36:]) {
		return o, corrupt(where, "CRC32C")
	}
	o.Entries, err = decodeEntries(where, b, b[head:])
	return o, err
}

// decodeEntries reads the payload p of the object b.
func decodeEntries(where string, b, p []byte) ([]*metapb.JournalEntry, error) {
	var entries []*metapb.JournalEntry
	for len(p) > 0 {
		if len(p) < 4 || int64(binary.BigEndian.Uint32(p)) > int64(len(p)-4) {
			return nil, corrupt(where, "entry %d cut short", len(entries))
		}
		n := binary.BigEndian.Uint32(p)
		e := &metapb.JournalEntry{}
		if err := proto.Unmarshal(p[4:4+n], e); err != nil {
			return nil, corrupt(where, "entry %d: %v", len(entries), err)
		}
		if len(entries) > 0 && e.Index <= entries[len(entries)-1].Index {
			return nil, corrupt(where, "index %d after %d", e.Index, entries[len(entries)-1].Index)
		}
		entries, p = append(entries, e), p[4+n:]
	}
	first, last := binary.BigEndian.Uint64(b[16:]), binary.BigEndian.Uint64(b[24:])
	if n := len(entries); n == 0 || uint32(n) != binary.BigEndian.Uint32(b[12:]) || entries[0].Index != first || entries[n-1].Index != last {
		return nil, corrupt(where, "%d entries do not match the header", n)
	}
	return entries, nil
}

// ParseJournalKey returns the first raft index that a journal object's key names.
func ParseJournalKey(key string) (uint64, error) {
	i := strings.LastIndex(key, "/meta/journal/")
	if i < 0 || len(key)-i != len("/meta/journal/")+20 {
		return 0, fmt.Errorf("tiering: %.200q is not the key of a journal object", key)
	}
	return strconv.ParseUint(key[len(key)-20:], 10, 64)
}
