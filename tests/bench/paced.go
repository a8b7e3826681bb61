package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const (
	// leadInShare of a run, at most leadInMax, is left out of what is reported: the first requests open files and fill pools.
	leadInShare, leadInMax = 10, 10 * time.Second
	// drainWait bounds how long the last replies of a paced round may take.
	drainWait = time.Minute
)

// pace is a load at a fixed rate, whatever the replies do: a request is due at its time, and its latency counts from then,
// so that a stall costs every request that it held up.
type pace struct {
	load
	perSecond float64
	lasting   time.Duration
	consume   bool // one more connection reads what is produced
}

// rated says at which rate a paced row runs; the same on all sides.
type rated func(ctx context.Context, b *bench, l load) (perSecond float64, err error)

func fixed(perSecond float64) rated {
	return func(context.Context, *bench, load) (float64, error) { return perSecond, nil }
}

// halfOfMax is half of what Apache Kafka reaches, measured in this run with the consumer at work too; of varve's when the peer
// takes no part.
func halfOfMax(ctx context.Context, b *bench, l load) (float64, error) {
	key := fmt.Sprint(l)
	if r := b.rates[key]; r > 0 {
		return r, nil
	}
	side := varve
	if b.peer {
		side = kafkaSide
	}
	s, err := b.broker(ctx, side)
	if err != nil {
		return 0, err
	}
	round, err := b.produceTo(s, l)
	if err != nil {
		return 0, err
	}
	var alone, both []float64 // requests a second
	for range 3 {
		out, err := round(ctx)
		if err != nil {
			return 0, err
		}
		alone = append(alone, out["requests/s"])
	}
	for range 3 {
		// More than it can take: the time until the consumer had all of it counts.
		out, err := b.pacedRound(ctx, s, pace{load: l, perSecond: median(alone), lasting: b.paced / 2, consume: true})
		if err != nil {
			return 0, err
		}
		both = append(both, out["requests/s"])
	}
	b.rates[key] = median(both) / 2
	return b.rates[key], nil
}

// pacedRound is a run on a topic of its own, on a quiet disk.
func (b *bench) pacedRound(ctx context.Context, s *server, p pace) (sample, error) {
	topic, err := b.newTopic(ctx, s, p.partitions, nil)
	if err != nil {
		return nil, err
	}
	if err := settleDisk(b.data); err != nil {
		return nil, err
	}
	out, err := runPaced(s, topic, p)
	return out, errors.Join(err, dropTopic(ctx, s, topic))
}

func pacedRow(name, what string, l load, rate rated) row {
	title := fmt.Sprintf("produce, %v, partitions %d, connections %d, at %s; one consumer", l.shape, l.partitions, l.producers, what)
	return row{name: name, title: title, bound: boundPaced, sides: []string{varve, kafkaSide},
		figures: []string{"requests/s", "produce p50 ms", "produce p99 ms", "produce p99.9 ms", "produce max ms",
			"end-to-end p50 ms", "end-to-end p99 ms", "end-to-end p99.9 ms", cpuPerGB, peakRSS},
		start: func(ctx context.Context, b *bench, side string) (*lane, error) {
			perSecond, err := rate(ctx, b, l)
			if err != nil {
				return nil, err
			}
			s, err := b.broker(ctx, side)
			if err != nil {
				return nil, err
			}
			return &lane{round: func(ctx context.Context) (sample, error) {
				return b.pacedRound(ctx, s, pace{load: l, perSecond: perSecond, lasting: b.paced, consume: true})
			}}, nil
		}}
}

