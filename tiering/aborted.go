package tiering

import (
	"encoding/binary"

	"varve/broker/commitlog"
	"varve/metastore"
)

// Transaction index entry (AbortedTxn.java): version int16, producer id, first
// offset, last offset, last stable offset, int64 each.
const txnEntryBytes = 34

// appendAborted adds the entries that touch [from, to). done: no later entry can.
func appendAborted(dst []commitlog.AbortedTxn, index []byte, from, to int64) (out []commitlog.AbortedTxn, done bool) {
	for ; len(index) >= txnEntryBytes; index = index[txnEntryBytes:] {
		i64 := func(at int) int64 { return int64(binary.BigEndian.Uint64(index[at:])) }
		t := commitlog.AbortedTxn{ProducerID: i64(2), FirstOffset: i64(10), LastOffset: i64(18), LastStableOffset: i64(26)}
		if t.LastOffset >= from && t.FirstOffset < to {
			dst = append(dst, t)
		}
		if t.LastStableOffset >= to {
			return dst, true
		}
	}
	return dst, false
}

// abortedLocal adds what the local log of a led partition knows beyond the tier's
// end; the tier's indexes have the rest. OffsetOutOfRange: the local log begins
// above tierEnd by now, so that the tier has to be asked again.
func (m *Manager) abortedLocal(dst []commitlog.AbortedTxn, row metastore.RemoteSegment, tierEnd, to int64) ([]commitlog.AbortedTxn, error) {
	m.mu.Lock()
	pt := m.parts[partKey{row.TopicID, row.Partition}]
	m.mu.Unlock()
	if pt == nil || pt.Log() == nil {
		return dst, nil
	}
	local, err := pt.Log().AbortedIn(tierEnd, to)
	return append(dst, local...), err
}
