package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func groupReset(c *call) int {
	f := addResetFlags(c)
	args, code, done := c.parse(1, 1)
	if done {
		return code
	}
	if c.badFormat(*f.format) {
		return c.wrong("--format is text or json")
	}
	if wrong := f.resolve(c, time.Now()); wrong != "" {
		return c.wrong("%s", wrong)
	}
	group := args[0]
	return c.withAdmin(f.client, func(ctx context.Context, admin *kadm.Client) int {
		if err := resettable(ctx, admin, group); err != nil {
			return c.failed("%v", err)
		}
		rows, err := f.plan(ctx, admin, group)
		if err != nil {
			return c.failed("%v", err)
		}
		if *f.execute {
			if err := commitPlan(ctx, admin, group, rows); err != nil {
				return c.failed("%v", err)
			}
		}
		return c.printReset(f, rows)
	})
}

// resettable tells why the offsets of a group cannot be moved now. A group that is not there can: it comes into being.
func resettable(ctx context.Context, admin *kadm.Client, group string) error {
	described, err := admin.DescribeGroups(ctx, group)
	if err != nil {
		return errors.New(explain(err, ""))
	}
	g, err := described.On(group, nil)
	switch {
	case errors.Is(err, kerr.GroupIDNotFound), errors.Is(g.Err, kerr.GroupIDNotFound):
		return nil
	case err != nil || g.Err != nil:
		return errors.New(explainGroup(group, errors.Join(err, g.Err)))
	case g.State != "Empty" && g.State != "Dead":
		return fmt.Errorf("group %s is %s with %d members: stop its consumers first", group, g.State, len(g.Members))
	}
	return nil
}

// plan finds the partitions and their new offsets.
func (f *resetFlags) plan(ctx context.Context, admin *kadm.Client, group string) ([]resetRow, error) {
	committed, err := admin.FetchOffsets(ctx, group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, errors.New(explain(err, ""))
	}
	parts, err := f.partitions(ctx, admin, group, committed)
	if err != nil {
		return nil, err
	}
	topics := map[string]bool{}
	for _, p := range parts {
		topics[p.topic] = true
	}
	b, err := boundsOf(ctx, admin, slices.Collect(maps.Keys(topics)), false, f.target.time)
	if err != nil {
		return nil, errors.New(explain(err, ""))
	}
	var rows []resetRow
	for _, p := range parts {
		s := resetState{atTime: -1}
		if s.start, s.end, err = listed(b.starts, b.ends, p.topic, p.partition); err != nil {
			return nil, err
		}
		if o, ok := committed.Lookup(p.topic, p.partition); ok && o.Err == nil && o.At >= 0 {
			s.committed = &o.At
		}
		if o, ok := b.times.Lookup(p.topic, p.partition); ok && o.Err == nil && o.Timestamp >= 0 {
			s.atTime = o.Offset
		}
		row, err := planReset(f.target, p, s)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// partitions are those that the flags name.
func (f *resetFlags) partitions(ctx context.Context, admin *kadm.Client, group string, committed kadm.OffsetResponses) (parts []topicPartition, err error) {
	switch {
	case f.target.file != nil:
		parts = slices.Collect(maps.Keys(f.target.file))
	case *f.allTopics:
		for _, o := range committed.Sorted() {
			parts = append(parts, topicPartition{o.Topic, o.Partition})
		}
		if len(parts) == 0 {
			return nil, fmt.Errorf("group %s has committed no offset: name topics with --topic", group)
		}
	default:
		details, err := admin.ListTopicsWithInternal(ctx, sortedKeys(f.wanted)...)
		if err != nil {
			return nil, errors.New(explain(err, ""))
		}
		for topic, numbers := range f.wanted {
			if errors.Is(details[topic].Err, kerr.UnknownTopicOrPartition) {
				return nil, fmt.Errorf("there is no topic %s: `varve topic list` shows those there are", topic)
			}
			if len(numbers) == 0 {
				numbers = details[topic].Partitions.Numbers()
			}
			for _, n := range numbers {
				parts = append(parts, topicPartition{topic, n})
			}
		}
	}
	slices.SortFunc(parts, compareTP)
	return slices.Compact(parts), nil
}

func commitPlan(ctx context.Context, admin *kadm.Client, group string, rows []resetRow) error {
	offsets := kadm.Offsets{}
	for _, r := range rows {
		offsets.AddOffset(r.Topic, r.Partition, r.To, -1)
	}
	done, err := admin.CommitOffsets(ctx, group, offsets)
	if err != nil {
		return errors.New(explainGroup(group, err))
	}
	for _, o := range done.Sorted() {
		if o.Err != nil {
			err = errors.Join(err, fmt.Errorf("%s-%d: %s", o.Topic, o.Partition, explainGroup(group, o.Err)))
		}
	}
	return err
}

func (c *call) printReset(f *resetFlags, rows []resetRow) int {
	switch {
	case *f.export:
		w := csv.NewWriter(c.stdout)
		for _, r := range rows {
			_ = w.Write([]string{r.Topic, strconv.Itoa(int(r.Partition)), strconv.FormatInt(r.To, 10)}) // Error tells
		}
		if w.Flush(); w.Error() != nil {
			return c.failed("%v", w.Error())
		}
		return exitOK
	case *f.format == "json":
		return c.printJSON(resetResult{*f.execute, rows})
	}
	t := newTable(c.stdout, "TOPIC", ">PARTITION", ">FROM", ">TO", "NOTE")
	for _, r := range rows {
		t.row(r.Topic, r.Partition, number(r.From), r.To, r.Note)
	}
	t.flush()
	if !*f.execute {
		fmt.Fprintln(c.stdout, "Nothing was changed: this is the plan; --execute does it.")
	}
	return exitOK
}

type resetResult struct {
	Executed   bool       `json:"executed"`
	Partitions []resetRow `json:"partitions"`
}
