package main

import (
	"fmt"
	"net/url"
	"path"
	"time"

	"varve/broker/admin"
	"varve/tiering"
)

// restorePoll is how often a restore under way is looked at.
const restorePoll = 300 * time.Millisecond

func tierRestoreCommand() *command {
	return &command{
		name: "restore", run: tierRestore,
		args: "--from URL [--cluster ID] [--topic GLOB] [--to TIME] [--salvage] [--dry-run] [--abort] [--http HOST:PORT] [--format text|json]",
		summary: "Bring the topics of a lost cluster back from its bucket into the running, empty one that uses the same bucket. " +
			"Topics keep their ids, configs and offsets, groups their offsets; the objects stay where they are. " +
			"The running broker does the work and goes on with it when this command, or the broker, is interrupted; asked again, it waits for the same restore. " +
			"Retention of what came back waits for `varve tier release`.",
		examples: []string{
			"varve tier restore --from 's3://bucket/prefix?region=eu-central-1' --dry-run",
			"varve tier restore --from 's3://bucket/prefix?region=eu-central-1' --topic 'orders-*'",
			"varve tier restore --from dir:///var/lib/varve/tier --to 2026-03-01T12:00:00Z",
		},
	}
}

func tierReleaseCommand() *command {
	return &command{
		name: "release", args: "[--topic GLOB] [--http HOST:PORT] [--format text|json]", run: tierRelease,
		summary:  "Let retention act again on restored topics, and let objects that nothing needs be deleted: when you have seen that the restore is what you want.",
		examples: []string{"varve tier release", "varve tier release --topic 'orders-*'"},
	}
}

// restoreCall is one execution of `varve tier restore`.
type restoreCall struct {
	*call
	addr   string
	order  admin.RestoreOrder
	dryRun bool
	asJSON bool
}

func tierRestore(c *call) int {
	r := &restoreCall{call: c}
	c.flags.StringVar(&r.addr, "http", "127.0.0.1:9644", "`HOST:PORT` of the new cluster's varve.http.listen")
	c.flags.StringVar(&r.order.From, "from", "", "tier `URL` of the lost cluster; the new one has the same")
	c.flags.StringVar(&r.order.Cluster, "cluster", "", "`ID` of the lost cluster, when the bucket has several")
	c.flags.StringVar(&r.order.Topics, "topic", "", "only topics whose names match `GLOB`")
	c.flags.BoolVar(&r.order.Salvage, "salvage", false, "from the segments alone, when the metadata in the bucket is lost")
	c.flags.BoolVar(&r.order.TakeOver, "take-over", false, "even from a cluster that another one has restored already")
	c.flags.BoolVar(&r.order.Abort, "abort", false, "forget the restore under way; nothing of it is visible yet")
	c.flags.BoolVar(&r.dryRun, "dry-run", false, "only say what would come back; needs no broker")
	to := c.flags.String("to", "", "point in `TIME`, as 2026-03-01T12:00:00Z; without it the newest state there is")
	format := c.format()
	if _, code, done := c.parse(0, 0); done {
		return code
	}
	r.asJSON = *format == "json"
	if c.badFormat(*format) {
		return c.wrong("--format is text or json")
	}
	if *to != "" {
		at, err := time.Parse(time.RFC3339, *to)
		if err != nil || at.UnixMilli() <= 0 {
			return c.wrong("--to %q: write it as 2026-03-01T12:00:00Z", *to)
		}
		r.order.ToMs = at.UnixMilli()
	}
	if _, err := path.Match(r.order.Topics, ""); err != nil {
		return c.wrong("--topic %q: %v", r.order.Topics, err)
	}
	switch {
	case r.order.Abort:
		return r.abort()
	case r.order.From == "":
		return c.wrong("--from is missing: the varve.tier.url that the lost cluster had")
	case r.dryRun:
		return r.dry()
	}
	return r.run()
}

func (r *restoreCall) dry() int {
	store, prefix, code := r.openTier([]string{r.order.From})
	if store == nil {
		return code
	}
	rep, err := tiering.DryRunRestore(r.ctx, store, prefix, tiering.RestoreRequest{
		Source: r.order.Cluster, ToMs: r.order.ToMs, Topics: r.order.Topics, Salvage: r.order.Salvage, TakeOver: r.order.TakeOver,
	}, time.Now().UnixMilli())
	if err != nil {
		return r.storeFailed(err)
	}
	return r.show(rep)
}

