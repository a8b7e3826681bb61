package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"text/tabwriter"
	"time"
)

type options struct {
	varve      string
	against    string
	data       string
	rounds     int
	bytes      int64
	fetchBytes int
	only       string
	bare       string
	bareFile   string
}

func main() {
	var o options
	flag.StringVar(&o.varve, "varve", "bin/varve", "the binary to measure")
	flag.StringVar(&o.against, "against", "", "another varve binary to take the bare program's place: before and after in one run")
	flag.StringVar(&o.data, "data", "", "folder for data (default: a temporary one)")
	flag.IntVar(&o.rounds, "rounds", 9, "counted rounds of each side, after one that is not")
	flag.Int64Var(&o.bytes, "bytes", 1<<30, "bytes moved per round; small requests move a part of it")
	flag.IntVar(&o.fetchBytes, "fetch-bytes", 1<<20, "bytes per fetch")
	flag.StringVar(&o.only, "only", "", "produce, small or hot: that part alone")
	flag.StringVar(&o.bare, "bare", "", "internal: run as the bare server (sendfile or append)")
	flag.StringVar(&o.bareFile, "bare-file", "", "internal: the bare server's file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.bare != "" {
		return serveBare(o.bare, o.bareFile)
	}
	if o.data == "" {
		dir, err := os.MkdirTemp("", "varve-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.data = dir
	}
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"produce", func() error { return benchProduce(ctx, o, largeBatch) }},
		{"small", func() error { return benchProduce(ctx, o, smallBatch) }},
		{"hot", func() error { return benchHot(ctx, o) }},
	} {
		if o.only != "" && o.only != part.name {
			continue
		}
		if err := part.run(); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// sample is one round of one side.
type sample struct {
	requests, bytes int64
	wall            time.Duration
	used            usage
	p50, p99        time.Duration // where the round measures latency
}

func (s sample) gbPerS() float64             { return float64(s.bytes) / 1e9 / s.wall.Seconds() }
func (s sample) cpuPerGB() float64           { return s.used.cpu.Seconds() / (float64(s.bytes) / 1e9) }
func (s sample) switchesPerRequest() float64 { return float64(s.used.switches) / float64(s.requests) }

// measure accounts for what do makes a side do.
func measure(s *side, requests, bytes int64, do func() error) (sample, error) {
	before, err := usageOf(s.pid)
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return sample{}, err
	}
	out := sample{requests: requests, bytes: bytes, wall: time.Since(began)}
	after, err := usageOf(s.pid)
	out.used = usage{cpu: after.cpu - before.cpu, switches: after.switches - before.switches}
	return out, err
}

// alternate runs A and B in turn, one round each to warm up, then o.rounds counted ones, and reports.
func alternate(o options, title string, a, b func() (sample, error), figures []figure) error {
	var as, bs []sample
	for i := range o.rounds + 1 {
		sa, err := a()
		if err != nil {
			return fmt.Errorf("varve: %w", err)
		}
		sb, err := b()
		if err != nil {
			return fmt.Errorf("%s: %w", o.other(), err)
		}
		if i > 0 {
			as, bs = append(as, sa), append(bs, sb)
		}
	}
	fmt.Printf("%s (medians of %d rounds, A B A B)\n", title, len(as))
	w := tabwriter.NewWriter(os.Stdout, 2, 4, 2, ' ', 0)
	fmt.Fprintf(w, "  figure\tvarve\t%s\tratio\n", o.other())
	for _, f := range figures {
		fmt.Fprintf(w, "  %s\t%.3f\t%.3f\t%.2f\n", f.name, median(as, f.of), median(bs, f.of), ratio(as, bs, f.of))
	}
	return w.Flush()
}

func (o options) other() string {
	if o.against != "" {
		return "against"
	}
	return "bare"
}

func median(in []sample, f func(sample) float64) float64 {
	v := make([]float64, len(in))
	for i, s := range in {
		v[i] = f(s)
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// ratio is the median of the rounds' own ratios: each compares neighbours in time, so the machine's drift cancels.
func ratio(as, bs []sample, f func(sample) float64) float64 {
	v := make([]float64, len(as))
	for i := range as {
		v[i] = f(as[i]) / f(bs[i])
	}
	slices.Sort(v)
	return v[len(v)/2]
}

type figure struct {
	name string
	of   func(sample) float64
}
