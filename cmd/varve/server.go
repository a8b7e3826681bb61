package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"varve/broker"
	"varve/protocol/event"
)

// drainTimeoutMs bounds an orderly stop; a second signal ends the process at once.
const drainTimeoutMs = 30_000

func serverCommand() *command {
	return &command{
		name: "server",
		args: "[--config FILE] [--data DIR] [--set KEY=VALUE]...",
		summary: "Run a node. With nothing given it is complete: Kafka on 127.0.0.1:9092, HTTP on 127.0.0.1:9644, data in ./varve-data, a folder there as object store. " +
			"It prints one line to stdout when it serves, logs to stderr, and drains on SIGTERM or Ctrl-C. " +
			"It exits with 0 drained, 1 failed, 2 wrong configuration, 3 the object store refuses, 4 the data is another node's or a newer version's.",
		examples: []string{
			"varve server",
			"varve server --config server.properties --data /var/lib/varve",
			"varve server --set 'varve.tier.url=s3://bucket/prefix?region=eu-central-1'",
		},
		run: runServer,
	}
}

func runServer(c *call) int {
	l := c.loadFlags()
	level := slog.LevelInfo
	c.flags.TextVar(&level, "log-level", level, "least `LEVEL` that is logged: DEBUG, INFO, WARN or ERROR")
	if _, code, done := c.parse(0, 0); done {
		return code
	}
	cfg, warnings, err := c.loadConfig(l)
	if err != nil {
		printConfigErrors(c.stderr, err)
		return exitUsage
	}
	log := slog.New(slog.NewTextHandler(c.stderr, &slog.HandlerOptions{Level: level}))
	paceGC()
	for _, w := range warnings {
		event.Log(log)(broker.ConfigWarning{Warning: w})
	}
	ctx, stop := signal.NotifyContext(c.ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	b, err := broker.Start(ctx, cfg, broker.Options{Log: log, Version: buildVersion().Version})
	if err != nil {
		return c.startFailed(err)
	}
	http := b.HTTPAddr()
	if http == "" {
		http = "none"
	}
	fmt.Fprintf(c.stdout, "varve ready kafka=%s http=%s tier=%s\n", b.KafkaAddr(), http, b.Tier())
	if terminal(c.stdout) {
		c.whatNext(b)
	}
	return c.serve(ctx, stop, b)
}

// whatNext tells a person what to type in another terminal.
func (c *call) whatNext(b *broker.Broker) {
	bootstrap := ""
	if b.KafkaAddr() != defaultBootstrap {
		bootstrap = " --bootstrap-server " + b.KafkaAddr()
	}
	self := os.Args[0]
	fmt.Fprintf(c.stdout, "\nIn another terminal:\n  %s topic create hello --partitions 3%s\n  echo hello | %s produce hello%s\n  %s consume hello --from-beginning%s\n", self, bootstrap, self, bootstrap, self, bootstrap)
	fmt.Fprintf(c.stdout, "Any Kafka client: bootstrap server %s\n", b.KafkaAddr())
	if b.HTTPAddr() != "" {
		fmt.Fprintf(c.stdout, "Status page: http://%s/\n", b.HTTPAddr())
	}
	fmt.Fprintln(c.stdout, "Ctrl-C stops it in order.")
}

// startFailed prints why a node did not start, and what to do.
func (c *call) startFailed(err error) int {
	var exit *broker.ExitError
	if !errors.As(err, &exit) {
		return c.failed("%v", err)
	}
	fmt.Fprintf(c.stderr, "%s: %v\n", c.path, exit.Err)
	if exit.Fix != "" {
		fmt.Fprintf(c.stderr, "%s: to mend it: %s\n", c.path, exit.Fix)
	}
	return exit.Code
}

// serve waits for a signal or for the broker's own end.
func (c *call) serve(ctx context.Context, stop func(), b *broker.Broker) int {
	ended := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { ended <- b.Wait() })
	defer wg.Wait()
	select {
	case err := <-ended:
		if err != nil {
			return c.startFailed(err)
		}
		return exitOK
	case <-ctx.Done():
	}
	stop() // from here on a signal ends the process
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeoutMs*time.Millisecond)
	defer cancel()
	if err := b.Drain(bound); err != nil {
		return c.startFailed(err)
	}
	return exitOK
}
