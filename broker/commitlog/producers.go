package commitlog

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"

	"varve/protocol"
	"varve/protocol/record"
)

// batchesPerProducer is how many of a producer's last batches are remembered to
// answer duplicates (ProducerStateEntry.NUM_BATCHES_TO_RETAIN).
const batchesPerProducer = 5

// noTxn stands for "no open transaction".
const noTxn = int64(-1)

type batchMeta struct {
	lastSeq     int32
	lastOffset  int64
	offsetDelta int32
	timestamp   int64
}

func (m batchMeta) firstSeq() int32 {
	return int32((int64(m.lastSeq) - int64(m.offsetDelta)) & math.MaxInt32)
}

func (m batchMeta) firstOffset() int64 { return m.lastOffset - int64(m.offsetDelta) }

// producer is the state of one producer id (ProducerStateEntry.java).
type producer struct {
	id               int64
	epoch            int16
	coordinatorEpoch int32
	lastTimestamp    int64 // the broker's clock at its last append, ms
	txnStart         int64
	batches          [batchesPerProducer]batchMeta // the first held are valid, oldest first
	held             int
}

func (p *producer) lastSeq() int32 {
	if p.held == 0 {
		return record.NoSequence
	}
	return p.batches[p.held-1].lastSeq
}

// setEpoch forgets the batches of an older epoch.
func (p *producer) setEpoch(epoch int16) {
	if p.epoch != epoch {
		p.epoch, p.held = epoch, 0
	}
}

func (p *producer) addBatch(m batchMeta) {
	if p.held == batchesPerProducer {
		copy(p.batches[:], p.batches[1:])
		p.held--
	}
	p.batches[p.held] = m
	p.held++
}

// duplicate finds the batch that b repeats.
func (p *producer) duplicate(b record.Batch) (batchMeta, bool) {
	if p.epoch != b.ProducerEpoch() {
		return batchMeta{}, false
	}
	first, last := b.BaseSequence(), b.LastSequence()
	for _, m := range p.batches[:p.held] {
		if m.lastSeq == last && m.firstSeq() == first {
			return m, true
		}
	}
	return batchMeta{}, false
}

// openTxn is a transaction that reading committed has to wait for: open, or
// ended by a marker that is not replicated yet.
type openTxn struct {
	producerID, first, last int64 // last is -1 while open
}

// producers is the state of all producers of a log (ProducerStateManager.java).
// It is guarded by the log's lock but for firstUnstable.
type producers struct {
	byID map[int64]*producer
	txns []openTxn // ordered by first; open and unreplicated ones

	// firstUnstable is the first offset of txns, math.MaxInt64 when there is
	// none: most logs have no transactions and readers need no lock to know.
	firstUnstable atomic.Int64
}

func newProducers() *producers {
	p := &producers{byID: make(map[int64]*producer)}
	p.firstUnstable.Store(math.MaxInt64)
	return p
}

// check holds an append against the rules (ProducerAppendInfo.java). It returns
// the batch that b repeats, or an error: InvalidProducerEpoch,
// OutOfOrderSequenceNumber, InvalidTxnState, TransactionCoordinatorFenced.
// Nothing changes.
func (ps *producers) check(b record.Batch, origin Origin, coordinatorEpoch int32) (batchMeta, bool, error) {
	p := ps.byID[b.ProducerID()]
	if p == nil {
		return batchMeta{}, false, nil // an unknown producer may begin with any sequence
	}
	if origin == OriginClient {
		if m, ok := p.duplicate(b); ok {
			return m, true, nil
		}
	}
	if b.ProducerEpoch() < p.epoch {
		return batchMeta{}, false, protocol.Errorf(protocol.InvalidProducerEpoch,
			"producer %d has epoch %d, the current one is %d", p.id, b.ProducerEpoch(), p.epoch)
	}
	if b.Control() {
		if coordinatorEpoch < p.coordinatorEpoch {
			return batchMeta{}, false, protocol.Errorf(protocol.TransactionCoordinatorFenced,
				"marker of coordinator epoch %d for producer %d, the current one is %d", coordinatorEpoch, p.id, p.coordinatorEpoch)
		}
		return batchMeta{}, false, nil
	}
	if origin == OriginClient {
		if err := p.checkSequence(b); err != nil {
			return batchMeta{}, false, err
		}
	}
	if p.txnStart != noTxn && !b.Transactional() {
		return batchMeta{}, false, protocol.Errorf(protocol.InvalidTxnState,
			"producer %d wrote outside of its open transaction", p.id)
	}
	return batchMeta{}, false, nil
}

