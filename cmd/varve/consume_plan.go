package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// startAt says where reading begins in each partition.
type startAt struct {
	kind   startKind
	offset int64 // startOffset, startLast
	time   time.Time
}

type startKind int

const (
	startEnd startKind = iota
	startBeginning
	startOffset
	startLast // the last n records
	startTime
)

// resolveStart finds the one place that was asked for.
func (f *consumeFlags) resolveStart(set map[string]bool) string {
	asked := 0
	for _, name := range []string{"from-beginning", "offset", "from-time"} {
		if set[name] {
			asked++
		}
	}
	if asked > 1 {
		return "--from-beginning, --offset and --from-time exclude each other"
	}
	for _, n := range splitList(*f.partitions) {
		p, err := strconv.ParseInt(n, 10, 32)
		if err != nil || p < 0 {
			return "--partition " + n + " is no number of a partition"
		}
		f.only = append(f.only, int32(p))
	}
	switch {
	case *f.fromBeginning:
		f.at.kind = startBeginning
	case set["from-time"]:
		at, err := parseTime(*f.fromTime, time.Now())
		if err != nil {
			return "--from-time " + err.Error()
		}
		f.at = startAt{kind: startTime, time: at}
	case set["offset"]:
		return f.resolveOffset()
	}
	return ""
}

func (f *consumeFlags) resolveOffset() string {
	switch *f.offset {
	case "beginning", "earliest":
		f.at.kind = startBeginning
		return ""
	case "end", "latest":
		f.at.kind = startEnd
		return ""
	}
	n, err := strconv.ParseInt(*f.offset, 10, 64)
	if err != nil {
		return "--offset is a number, beginning, end, or -N for the last N records"
	}
	f.at = startAt{kind: startOffset, offset: n}
	if strings.HasPrefix(*f.offset, "-") {
		f.at = startAt{kind: startLast, offset: -n}
	}
	return ""
}

func splitList(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// readPlan is where to begin, and where each partition ended when it was made.
type readPlan struct {
	from map[string]map[int32]kgo.Offset
	left map[string]map[int32]int64 // ends not yet reached; nil unless reading ends there
}

// planReading asks for offsets, so that what cannot be is told before anything is printed.
func (c *call) planReading(ctx context.Context, admin *kadm.Client, f *consumeFlags) (plan readPlan, code int) {
	ctx, cancel := context.WithTimeout(ctx, *f.client.timeout)
	defer cancel()
	details, code := c.knownTopics(ctx, admin, f.topics...)
	if code != exitOK || *f.group != "" {
		return plan, code
	}
	b, err := boundsOf(ctx, admin, f.topics, *f.isolation == "read_committed", f.at.time)
	if err != nil {
		return plan, c.failed("%s", explain(err, ""))
	}
	plan.from = map[string]map[int32]kgo.Offset{}
	if *f.untilEnd {
		plan.left = map[string]map[int32]int64{}
	}
	for _, topic := range f.topics {
		numbers := details[topic].Partitions.Numbers()
		for _, p := range f.only {
			if !slices.Contains(numbers, p) {
				return plan, c.failed("%s has no partition %d: there are 0 to %d", topic, p, len(numbers)-1)
			}
		}
		if len(f.only) > 0 {
			numbers = f.only
		}
		for _, p := range numbers {
			if err := plan.add(b, f, topic, p); err != nil {
				return plan, c.failed("%v", err)
			}
		}
	}
	return plan, exitOK
}

// bounds are the offsets between which a partition can be read.
type bounds struct{ starts, ends, times kadm.ListedOffsets }

// boundsOf asks for them. With committed the end is the last stable offset; after adds the first offsets from that time on.
func boundsOf(ctx context.Context, admin *kadm.Client, topics []string, committed bool, after time.Time) (b bounds, err error) {
	if b.starts, err = admin.ListStartOffsets(ctx, topics...); err != nil {
		return b, err
	}
	end := admin.ListEndOffsets
	if committed {
		end = admin.ListCommittedOffsets
	}
	if b.ends, err = end(ctx, topics...); err != nil {
		return b, err
	}
	if !after.IsZero() {
		b.times, err = admin.ListOffsetsAfterMilli(ctx, max(0, after.UnixMilli()), topics...) // negative ones have other meanings
	}
	return b, err
}

// add plans one partition.
func (plan *readPlan) add(b bounds, f *consumeFlags, topic string, partition int32) error {
	start, end, err := listed(b.starts, b.ends, topic, partition)
	if err != nil {
		return err
	}
	at := end
	switch f.at.kind {
	case startBeginning:
		at = start
	case startLast:
		at = max(start, end-f.at.offset)
	case startOffset:
		if at = f.at.offset; at < start || at > end {
			return fmt.Errorf("offset %d is not in %s-%d, which holds %d to %d (end): choose one of these, or --from-beginning", at, topic, partition, start, end)
		}
	case startTime:
		o, ok := b.times.Lookup(topic, partition)
		if !ok || o.Err != nil {
			return fmt.Errorf("%s-%d: %s", topic, partition, explain(errors.Join(o.Err, notListed(ok)), ""))
		}
		at = o.Offset
		if at < 0 || at > end {
			at = end // nothing is that young
		}
	}
	if plan.from[topic] == nil {
		plan.from[topic] = map[int32]kgo.Offset{}
	}
	plan.from[topic][partition] = kgo.NewOffset().At(at)
	if plan.left != nil && at < end {
		if plan.left[topic] == nil {
			plan.left[topic] = map[int32]int64{}
		}
		plan.left[topic][partition] = end
	}
	return nil
}

var errNotListed = errors.New("the broker says nothing of its offsets")

func notListed(ok bool) error {
	if ok {
		return nil
	}
	return errNotListed
}

func listed(starts, ends kadm.ListedOffsets, topic string, partition int32) (start, end int64, err error) {
	s, okStart := starts.Lookup(topic, partition)
	e, okEnd := ends.Lookup(topic, partition)
	if err := errors.Join(s.Err, e.Err, notListed(okStart && okEnd)); err != nil {
		return 0, 0, fmt.Errorf("%s-%d: %s", topic, partition, explain(err, ""))
	}
	return s.Offset, e.Offset, nil
}
