package main

import (
	"fmt"
	"io"
	"time"

	"varve/broker/admin"
)

func tierCommand() *command {
	return &command{
		name:    "tier",
		summary: "See what has settled into the object store, check it, and bring a lost cluster back from it.",
		examples: []string{
			"varve tier status",
			"varve tier ls dir://$PWD/varve-data/tier",
		},
		sub: []*command{
			{
				name: "status", args: "[--http HOST:PORT] [--topic NAME] [--format text|json]", run: tierStatus,
				summary:  "Ask a running broker how far its partitions have settled, what sits where, and what it asked of the store.",
				examples: []string{"varve tier status", "varve tier status --topic hello --format json"},
			},
			tierListCommand(),
			tierInspectCommand(),
			tierCatCommand(),
			tierVerifyCommand(),
			tierCostCommand(),
			tierRestoreCommand(),
			tierReleaseCommand(),
			tierImportCommand(),
		},
	}
}

func tierStatus(c *call) int {
	addr := c.flags.String("http", "127.0.0.1:9644", "`HOST:PORT` of the broker's varve.http.listen")
	topic := c.flags.String("topic", "", "only partitions of the topic `NAME`")
	format := c.format()
	if _, code, done := c.parse(0, 0); done {
		return code
	}
	if c.badFormat(*format) {
		return c.wrong("--format is text or json")
	}
	var st admin.TierStatus
	if err := getJSON(c.ctx, *addr, "/api/v1/tier/status", &st); err != nil {
		return c.failed("%v", err)
	}
	if *topic != "" {
		st = only(st, *topic)
		if len(st.Partitions) == 0 {
			return c.failed("the broker leads no tiered partition of %s", *topic)
		}
	}
	if *format == "json" {
		return c.printJSON(st)
	}
	printTierStatus(c.stdout, st)
	return exitOK
}

// only keeps the partitions of one topic, and sums anew.
func only(st admin.TierStatus, topic string) admin.TierStatus {
	kept := []admin.TierPartition{}
	st.Total = admin.TierTotal{}
	for _, p := range st.Partitions {
		if p.Topic != topic {
			continue
		}
		kept = append(kept, p)
		st.Total.Partitions++
		st.Total.Segments += p.Segments
		st.Total.TierBytes += p.TierBytes
		st.Total.LocalBytes += p.LocalBytes
		st.Total.LagBytes += p.LagBytes
	}
	st.Partitions = kept
	return st
}

func printTierStatus(w io.Writer, st admin.TierStatus) {
	fmt.Fprintf(w, "%s\n", st.Location)
	for _, p := range st.Problems {
		fmt.Fprintf(w, "PROBLEM  %s\n", p)
	}
	fmt.Fprintln(w)
	t := newTable(w, "TOPIC", ">PARTITION", ">START", ">TIER TO", ">LOCAL FROM", ">END", ">OBJECTS", ">IN TIER", ">LOCAL", ">WAITING")
	for _, p := range st.Partitions {
		t.row(p.Topic, p.Partition, p.LogStart, p.TierEnd, p.LocalStart, p.LocalEnd, p.Segments, size(p.TierBytes), size(p.LocalBytes), size(p.LagBytes))
	}
	t.row("all", st.Total.Partitions, "", "", "", "", st.Total.Segments, size(st.Total.TierBytes), size(st.Total.LocalBytes), size(st.Total.LagBytes))
	t.flush()
	for _, p := range st.Partitions {
		if p.LastError != "" {
			fmt.Fprintf(w, "PROBLEM  %s-%d: %s (%s)\n", p.Topic, p.Partition, p.LastError, time.UnixMilli(p.LastErrorMs).UTC().Format(time.RFC3339))
		}
	}
	fmt.Fprintf(w, "\ncache: %s of %s, %s chunks found, %s fetched\n\n", size(st.Cache.UsedBytes), size(st.Cache.CapacityBytes), count(st.Cache.Hits), count(st.Cache.Misses))
	printStoreUse(w, st.Store)
}

// printStoreUse shows what was asked of the store, and its price.
func printStoreUse(w io.Writer, use []admin.StoreUse) {
	t := newTable(w, "REQUEST", "CAUSE", ">NUMBER", ">FAILED", ">BYTES", ">SECONDS", ">US$")
	var requests, failed, bytes int64
	var seconds, dollars float64
	for _, u := range use {
		t.row(u.Verb, u.Cause, count(u.Requests), count(u.Errors), size(u.Bytes), fmt.Sprintf("%.2f", u.Seconds), fmt.Sprintf("%.6f", u.Dollars))
		requests, failed, bytes = requests+u.Requests, failed+u.Errors, bytes+u.Bytes
		seconds, dollars = seconds+u.Seconds, dollars+u.Dollars
	}
	t.row("all", "", count(requests), count(failed), size(bytes), fmt.Sprintf("%.2f", seconds), fmt.Sprintf("%.6f", dollars))
	t.flush()
}
