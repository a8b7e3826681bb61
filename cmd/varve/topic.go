package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"varve/protocol"
)

func topicCommand() *command {
	return &command{
		name:    "topic",
		summary: "Create, list, describe, alter and delete topics of a running cluster.",
		examples: []string{
			"varve topic create hello --partitions 3",
			"varve topic describe hello",
		},
		sub: []*command{
			{
				name: "create", args: "NAME [--partitions N] [--replication-factor N] [--config KEY=VALUE]... [--if-not-exists] [--format text|json]", run: topicCreate,
				summary: "Create a topic. Without numbers the broker's num.partitions and default.replication.factor hold.",
				examples: []string{
					"varve topic create hello --partitions 3",
					"varve topic create clicks --config retention.ms=-1 --config local.retention.bytes=1073741824",
				},
			},
			{
				name: "list", args: "[--internal] [--format text|json]", run: topicList,
				summary:  "List topics with their numbers of partitions and replicas.",
				examples: []string{"varve topic list", "varve topic list --format json"},
			},
			{
				name: "describe", args: "[NAME...] [--format text|json]", run: topicDescribe,
				summary:  "Show partitions, leaders, replicas and offsets, and where the tier ends, of some topics or of all.",
				examples: []string{"varve topic describe hello", "varve topic describe --format json"},
			},
			topicAlterCommand(),
			{
				name: "delete", args: "NAME... [--if-exists] [--format text|json]", run: topicDelete,
				summary:  "Delete topics with all their records, in the tier too.",
				examples: []string{"varve topic delete hello"},
			},
		},
	}
}

func topicCreate(c *call) int {
	client := addClientFlags(c.flags)
	partitions := c.flags.Int("partitions", -1, "number of partitions `N`; -1 is the broker's default")
	replicas := c.flags.Int("replication-factor", -1, "number of replicas `N` of each partition; -1 is the broker's default")
	ifNotExists := c.flags.Bool("if-not-exists", false, "a topic of this name that is there already is no failure")
	format := c.format()
	var configs repeated
	c.flags.Var(&configs, "config", "a topic configuration, as `KEY=VALUE`; may be repeated")
	args, code, done := c.parse(1, 1)
	if done {
		return code
	}
	if c.badFormat(*format) {
		return c.wrong("--format is text or json")
	}
	values := map[string]*string{}
	for _, kv := range configs {
		key, value, found := strings.Cut(kv, "=")
		if !found {
			return c.wrong("--config %s is not of the form KEY=VALUE", kv)
		}
		values[key] = &value
	}
	if *partitions < -1 || *partitions == 0 || *partitions > 1<<31-1 || *replicas < -1 || *replicas == 0 || *replicas > 1<<15-1 {
		return c.wrong("numbers of partitions and replicas are at least 1")
	}
	name := args[0]
	return c.withAdmin(client, func(ctx context.Context, admin *kadm.Client) int {
		res, err := admin.CreateTopic(ctx, int32(*partitions), int16(*replicas), values, name)
		if *format == "json" && (err == nil || errors.Is(err, kerr.TopicAlreadyExists) && *ifNotExists) {
			row := createdTopic{Name: name, Created: err == nil}
			if row.Created {
				row.Partitions, row.Replicas = res.NumPartitions, res.ReplicationFactor
			}
			return c.printJSON(row)
		}
		if errors.Is(err, kerr.TopicAlreadyExists) && *ifNotExists {
			fmt.Fprintf(c.stdout, "topic %s is there already\n", name)
			return exitOK
		}
		if err != nil {
			return c.failed("%s: %s", name, explain(err, res.ErrMessage))
		}
		fmt.Fprintf(c.stdout, "created topic %s: %d partitions, %d replicas each\n", name, res.NumPartitions, res.ReplicationFactor)
		return exitOK
	})
}

type createdTopic struct {
	Name       string `json:"name"`
	Created    bool   `json:"created"`              // false: it was there
	Partitions int32  `json:"partitions,omitempty"` // of a new topic
	Replicas   int16  `json:"replicas,omitempty"`
}

type topicRow struct {
	Name       string `json:"name"`
	ID         string `json:"id"`
	Partitions int    `json:"partitions"`
	Replicas   int    `json:"replicas"`
	Internal   bool   `json:"internal"`
}

func topicList(c *call) int {
	client := addClientFlags(c.flags)
	internal := c.flags.Bool("internal", false, "list internal topics too")
	format := c.format()
	if _, code, done := c.parse(0, 0); done {
		return code
	}
	if c.badFormat(*format) {
		return c.wrong("--format is text or json")
	}
	return c.withAdmin(client, func(ctx context.Context, admin *kadm.Client) int {
		list := admin.ListTopics
		if *internal {
			list = admin.ListTopicsWithInternal
		}
		topics, err := list(ctx)
		if err != nil {
			return c.failed("%s", explain(err, ""))
		}
		rows := []topicRow{}
		for _, t := range topics.Sorted() {
			rows = append(rows, topicRow{t.Topic, protocol.UUID(t.ID).String(), len(t.Partitions), t.Partitions.NumReplicas(), t.IsInternal})
		}
		if *format == "json" {
			return c.printJSON(rows)
		}
		t := newTable(c.stdout, "TOPIC", ">PARTITIONS", ">REPLICAS")
		for _, r := range rows {
			t.row(r.Name, r.Partitions, r.Replicas)
		}
		t.flush()
		return exitOK
	})
}

func topicDelete(c *call) int {
	client := addClientFlags(c.flags)
	ifExists := c.flags.Bool("if-exists", false, "a topic that is not there is no failure")
	format := c.format()
	names, code, done := c.parse(1, -1)
	if done {
		return code
	}
	if c.badFormat(*format) {
		return c.wrong("--format is text or json")
	}
	return c.withAdmin(client, func(ctx context.Context, admin *kadm.Client) int {
		res, err := admin.DeleteTopics(ctx, names...)
		if err != nil {
			return c.failed("%s", explain(err, ""))
		}
		code := exitOK
		rows := []deletedRow{}
		for _, name := range sortedKeys(res) {
			r := res[name]
			switch {
			case r.Err == nil:
				rows = append(rows, deletedRow{name, true})
			case errors.Is(r.Err, kerr.UnknownTopicOrPartition) && *ifExists:
				rows = append(rows, deletedRow{name, false})
			default:
				code = c.failed("%s: %s", name, explain(r.Err, r.ErrMessage))
			}
		}
		return max(code, c.printDeleted("topic", *format, rows))
	})
}

type deletedRow struct {
	Name    string `json:"name"`
	Deleted bool   `json:"deleted"` // false: it was not there
}

func (c *call) printDeleted(what, format string, rows []deletedRow) int {
	if format == "json" {
		return c.printJSON(rows)
	}
	for _, r := range rows {
		if r.Deleted {
			fmt.Fprintf(c.stdout, "deleted %s %s\n", what, r.Name)
			continue
		}
		fmt.Fprintf(c.stdout, "%s %s is not there\n", what, r.Name)
	}
	return exitOK
}