func (r *restoreCall) abort() int {
	if err := postJSON(r.ctx, r.addr, "/api/v1/tier/restore", r.order, &admin.RestoreStarted{}); err != nil {
		return r.failed("%v", err)
	}
	fmt.Fprintln(r.stderr, "the restore is aborted; nothing of it was visible")
	return exitOK
}

// run asks for the restore, unless it is under way, and waits for its end.
func (r *restoreCall) run() int {
	var st tiering.RestoreStatus
	if err := getJSON(r.ctx, r.addr, "/api/v1/tier/restore", &st); err != nil {
		return r.failed("%v", err)
	}
	id := st.ID
	if id == "" {
		var started admin.RestoreStarted
		if err := postJSON(r.ctx, r.addr, "/api/v1/tier/restore", r.order, &started); err != nil {
			return r.failed("%v", err)
		}
		id = started.ID
	} else {
		fmt.Fprintf(r.stderr, "a restore of %s is under way since %s: waiting for it\n", st.Source, time.UnixMilli(st.StartedMs).UTC().Format(time.RFC3339))
	}
	return r.wait(id)
}

func (r *restoreCall) wait(id string) int {
	said := ""
	for {
		var st tiering.RestoreStatus
		if err := getJSON(r.ctx, r.addr, "/api/v1/tier/restore?id="+url.QueryEscape(id), &st); err != nil {
			return r.failed("%v\nthe restore goes on in the broker: ask again with the same command", err)
		}
		switch {
		case st.Report != nil:
			return r.show(st.Report)
		case st.ID == "":
			return r.failed("the restore was aborted")
		case st.Problem != "" && st.Permanent:
			return r.failed("%s\nnothing is visible yet; put it right and wait, or give up with `varve tier restore --abort`", st.Problem)
		}
		if now := st.Phase + st.Problem; now != said {
			said = now
			fmt.Fprintf(r.stderr, "%s: %s partitions, %s segments %s\n", st.Phase, count(st.Partitions), count(st.Segments), st.Problem)
		}
		select {
		case <-time.After(restorePoll):
		case <-r.ctx.Done():
			return r.failed("the restore goes on in the broker: ask again with the same command")
		}
	}
}

func (r *restoreCall) show(rep *tiering.RestoreReport) int {
	if r.asJSON {
		return r.printJSON(rep)
	}
	w := r.stdout
	what := "restored"
	if rep.DryRun {
		what = "would restore"
	}
	fmt.Fprintf(w, "%s cluster %s as of %s\n\n", what, rep.Source, dash(rep.Recovery))
	t := newTable(w, "TOPIC", ">PARTITION", ">LOG START", ">END", ">SEGMENTS", ">BYTES")
	for _, topic := range rep.Topics {
		for _, p := range topic.Partitions {
			t.row(topic.Name, p.Partition, p.LogStart, p.End, p.Segments, size(p.Bytes))
		}
	}
	t.row("all", rep.Partitions, "", "", count(rep.Segments), size(rep.Bytes))
	t.flush()
	fmt.Fprintf(w, "\ngroup offsets: %s as of %s, %d of them moved to what exists\n", count(rep.GroupOffsets), dash(rep.OffsetsTime), rep.OffsetsClamped)
	if n := int64(rep.Unlisted) + rep.ToDelete; n > 0 {
		fmt.Fprintf(w, "objects that nothing needs: %s; they go after `varve tier release`\n", count(n))
	}
	for _, l := range rep.Lost {
		fmt.Fprintf(w, "LOST     %s\n", l)
	}
	for _, f := range rep.Findings {
		fmt.Fprintf(w, "FINDING  %s\n", f)
	}
	if !rep.DryRun {
		fmt.Fprintln(w, "\nretention of these topics waits: when all is well, run `varve tier release`")
	}
	return exitOK
}

func tierRelease(c *call) int {
	addr := c.flags.String("http", "127.0.0.1:9644", "`HOST:PORT` of the broker's varve.http.listen")
	topic := c.flags.String("topic", "", "only topics whose names match `GLOB`")
	format := c.format()
	if _, code, done := c.parse(0, 0); done {
		return code
	}
	if c.badFormat(*format) {
		return c.wrong("--format is text or json")
	}
	var out admin.Released
	if err := postJSON(c.ctx, *addr, "/api/v1/tier/release", admin.ReleaseOrder{Topics: *topic}, &out); err != nil {
		return c.failed("%v", err)
	}
	if *format == "json" {
		return c.printJSON(out)
	}
	for _, name := range out.Topics {
		fmt.Fprintf(c.stdout, "released %s\n", name)
	}
	if len(out.Topics) == 0 {
		fmt.Fprintln(c.stdout, "no topic was waiting")
	}
	return exitOK
}
