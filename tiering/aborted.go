package tiering

import (
	"context"
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

// aborted lists the aborted transactions that touch [from, to): those of this
// segment's transaction index and, as far as needed, of what follows it, since an
// abort stands where its marker is (RemoteLogManager.collectAbortedTransactions).
func (m *Manager) aborted(ctx context.Context, row metastore.RemoteSegment, x *SegmentIndex, from, to int64) ([]commitlog.AbortedTxn, error) {
	out, done := appendAborted(nil, x.TxnIndex, from, to)
	if done {
		return out, nil
	}
	st, err := m.o.Meta.Tier(row.TopicID, row.Partition)
	if err != nil {
		return nil, err
	}
	for next := row.Next; next < st.End; {
		seg, found, err := m.o.Meta.SegmentWithTxns(row.TopicID, row.Partition, next)
		if err != nil {
			return nil, err
		}
		if !found {
			break
		}
		x, err := m.index(ctx, seg)
		if err != nil {
			return nil, err
		}
		if out, done = appendAborted(out, x.TxnIndex, from, to); done {
			return out, nil
		}
		next = seg.Next
	}
	return m.abortedLocal(out, row, st.End, to)
}
