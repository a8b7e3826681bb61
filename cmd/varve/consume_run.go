package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// maxPollRecords bounds what is read at once, and so what is printed between two looks at --count.
const maxPollRecords = 10_000

// reading is one run of consume.
type reading struct {
	c      *call
	f      *consumeFlags
	client *kgo.Client
	out    *bufio.Writer
	plan   readPlan
	count  int64
	line   []byte
	idle   bool // it ended because nothing came
	began  time.Time
}

func newReading(c *call, f *consumeFlags, client *kgo.Client, plan readPlan) *reading {
	return &reading{c: c, f: f, client: client, out: bufio.NewWriterSize(c.stdout, 64<<10), plan: plan, began: time.Now()}
}

// run prints until there is a reason to end.
func (r *reading) run(ctx context.Context) error {
	for !r.complete() && ctx.Err() == nil {
		records, pollErr := r.poll(ctx)
		for i, rec := range records {
			if r.complete() {
				records = records[:i]
				break
			}
			if err := r.take(rec); err != nil {
				return err
			}
		}
		if err := r.out.Flush(); err != nil {
			return err
		}
		if *r.f.group != "" {
			r.client.MarkCommitRecords(records...)
		}
		if pollErr != nil || r.idle {
			return pollErr
		}
	}
	return nil
}

// complete tells that all was printed that was asked for.
func (r *reading) complete() bool {
	return *r.f.count > 0 && r.count >= *r.f.count || r.plan.left != nil && len(r.plan.left) == 0
}

func (r *reading) poll(ctx context.Context) ([]*kgo.Record, error) {
	pollCtx, cancel := ctx, context.CancelFunc(func() {})
	if *r.f.idleMs > 0 {
		pollCtx, cancel = context.WithTimeout(ctx, time.Duration(*r.f.idleMs)*time.Millisecond)
	}
	defer cancel()
	waiting := !r.f.joined.Load() && time.Since(r.began) < *r.f.client.timeout
	fetches := r.client.PollRecords(pollCtx, maxPollRecords)
	var err error
	fetches.EachError(func(topic string, partition int32, e error) {
		switch {
		case pollCtx.Err() != nil && errors.Is(e, pollCtx.Err()):
		case errors.Is(e, kerr.OffsetOutOfRange):
			err = errors.Join(err, fmt.Errorf("%s-%d: the next record is gone (retention, or records were deleted): begin anew with --from-beginning or --from-time", topic, partition))
		case topic == "":
			err = errors.Join(err, errors.New(explain(e, "")))
		default:
			err = errors.Join(err, fmt.Errorf("%s-%d: %s", topic, partition, explain(e, "")))
		}
	})
	records := fetches.Records()
	r.idle = err == nil && !waiting && len(records) == 0 && pollCtx.Err() != nil && ctx.Err() == nil
	return records, err
}

// take prints one record, unless it is a marker or behind the end.
func (r *reading) take(rec *kgo.Record) error {
	if r.plan.left != nil {
		end, open := r.plan.left[rec.Topic][rec.Partition]
		if rec.Offset+1 >= end {
			delete(r.plan.left[rec.Topic], rec.Partition)
			if len(r.plan.left[rec.Topic]) == 0 {
				delete(r.plan.left, rec.Topic)
			}
		}
		if !open || rec.Offset >= end {
			return nil
		}
	}
	if rec.Attrs.IsControl() {
		return nil
	}
	r.line = r.f.records.encode(r.line[:0], rec)
	r.count++
	_, err := r.out.Write(r.line)
	return err
}

// finish reports and says how it ended.
func (r *reading) finish(interrupted bool, err error) int {
	if err := errors.Join(err, r.out.Flush()); err != nil {
		return r.c.failed("%v", err)
	}
	if !interrupted && !*r.f.untilEnd && *r.f.count > 0 && r.count < *r.f.count {
		return r.c.failed("%s of %s records came", count(r.count), count(*r.f.count))
	}
	if terminal(r.c.stderr) {
		fmt.Fprintf(r.c.stderr, "%s records\n", count(r.count))
	}
	return exitOK
}