// stallRow watches for the longest time that appends stand still, while the disk is written to as fast as they come and
// old segments go.
func stallRow() row {
	l := load{shape: shape1K, partitions: 16, producers: 4, acks: -1}
	return row{name: "stall", title: fmt.Sprintf("produce at -stall-mbps for -stall, %v, partitions 16, connections 4, old segments deleted", l.shape),
		bound: "The file system: an append waits for whoever holds the lock of its file's blocks or its last page, which is write-back behind a disk that is busy.",
		sides: []string{varve, kafkaSide}, alone: true, rounds: 1,
		figures: []string{"MB/s", "longest gap ms", "gaps over 50 ms", "gaps over 20 ms", "longest gap less waits for CPU ms", "longest append in the kernel ms",
			"longest wait for CPU ms", "longest hiccup of the machine ms", "longest small write ms", "produce p99 ms", "produce p99.9 ms", "produce max ms",
			cpuPerGB, peakRSS},
		start: func(ctx context.Context, b *bench, side string) (*lane, error) {
			batch, err := newBatch(l.shape)
			if err != nil {
				return nil, err
			}
			s, drop, err := b.fresh(ctx, side, "stall", "log.retention.check.interval.ms=5000")
			if err != nil {
				return nil, err
			}
			segment, keep := "134217728", "268435456"
			topic, err := b.newTopic(ctx, s, l.partitions, map[string]*string{"segment.bytes": &segment, "retention.bytes": &keep})
			if err != nil {
				drop()
				return nil, err
			}
			return &lane{cold: true, close: drop,
				round: func(ctx context.Context) (sample, error) {
					if err := settleDisk(b.data); err != nil {
						return nil, err
					}
					out, notes, err := runMetered(ctx, b.data, s, topic,
						pace{load: l, perSecond: float64(b.stallMBps) * 1e6 / float64(len(batch)), lasting: b.stall})
					b.notes[side] = append(b.notes[side], notes...)
					return out, err
				}}, nil
		}}
}

// pacedRun is the state of one run.
type pacedRun struct {
	pace
	batchBytes int
	total      int // requests
	began      time.Time
	beganNs    int64 // the same, by the monotonic clock
	conns      []*conn
	frames     [][]byte
	check      func([]byte) error
	sent       []time.Duration   // by request: since began, when it had been written
	spells     []spell           // what the meter saw, if there was one
	acked      [][]time.Duration // by connection and request: since began
	seen       []time.Duration   // by request: since began, when the consumer had it
}

func runPaced(s *server, topic string, p pace) (sample, error) {
	r, err := newPacedRun(topic, p)
	if err != nil {
		return nil, err
	}
	return r.run(s, topic)
}

// runMetered is runPaced with a meter beside it, whose small writes go to dir; notes are about the longest gaps.
func runMetered(ctx context.Context, dir string, s *server, topic string, p pace) (out sample, notes []string, err error) {
	r, err := newPacedRun(topic, p)
	if err != nil {
		return nil, nil, err
	}
	h, err := startMeter(ctx, dir, s.pid)
	if err != nil {
		return nil, nil, err
	}
	out, err = r.run(s, topic)
	spells, merr := h.stop()
	if err = errors.Join(err, merr); err != nil {
		return nil, nil, err
	}
	r.spells = spells
	return out, r.explain(out), nil
}

func newPacedRun(topic string, p pace) (*pacedRun, error) {
	batch, err := newBatch(p.shape)
	if err != nil {
		return nil, err
	}
	r := &pacedRun{pace: p, batchBytes: len(batch), total: int(p.perSecond * p.lasting.Seconds()), frames: produceFrames(topic, p.load, batch),
		check: checkProduced, acked: make([][]time.Duration, p.producers)}
	if p.partitions%p.producers != 0 || r.total < 1 {
		return nil, fmt.Errorf("%d requests over %d connections to %d partitions", r.total, p.producers, p.partitions)
	}
	r.sent = make([]time.Duration, r.total)
	return r, nil
}

