package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"varve/tests/node"
)

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 10, "how often the chains are run")
	flag.IntVar(&o.records, "records", 50_000, "records that go through each chain")
	flag.BoolVar(&o.direct, "direct", false, "no proxy: while the broker is gone its port refuses connections")
	flag.BoolVar(&o.kafka, "kafka", false, "run Apache Kafka in place of varve; without the proxy")
	flag.StringVar(&o.binary, "varve", "", "the varve binary to run (default: built from cmd/varve)")
	flag.StringVar(&o.test, "test", "", "kgo's compiled tests (default: compiled from the module)")
	flag.StringVar(&o.keep, "keep", "", "folder for data and logs, kept at the end (default: a temporary one)")
	flag.Parse()
	o.direct = o.direct || o.kafka
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := all(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// all runs the rounds; the first that fails ends them.
func all(ctx context.Context, o options) (err error) {
	if o.keep == "" {
		if o.keep, err = os.MkdirTemp("", "chains-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.keep)) }()
	}
	if o.binary == "" && !o.kafka {
		o.binary = filepath.Join(o.keep, "varve")
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", o.binary, "./cmd/varve")
		cmd.Dir, cmd.Env = node.Root(), append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build cmd/varve: %w\n%s", err, out)
		}
	}
	if o.test == "" {
		o.test = filepath.Join(o.keep, "kgo.test")
		if err := buildTests(ctx, o.test); err != nil {
			return err
		}
	}
	for i := range o.rounds {
		report, err := round(ctx, o, i)
		if err != nil {
			return fmt.Errorf("%s: %w", report, err)
		}
		fmt.Println(report)
	}
	fmt.Printf("%d rounds of three chains of three groups passed with a restart in each\n", o.rounds)
	return nil
}
