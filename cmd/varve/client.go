package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	defaultBootstrap = "127.0.0.1:9092"
	dialTimeoutMs    = 3_000
)

// clientFlags are the flags of those commands that talk to a broker as a client.
type clientFlags struct {
	bootstrap *string
	timeout   *time.Duration
}

func addClientFlags(fs *flag.FlagSet) *clientFlags {
	return &clientFlags{
		bootstrap: fs.String("bootstrap-server", defaultBootstrap, "brokers to ask first, as `HOST:PORT,...`"),
		timeout:   fs.Duration("timeout", 15*time.Second, "give up after this `TIME`"),
	}
}

// withAdmin calls fn with a client that is connected, and closes it. It returns fn's exit code.
func (c *call) withAdmin(f *clientFlags, fn func(ctx context.Context, admin *kadm.Client) int) int {
	ctx, cancel := context.WithTimeout(c.ctx, *f.timeout)
	defer cancel()
	seeds := strings.Split(*f.bootstrap, ",")
	if err := reachable(ctx, seeds); err != nil {
		return c.failed("no broker answers at %s (%v): start one with `varve server`, or name another with --bootstrap-server", *f.bootstrap, err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		return c.wrong("--bootstrap-server: %v", err)
	}
	defer client.Close()
	return fn(ctx, kadm.NewClient(client))
}

// reachable tells why none of the addresses can be connected to; a client would try again until its time is over.
func reachable(ctx context.Context, seeds []string) (err error) {
	d := net.Dialer{Timeout: dialTimeoutMs * time.Millisecond}
	for _, seed := range seeds {
		conn, dialErr := d.DialContext(ctx, "tcp", seed)
		if dialErr == nil {
			return conn.Close()
		}
		err = errors.Join(err, dialErr)
	}
	return err
}

// explain makes one line of an error of the Kafka protocol and the message that came with it.
func explain(err error, message string) string {
	var ke *kerr.Error
	switch {
	case errors.As(err, &ke) && message != "":
		return ke.Message + ": " + message
	case errors.As(err, &ke):
		return ke.Message + ": " + ke.Description
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer in time (%v)", err)
	}
	return err.Error()
}