func (r *pacedRun) run(s *server, topic string) (sample, error) {
	p := r.pace
	for range p.producers + 1 {
		c, err := dial(s.addr)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(p.lasting + drainWait)); err != nil {
			return nil, err
		}
		r.conns = append(r.conns, c)
	}
	consumer := r.conns[p.producers]
	r.conns = r.conns[:p.producers]
	used, err := measure(s.pid, func() error {
		r.began, r.beganNs = time.Now(), monotonicNs()
		var g errgroup.Group
		g.Go(r.write)
		for i := range r.conns {
			g.Go(func() error { return r.readReplies(i) })
		}
		if p.consume {
			g.Go(func() error { return r.tail(consumer, topic) })
		}
		return g.Wait()
	})
	if err != nil {
		return nil, err
	}
	out := used.moved(int64(r.total), int64(r.total*p.shape.records), int64(r.total*r.batchBytes))
	r.report(out)
	return out, nil
}

// due is when a request is to be sent, since began.
func (r *pacedRun) due(i int) time.Duration {
	return time.Duration(float64(i) / r.perSecond * float64(time.Second))
}

// write sends each request at its time, or at once when that has passed. Request i goes to partition i modulo their number,
// always on the same connection, so that a partition's batches keep their order.
func (r *pacedRun) write() error {
	runtime.LockOSThread() // the timer slack is the thread's
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1000, 0, 0, 0); err != nil {
		return err
	}
	for i := range r.total {
		if wait := r.due(i) - time.Since(r.began); wait > 0 {
			ts := unix.NsecToTimespec(wait.Nanoseconds())
			_ = unix.Nanosleep(&ts, nil) // cut short by a signal, the request is early by less than the rest
		}
		p := i % r.partitions
		if _, err := r.conns[p%r.producers].Write(r.frames[p]); err != nil {
			return err
		}
		r.sent[i] = time.Since(r.began)
	}
	return nil
}

func (r *pacedRun) readReplies(k int) error {
	for i := k; i < r.total; i += r.producers {
		head, err := r.conns[k].reply(replyHeadBytes)
		if err == nil {
			err = r.check(head)
		}
		if err != nil {
			return fmt.Errorf("reply to request %d: %w", i, err)
		}
		r.acked[k] = append(r.acked[k], time.Since(r.began))
	}
	return nil
}

// tail follows all partitions until it has had every request's batch.
func (r *pacedRun) tail(c *conn, topic string) error {
	r.seen = make([]time.Duration, r.total)
	next := make([]int64, r.partitions) // batches
	offsets := make([]int64, r.partitions)
	for had := 0; had < r.total; {
		if _, err := c.Write(fetchRequest(topic, offsets, 1<<20, 500)); err != nil {
			return err
		}
		var got []int
		err := c.fetched(func(p int32, size int) error {
			for range size / r.batchBytes {
				got = append(got, int(next[p])*r.partitions+int(p))
				next[p]++
			}
			offsets[p] = next[p] * int64(r.shape.records)
			return nil
		})
		if err != nil {
			return fmt.Errorf("consumer, after %d of %d requests: %w", had, r.total, err)
		}
		now := time.Since(r.began)
		for _, i := range got {
			r.seen[i] = now
		}
		had += len(got)
	}
	return nil
}

func (r *pacedRun) leadIn() time.Duration { return min(r.lasting/leadInShare, leadInMax) }

func (r *pacedRun) report(out sample) {
	var produce, endToEnd []time.Duration
	var longest time.Duration
	over := 0
	leadIn := r.leadIn()
	for k, acks := range r.acked {
		for j, at := range acks {
			d := r.due(k + j*r.producers)
			if d < leadIn {
				continue
			}
			produce = append(produce, at-d)
			if j > 0 {
				gap := at - acks[j-1]
				longest = max(longest, gap)
				if gap > 50*time.Millisecond {
					over++
				}
			}
		}
	}
	for i, at := range r.seen {
		if d := r.due(i); d >= leadIn {
			endToEnd = append(endToEnd, at-d)
		}
	}
	out.latencies("produce ", produce)
	if r.consume {
		out.latencies("end-to-end ", endToEnd)
	}
	out["longest gap ms"], out["gaps over 50 ms"] = longest.Seconds()*1000, float64(over)
}
