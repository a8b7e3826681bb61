package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func groupCommand() *command {
	return &command{
		name:    "group",
		summary: "List, describe, reset and delete consumer groups of a running cluster.",
		examples: []string{
			"varve group describe readers",
			"varve group reset readers --topic hello --to-earliest --execute",
		},
		sub: []*command{
			{
				name: "list", args: "[--state STATE,...] [--format text|json]", run: groupList,
				summary:  "List groups with their states.",
				examples: []string{"varve group list", "varve group list --state Empty,Dead --format json"},
			},
			{
				name: "describe", args: "[NAME...] [--members] [--format text|json]", run: groupDescribe,
				summary: "Show what some groups, or all, have committed, how far that is behind the end of each partition, and who reads it. " +
					"A minus stands for a partition without a committed offset.",
				examples: []string{"varve group describe readers", "varve group describe readers --members", "varve group describe --format json"},
			},
			groupResetCommand(),
			{
				name: "delete", args: "NAME... [--if-exists] [--format text|json]", run: groupDelete,
				summary:  "Delete groups that have no members, with their offsets.",
				examples: []string{"varve group delete readers"},
			},
		},
	}
}

type groupRow struct {
	Group       string `json:"group"`
	State       string `json:"state"`
	Type        string `json:"type"`
	Protocol    string `json:"protocolType"`
	Coordinator int32  `json:"coordinator"`
}

func groupList(c *call) int {
	client := addClientFlags(c.flags)
	states := c.flags.String("state", "", "only groups in one of these `STATES`: PreparingRebalance, CompletingRebalance, Stable, Empty, Dead")
	format := c.format()
	if _, code, done := c.parse(0, 0); done {
		return code
	}
	if c.badFormat(*format) {
		return c.wrong("--format is text or json")
	}
	return c.withAdmin(client, func(ctx context.Context, admin *kadm.Client) int {
		groups, err := admin.ListGroups(ctx, splitList(*states)...)
		if err != nil {
			return c.failed("%s", explain(err, ""))
		}
		rows := []groupRow{}
		for _, g := range groups.Sorted() {
			rows = append(rows, groupRow{g.Group, g.State, g.GroupType, g.ProtocolType, g.Coordinator})
		}
		if *format == "json" {
			return c.printJSON(rows)
		}
		t := newTable(c.stdout, "GROUP", "STATE", "TYPE", "PROTOCOL", ">COORDINATOR")
		for _, r := range rows {
			t.row(r.Group, r.State, dash(r.Type), dash(r.Protocol), r.Coordinator)
		}
		t.flush()
		return exitOK
	})
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// explainGroup says of an error about a group what to do.
func explainGroup(name string, err error) string {
	switch {
	case errors.Is(err, kerr.GroupIDNotFound):
		return fmt.Sprintf("there is no group %s: `varve group list` shows those there are", name)
	case errors.Is(err, kerr.NonEmptyGroup), errors.Is(err, kerr.UnknownMemberID):
		return fmt.Sprintf("group %s has members: stop its consumers first (`varve group describe %s --members` shows them)", name, name)
	}
	return name + ": " + explain(err, "")
}

func groupDelete(c *call) int {
	client := addClientFlags(c.flags)
	ifExists := c.flags.Bool("if-exists", false, "a group that is not there is no failure")
	format := c.format()
	names, code, done := c.parse(1, -1)
	if done {
		return code
	}
	if c.badFormat(*format) {
		return c.wrong("--format is text or json")
	}
	return c.withAdmin(client, func(ctx context.Context, admin *kadm.Client) int {
		deleted, err := admin.DeleteGroups(ctx, names...)
		code := exitOK
		if err != nil {
			code = c.failed("%s", explain(err, ""))
		}
		rows := []deletedRow{}
		for _, d := range deleted.Sorted() {
			switch {
			case d.Err == nil:
				rows = append(rows, deletedRow{d.Group, true})
			case errors.Is(d.Err, kerr.GroupIDNotFound) && *ifExists:
				rows = append(rows, deletedRow{d.Group, false})
			default:
				code = c.failed("%s", explainGroup(d.Group, d.Err))
			}
		}
		return max(code, c.printDeleted("group", *format, rows))
	})
}

type describedGroup struct {
	Group       string             `json:"group"`
	State       string             `json:"state"`
	Protocol    string             `json:"protocol"` // the assignor
	Coordinator int32              `json:"coordinator"`
	Lag         int64              `json:"lag"` // of all partitions with a committed offset
	Offsets     []groupOffset      `json:"offsets"`
	Members     []groupMemberState `json:"members"`
}

type groupOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed *int64 `json:"committed"` // null: none
	End       *int64 `json:"end"`       // null: not known
	Lag       *int64 `json:"lag"`
	Member    string `json:"member,omitempty"`
	Client    string `json:"client,omitempty"`
	Host      string `json:"host,omitempty"`
	Error     string `json:"error,omitempty"`
}

