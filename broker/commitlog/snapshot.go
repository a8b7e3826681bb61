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
//
// A producer has an entry for each batch that is remembered of it, oldest first;
// Apache Kafka writes the last one only, and when it reads several, takes the
// last. With one alone, a client whose replies a crash took away, with several
// requests in flight, would be told that its first retry is out of order; it then
// begins a new epoch and writes again what is there already.
const (
	snapshotVersion     = 1
	snapshotHeaderBytes = 10
	snapshotEntryBytes  = 46
	snapshotCRCFrom     = 6

	// maxSnapshotBytes bounds what is read back: a million producers.
	maxSnapshotBytes = 256 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode writes the state as a snapshot, ordered by producer id.
func (ps *producers) encode() []byte {
	ids := make([]int64, 0, len(ps.byID))
	entries := 0
	for id, p := range ps.byID {
		ids = append(ids, id)
		entries += max(p.held, 1)
	}
	slices.Sort(ids)
	out := make([]byte, snapshotHeaderBytes, snapshotHeaderBytes+snapshotEntryBytes*entries)
	binary.BigEndian.PutUint16(out, snapshotVersion)
	binary.BigEndian.PutUint32(out[6:], uint32(entries))
	for _, id := range ids {
		p := ps.byID[id]
		if p.held == 0 {
			out = p.appendEntry(out, batchMeta{lastSeq: record.NoSequence, lastOffset: -1}, p.lastTimestamp)
			continue
		}
		for _, m := range p.batches[:p.held-1] {
			out = p.appendEntry(out, m, m.timestamp)
		}
		out = p.appendEntry(out, p.batches[p.held-1], p.lastTimestamp)
	}
	binary.BigEndian.PutUint32(out[2:], crc32.Checksum(out[snapshotCRCFrom:], castagnoli))
	return out
}

func (p *producer) appendEntry(out []byte, m batchMeta, timestampMs int64) []byte {
	out = binary.BigEndian.AppendUint64(out, uint64(p.id))
	out = binary.BigEndian.AppendUint16(out, uint16(p.epoch))
	out = binary.BigEndian.AppendUint32(out, uint32(m.lastSeq))
	out = binary.BigEndian.AppendUint64(out, uint64(m.lastOffset))
	out = binary.BigEndian.AppendUint32(out, uint32(m.offsetDelta))
	out = binary.BigEndian.AppendUint64(out, uint64(timestampMs))
	out = binary.BigEndian.AppendUint32(out, uint32(p.coordinatorEpoch))
	return binary.BigEndian.AppendUint64(out, uint64(p.txnStart))
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
		if older := ps.byID[p.id]; older != nil && older.epoch == p.epoch {
			newest := p.batches[:p.held]
			for _, m := range newest {
				older.addBatch(m)
			}
			p.batches, p.held = older.batches, older.held
		}
		ps.byID[p.id] = p
	}
	for _, p := range ps.byID {
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
