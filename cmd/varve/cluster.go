package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
)

func clusterCommand() *command {
	return &command{
		name:     "cluster",
		summary:  "See the cluster as a whole.",
		examples: []string{"varve cluster info"},
		sub: []*command{{
			name: "info", args: "[--format text|json]", run: clusterInfo,
			summary:  "Show the cluster's id, its controller, its brokers, and how many topics and partitions there are and are not well. It exits with 1 if a partition has no leader.",
			examples: []string{"varve cluster info", "varve cluster info --format json"},
		}},
	}
}

type clusterState struct {
	ID              string          `json:"id"`
	Controller      int32           `json:"controller"`
	Brokers         []clusterBroker `json:"brokers"`
	Topics          int             `json:"topics"` // with internal ones
	Partitions      int             `json:"partitions"`
	Leaderless      []string        `json:"leaderless"` // topic-partition
	UnderReplicated []string        `json:"underReplicated"`
}

type clusterBroker struct {
	ID         int32   `json:"id"`
	Host       string  `json:"host"`
	Port       int32   `json:"port"`
	Rack       *string `json:"rack"`
	Partitions int     `json:"partitions"` // that it leads
}

func clusterInfo(c *call) int {
	client := addClientFlags(c.flags)
	format := c.format()
	if _, code, done := c.parse(0, 0); done {
		return code
	}
	if c.badFormat(*format) {
		return c.wrong("--format is text or json")
	}
	return c.withAdmin(client, func(ctx context.Context, admin *kadm.Client) int {
		m, err := admin.Metadata(ctx)
		if err != nil {
			return c.failed("%s", explain(err, ""))
		}
		s := clusterOf(m)
		code := exitOK
		if *format == "json" {
			code = c.printJSON(s)
		} else {
			s.print(c)
		}
		if len(s.Leaderless) > 0 {
			code = c.failed("%d partitions have no leader", len(s.Leaderless))
		}
		return code
	})
}

func clusterOf(m kadm.Metadata) clusterState {
	s := clusterState{ID: m.Cluster, Controller: m.Controller, Brokers: []clusterBroker{}, Topics: len(m.Topics), Leaderless: []string{}, UnderReplicated: []string{}}
	led := map[int32]int{}
	for _, t := range m.Topics.Sorted() {
		for _, p := range t.Partitions.Sorted() {
			s.Partitions++
			led[p.Leader]++
			name := fmt.Sprintf("%s-%d", p.Topic, p.Partition)
			if p.Leader < 0 {
				s.Leaderless = append(s.Leaderless, name)
			}
			if len(p.ISR) < len(p.Replicas) {
				s.UnderReplicated = append(s.UnderReplicated, name)
			}
		}
	}
	for _, b := range m.Brokers {
		s.Brokers = append(s.Brokers, clusterBroker{b.NodeID, b.Host, b.Port, b.Rack, led[b.NodeID]})
	}
	return s
}

func (s clusterState) print(c *call) {
	fmt.Fprintf(c.stdout, "cluster %s  controller %d\ntopics %d  partitions %d\n", s.ID, s.Controller, s.Topics, s.Partitions)
	for what, names := range map[string][]string{"without a leader": s.Leaderless, "under-replicated": s.UnderReplicated} {
		if len(names) > 0 {
			fmt.Fprintf(c.stdout, "PROBLEM  %d partitions %s, the first is %s\n", len(names), what, names[0])
		}
	}
	t := newTable(c.stdout, ">BROKER", "ADDRESS", "RACK", ">LEADS")
	for _, b := range s.Brokers {
		rack := "-"
		if b.Rack != nil {
			rack = *b.Rack
		}
		t.row(b.ID, fmt.Sprintf("%s:%d", b.Host, b.Port), rack, b.Partitions)
	}
	t.flush()
}
