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
	"strings"
	"syscall"

	"varve/tests/compat/edge"
	"varve/tests/kafka"
	"varve/tests/node"
)

func main() {
	rewrite := flag.Bool("rewrite", false, "write Apache Kafka's answers into the golden file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := peer(ctx, *rewrite)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// noTier compiles NoTier.java and returns the settings that make it Kafka's tier: varve has one too.
func noTier(ctx context.Context, classes string) ([]string, error) {
	if err := kafka.Install(ctx); err != nil {
		return nil, err
	}
	source := filepath.Join(node.Root(), "tests", "compat", "edge", "peer", "NoTier.java")
	if out, err := exec.CommandContext(ctx, "javac", "-nowarn", "-d", classes, "-cp", kafka.Jars(), source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("javac: %w\n%s", err, out)
	}
	return []string{
		"remote.log.storage.system.enable=true", "remote.log.storage.manager.class.name=NoTier", "remote.log.storage.manager.class.path=" + classes + "/",
		"remote.log.metadata.manager.listener.name=PLAINTEXT", "rlmm.config.remote.log.metadata.topic.replication.factor=1",
		"rlmm.config.remote.log.metadata.topic.num.partitions=1",
	}, nil
}

func peer(ctx context.Context, rewrite bool) (err error) {
	data := filepath.Join(node.Root(), "tests", "compat", "testdata")
	golden, err := edge.ReadGolden(filepath.Join(data, "edge.golden"), filepath.Join(data, "edge.differs"))
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "edge-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	tier, err := noTier(ctx, scratch)
	if err != nil {
		return err
	}
	n, err := kafka.Start(ctx, kafka.Options{Data: filepath.Join(scratch, "kafka"), Props: append(edge.Settings(), tier...), JVM: []string{"-Xmx1g", "-XX:+UseSerialGC"}})
	if err != nil {
		return err
	}
	defer n.Kill()
	results, err := edge.Run(ctx, n.Addr)
	if err != nil {
		return err
	}
	if rewrite {
		return golden.Rewrite(edge.Kafka, results)
	}
	if bad := append(golden.Check(edge.Kafka, results), golden.CheckReasons()...); len(bad) > 0 {
		return errors.New(strings.Join(bad, "\n"))
	}
	fmt.Printf("Apache Kafka %s answers all %d edge calls as the golden file says\n", kafka.Version(), len(results))
	return nil
}
