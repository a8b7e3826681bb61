package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"varve/tests/kafka"
	"varve/tests/node"
)

const stopMax = 60 * time.Second

// broker is a server that is started, stopped and started again on the same data.
type broker interface {
	start(ctx context.Context) (addr string, err error)
	terminate(ctx context.Context) error
	kill()
}

// settings are what kgo's tests expect of a broker, in Kafka's names.
func settings() []string {
	return []string{
		"auto.create.topics.enable=true", "num.partitions=4", "default.replication.factor=1", "min.insync.replicas=1",
		"offsets.topic.replication.factor=1", "offsets.topic.num.partitions=4",
		"group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=1000",
	}
}

// varve is the broker under test.
type varve struct {
	binary, data, listen, advertised string
	n                                *node.Node
	log                              *os.File
}

func (v *varve) start(ctx context.Context) (string, error) {
	args := []string{"--set", "listeners=PLAINTEXT://" + v.listen, "--set", "advertised.listeners=PLAINTEXT://" + v.advertised, "--set", "varve.http.listen="}
	for _, kv := range settings() {
		args = append(args, "--set", kv)
	}
	var err error
	if v.log == nil {
		if v.log, err = os.Create(v.data + ".log"); err != nil {
			return "", err
		}
	}
	v.n, err = node.Start(ctx, node.Options{Binary: v.binary, Data: v.data, Args: args, Stderr: v.log})
	if err != nil {
		return "", err
	}
	return v.listen, nil
}

func (v *varve) terminate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopMax)
	defer cancel()
	code, err := v.n.Terminate(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	return err
}

func (v *varve) kill() {
	if v.n != nil {
		v.n.Kill()
	}
}

// peer is Apache Kafka.
type peer struct {
	data  string
	ports []int // of its clients' and its controller's listener; the same ones after each start
	n     *kafka.Node
}

func (p *peer) start(ctx context.Context) (addr string, err error) {
	p.n, err = kafka.Start(ctx, kafka.Options{Data: p.data, Ports: p.ports, Props: settings(), JVM: []string{"-Xmx1g", "-XX:+UseSerialGC"}})
	if err != nil {
		return "", err
	}
	return p.n.Addr, nil
}

func (p *peer) terminate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopMax)
	defer cancel()
	return p.n.Terminate(ctx)
}

func (p *peer) kill() {
	if p.n != nil {
		p.n.Kill()
	}
}

// newBroker makes a broker with an empty data folder under dir, which listens at the same port after each start. Clients
// are told the advertised address; "" is its own.
func newBroker(o options, dir, advertised string) (broker, error) {
	data := filepath.Join(dir, "data")
	var ports []int
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	if o.kafka {
		return &peer{data: data, ports: ports}, nil
	}
	listen := fmt.Sprintf("127.0.0.1:%d", ports[0])
	if advertised == "" {
		advertised = listen
	}
	return &varve{binary: o.binary, data: data, listen: listen, advertised: advertised}, nil
}