func (p *producer) checkSequence(b record.Batch) error {
	first, last := b.BaseSequence(), p.lastSeq()
	switch {
	case b.ProducerEpoch() != p.epoch:
		if first != 0 && p.epoch != record.NoProducerEpoch {
			return protocol.Errorf(protocol.OutOfOrderSequenceNumber,
				"producer %d begins epoch %d with sequence %d instead of 0", p.id, b.ProducerEpoch(), first)
		}
	case int64(first) == int64(last)+1:
	case first == 0 && last == math.MaxInt32:
	default:
		return protocol.Errorf(protocol.OutOfOrderSequenceNumber,
			"producer %d sent sequence %d after %d", p.id, first, last)
	}
	return nil
}

// apply takes an appended batch into the state. When it is a marker that ends a
// transaction with data, the transaction is returned; settle must follow.
func (ps *producers) apply(b record.Batch, marker endMarker, nowMs int64) (ended openTxn, ok bool) {
	p := ps.byID[b.ProducerID()]
	if p == nil {
		p = &producer{id: b.ProducerID(), epoch: record.NoProducerEpoch, coordinatorEpoch: -1, txnStart: noTxn}
		ps.byID[p.id] = p
	}
	p.lastTimestamp = nowMs
	if b.ProducerEpoch() >= p.epoch {
		p.setEpoch(b.ProducerEpoch())
	}
	if b.Control() {
		if !marker.ends {
			return openTxn{}, false
		}
		p.coordinatorEpoch = max(p.coordinatorEpoch, marker.coordinatorEpoch)
		ended = openTxn{producerID: p.id, first: p.txnStart, last: b.LastOffset()}
		p.txnStart = noTxn
		return ended, ended.first != noTxn
	}
	p.addBatch(batchMeta{lastSeq: b.LastSequence(), lastOffset: b.LastOffset(), offsetDelta: b.LastOffsetDelta(), timestamp: nowMs})
	if b.Transactional() && p.txnStart == noTxn {
		p.txnStart = b.BaseOffset()
		ps.txns = append(ps.txns, openTxn{producerID: p.id, first: p.txnStart, last: -1})
		ps.noteUnstable()
	}
	return openTxn{}, false
}

// settle keeps an ended transaction until the high watermark has passed its
// marker, and returns the last stable offset right after it
// (ProducerStateManager.lastStableOffset of a completed transaction).
func (ps *producers) settle(ended openTxn) (lastStable int64) {
	lastStable = ended.last + 1
	for i := range ps.txns {
		t := &ps.txns[i]
		if t.producerID == ended.producerID && t.first == ended.first {
			t.last = ended.last
		} else if t.last == -1 {
			lastStable = min(lastStable, t.first)
		}
	}
	return lastStable
}

// replicated drops ended transactions whose marker lies below the high
// watermark.
func (ps *producers) replicated(hw int64) {
	ps.txns = slices.DeleteFunc(ps.txns, func(t openTxn) bool { return t.last != -1 && t.last < hw })
	ps.noteUnstable()
}

// become takes over another state, for readers of firstUnstable without them
// seeing a new struct.
func (ps *producers) become(other *producers) {
	ps.byID, ps.txns = other.byID, other.txns
	ps.noteUnstable()
}

func (ps *producers) noteUnstable() {
	if len(ps.txns) == 0 {
		ps.firstUnstable.Store(math.MaxInt64)
		return
	}
	ps.firstUnstable.Store(ps.txns[0].first)
}

// expire forgets producers that have not written for expirationMs and have no
// open transaction.
func (ps *producers) expire(nowMs, expirationMs int64) {
	for id, p := range ps.byID {
		if p.txnStart == noTxn && nowMs-p.lastTimestamp >= expirationMs {
			delete(ps.byID, id)
		}
	}
}

func (ps *producers) infos() []ProducerInfo {
	out := make([]ProducerInfo, 0, len(ps.byID))
	for _, p := range ps.byID {
		out = append(out, ProducerInfo{ProducerID: p.id, Epoch: p.epoch, LastSequence: p.lastSeq(),
			LastTimestamp: p.lastTimestamp, CoordinatorEpoch: p.coordinatorEpoch, TxnStart: p.txnStart})
	}
	slices.SortFunc(out, func(a, b ProducerInfo) int { return cmp.Compare(a.ProducerID, b.ProducerID) })
	return out
}

// endMarker is what a control batch says. Other control batches than
// transaction markers leave ends false.
type endMarker struct {
	ends, abort      bool
	coordinatorEpoch int32
}
