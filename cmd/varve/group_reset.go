package main

import (
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

func groupResetCommand() *command {
	return &command{
		name: "reset", args: "NAME {--topic T[:P,...]... | --all-topics} {--to-earliest | --to-latest | --to-offset N | --to-datetime TIME | ...} [--execute]", run: groupReset,
		summary: "Move the committed offsets of a group that has no members. Nothing is changed without --execute: the plan is shown. " +
			"Offsets outside of what a partition holds are moved to its nearest end, as Kafka's tool does. " +
			"A file for --from-file has a line `topic,partition,offset` for each partition; --export prints such lines.",
		examples: []string{
			"varve group reset readers --topic hello --to-earliest",
			"varve group reset readers --topic hello:0,2 --shift-by -100 --execute",
			"varve group reset readers --all-topics --to-datetime 2026-01-31T13:00:00Z --execute",
			"varve group reset readers --all-topics --to-current --export > offsets.csv",
			"varve group reset readers --from-file offsets.csv --execute",
		},
	}
}

// resetTarget is the one thing that was asked for.
type resetTarget struct {
	kind   string // name of the flag
	offset int64
	time   time.Time
	file   map[topicPartition]int64
}

type topicPartition struct {
	topic     string
	partition int32
}

func compareTP(a, b topicPartition) int {
	if a.topic != b.topic {
		return strings.Compare(a.topic, b.topic)
	}
	return int(a.partition) - int(b.partition)
}

// resetRow is the plan for one partition.
type resetRow struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      *int64 `json:"from"` // null: no offset was committed
	To        int64  `json:"to"`
	Note      string `json:"note,omitempty"`
}

type resetFlags struct {
	client                       *clientFlags
	topics                       repeated
	allTopics, execute, export   *bool
	dryRun                       *bool
	format                       *string
	toOffset, shiftBy            *int64
	datetime, duration, fromFile *string
	target                       resetTarget
	wanted                       map[string][]int32 // partitions by topic; none is all
}

func addResetFlags(c *call) *resetFlags {
	f := &resetFlags{
		client:    addClientFlags(c.flags),
		allTopics: c.flags.Bool("all-topics", false, "all partitions for which the group has committed an offset"),
		execute:   c.flags.Bool("execute", false, "do it"),
		dryRun:    c.flags.Bool("dry-run", false, "only show the plan, which is the default"),
		export:    c.flags.Bool("export", false, "print the plan as lines for --from-file, and change nothing"),
		format:    c.format(),
		toOffset:  c.flags.Int64("to-offset", 0, "to the offset `N`"),
		shiftBy:   c.flags.Int64("shift-by", 0, "by `N` records: forwards, or backwards when negative"),
		datetime:  c.flags.String("to-datetime", "", "to the first record of this `TIME` or later (UTC without a zone), or to the end"),
		duration:  c.flags.String("by-duration", "", "to the first record of the last `DURATION`: 90m, 7d, P1DT2H"),
		fromFile:  c.flags.String("from-file", "", "to the offsets in the CSV file `FILE`; - is the standard input"),
	}
	c.flags.StringVar(f.datetime, "to-time", "", "`TIME`, short for --to-datetime")
	for name, usage := range map[string]string{
		"to-earliest": "to the first record", "to-latest": "to the end", "to-current": "to what is committed, or the end where nothing is: for --export",
	} {
		c.flags.Bool(name, false, usage)
	}
	c.flags.Var(&f.topics, "topic", "a topic `T`, or some of its partitions as T:P,...; may be repeated")
	return f
}

// resolve checks what was typed. It returns a text when something is wrong.
func (f *resetFlags) resolve(c *call, now time.Time) string {
	var kinds []string
	c.flags.Visit(func(fl *flag.Flag) {
		switch fl.Name {
		case "to-earliest", "to-latest", "to-current", "to-offset", "shift-by", "by-duration", "from-file", "to-datetime", "to-time":
			if fl.Value.String() != "false" {
				kinds = append(kinds, fl.Name)
			}
		}
	})
	if len(kinds) != 1 {
		return "say where to, once: --to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, --by-duration, --shift-by or --from-file"
	}
	f.target.kind = kinds[0]
	if wrong := f.resolveTarget(c, now); wrong != "" {
		return wrong
	}
	switch {
	case *f.execute && (*f.dryRun || *f.export):
		return "--execute and --dry-run or --export exclude each other"
	case f.target.kind == "from-file" && (*f.allTopics || len(f.topics) > 0):
		return "the file names the partitions: leave out --topic and --all-topics"
	case f.target.kind == "from-file":
	case *f.allTopics == (len(f.topics) > 0):
		return "say for what: --topic T, or --all-topics"
	}
	f.wanted = map[string][]int32{}
	for _, t := range f.topics {
		name, list, _ := strings.Cut(t, ":")
		f.wanted[name] = f.wanted[name][:len(f.wanted[name]):len(f.wanted[name])]
		for _, n := range splitList(list) {
			p, err := strconv.ParseInt(n, 10, 32)
			if err != nil || p < 0 {
				return "--topic " + t + " is not of the form T or T:P,..."
			}
			f.wanted[name] = append(f.wanted[name], int32(p))
		}
	}
	return ""
}

