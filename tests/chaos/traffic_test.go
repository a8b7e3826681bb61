package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/time/rate"
)

// topic is one topic under test, written by one idempotent producer.
type topic struct {
	name    string
	configs map[string]string
	retains bool    // total retention moves its log start
	starts  []int64 // log starts last seen
	parts   []*ledger
}

func newTopic(name string, partitions int32, configs map[string]string) *topic {
	t := &topic{name: name, configs: map[string]string{
		"segment.bytes": "1048576", "local.retention.bytes": "1", "retention.ms": "-1", "file.delete.delay.ms": "0",
	}}
	for k, v := range configs {
		t.configs[k] = v
		t.retains = t.retains || k == "retention.bytes" || k == "retention.ms"
	}
	t.starts = make([]int64, partitions)
	for p := range partitions {
		t.parts = append(t.parts, &ledger{topic: name, partition: p})
	}
	return t
}

func (w *world) create(t *topic) error {
	conf := map[string]*string{}
	for k, v := range t.configs {
		conf[k] = kadm.StringPtr(v)
	}
	return w.insist(func(a *kadm.Client) error {
		_, err := a.CreateTopic(w.ctx, int32(len(t.parts)), 1, conf, t.name)
		if errors.Is(err, kerr.TopicAlreadyExists) {
			return nil // the reply to the first try was lost
		}
		return err
	})
}

// traffic is the producer of a set of topics and the readers that run all the time. It outlives the node's crashes.
type traffic struct {
	w      *world
	c      *kgo.Client
	topics []*topic
	gate   sync.Mutex // held by the producer while it sends, and by pause
	stop   context.CancelFunc
	wg     sync.WaitGroup

	mu  sync.Mutex
	err error // the first
}

const (
	bytesPerSec = 6 << 20
	passLimit   = 3 * time.Second
)

func (w *world) run(topics ...*topic) *traffic {
	w.t.Helper()
	for _, t := range topics {
		if err := w.create(t); err != nil {
			w.t.Fatalf("create %s: %v", t.name, err)
		}
	}
	w.topics = append(w.topics, topics...)
	tr := &traffic{w: w, topics: topics, c: w.client(kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(5*time.Millisecond), kgo.MaxBufferedRecords(2000))}
	ctx, cancel := context.WithCancel(w.ctx)
	tr.stop = cancel
	rng := rand.New(rand.NewPCG(w.rng.Uint64(), 2)) // drawn here: w.rng is this goroutine's
	tr.wg.Go(func() { tr.produce(ctx, rng) })
	for _, t := range topics {
		tr.wg.Go(func() { tr.readAgain(ctx, t) })
	}
	w.t.Cleanup(tr.close)
	return tr
}

func (tr *traffic) close() {
	tr.stop()
	tr.wg.Wait()
	tr.c.Close()
}

func (tr *traffic) fail(err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.err == nil && err != nil {
		tr.err = err
	}
}

func (tr *traffic) failure() error {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.err
}

func (tr *traffic) produce(ctx context.Context, rng *rand.Rand) {
	limit := rate.NewLimiter(bytesPerSec, 256<<10)
	for ctx.Err() == nil {
		t := tr.topics[rng.IntN(len(tr.topics))]
		l := t.parts[rng.IntN(len(t.parts))]
		tr.gate.Lock()
		n := tr.send(ctx, t.name, l)
		tr.gate.Unlock()
		if limit.WaitN(ctx, n) != nil {
			return
		}
	}
}

func (tr *traffic) send(ctx context.Context, name string, l *ledger) int {
	seq := l.sent
	l.sent++
	value := l.value(seq)
	tr.c.Produce(ctx, &kgo.Record{Topic: name, Partition: l.partition, Value: value}, func(r *kgo.Record, err error) {
		switch {
		case ctx.Err() != nil:
		case err != nil:
			tr.fail(fmt.Errorf("produce record %d to %s-%d: %w", seq, name, l.partition, err))
		default:
			tr.fail(l.acked(seq, r.Offset))
		}
	})
	return len(value)
}

