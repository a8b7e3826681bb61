package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	defaultBootstrap = "127.0.0.1:9092"
	dialTimeoutMs    = 3_000
	answerTimeoutMs  = 10_000 // whoever takes the connection also answers by then
)

// clientFlags are the flags of those commands that talk to a broker as a client.
type clientFlags struct {
	bootstrap *string
	timeout   *time.Duration
}

func addClientFlags(fs *flag.FlagSet) *clientFlags {
	return &clientFlags{
		bootstrap: fs.String("bootstrap-server", defaultBootstrap, "brokers to ask first, as `HOST:PORT,...`"),
		timeout:   fs.Duration("timeout", 15*time.Second, "give up when the broker has not answered for this `TIME`"),
	}
}

// withAdmin calls fn with a client that is connected, and closes it. It returns fn's exit code.
func (c *call) withAdmin(f *clientFlags, fn func(ctx context.Context, admin *kadm.Client) int) int {
	ctx, cancel := context.WithTimeout(c.ctx, *f.timeout)
	defer cancel()
	client, code := c.connect(ctx, f)
	if client == nil {
		return code
	}
	defer client.Close()
	return fn(ctx, kadm.NewClient(client))
}

// connect returns a client of a broker that answers, or nil and the exit code.
func (c *call) connect(ctx context.Context, f *clientFlags, opts ...kgo.Opt) (*kgo.Client, int) {
	seeds, err := bootstrapSeeds(*f.bootstrap)
	if err != nil {
		return nil, c.wrong("--bootstrap-server: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, min(*f.timeout, answerTimeoutMs*time.Millisecond))
	defer cancel()
	if err := reachable(ctx, seeds); err != nil {
		return nil, c.failed("no broker answers at %s (%v): start one with `varve server`, or name another with --bootstrap-server", *f.bootstrap, err)
	}
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(seeds...))...)
	if err != nil {
		return nil, c.wrong("%v", err)
	}
	if err := client.Ping(ctx); err != nil {
		client.Close()
		return nil, c.failed("%s takes connections but does not answer as a Kafka broker does (%s): is it the right port?", *f.bootstrap, explain(err, ""))
	}
	return client, exitOK
}

// bootstrapSeeds reads HOST:PORT,...; the port is Kafka's where there is none.
func bootstrapSeeds(list string) (seeds []string, err error) {
	for _, seed := range strings.Split(list, ",") {
		seed = strings.TrimSpace(seed)
		if !strings.Contains(seed[strings.LastIndexByte(seed, ']')+1:], ":") {
			seed = net.JoinHostPort(strings.Trim(seed, "[]"), "9092")
		}
		host, port, err := net.SplitHostPort(seed)
		if err != nil || host == "" {
			return nil, fmt.Errorf("%q is no list of HOST:PORT, apart by commas", list)
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return nil, fmt.Errorf("%q: port %s is not between 0 and 65535", list, port)
		}
		seeds = append(seeds, seed)
	}
	return seeds, nil
}

// knownTopics returns what the cluster says of the topics. One that is not there is told, and what to do.
func (c *call) knownTopics(ctx context.Context, admin *kadm.Client, names ...string) (kadm.TopicDetails, int) {
	details, err := admin.ListTopicsWithInternal(ctx, names...)
	if err != nil {
		return nil, c.failed("%s", explain(err, ""))
	}
	code := exitOK
	for _, t := range details.Sorted() {
		switch {
		case errors.Is(t.Err, kerr.UnknownTopicOrPartition):
			code = c.failed("there is no topic %s: `varve topic list` shows those there are, `varve topic create %s` makes it", t.Topic, t.Topic)
		case t.Err != nil:
			code = c.failed("%s: %s", t.Topic, explain(t.Err, ""))
		}
	}
	return details, code
}

// dialReporter tells a person that a client keeps trying, which it does in silence otherwise.
type dialReporter struct {
	c    *call
	mu   sync.Mutex
	last time.Time
}

const dialReportEveryMs = 5_000

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (d *dialReporter) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil || errors.Is(err, context.Canceled) || time.Since(d.last) < dialReportEveryMs*time.Millisecond {
		return
	}
	d.last = time.Now()
	fmt.Fprintf(d.c.stderr, "%s: %s does not answer (%v); trying again\n", d.c.path, net.JoinHostPort(meta.Host, strconv.Itoa(int(meta.Port))), err)
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
