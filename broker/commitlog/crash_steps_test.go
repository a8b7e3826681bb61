package commitlog

import (
	"context"
	"fmt"
	"slices"

	"varve/protocol"
	"varve/protocol/record"
)

func (e *env) conf(string, protocol.UUID, int32) Config { return e.cfg }

// step does one random thing. When the power goes off in the middle, what was
// being done may or may not have happened.
func (r *crashRun) step() {
	r.t.Helper()
	switch n := r.rng.IntN(100); {
	case n < 55:
		r.stepAppend()
	case n < 61:
		r.stepFollow()
	case n < 62:
		r.l.makeSpare(8192)
		r.done("spare", nil)
	case n < 68:
		if r.rng.IntN(2) == 0 {
			r.l.makeSpare(8192)
		}
		r.done("roll", r.l.Roll())
	case n < 74:
		end := r.l.End()
		if r.done("flush", r.l.Flush()) {
			r.x.durable = max(r.x.durable, end)
		}
	case n < 81:
		r.stepTruncate()
	case n < 88:
		r.stepFree()
	case n < 93:
		r.l.SetHighWatermark(r.l.End())
		if r.done("checkpoint", r.e.m.Checkpoint()) {
			r.x.logMin = r.l.LogStart()
		}
	case n < 97:
		r.stepRestart()
	default:
		r.stepTier()
	}
}

// done notes a step; false when the power went off.
func (r *crashRun) done(what string, err error) bool {
	r.t.Helper()
	if r.p.off() {
		r.trace = append(r.trace, what+": power off")
		return false
	}
	r.trace = append(r.trace, fmt.Sprintf("%s: end %d, durable %d, error %v", what, r.l.End(), r.x.durable, err))
	if err != nil {
		r.fail("%s: %v", what, err)
	}
	return true
}

func (r *crashRun) randomBatch() (record.Batch, Origin) {
	if r.rng.IntN(10) == 0 {
		r.epoch++
	}
	opts := record.Options{}
	n := 1 + r.rng.IntN(8)
	id := int64(r.rng.IntN(4)) - 1
	if id >= 0 {
		if r.open[id] && r.rng.IntN(3) == 0 {
			r.open[id] = false
			return record.EndTxnMarker{ProducerID: id, TimestampMs: 1_700_000_000_000, Commit: r.rng.IntN(2) == 0}.Batch(), OriginCoordinator
		}
		opts.Producer = &record.Producer{ID: id, BaseSequence: r.seqs[id]}
		opts.Transactional = r.open[id] || r.rng.IntN(2) == 0
		r.open[id] = opts.Transactional
		r.seqs[id] = record.AddSequence(r.seqs[id], int32(n))
	}
	return batch(r.t, n, opts, 1_700_000_000_000+r.rng.Int64N(1000)), OriginClient
}

func (r *crashRun) stepAppend() {
	b, origin := r.randomBatch()
	end := r.l.End()
	info, err := r.l.AppendAsLeader(b, r.epoch, origin)
	if r.done(fmt.Sprintf("append %s", b), err) && info.FirstOffset != end {
		r.fail("appended at %d, the end was %d", info.FirstOffset, end)
	}
	if b.BaseOffset() == end && b.LeaderEpoch() == r.epoch {
		r.x.hist = append(r.x.hist, slices.Clone(b))
	}
}

func (r *crashRun) stepFollow() {
	var run []byte
	end := r.l.End()
	for range 1 + r.rng.IntN(6) {
		b, _ := r.randomBatch()
		b.SetBaseOffset(end)
		b.SetLeaderEpoch(r.epoch)
		end = b.NextOffset()
		run = append(run, b...)
		r.x.hist = append(r.x.hist, slices.Clone(b))
	}
	_, err := r.l.AppendAsFollower(run)
	r.done("follow", err)
}

