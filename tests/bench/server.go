package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"varve/tests/kafka"
	"varve/tests/node"
)

// The sides.
const (
	varve     = "varve"
	against   = "against"    // another build of varve
	kafkaSide = "kafka"      // Apache Kafka with -Xmx2g
	kafkaLean = "kafka-512m" // Apache Kafka with -Xmx512m
	bare      = "bare"       // the least program that moves the same bytes
)

const (
	// terminateWait bounds a broker's orderly end.
	terminateWait = 2 * time.Minute
	// warmRoundsMax bounds how often a JVM is given each load before it counts.
	warmRoundsMax = 8
	// warmEnough is how much of the last round's CPU a round may still need for the JVM to count as warm.
	warmEnough = 0.93
)

// server is a process under measurement.
type server struct {
	side, addr string
	data, logs string // its folder, and that of its partition folders
	pid        int
	began      time.Time // just before it was started
	kill       func()
	terminate  func() error
}

// jvm is how Apache Kafka's own start script runs the JVM (kafka-run-class.sh), but for the heap, which it would fix at 1 GiB.
func jvm(side string) []string {
	heap := "-Xmx2g"
	if side == kafkaLean {
		heap = "-Xmx512m"
	}
	return []string{heap, "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
		"-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true"}
}

func propertiesFile() string {
	return filepath.Join(node.Root(), "tests", "bench", "server.properties")
}

// launch starts a broker on a folder, with further key=value settings.
func (b *bench) launch(ctx context.Context, side, data string, sets ...string) (*server, error) {
	switch side {
	case varve:
		return launchVarve(ctx, side, b.varve, data, sets)
	case against:
		return launchVarve(ctx, side, b.against, data, sets)
	}
	raw, err := os.ReadFile(propertiesFile())
	if err != nil {
		return nil, err
	}
	n, err := kafka.Start(ctx, kafka.Options{Data: data, Props: append([]string{string(raw)}, sets...), JVM: jvm(side)})
	if err != nil {
		return nil, err
	}
	return &server{side: side, addr: n.Addr, data: data, logs: n.Logs, pid: n.PID(), began: n.Started, kill: n.Kill, terminate: func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), terminateWait)
		defer cancel()
		return n.Terminate(ctx)
	}}, nil
}

func launchVarve(ctx context.Context, side, binary, data string, sets []string) (*server, error) {
	args := []string{"--config", propertiesFile(), "--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "varve.http.listen=127.0.0.1:0",
		"--set", "varve.topic.remote.storage.enable=false"} // no uploads beside what is measured
	for _, s := range sets {
		args = append(args, "--set", s)
	}
	began := time.Now()
	n, err := node.Start(ctx, node.Options{Binary: binary, Data: data, Args: args})
	if err != nil {
		return nil, err
	}
	return &server{side: side, addr: n.Kafka, data: data, logs: filepath.Join(data, "log"), pid: n.PID(), began: began, kill: n.Kill, terminate: func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), terminateWait)
		defer cancel()
		code, err := n.Terminate(ctx)
		if err == nil && code != 0 {
			err = fmt.Errorf("varve ended with %d: %s", code, n.Stderr())
		}
		return err
	}}, nil
}

// broker is the side's process that rows share; a JVM is first kept busy until it has compiled what matters.
func (b *bench) broker(ctx context.Context, side string) (*server, error) {
	if s := b.brokers[side]; s != nil {
		return s, nil
	}
	s, err := b.launch(ctx, side, filepath.Join(b.data, side))
	if err != nil {
		return nil, err
	}
	b.brokers[side] = s
	if err := awaitServing(ctx, s.addr, nil); err != nil {
		return nil, err
	}
	if strings.HasPrefix(side, kafkaSide) && !b.small {
		return s, b.warm(ctx, s)
	}
	return s, nil
}

// warm produces, many requests and many bytes, until a round costs about what the one before did.
func (b *bench) warm(ctx context.Context, s *server) error {
	for _, l := range []load{
		{shape: shapeSmall, partitions: 16, producers: 2, acks: -1},
		{shape: shape1K, partitions: 16, producers: 2, acks: -1},
	} {
		round, err := b.produceTo(s, l)
		if err != nil {
			return err
		}
		if err := untilWarm(s.side, func() (sample, error) { return round(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

// untilWarm goes on until a round costs about what the one before did.
func untilWarm(side string, round func() (sample, error)) error {
	for i, before := 0, 0.0; i < warmRoundsMax; i++ {
		out, err := round()
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "warming up %s: %s %s\n", side, number(out[cpuPerGB]), cpuPerGB)
		if i > 1 && out[cpuPerGB] > before*warmEnough {
			break
		}
		before = out[cpuPerGB]
	}
	return nil
}

// reset ends the brokers that rows share and forgets them and their data.
func (b *bench) reset() {
	b.close()
	for _, s := range b.brokers {
		_ = os.RemoveAll(s.data)
	}
	if b.cold != nil {
		_ = os.RemoveAll(b.cold.data)
		_ = os.RemoveAll(filepath.Join(b.data, "s3"))
	}
	for _, t := range b.peers {
		_ = errors.Join(os.RemoveAll(t.data), os.RemoveAll(t.folder))
	}
	b.brokers, b.loaded, b.cold, b.peers = map[string]*server{}, map[string]*hotLog{}, nil, map[string]*peerTier{}
}

func (b *bench) close() {
	for _, s := range b.brokers {
		s.kill()
	}
	if b.cold != nil {
		b.cold.close()
	}
	for _, t := range b.peers {
		t.stop()
	}
}

func (b *bench) startBare(ctx context.Context, kind, path string) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-bare", kind, "-bare-file", path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	kill := func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "bare ready ")
	if err != nil || !ok {
		kill()
		return nil, fmt.Errorf("bare server said %q: %w", line, errors.Join(err, io.ErrUnexpectedEOF))
	}
	return &server{side: bare, addr: addr, pid: cmd.Process.Pid, began: began, kill: kill}, nil
}

// settleDisk writes out what the round before left dirty, so that no round pays for another's.
func settleDisk(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}
