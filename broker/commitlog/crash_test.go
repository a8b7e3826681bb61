package commitlog

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"varve/protocol/event"
	"varve/protocol/record"
)

var crashSeeds = flag.Int("commitlog.crashseeds", 150, "random workloads that are cut off by power")

// expected is what may be found after a power cut.
type expected struct {
	hist               []record.Batch // all that may be there, in order
	durable            int64          // all below must be there
	localMin, localMax int64          // where local segments may begin
	logMin, logMax     int64          // log start
	tier               bool           // a start from the tier was under way: the log may also be empty
	freed              bool           // something was ever taken away at the front
	markerMayBeThere   bool
}

func (x *expected) end() int64 {
	if len(x.hist) == 0 {
		return x.localMin
	}
	return x.hist[len(x.hist)-1].NextOffset()
}

// crashRun is one random workload over several lives of a directory.
type crashRun struct {
	t   *testing.T
	rng *rand.Rand
	e   *env
	p   *power
	l   *Log
	x   expected

	epoch int32
	seqs  map[int64]int32 // next sequence
	open  map[int64]bool  // transactions
	trace []string
}

func (r *crashRun) fail(format string, args ...any) {
	r.t.Helper()
	r.t.Fatalf(format, args...)
}

func TestPowerCut(t *testing.T) {
	for seed := range *crashSeeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { powerCut(t, uint64(seed)) })
	}
}

func powerCut(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	cfg := testConfig()
	cfg.SegmentBytes = 2048
	if rng.IntN(2) == 0 {
		cfg.FlushMessages = 1
	}
	mem := NewMemFS()
	r := &crashRun{t: t, rng: rng, seqs: map[int64]int32{}, open: map[int64]bool{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(strings.Join(r.trace, "\n"))
		}
	})
	for life := range 4 {
		r.p = &power{mem: mem, at: 1 + rng.IntN(250), percent: []int{0, 30, 70, 100}[rng.IntN(4)], rng: rngFor(seed*10 + uint64(life))}
		r.e = &env{t: t, fs: newFaultFS(mem, r.p.hook), clock: newClock(1_700_000_000_000), rec: &event.Recorder{}, cfg: cfg}
		r.trace = append(r.trace, fmt.Sprintf("life %d, cut at %d, %d%%", life, r.p.at, r.p.percent))
		r.live(60)
		mem = r.p.cut()
		if r.e.m != nil {
			r.e.abandon()
		}
	}
	r.p = &power{mem: mem}
	r.e = &env{t: t, fs: newFaultFS(mem, r.p.hook), clock: newClock(1_700_000_000_000), rec: &event.Recorder{}, cfg: cfg}
	if !r.start() {
		r.fail("did not open")
	}
	must(t, r.e.m.Close(t.Context(), 1))
}

// start opens the directory and checks what is there; false if the power went
// off meanwhile.
func (r *crashRun) start() bool {
	m, err := OpenManager(r.e.options())
	if err == nil {
		r.e.m = m
		err = m.LoadAll(context.Background(), r.e.conf)
	}
	if err == nil {
		r.l, err = m.Create("t", testID, 0, r.e.cfg)
	}
	if r.p.off() {
		return false
	}
	if err != nil {
		r.fail("open: %v", err)
	}
	r.verify()
	return !r.p.off()
}

func (r *crashRun) live(ops int) {
	if !r.start() {
		return
	}
	for range ops {
		r.step()
		durable := r.l.DurableEnd()
		if r.p.off() {
			return
		}
		if r.e.cfg.FlushMessages == 1 {
			r.x.durable = max(r.x.durable, durable)
		}
	}
}

