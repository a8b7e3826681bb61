package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

type options struct {
	peer, only, fast bool
	write            bool
	unreachableOK    bool
	clients, cases   *regexp.Regexp
	jobs             int
	keep, binary     string
	own, config      string
}

func main() {
	var o options
	flag.BoolVar(&o.peer, "peer", false, "run the cells on Apache Kafka too")
	flag.BoolVar(&o.only, "peer-only", false, "run the cells on Apache Kafka alone")
	flag.BoolVar(&o.fast, "fast", false, "leave out the slow clients")
	flag.BoolVar(&o.write, "write", false, "write the outcomes into docs/clients.md instead of comparing them with it")
	flag.BoolVar(&o.unreachableOK, "unreachable-ok", false, "leave out clients whose registry cannot be reached, kcat and the Go clients excepted")
	flag.IntVar(&o.jobs, "jobs", 3, "cells that run at once")
	flag.StringVar(&o.keep, "keep", "", "folder for the brokers' data and logs, kept at the end (default: a temporary one)")
	flag.StringVar(&o.binary, "varve", "", "the varve binary to run (default: built from cmd/varve)")
	flag.StringVar(&o.own, "own", "", "used by the suite itself: start this broker at localhost:9092 and run the arguments beside it")
	flag.StringVar(&o.config, "config", "", "used with -own: the broker's whole configuration")
	clients := flag.String("clients", ".", "regular expression of the clients to run")
	cases := flag.String("cases", ".", "regular expression of the cases to run")
	flag.Parse()
	o.clients, o.cases = regexp.MustCompile(*clients), regexp.MustCompile(*cases)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if o.own != "" {
		err = runBeside(ctx, o, flag.Args())
	} else {
		err = suite(ctx, o)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func suite(ctx context.Context, o options) error {
	waits, err := readWaits(suiteDir("waits"))
	if err != nil {
		return err
	}
	scratch := o.keep
	if scratch == "" {
		if scratch, err = os.MkdirTemp("", "compat-"); err != nil {
			return err
		}
		defer os.RemoveAll(scratch)
	}
	if err := os.MkdirAll(scratch, 0o755); err != nil {
		return err
	}
	chosen := choose(o)
	if len(chosen) == 0 {
		return errors.New("no client has such a case")
	}
	if o.binary == "" {
		if o.binary, err = buildVarve(ctx); err != nil {
			return err
		}
	}
	chosen, missing, err := install(ctx, chosen, o.unreachableOK)
	if err != nil {
		return err
	}
	table := Table{waits: waits, missing: missing}
	for _, start := range brokers(o) {
		if err := onBroker(ctx, o, start, scratch, chosen, &table); err != nil {
			return errors.Join(err, table.Report(os.Stdout, nil))
		}
	}
	return conclude(o, &table)
}

// conclude compares the outcomes with the committed table, or writes them there.
func conclude(o options, table *Table) error {
	page, err := os.ReadFile(goldenFile())
	if err != nil {
		return err
	}
	golden := readGolden(string(page))
	if !o.write {
		return table.Report(os.Stdout, golden)
	}
	rows, _ := table.rows()
	// What may not fail is an error in every run, whatever the page says.
	return errors.Join(table.Report(os.Stdout, nil), writeGolden(golden.merge(rows, clients()), clients(), table.waits))
}

type starter struct {
	name  string
	start func(ctx context.Context, p place) (*Broker, error)
}

func brokers(o options) []starter {
	varve, kafka := starter{"varve", startVarve}, starter{"kafka", startKafka}
	switch {
	case o.only:
		return []starter{kafka}
	case o.peer:
		return []starter{varve, kafka}
	}
	return []starter{varve}
}

func choose(o options) (chosen []Client) {
	for _, cl := range clients() {
		if !o.clients.MatchString(cl.Name) || o.fast && cl.Slow {
			continue
		}
		var cases []Case
		for _, c := range cl.Cases {
			if o.cases.MatchString(c.Name) {
				cases = append(cases, c)
			}
		}
		if cl.Cases = cases; len(cases) > 0 {
			chosen = append(chosen, cl)
		}
	}
	return chosen
}

// onBroker runs every chosen cell on one broker: at most o.jobs at once, the last ones alone after the others.
func onBroker(ctx context.Context, o options, s starter, scratch string, chosen []Client, table *Table) error {
	began := time.Now()
	b, err := s.start(ctx, place{data: filepath.Join(scratch, s.name), binary: o.binary})
	if err != nil {
		return err
	}
	defer b.stop()
	fmt.Fprintf(os.Stderr, "%s serves at %s after %s\n", b.Name, b.Addr, time.Since(began).Round(time.Millisecond))
	var mu sync.Mutex
	cell := func(cl Client, c Case) {
		done := runCell(ctx, b, cl, c, scratch)
		mu.Lock()
		defer mu.Unlock()
		table.Add(done)
		fmt.Fprintln(os.Stderr, done.line())
	}
	var g errgroup.Group
	g.SetLimit(o.jobs)
	each(chosen, false, func(cl Client, c Case) {
		g.Go(func() error {
			if ctx.Err() == nil {
				cell(cl, c)
			}
			return nil
		})
	})
	if err := g.Wait(); err != nil {
		return err
	}
	each(chosen, true, func(cl Client, c Case) {
		if ctx.Err() == nil {
			cell(cl, c)
		}
	})
	return ctx.Err()
}

func each(chosen []Client, last bool, fn func(Client, Case)) {
	for _, cl := range chosen {
		for _, c := range cl.Cases {
			if c.Last == last {
				fn(cl, c)
			}
		}
	}
}
