package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// production is one run of produce.
type production struct {
	c        *call
	f        *produceFlags
	client   *kgo.Client
	topic    string
	progress *progress // nil when a person types the input, or nobody looks
	began    time.Time

	mu      sync.Mutex
	done    produced
	spans   map[int32]*span
	failed  error     // the first
	waiting int64     // records sent and not yet acknowledged
	since   time.Time // when the last acknowledgement came, or the first record went that waits for one
}

// stallCheckMs is how often a run is looked at that may have stopped getting acknowledgements.
const stallCheckMs = 100

var errStalled = errors.New("stalled")

func newProduction(c *call, f *produceFlags, client *kgo.Client, topic string) *production {
	p := &production{c: c, f: f, client: client, topic: topic, began: time.Now(), spans: map[int32]*span{}}
	p.done.Topic = topic
	if terminal(c.stderr) && (*f.file != "" || !terminal(c.stdin)) {
		p.progress = newProgress(c.stderr)
		p.progress.last = p.began
	}
	return p
}

// run does the work and reports.
func (p *production) run(ctx context.Context, stop func(), in *recordReader) int {
	// Records that were read are sent even if Ctrl-C comes meanwhile; finish bounds that.
	sending, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { p.watch(sending, cancel) })
	err := p.pump(ctx, sending, in)
	interrupted := ctx.Err() != nil
	stop() // a second Ctrl-C does not wait
	flushErr := p.flush(sending, interrupted)
	cancel(nil)
	wg.Wait()
	return p.finish(err, flushErr)
}

// watch ends the sending when records wait and none is acknowledged for --timeout. The client's own bound counts from a
// record's timestamp, which may be years ago.
func (p *production) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(stallCheckMs * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p.mu.Lock()
		stalled := p.waiting > 0 && time.Since(p.since) > *p.f.client.timeout
		p.mu.Unlock()
		if stalled {
			cancel(errStalled)
		}
	}
}

// flush waits for what was sent.
func (p *production) flush(ctx context.Context, interrupted bool) error {
	if interrupted {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, interruptFlushMs*time.Millisecond)
		defer cancel()
	}
	err := p.client.Flush(ctx)
	if err == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Errorf("%s records were not acknowledged in time: is the broker still there, and does %s have a leader (`varve topic describe %s`)?", count(p.waiting+p.done.Failed), p.topic, p.topic)
}

// pump reads and sends until the input ends, the context does, or a record fails.
func (p *production) pump(ctx, sending context.Context, in *recordReader) error {
	if *p.f.tombstone {
		p.send(sending, inputRecord{partition: -1})
		return nil
	}
	for ctx.Err() == nil && sending.Err() == nil {
		rec, err := in.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil // it was told to end
			}
			return err
		}
		if p.send(sending, rec); p.failure() != nil {
			return nil
		}
		if p.progress != nil {
			p.mu.Lock()
			n, b := p.done.Records, p.done.Bytes
			p.mu.Unlock()
			p.progress.show("%s records, %s, %s/s", count(n), size(b), size(int64(float64(b)/time.Since(p.began).Seconds())))
		}
	}
	return nil
}

func (p *production) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// send fills in what the flags say of every record. It blocks while too much waits for acknowledgement.
func (p *production) send(ctx context.Context, rec inputRecord) {
	r := &kgo.Record{Topic: p.topic, Key: rec.key, Value: rec.value, Headers: rec.headers, Timestamp: rec.timestamp, Partition: rec.partition}
	if !rec.keyed && p.f.hasKey {
		r.Key = []byte(*p.f.key)
	}
	if r.Partition < 0 {
		r.Partition = int32(*p.f.partition)
	}
	if r.Timestamp.IsZero() {
		r.Timestamp = p.f.at // zero: the client takes now
	}
	for _, h := range p.f.headers {
		key, value, _ := strings.Cut(h, "=")
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: key, Value: []byte(value)})
	}
	p.mu.Lock()
	if p.waiting == 0 {
		p.since = time.Now()
	}
	p.waiting++
	p.mu.Unlock()
	p.client.Produce(ctx, r, p.acknowledged)
}

func (p *production) acknowledged(r *kgo.Record, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting--
	p.since = time.Now()
	if err != nil {
		p.done.Failed++
		if p.failed == nil && !errors.Is(err, context.Canceled) { // flush tells of that
			p.failed = p.explain(r, err)
		}
		return
	}
	p.done.Records++
	p.done.Bytes += int64(len(r.Key) + len(r.Value))
	s := p.spans[r.Partition]
	if s == nil {
		s = &span{Partition: r.Partition, First: r.Offset}
		p.spans[r.Partition] = s
	}
	s.Records++
	s.First, s.Last = min(s.First, r.Offset), max(s.Last, r.Offset)
}

// explain says what to do about a record that was not taken.
func (p *production) explain(r *kgo.Record, err error) error {
	switch {
	case errors.Is(err, kerr.MessageTooLarge):
		return fmt.Errorf("a record with a value of %s is too large: raise --max-message-bytes, and `varve topic alter %s --config max.message.bytes=N`", size(int64(len(r.Value))), p.topic)
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("there is no topic %s: `varve topic create %s` makes it", p.topic, p.topic)
	case r.Partition >= 0 && strings.Contains(err.Error(), "partition"):
		return fmt.Errorf("partition %d: %w", r.Partition, err)
	}
	return errors.New(explain(err, ""))
}

// finish reports.
func (p *production) finish(readErr, flushErr error) int {
	if p.progress != nil {
		p.progress.end()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done.Partitions = sortedSpans(p.spans)
	code := exitOK
	for _, err := range []error{readErr, p.failed, flushErr} {
		if err != nil {
			code = p.c.failed("%v", err)
		}
	}
	if p.done.Failed > 0 {
		code = p.c.failed("%s records were not written", count(p.done.Failed))
	}
	switch *p.f.report {
	case "text":
		fmt.Fprintln(p.c.stdout, p.done.text(*p.f.acks != "0"))
	case "json":
		return max(code, p.c.printJSON(p.done))
	}
	return code
}