func (f *resetFlags) resolveTarget(c *call, now time.Time) string {
	var err error
	switch f.target.kind {
	case "to-offset":
		if f.target.offset = *f.toOffset; f.target.offset < 0 {
			return "--to-offset is not negative"
		}
	case "shift-by":
		f.target.offset = *f.shiftBy
	case "to-datetime", "to-time":
		f.target.kind = "to-datetime"
		f.target.time, err = parseTime(*f.datetime, now)
	case "by-duration":
		var d time.Duration
		d, err = parseDuration(*f.duration)
		f.target.kind, f.target.time = "to-datetime", now.Add(-d.Abs())
	case "from-file":
		var in io.Reader = c.stdin
		if *f.fromFile != "-" {
			file, openErr := os.Open(*f.fromFile)
			if openErr != nil {
				return "--from-file: " + openErr.Error()
			}
			defer file.Close()
			in = file
		}
		f.target.file, err = readOffsets(in)
	}
	if err != nil {
		return "--" + f.target.kind + ": " + err.Error()
	}
	return ""
}

const maxOffsetRows = 1_000_000 // of a file

// readOffsets reads `topic,partition,offset` lines.
func readOffsets(in io.Reader) (map[topicPartition]int64, error) {
	rows := csv.NewReader(in)
	rows.FieldsPerRecord, rows.Comment, rows.TrimLeadingSpace = 3, '#', true
	out := map[topicPartition]int64{}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("lines are topic,partition,offset: %w", err)
		}
		p, errP := strconv.ParseInt(row[1], 10, 32)
		o, errO := strconv.ParseInt(row[2], 10, 64)
		if err := errors.Join(errP, errO); err != nil || p < 0 || o < 0 {
			return nil, fmt.Errorf("line %q: partition and offset are numbers from 0", strings.Join(row, ","))
		}
		if out[topicPartition{row[0], int32(p)}] = o; len(out) > maxOffsetRows {
			return nil, fmt.Errorf("more than %d lines", maxOffsetRows)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("there is no line in it")
	}
	return out, nil
}

// resetState is what is known of one partition.
type resetState struct {
	committed  *int64
	start, end int64
	atTime     int64 // offset of the first record at the time asked for; < 0: none
}

// planReset computes the new offset of one partition.
func planReset(target resetTarget, at topicPartition, s resetState) (resetRow, error) {
	row := resetRow{Topic: at.topic, Partition: at.partition, From: s.committed}
	switch target.kind {
	case "to-earliest":
		row.To = s.start
	case "to-latest":
		row.To = s.end
	case "to-current":
		if row.To = s.end; s.committed != nil {
			row.To = *s.committed
		}
		return row, nil
	case "to-offset":
		row.To = target.offset
	case "to-datetime":
		if row.To = s.atTime; s.atTime < 0 {
			row.To, row.Note = s.end, "no record is that young: the end"
		}
	case "shift-by":
		if s.committed == nil {
			return row, fmt.Errorf("%s-%d has no committed offset to shift: use --to-earliest, --to-latest or --to-offset", at.topic, at.partition)
		}
		row.To = *s.committed + target.offset
		if target.offset > 0 && row.To < *s.committed {
			row.To = s.end // it went over the largest number
		}
	case "from-file":
		row.To = target.file[at]
	}
	switch {
	case row.To < s.start:
		row.To, row.Note = s.start, fmt.Sprintf("%d is before the first record", row.To)
	case row.To > s.end:
		row.To, row.Note = s.end, fmt.Sprintf("%d is after the end", row.To)
	}
	return row, nil
}
