package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// leaveTimeoutMs bounds the last commit and the leaving of a group.
const leaveTimeoutMs = 10_000

// fetchWaitMs is Kafka's fetch.max.wait.ms. The client's own 5 s would keep a partition that is assigned late waiting behind a
// request for those that were there first and have nothing.
const fetchWaitMs = 500

func consumeCommand() *command {
	return &command{
		name: "consume",
		args: "TOPIC... [--from-beginning | --offset O | --from-time TIME | --group G] [--until-end | --count N] [--format text|json|hex|base64|raw] [FLAG]...",
		summary: "Read records and print them, one a line, until Ctrl-C. Without saying where to begin it shows what is written from now on. " +
			"With --group the group's offsets decide where to begin, records count as read once they are printed, and the group is left at the end. " +
			"It exits with 0 when it was told to end or has read all it was asked for, with 1 if fewer than --count came.",
		notes: []string{
			"text\tthe value, or the fields of --print",
			"hex, base64\tthe same in that notation",
			"json\t" + `{"topic":"t","partition":0,"offset":7,"timestamp":1767225600000,"key":"k","value":"v","headers":[{"key":"h","value":"x"}]}`,
			"\tTimestamps are milliseconds; null is null; bytes that are no text stand in keyBase64 and valueBase64. produce",
			"\t--format json reads it back byte for byte.",
			"raw\tthe values as they are, with nothing between",
		},
		examples: []string{
			"varve consume hello --from-beginning",
			"varve consume hello --from-beginning --until-end --format json",
			"varve consume hello --partition 0 --offset 42 --count 1 --print offset,timestamp,key,value",
			"varve consume hello --offset -10 --until-end",
			"varve consume hello --from-time 2026-01-31T13:00:00Z --key-separator :",
			"varve consume hello --group readers --from-beginning --timeout-ms 5000",
		},
		run: runConsume,
	}
}

// consumeFlags are the flags of consume, checked by resolve.
type consumeFlags struct {
	client                                              *clientFlags
	topics                                              repeated
	format, separator, keySeparator, nullMarker, fields *string
	offset, fromTime, group, isolation, partitions      *string
	fromBeginning, untilEnd, follow                     *bool
	count                                               *int64
	idleMs                                              *int64
	at                                                  startAt
	only                                                []int32 // partitions
	records                                             recordCodec
	joined                                              atomic.Bool // that a group gave it partitions; --timeout-ms counts from then on
}

func addConsumeFlags(c *call) *consumeFlags {
	f := &consumeFlags{
		client:        addClientFlags(c.flags),
		fromBeginning: c.flags.Bool("from-beginning", false, "begin with the first record; with --group, where the group has no offset yet"),
		offset:        c.flags.String("offset", "", "begin at the offset `O`: a number, beginning, end, or -N for the last N records of each partition"),
		fromTime:      c.flags.String("from-time", "", "begin with the first record of this `TIME` or later: RFC 3339, milliseconds since 1970, or how long ago (90m, 7d)"),
		group:         c.flags.String("group", "", "read as a member of the consumer group `G`"),
		partitions:    c.flags.String("partition", "", "read only the partitions `N,...`"),
		untilEnd:      c.flags.Bool("until-end", false, "end where the partitions ended when it began"),
		follow:        c.flags.Bool("follow", true, "wait for more at the end; --follow=false is --until-end"),
		count:         c.flags.Int64("count", 0, "end after `N` records; 0 is no bound"),
		idleMs:        c.flags.Int64("timeout-ms", 0, "end when no record has come for `MS` milliseconds, in a group once it gave out partitions; 0 is never"),
		format:        c.flags.String("format", formatText, "`FORMAT` of the output: text, json, hex, base64 or raw"),
		fields:        c.flags.String("print", "value", "`FIELDS` of a line, in this order: "+strings.Join(recordFields, ",")),
		separator:     c.flags.String("separator", `\t`, "`SEP` between fields; \\t is a tab"),
		keySeparator:  c.flags.String("key-separator", "", "print key and value with `SEP` between them"),
		nullMarker:    c.flags.String("null-marker", "null", "`TEXT` for a key or value that is null"),
		isolation:     c.flags.String("isolation-level", "read_uncommitted", "`LEVEL`: read_uncommitted, or read_committed to leave out open and aborted transactions"),
	}
	c.flags.Int64Var(f.count, "max-messages", 0, "`N`, Kafka's name for --count")
	c.flags.Var(&f.topics, "topic", "`NAME` of a topic, if it does not stand by itself")
	return f
}