// pause stops the producer once all it sent is acknowledged; resume lets it go on.
func (tr *traffic) pause() error {
	tr.gate.Lock()
	ctx, cancel := context.WithTimeout(tr.w.ctx, time.Minute)
	defer cancel()
	if err := tr.c.Flush(ctx); err != nil {
		return fmt.Errorf("not everything was acknowledged: %w", err)
	}
	return tr.failure()
}

func (tr *traffic) resume() { tr.gate.Unlock() }

// readAgain reads a topic from log start over and over.
func (tr *traffic) readAgain(ctx context.Context, t *topic) {
	for ctx.Err() == nil {
		tr.w.quiet.RLock()
		pass, cancel := context.WithTimeout(ctx, passLimit)
		err := tr.w.pass(pass, t, nil, nil)
		cancel()
		tr.w.quiet.RUnlock()
		tr.fail(err)
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// pass reads from log start to ends, or until ctx is over without ends, and checks every record. A node that is away is
// no error without ends. see may be nil.
func (w *world) pass(ctx context.Context, t *topic, ends []int64, see func(*kgo.Record)) error {
	starts, err := w.offsets(ctx, t, logStart)
	if err != nil {
		return ifEnds(ends, fmt.Errorf("log starts of %s: %w", t.name, err))
	}
	return w.read(ctx, t, starts, ends, see)
}

func (w *world) read(ctx context.Context, t *topic, starts, ends []int64, see func(*kgo.Record)) error {
	from, left := map[int32]kgo.Offset{}, 0
	next := append([]int64{}, starts...)
	for p := range t.parts {
		if ends == nil || starts[p] < ends[p] {
			from[int32(p)] = kgo.NewOffset().At(starts[p])
			left++
		}
	}
	if left == 0 {
		return nil
	}
	c := w.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.name: from}), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxPartitionBytes(1<<20), kgo.FetchMaxWait(200*time.Millisecond))
	defer c.Close()
	for left > 0 {
		f := c.PollFetches(ctx)
		if ctx.Err() != nil {
			return ifEnds(ends, fmt.Errorf("%s: read up to %v of %v: %w", t.name, next, ends, ctx.Err()))
		}
		for _, e := range f.Errors() {
			if e.Err = w.judge(ctx, t, e, next); e.Err != nil {
				return e.Err
			}
			return nil // retention passed the reader
		}
		for it := f.RecordIter(); !it.Done(); {
			r := it.Next()
			if ends != nil && r.Offset >= ends[r.Partition] {
				continue
			}
			if r.Offset != next[r.Partition] {
				return fmt.Errorf("%s-%d: offset %d came after %d", t.name, r.Partition, r.Offset, next[r.Partition]-1)
			}
			if err := t.parts[r.Partition].check(r.Offset, r.Value); err != nil {
				return err
			}
			if see != nil {
				see(r)
			}
			if next[r.Partition]++; ends != nil && next[r.Partition] == ends[r.Partition] {
				left--
			}
		}
	}
	return nil
}

func ifEnds(ends []int64, err error) error {
	if ends == nil {
		return nil
	}
	return err
}

// judge allows one error: an offset that retention took while the reader was on its way to it.
func (w *world) judge(ctx context.Context, t *topic, e kgo.FetchError, next []int64) error {
	err := fmt.Errorf("fetch %s-%d at %d: %w", t.name, e.Partition, next[max(e.Partition, 0)], e.Err)
	if !errors.Is(e.Err, kerr.OffsetOutOfRange) || !t.retains {
		return err
	}
	starts, lerr := w.offsets(ctx, t, logStart)
	if lerr != nil || starts[e.Partition] > next[e.Partition] {
		return nil
	}
	return fmt.Errorf("%w, but the log starts at %d", err, starts[e.Partition])
}

// Special timestamps of ListOffsets.
const (
	logEnd     = -1
	logStart   = -2
	localStart = -4
)

// offsets lists what a special timestamp stands for.
func (w *world) offsets(ctx context.Context, t *topic, timestamp int64) (out []int64, err error) {
	out = make([]int64, len(t.parts))
	err = w.admin(func(a *kadm.Client) error {
		listed, err := a.ListOffsetsAfterMilli(ctx, timestamp, t.name)
		if err == nil {
			err = listed.Error()
		}
		for p := range out {
			o, _ := listed.Lookup(t.name, int32(p))
			out[p] = o.Offset
		}
		return err
	})
	return out, err
}