func (r *crashRun) stepTruncate() {
	base := r.l.LocalStart()
	off := base + r.rng.Int64N(r.l.End()-base+1)
	if off < r.l.LogStart() {
		return
	}
	r.x.durable = min(r.x.durable, r.batchStart(off))
	r.x.logMin = min(r.x.logMin, r.batchStart(off))
	if !r.done(fmt.Sprintf("truncate to %d", off), r.l.TruncateTo(off)) {
		return
	}
	if r.l.End() > off {
		r.fail("end is %d after truncation to %d", r.l.End(), off)
	}
	r.x.hist = slices.DeleteFunc(r.x.hist, func(b record.Batch) bool { return b.LastOffset() >= off })
	if got := r.scanLocal(0); len(got) != len(r.x.hist) {
		r.fail("%d batches after truncation to %d, expected %d", len(got), off, len(r.x.hist))
	}
	r.seqs, r.open = map[int64]int32{}, map[int64]bool{}
	for _, p := range r.l.Producers() {
		r.seqs[p.ProducerID] = p.LastSequence + 1
		r.open[p.ProducerID] = p.TxnStart >= 0
	}
}

// batchStart is where a batch begins that off falls into, else off.
func (r *crashRun) batchStart(off int64) int64 {
	for _, b := range r.x.hist {
		if b.BaseOffset() < off && off <= b.LastOffset() {
			return b.BaseOffset()
		}
	}
	return off
}

func (r *crashRun) stepFree() {
	base := r.l.segments()[0].base
	off := base + r.rng.Int64N(r.l.End()-base+1)
	if r.rng.IntN(2) == 0 && off >= r.l.LogStart() {
		r.x.logMax = max(r.x.logMax, off)
		if !r.done(fmt.Sprintf("log start to %d", off), r.l.SetLogStart(off)) {
			return
		}
	}
	for _, s := range r.l.Segments() {
		if s.Sealed && s.Next <= off {
			r.x.localMax = s.Next
		}
	}
	r.x.freed = r.x.freed || r.x.localMax > base
	if !r.done(fmt.Sprintf("free below %d", off), freeErr(r.l.FreeBelow(off))) {
		return
	}
	r.x.localMin = r.l.segments()[0].base
	if r.x.localMin != r.x.localMax {
		r.fail("local start is %d, expected %d", r.x.localMin, r.x.localMax)
	}
	r.x.hist = slices.DeleteFunc(r.x.hist, func(b record.Batch) bool { return b.BaseOffset() < r.x.localMin })
	if r.x.localMin > base {
		r.x.logMin = r.l.LogStart()
	}
}

func freeErr(_ int64, err error) error { return err }

func (r *crashRun) stepRestart() {
	end := r.l.End()
	r.x.markerMayBeThere = true
	if !r.done("close", r.e.m.Close(context.Background(), 3)) {
		return
	}
	r.x.durable, r.x.logMin = end, r.l.LogStart()
	r.trace = append(r.trace, "restart")
	if !r.start() {
		return
	}
	if _, clean := r.e.m.CleanShutdown(); !clean {
		r.fail("the restart was not clean")
	}
}

func (r *crashRun) stepTier() {
	next := r.l.LogStart() + r.rng.Int64N(r.l.End()+10-r.l.LogStart())
	r.x.tier = true
	r.x.localMin = min(r.x.localMin, 0)
	r.x.localMax = max(r.x.localMax, next)
	epochs := []EpochStart{{Epoch: r.epoch, Start: 0}}
	if next == 0 {
		epochs = nil
	}
	ps := newProducers()
	if !r.done(fmt.Sprintf("start from the tier at %d", next), r.l.StartFromTier(next, r.l.LogStart(), epochs, ps.encode())) {
		return
	}
	r.x = expected{localMin: next, localMax: next, logMin: r.l.LogStart(), logMax: r.l.LogStart(), durable: next, freed: true}
	r.seqs, r.open = map[int64]int32{}, map[int64]bool{}
}
