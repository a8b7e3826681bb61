package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

type describedTopic struct {
	Name       string               `json:"name"`
	ID         string               `json:"id"`
	Configs    map[string]string    `json:"configs"` // those set on the topic
	Partitions []describedPartition `json:"partitions"`
}

// describedPartition has -1 for offsets that are not known, and for TierEnd when nothing is in the tier.
type describedPartition struct {
	Partition   int32   `json:"partition"`
	Leader      int32   `json:"leader"`
	LeaderEpoch int32   `json:"leaderEpoch"`
	Replicas    []int32 `json:"replicas"`
	ISR         []int32 `json:"isr"`
	Start       int64   `json:"start"`
	TierEnd     int64   `json:"tierEnd"` // offset after the last one in the tier
	LocalStart  int64   `json:"localStart"`
	End         int64   `json:"end"`
}

func topicDescribe(c *call) int {
	client := addClientFlags(c.flags)
	format := c.format()
	names, code, done := c.parse(0, -1)
	if done {
		return code
	}
	if c.badFormat(*format) {
		return c.wrong("--format is text or json")
	}
	return c.withAdmin(client, func(ctx context.Context, admin *kadm.Client) int {
		details, err := admin.ListTopics(ctx, names...)
		if err != nil {
			return c.failed("%s", explain(err, ""))
		}
		code := exitOK
		var known []string
		for _, t := range details.Sorted() {
			if t.Err != nil {
				code = c.failed("%s: %s", t.Topic, explain(t.Err, ""))
				continue
			}
			known = append(known, t.Topic)
		}
		topics := []describedTopic{}
		if len(known) > 0 {
			if topics, err = describeTopics(ctx, admin, details, known); err != nil {
				return c.failed("%s", explain(err, ""))
			}
		}
		if *format == "json" {
			return max(code, c.printJSON(topics))
		}
		for i, t := range topics {
			if i > 0 {
				fmt.Fprintln(c.stdout)
			}
			c.printTopic(t)
		}
		return code
	})
}

// describeTopics asks for configurations and for the four offsets that tell where a partition's records are.
func describeTopics(ctx context.Context, admin *kadm.Client, details kadm.TopicDetails, names []string) ([]describedTopic, error) {
	configs, err := admin.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return nil, err
	}
	var offsets [4]kadm.ListedOffsets
	for i, list := range []func(context.Context, ...string) (kadm.ListedOffsets, error){admin.ListStartOffsets, admin.ListLatestRemoteOffsets, admin.ListLocalLogStartOffsets, admin.ListEndOffsets} {
		if offsets[i], err = list(ctx, names...); err != nil {
			return nil, err
		}
	}
	at := func(i int, topic string, partition int32) int64 {
		o, ok := offsets[i].Lookup(topic, partition)
		if !ok || o.Err != nil {
			return -1
		}
		return o.Offset
	}
	topics := []describedTopic{}
	for _, name := range names {
		d := details[name]
		t := describedTopic{Name: name, ID: protocol.UUID(d.ID).String(), Configs: map[string]string{}, Partitions: []describedPartition{}}
		if rc, err := configs.On(name, nil); err == nil {
			for _, cfg := range rc.Configs {
				if cfg.Source == kmsg.ConfigSourceDynamicTopicConfig && cfg.Value != nil {
					t.Configs[cfg.Key] = *cfg.Value
				}
			}
		}
		for _, p := range d.Partitions.Sorted() {
			row := describedPartition{p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR,
				at(0, name, p.Partition), at(1, name, p.Partition), at(2, name, p.Partition), at(3, name, p.Partition)}
			if row.TierEnd >= 0 {
				row.TierEnd++ // Kafka names the last offset
			}
			t.Partitions = append(t.Partitions, row)
		}
		topics = append(topics, t)
	}
	return topics, nil
}

func (c *call) printTopic(t describedTopic) {
	fmt.Fprintf(c.stdout, "%s  id %s  partitions %d\n", t.Name, t.ID, len(t.Partitions))
	for _, key := range slices.Sorted(maps.Keys(t.Configs)) {
		fmt.Fprintf(c.stdout, "  %s=%s\n", key, t.Configs[key])
	}
	table := newTable(c.stdout, ">PARTITION", ">LEADER", ">EPOCH", "REPLICAS", "IN SYNC", ">START", ">TIER TO", ">LOCAL FROM", ">END")
	for _, p := range t.Partitions {
		tier := "-"
		if p.TierEnd >= 0 {
			tier = fmt.Sprint(p.TierEnd)
		}
		table.row(p.Partition, p.Leader, p.LeaderEpoch, ids(p.Replicas), ids(p.ISR), p.Start, tier, p.LocalStart, p.End)
	}
	table.flush()
}

func ids(nodes []int32) string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = fmt.Sprint(n)
	}
	return strings.Join(out, ",")
}
