package commitlog

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"slices"

	"varve/protocol"
	"varve/protocol/record"
)

// A producer snapshot, named after the offset it stands before
// (ProducerStateManager.java, ProducerSnapshot.json version 1, big endian):
//
//	offset size
//	0      2    version, 1
//	2      4    CRC32C of the bytes from 6 on
//	6      4    number of entries
//	10     46   per entry: producer id int64, epoch int16, last sequence int32,
//	            last offset int64, offset delta of the last batch int32,
//	            timestamp int64, coordinator epoch int32, first offset of the
//	            open transaction int64 (-1 none)
const (
	snapshotVersion     = 1
	snapshotHeaderBytes = 10
	snapshotEntryBytes  = 46
	snapshotCRCFrom     = 6

	// maxSnapshotBytes bounds what is read back: 5 million producers.
	maxSnapshotBytes = 256 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode writes the state as a snapshot, ordered by producer id.
func (ps *producers) encode() []byte {
	ids := make([]int64, 0, len(ps.byID))
	for id := range ps.byID {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	out := make([]byte, snapshotHeaderBytes, snapshotHeaderBytes+snapshotEntryBytes*len(ids))
	binary.BigEndian.PutUint16(out, snapshotVersion)
	binary.BigEndian.PutUint32(out[6:], uint32(len(ids)))
	for _, id := range ids {
		p := ps.byID[id]
		last := batchMeta{lastSeq: record.NoSequence, lastOffset: -1}
		if p.held > 0 {
			last = p.batches[p.held-1]
		}
		out = binary.BigEndian.AppendUint64(out, uint64(p.id))
		out = binary.BigEndian.AppendUint16(out, uint16(p.epoch))
		out = binary.BigEndian.AppendUint32(out, uint32(last.lastSeq))
		out = binary.BigEndian.AppendUint64(out, uint64(last.lastOffset))
		out = binary.BigEndian.AppendUint32(out, uint32(last.offsetDelta))
		out = binary.BigEndian.AppendUint64(out, uint64(p.lastTimestamp))
		out = binary.BigEndian.AppendUint32(out, uint32(p.coordinatorEpoch))
		out = binary.BigEndian.AppendUint64(out, uint64(p.txnStart))
	}
	binary.BigEndian.PutUint32(out[2:], crc32.Checksum(out[snapshotCRCFrom:], castagnoli))
	return out
}

// decodeProducers reads a snapshot; where names it in the CorruptionError.
func decodeProducers(data []byte, where string) (*producers, error) {
	corrupt := func(what string) error { return &protocol.CorruptionError{Where: where, What: what} }
	if len(data) < snapshotHeaderBytes {
		return nil, corrupt("producer snapshot is too short")
	}
	if v := binary.BigEndian.Uint16(data); v != snapshotVersion {
		return nil, corrupt("producer snapshot has another version than 1")
	}
	if binary.BigEndian.Uint32(data[2:]) != crc32.Checksum(data[snapshotCRCFrom:], castagnoli) {
		return nil, corrupt("producer snapshot has a wrong CRC")
	}
	n, data := binary.BigEndian.Uint32(data[6:]), data[snapshotHeaderBytes:]
	if uint64(len(data)) != uint64(n)*snapshotEntryBytes {
		return nil, corrupt("producer snapshot's length does not match its count")
	}
	ps := newProducers()
	for ; len(data) > 0; data = data[snapshotEntryBytes:] {
		p := decodeProducer(data)
		ps.byID[p.id] = p
		if p.txnStart != noTxn {
			ps.txns = append(ps.txns, openTxn{producerID: p.id, first: p.txnStart, last: -1})
		}
	}
	slices.SortFunc(ps.txns, func(a, b openTxn) int { return cmp.Compare(a.first, b.first) })
	ps.noteUnstable()
	return ps, nil
}

func decodeProducer(e []byte) *producer {
	p := &producer{
		id:               int64(binary.BigEndian.Uint64(e)),
		epoch:            int16(binary.BigEndian.Uint16(e[8:])),
		lastTimestamp:    int64(binary.BigEndian.Uint64(e[26:])),
		coordinatorEpoch: int32(binary.BigEndian.Uint32(e[34:])),
		txnStart:         int64(binary.BigEndian.Uint64(e[38:])),
	}
	last := batchMeta{
		lastSeq:     int32(binary.BigEndian.Uint32(e[10:])),
		lastOffset:  int64(binary.BigEndian.Uint64(e[14:])),
		offsetDelta: int32(binary.BigEndian.Uint32(e[22:])),
		timestamp:   p.lastTimestamp,
	}
	if last.lastSeq != record.NoSequence && last.lastOffset >= 0 {
		p.addBatch(last)
	}
	return p
}