// resolve checks what was typed. It returns a text when something is wrong.
func (f *consumeFlags) resolve(c *call, args []string) string {
	f.topics = append(f.topics, args...)
	set := map[string]bool{}
	c.flags.Visit(func(fl *flag.Flag) { set[fl.Name] = true })
	*f.untilEnd = *f.untilEnd || !*f.follow
	slices.Sort(f.topics)
	f.topics = slices.Compact(f.topics)
	switch {
	case len(f.topics) == 0:
		return "something is missing: the topic"
	case !slices.Contains(recordFormats, *f.format):
		return "--format is one of " + strings.Join(recordFormats, ", ")
	case *f.isolation != "read_uncommitted" && *f.isolation != "read_committed":
		return "--isolation-level is read_uncommitted or read_committed"
	case *f.count < 0 || *f.idleMs < 0:
		return "--count and --timeout-ms are not negative"
	case set["group"] && *f.group == "":
		return "--group is empty"
	case *f.group != "" && (set["offset"] || set["from-time"] || set["partition"]):
		return "a group decides itself where to begin and who reads which partition: leave out --offset, --from-time and --partition, or use `varve group reset`"
	case *f.group != "" && *f.untilEnd:
		return "where a group's share ends changes while it reads: use --timeout-ms 5000 instead of --until-end"
	}
	if wrong := f.resolveStart(set); wrong != "" {
		return wrong
	}
	return f.resolveLines(set)
}

func (f *consumeFlags) resolveLines(set map[string]bool) string {
	f.records = recordCodec{format: *f.format, separator: unescape(*f.separator), fields: strings.Split(*f.fields, ","), nullMarker: *f.nullMarker}
	lines := *f.format != formatJSON && *f.format != formatRaw
	if !lines && (set["print"] || set["separator"] || set["key-separator"]) {
		return "--print and separators are for lines, which --format " + *f.format + " has not"
	}
	if set["key-separator"] {
		if set["print"] || set["separator"] {
			return "--key-separator S is short for --print key,value --separator S: use one of them"
		}
		f.records.fields, f.records.separator = []string{"key", "value"}, unescape(*f.keySeparator)
	}
	for _, field := range f.records.fields {
		if !slices.Contains(recordFields, field) {
			return fmt.Sprintf("--print %q: the fields are %s", field, strings.Join(recordFields, ", "))
		}
	}
	return ""
}

func runConsume(c *call) int {
	f := addConsumeFlags(c)
	args, code, done := c.parse(0, -1)
	if done {
		return code
	}
	if wrong := f.resolve(c, args); wrong != "" {
		return c.wrong("%s", wrong)
	}
	ctx, stop := signal.NotifyContext(c.ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	scout, code := c.connect(ctx, f.client)
	if scout == nil {
		return code
	}
	defer scout.Close()
	plan, code := c.planReading(ctx, kadm.NewClient(scout), f)
	if code != exitOK {
		return code
	}
	client, code := c.connect(ctx, f.client, f.options(c, plan)...)
	if client == nil {
		return code
	}
	defer client.Close()
	r := newReading(c, f, client, plan)
	err := r.run(ctx)
	interrupted := ctx.Err() != nil
	stop() // a second Ctrl-C does not wait
	if *f.group != "" {
		err = errors.Join(err, leave(ctx, client))
	}
	return r.finish(interrupted, err)
}

// options make a client that begins where the plan says.
func (f *consumeFlags) options(c *call, plan readPlan) []kgo.Opt {
	opts := []kgo.Opt{kgo.WithHooks(&dialReporter{c: c}), kgo.FetchMaxWait(fetchWaitMs * time.Millisecond)}
	if *f.isolation == "read_committed" {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if *f.group == "" {
		if *f.untilEnd {
			opts = append(opts, kgo.KeepControlRecords()) // the last one before the end may be a marker
		}
		f.joined.Store(true)
		// A record that went away meanwhile is told, not jumped over.
		return append(opts, kgo.ConsumePartitions(plan.from), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	}
	reset := kgo.NewOffset().AtEnd()
	if *f.fromBeginning {
		reset = kgo.NewOffset().AtStart()
	}
	return append(opts, kgo.ConsumerGroup(*f.group), kgo.ConsumeTopics(f.topics...), kgo.ConsumeResetOffset(reset), kgo.AutoCommitMarks(),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { f.joined.Store(true) }))
}

// leave commits what was printed and leaves the group, so that its other members need not wait for a session to end.
func leave(ctx context.Context, client *kgo.Client) error {
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeoutMs*time.Millisecond)
	defer cancel()
	err := client.CommitMarkedOffsets(bound)
	return errors.Join(err, client.LeaveGroupContext(bound))
}
