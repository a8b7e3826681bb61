package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

type options struct {
	varve, against string
	peer, small    bool
	data           string
	rounds         int
	bytes          int64
	paced          time.Duration
	idle           time.Duration
	stall          time.Duration
	stallMBps      int
	recoverBytes   int64
	connections    int
	coldBytes      int64
	rows, sides    *regexp.Regexp
	json           string
	plot           bool
	list           bool
	bare           string
	bareFile       string
	meter          string
	meterPIDs      string
}

func parse() (o options, err error) {
	flag.StringVar(&o.varve, "varve", "bin/varve", "the binary to measure")
	flag.StringVar(&o.against, "against", "", "another varve binary to take the other sides' place: before and after in one run")
	flag.BoolVar(&o.peer, "peer", false, "Apache Kafka too, and the rows that need it")
	flag.BoolVar(&o.small, "small", false, "all rows, too small and too short to mean anything: for the harness's own correctness")
	flag.StringVar(&o.data, "data", "", "folder for data (default: a temporary one)")
	flag.IntVar(&o.rounds, "rounds", 5, "counted rounds of each side, after one that is not")
	flag.Int64Var(&o.bytes, "bytes", 512<<20, "bytes moved per round; rows of small requests move a part of it")
	flag.DurationVar(&o.paced, "paced", 8*time.Second, "length of a round at a fixed rate")
	flag.DurationVar(&o.idle, "idle", 15*time.Second, "how long an idle broker is watched")
	flag.DurationVar(&o.stall, "stall", 10*time.Minute, "length of the stall run of each side")
	flag.IntVar(&o.stallMBps, "stall-mbps", 100, "rate of the stall run")
	flag.Int64Var(&o.recoverBytes, "recover-bytes", 10<<30, "bytes in the log that is recovered after kill -9")
	flag.IntVar(&o.connections, "connections", 5000, "idle connections")
	flag.Int64Var(&o.coldBytes, "cold-bytes", 10<<30, "bytes in the log that the cold rows read from the tier")
	rows := flag.String("rows", "", "regular expression of rows (default: those that have a bare side, or with -peer all but stall)")
	sides := flag.String("sides", ".", "regular expression of sides (varve, against, kafka, kafka-512m, bare)")
	flag.StringVar(&o.json, "json", "", "file of results: rows of this run replace those of the same name in it")
	flag.BoolVar(&o.plot, "plot", false, "write docs/performance.md's tables and docs/img from the -json file, after the rows, if any")
	flag.BoolVar(&o.list, "list", false, "list the rows and end")
	flag.StringVar(&o.bare, "bare", "", "internal: run as the bare server (sendfile or append)")
	flag.StringVar(&o.bareFile, "bare-file", "", "internal: the bare server's file")
	flag.StringVar(&o.meter, "meter", "", "internal: run as the meter of hiccups, which writes to this folder")
	flag.StringVar(&o.meterPIDs, "meter-pids", "", "internal: the broker's process and the generator's, which the meter watches")
	flag.Parse()
	if o.rows, err = regexp.Compile(*rows); err == nil {
		o.sides, err = regexp.Compile(*sides)
	}
	return o, err
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse()
	if err == nil {
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.bare != "" {
		return serveBare(o.bare, o.bareFile)
	}
	if o.meter != "" {
		return runMeter(o.meter, o.meterPIDs)
	}
	if o.small {
		o.rounds, o.bytes, o.paced, o.idle, o.stall = 1, 16<<20, time.Second, time.Second, 2*time.Second
		o.recoverBytes, o.connections, o.coldBytes = 64<<20, 50, 64<<20
	}
	chosen := choose(rows(), o)
	if o.list {
		for _, r := range chosen {
			fmt.Printf("%-22s %s\n", r.name, r.title)
		}
		return nil
	}
	if o.data == "" {
		dir, err := os.MkdirTemp("", "varve-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.data = dir
	}
	results, err := loadResults(o.json)
	if err != nil {
		return err
	}
	if err := runRows(ctx, o, chosen, results); err != nil {
		return err
	}
	if o.plot {
		return writeDocs(results)
	}
	return nil
}

// runRows goes on after a row that failed, with fresh brokers, and reports it at the end.
func runRows(ctx context.Context, o options, chosen []row, results *results) (failed error) {
	b := &bench{options: o, rates: map[string]float64{}}
	b.reset()
	defer b.close()
	for _, r := range chosen {
		if len(b.sidesOf(r)) == 0 {
			continue
		}
		began := time.Now()
		res, err := b.run(ctx, r)
		if err != nil {
			err = fmt.Errorf("%s: %w", r.name, err)
			if failed = errors.Join(failed, err); ctx.Err() != nil {
				break
			}
			fmt.Fprintln(os.Stderr, "bench:", err)
			b.reset()
			continue
		}
		res.Seconds = time.Since(began).Round(time.Second).Seconds()
		res.print(os.Stdout)
		if err := results.put(ctx, o, res); err != nil {
			return errors.Join(failed, err)
		}
	}
	return failed
}

// choose applies -rows, or what stands for it when it is not given. With -plot alone no row runs.
func choose(all []row, o options) (out []row) {
	for _, r := range all {
		given := o.rows.String() != ""
		switch {
		case given && !o.rows.MatchString(r.name),
			!given && o.plot && !o.peer,
			!given && !o.peer && !o.small && !r.hasBare(),
			!given && !o.small && r.alone:
			continue
		}
		out = append(out, r)
	}
	return out
}
