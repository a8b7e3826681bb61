package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"varve/broker/admin"
)

// Exit codes of tier verify.
const (
	verifyFindings  = 1
	verifyUnchecked = 2
)

// maxVerifyLineBytes bounds one line of a verification's answer.
const maxVerifyLineBytes = 1 << 20

func tierVerifyCommand() *command {
	return &command{
		name: "verify", args: "[--http HOST:PORT] [--level list|index|data] [--topic GLOB] [--repair] [--rate BYTES] [--format text|json]", run: tierVerify,
		summary: "Let the controller compare the bucket with its metadata: orphans, missing and damaged objects, gaps. " +
			"Nothing is changed without --repair, which removes orphans that are old and hold nothing that the tier lacks, and stores anew what the local log still has. " +
			"It exits with 0 when all is sound, 1 with findings that remain, 2 when not all could be looked at.",
		notes: []string{
			"list\tpresence and size of each object, by LIST requests alone",
			"index\talso footer and indexes, one GET an object",
			"data\talso every chunk and every batch",
		},
		examples: []string{
			"varve tier verify",
			"varve tier verify --level data --topic 'orders*' --rate 50000000",
			"varve tier verify --repair --format json",
		},
	}
}

func tierVerify(c *call) int {
	addr := c.flags.String("http", "127.0.0.1:9644", "`HOST:PORT` of the controller's varve.http.listen")
	level := c.flags.String("level", "index", "how closely to look: list, index or data")
	topic := c.flags.String("topic", "", "only topics that match `GLOB`")
	repair := c.flags.Bool("repair", false, "remove old orphans, store anew what is missing or damaged")
	bytesPerSec := c.flags.Int64("rate", 0, "read at most `BYTES` a second; 0 is no bound")
	format := c.format()
	if _, code, done := c.parse(0, 0); done {
		return code
	}
	if c.badFormat(*format) {
		return c.wrong("--format is text or json")
	}
	ctx, stop := signal.NotifyContext(c.ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	q := url.Values{"level": {*level}, "topic": {*topic}, "repair": {strconv.FormatBool(*repair)}, "rate": {strconv.FormatInt(*bytesPerSec, 10)}}
	v := &verification{c: c}
	if *format == "text" {
		v.shown = c.stdout
	}
	if err := v.ask(ctx, *addr, q); err != nil {
		c.failed("%v", err)
		return verifyUnchecked
	}
	if *format == "json" {
		if code := c.printJSON(verified{*v.report, append([]admin.VerifyFinding{}, v.findings...)}); code != exitOK {
			return code
		}
	} else {
		v.summary()
	}
	switch {
	case v.report.Unchecked > 0:
		return verifyUnchecked
	case v.report.Findings > v.report.Repaired:
		return verifyFindings
	}
	return exitOK
}

// verified is the JSON that verify prints.
type verified struct {
	admin.VerifyReport
	Found []admin.VerifyFinding `json:"found"`
}

// verification reads the lines of an answer.
type verification struct {
	c        *call
	shown    io.Writer // where findings go as they come; nil = nowhere
	findings []admin.VerifyFinding
	report   *admin.VerifyReport
}

func (v *verification) ask(ctx context.Context, addr string, q url.Values) error {
	res, err := askAdmin(ctx, addr, "/api/v1/tier/verify?"+q.Encode(), struct{}{})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxVerifyLineBytes)
	for lines.Scan() {
		if err := v.line(lines.Bytes()); err != nil {
			return err
		}
	}
	switch {
	case lines.Err() != nil:
		return lines.Err()
	case v.report == nil:
		return errors.New("the broker ended before it was through")
	}
	return nil
}

func (v *verification) line(b []byte) error {
	var l admin.VerifyLine
	if err := json.Unmarshal(b, &l); err != nil {
		return fmt.Errorf("not the answer of a varve broker: %w", err)
	}
	switch {
	case l.Error != "":
		return errors.New(l.Error)
	case l.Report != nil:
		v.report = l.Report
	case l.Finding != nil && v.shown == nil:
		v.findings = append(v.findings, *l.Finding)
	case l.Finding != nil:
		f := l.Finding
		place := f.Key
		if f.Topic != "" {
			place = fmt.Sprintf("%s-%d [%d, %d) %s", f.Topic, f.Partition, f.Base, f.Next, f.Key)
		}
		fmt.Fprintf(v.shown, "%s  %s: %s", f.Kind, place, f.What)
		if f.Repair != "" {
			fmt.Fprintf(v.shown, " (%s)", f.Repair)
		}
		fmt.Fprintln(v.shown)
	}
	return nil
}

func (v *verification) summary() {
	r := v.report
	fmt.Fprintf(v.c.stdout, "%s objects of %s, %s segments of %s partitions compared, %s read, in %.1f s\n",
		count(r.Objects), size(r.ObjectBytes), count(r.Segments), count(r.Partitions), size(r.BytesRead), float64(r.TookMs)/1000)
	fmt.Fprintf(v.c.stdout, "%s findings, %s repaired, %s not checked\n", count(r.Findings), count(r.Repaired), count(r.Unchecked))
	if r.FirstError != "" {
		fmt.Fprintf(v.c.stdout, "first error: %s\n", r.FirstError)
	}
}