type groupMemberState struct {
	ID         string             `json:"id"`
	InstanceID string             `json:"instanceId,omitempty"`
	Client     string             `json:"client"`
	Host       string             `json:"host"`
	Assigned   map[string][]int32 `json:"assigned"`
}

func groupDescribe(c *call) int {
	client := addClientFlags(c.flags)
	members := c.flags.Bool("members", false, "show members instead of partitions")
	format := c.format()
	names, code, done := c.parse(0, -1)
	if done {
		return code
	}
	if c.badFormat(*format) {
		return c.wrong("--format is text or json")
	}
	return c.withAdmin(client, func(ctx context.Context, admin *kadm.Client) int {
		lags, err := admin.Lag(ctx, names...)
		if err != nil {
			return c.failed("%s", explain(err, ""))
		}
		code := exitOK
		groups := []describedGroup{}
		for _, l := range lags.Sorted() {
			err := l.Error()
			if err == nil && l.State == "Dead" {
				err = kerr.GroupIDNotFound // how older versions of the request say it
			}
			if err != nil {
				code = c.failed("%s", explainGroup(l.Group, err))
				continue
			}
			groups = append(groups, describeGroup(l))
		}
		if *format == "json" {
			return max(code, c.printJSON(groups))
		}
		for i, g := range groups {
			if i > 0 {
				fmt.Fprintln(c.stdout)
			}
			c.printGroup(g, *members)
		}
		return code
	})
}

func describeGroup(l kadm.DescribedGroupLag) describedGroup {
	g := describedGroup{Group: l.Group, State: l.State, Protocol: l.Protocol, Coordinator: l.Coordinator.NodeID, Offsets: []groupOffset{}, Members: []groupMemberState{}}
	for _, p := range l.Lag.Sorted() {
		o := groupOffset{Topic: p.Topic, Partition: p.Partition}
		if p.Member != nil {
			o.Member, o.Client, o.Host = p.Member.MemberID, p.Member.ClientID, p.Member.ClientHost
		}
		if p.Err != nil {
			o.Error = explain(p.Err, "")
		}
		if p.End.Err == nil {
			o.End = &p.End.Offset
		}
		if p.Commit.At >= 0 {
			o.Committed = &p.Commit.At
			if p.Err == nil {
				o.Lag = &p.Lag
				g.Lag += p.Lag
			}
		}
		g.Offsets = append(g.Offsets, o)
	}
	for _, m := range l.Members {
		s := groupMemberState{ID: m.MemberID, Client: m.ClientID, Host: m.ClientHost, Assigned: map[string][]int32{}}
		if m.InstanceID != nil {
			s.InstanceID = *m.InstanceID
		}
		if a, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range a.Topics {
				slices.Sort(t.Partitions)
				s.Assigned[t.Topic] = t.Partitions
			}
		}
		g.Members = append(g.Members, s)
	}
	return g
}

func (c *call) printGroup(g describedGroup, members bool) {
	fmt.Fprintf(c.stdout, "%s  state %s  coordinator %d  assignor %s  members %d  lag %s\n", g.Group, g.State, g.Coordinator, dash(g.Protocol), len(g.Members), count(g.Lag))
	if members {
		t := newTable(c.stdout, "MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS")
		for _, m := range g.Members {
			var parts []string
			for _, topic := range sortedKeys(m.Assigned) {
				parts = append(parts, topic+":"+ids(m.Assigned[topic]))
			}
			t.row(m.ID, dash(m.InstanceID), m.Client, m.Host, dash(strings.Join(parts, " ")))
		}
		t.flush()
		return
	}
	t := newTable(c.stdout, "TOPIC", ">PARTITION", ">COMMITTED", ">END", ">LAG", "MEMBER", "HOST", "CLIENT")
	for _, o := range g.Offsets {
		t.row(o.Topic, o.Partition, number(o.Committed), number(o.End), number(o.Lag), dash(o.Member), dash(o.Host), dash(o.Client))
	}
	t.flush()
	for _, o := range g.Offsets {
		if o.Error != "" {
			fmt.Fprintf(c.stdout, "PROBLEM  %s-%d: %s\n", o.Topic, o.Partition, o.Error)
		}
	}
}

func number(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}