func (r *crashRun) verify() {
	r.t.Helper()
	l, x := r.l, &r.x
	checkLog(r.t, l)
	base := l.segments()[0].base
	if _, clean := r.e.m.CleanShutdown(); clean && !x.markerMayBeThere {
		r.fail("the marker says that the shutdown was clean")
	}
	if x.tier && l.End() == base {
		x.hist, x.localMin, x.localMax, x.freed = nil, base, base, true
		x.logMin, x.logMax = 0, base
		x.durable = 0
	}
	if x.tier {
		x.durable, x.logMin, x.logMax = 0, 0, 1<<60
	}
	if l.End() == base && base == l.LogStart() && base > x.localMax && x.durable <= base && base <= x.logMax {
		x.localMax, x.freed = base, true // records below the log start were lost: it begins there
	}
	if base < x.localMin || base > x.localMax {
		r.fail("local start is %d, expected within [%d, %d]", base, x.localMin, x.localMax)
	}
	if l.LogStart() < x.logMin || l.LogStart() > x.logMax {
		r.fail("log start is %d, expected within [%d, %d]", l.LogStart(), x.logMin, x.logMax)
	}
	if l.End() < x.durable || l.End() > max(x.end(), base) {
		r.fail("end is %d, expected within [%d, %d]", l.End(), x.durable, x.end())
	}
	got := r.scanLocal(base)
	for len(x.hist) > 0 && x.hist[0].BaseOffset() < base {
		x.hist, x.freed = x.hist[1:], true
	}
	for i, b := range got {
		if i >= len(x.hist) || !bytes.Equal(b, x.hist[i]) {
			r.fail("%s was never written there", b)
		}
		if l.EpochAt(b.BaseOffset()) != b.LeaderEpoch() && b.BaseOffset() >= l.LogStart() {
			r.fail("%s: epoch cache says %d", b, l.EpochAt(b.BaseOffset()))
		}
	}
	r.checkProducers(got)
	r.adopt(got, base)
}

func (r *crashRun) scanLocal(base int64) []record.Batch {
	var out []record.Batch
	for _, s := range r.l.segments() {
		must(r.t, s.log.acquire())
		buf := make([]byte, s.size())
		_, err := s.log.ReadAt(buf, 0)
		if len(buf) > 0 {
			must(r.t, err)
		}
		s.log.release()
		for len(buf) > 0 {
			b, rest, err := record.Next(buf)
			must(r.t, err)
			out, buf = append(out, b), rest
		}
	}
	return out
}

// adopt makes what was found the new truth.
func (r *crashRun) adopt(got []record.Batch, base int64) {
	r.x = expected{hist: got, localMin: base, localMax: base, logMin: min(r.l.LogStart(), r.x.logMin), logMax: r.l.LogStart(), freed: r.x.freed}
	r.x.durable = r.l.recoveryPoint.Load()
	r.epoch = max(r.epoch, r.l.LatestEpoch(), 0)
	r.seqs, r.open = map[int64]int32{}, map[int64]bool{}
	for _, p := range r.l.Producers() {
		r.seqs[p.ProducerID] = record.AddSequence(max(p.LastSequence, -1)+1, 0)
		r.open[p.ProducerID] = p.TxnStart >= 0
	}
}

// checkProducers replays the log by itself.
func (r *crashRun) checkProducers(got []record.Batch) {
	r.t.Helper()
	ps := newProducers()
	var aborted []AbortedTxn
	for _, b := range got {
		if b.ProducerID() < 0 {
			continue
		}
		marker, err := readMarker(b)
		must(r.t, err)
		if ended, ok := ps.apply(b, marker, 0); ok {
			stable := ps.settle(ended)
			if marker.abort {
				aborted = append(aborted, AbortedTxn{ended.producerID, ended.first, ended.last, stable})
			}
		}
	}
	have := map[int64]ProducerInfo{}
	for _, p := range r.l.Producers() {
		p.LastTimestamp = 0
		have[p.ProducerID] = p
	}
	if !r.x.freed && len(have) != len(ps.byID) {
		r.fail("producers %v, the log has %v", have, ps.infos())
	}
	for _, p := range ps.infos() {
		if !r.x.freed && have[p.ProducerID] != p {
			r.fail("producer %+v, the log says %+v", have[p.ProducerID], p)
		}
		if p.LastSequence >= 0 && have[p.ProducerID].LastSequence != p.LastSequence {
			r.fail("producer %+v, the log says %+v", have[p.ProducerID], p)
		}
	}
	if r.x.freed {
		return
	}
	found, err := r.l.AbortedIn(0, r.l.End())
	if r.p.off() {
		return
	}
	must(r.t, err)
	if fmt.Sprint(found) != fmt.Sprint(aborted) {
		r.fail("aborted transactions %v, the log has %v", found, aborted)
	}
}
