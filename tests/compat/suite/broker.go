package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"varve/tests/kafka"
	"varve/tests/node"
)

const brokerStopMax = 30 * time.Second

// Broker is one server that cells run against.
type Broker struct {
	Name   string
	Binary string // varve's
	Addr   string // host:port of its Kafka listener
	Data   string // folder that holds all it wrote
	Logs   string // folder of its partition folders
	Tier   string // folder of a dir tier; "" where there is none

	Preallocates bool // active index files are longer than what is in them

	stop func()
}

// place is where a broker listens and what it is told.
type place struct {
	data   string // folder for all it writes
	binary string // varve's
	file   string // its whole configuration, in place of the profile and of data
	ports  []int  // of its clients' and of its controllers' listener at localhost; nil takes free ones of 127.0.0.1
}

// profile is what strangers' suites expect of a broker, in Kafka's names.
func (p place) profile() []string {
	minSession := 1000
	if p.ports != nil {
		minSession = 6000 // Kafka's default, below which kafka-go's tests want to be refused
	}
	return []string{
		fmt.Sprintf("group.min.session.timeout.ms=%d", minSession),
		"auto.create.topics.enable=true", "num.partitions=4", "default.replication.factor=1", "min.insync.replicas=1",
		"offsets.topic.replication.factor=1", "offsets.topic.num.partitions=4",
		"transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1", "transaction.state.log.num.partitions=4",
		"share.coordinator.state.topic.replication.factor=1", "share.coordinator.state.topic.min.isr=1",
		"group.initial.rebalance.delay.ms=0",
		"message.max.bytes=200000000", "log.initial.task.delay.ms=500", "log.retention.check.interval.ms=1000",
	}
}

// buildVarve builds cmd/varve as `make build` does.
func buildVarve(ctx context.Context) (string, error) {
	bin := cache("varve")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", bin, "./cmd/varve")
	cmd.Dir, cmd.Env = node.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build cmd/varve: %w\n%s", err, out)
	}
	return bin, nil
}

// startVarve starts a binary, on the profile with a dir tier under data.
func startVarve(ctx context.Context, p place) (*Broker, error) {
	stderr, err := os.Create(p.data + ".log")
	if err != nil {
		return nil, err
	}
	o := node.Options{Binary: p.binary, Args: []string{"--config", p.file}, Stderr: stderr}
	if p.file == "" {
		listener := "127.0.0.1:0"
		if p.ports != nil {
			listener = fmt.Sprintf("localhost:%d", p.ports[0])
		}
		o.Data, o.Args = p.data, []string{"--set", "listeners=PLAINTEXT://" + listener, "--set", "varve.http.listen=127.0.0.1:0"}
		for _, kv := range p.profile() {
			o.Args = append(o.Args, "--set", kv)
		}
	}
	n, err := node.Start(ctx, o)
	if err != nil {
		return nil, errors.Join(err, stderr.Close())
	}
	stop := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), brokerStopMax)
		defer cancel()
		if code, err := n.Terminate(ctx); err != nil || code != 0 {
			fmt.Fprintf(os.Stderr, "varve ended with %d: %v\n", code, err)
			n.Kill()
		}
		_ = stderr.Close()
	}
	return &Broker{Name: "varve", Binary: p.binary, Addr: n.Kafka, Data: p.data, Logs: filepath.Join(p.data, "log"),
		Tier: filepath.Join(p.data, "tier"), stop: stop}, nil
}

// startKafka starts Apache Kafka on the same profile.
func startKafka(ctx context.Context, p place) (*Broker, error) {
	n, err := kafka.Start(ctx, kafka.Options{Data: p.data, Props: p.profile(), Ports: p.ports, File: p.file, JVM: []string{"-Xmx1g", "-XX:+UseSerialGC"}})
	if err != nil {
		return nil, err
	}
	return &Broker{Name: "kafka", Addr: n.Addr, Data: p.data, Logs: n.Logs, Preallocates: true, stop: n.Kill}, nil
}
