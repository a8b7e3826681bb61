package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"varve/tests/node"
)

const (
	brokerStartMax = 90 * time.Second
	brokerStopMax  = 30 * time.Second
)

// Broker is one server that cells run against.
type Broker struct {
	Name string
	Addr string // host:port of its Kafka listener
	Data string // folder that holds all it wrote
	Logs string // folder of its partition folders
	Tier string // folder of a dir tier; "" where there is none

	Preallocates bool // active index files are longer than what is in them

	stop func()
}

// profile is what strangers' suites expect of a broker, in Kafka's names.
func profile() []string {
	return []string{
		"auto.create.topics.enable=true", "num.partitions=4", "default.replication.factor=1", "min.insync.replicas=1",
		"offsets.topic.replication.factor=1", "offsets.topic.num.partitions=4",
		"transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1", "transaction.state.log.num.partitions=4",
		"share.coordinator.state.topic.replication.factor=1", "share.coordinator.state.topic.min.isr=1",
		"group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=1000",
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

// startVarve starts a binary on the profile, with a dir tier under data; without one it is built.
func startVarve(ctx context.Context, data, bin string) (_ *Broker, err error) {
	if bin == "" {
		if bin, err = buildVarve(ctx); err != nil {
			return nil, err
		}
	}
	args := []string{"--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "varve.http.listen=127.0.0.1:0"}
	for _, kv := range profile() {
		args = append(args, "--set", kv)
	}
	stderr, err := os.Create(data + ".log")
	if err != nil {
		return nil, err
	}
	n, err := node.Start(ctx, node.Options{Binary: bin, Data: data, Args: args, Stderr: stderr})
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
	return &Broker{Name: "varve", Addr: n.Kafka, Data: data, Logs: filepath.Join(data, "log"), Tier: filepath.Join(data, "tier"),
		stop: stop}, nil
}

// startKafka formats a log directory and starts Apache Kafka as one combined KRaft node on the same profile.
func startKafka(ctx context.Context, data string) (*Broker, error) {
	if err := installKafka(ctx); err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, err
	}
	addr, control := fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1])
	logs := filepath.Join(data, "log")
	props := append(profile(),
		"process.roles=broker,controller", "node.id=1", "controller.quorum.bootstrap.servers="+control,
		"controller.listener.names=CONTROLLER", "inter.broker.listener.name=PLAINTEXT",
		"listeners=PLAINTEXT://"+addr+",CONTROLLER://"+control, "advertised.listeners=PLAINTEXT://"+addr+",CONTROLLER://"+control,
		"listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT", "log.dirs="+logs)
	file := filepath.Join(data, "server.properties")
	if err := os.WriteFile(file, []byte(strings.Join(props, "\n")+"\n"), 0o644); err != nil {
		return nil, err
	}
	format := javaCommand(ctx, kafkaJars(), "kafka.tools.StorageTool", "format", "--standalone", "-t", "dmFydmUtY29tcGF0LXRlcw", "-c", file)
	if out, err := format.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("format: %w\n%s", err, out)
	}
	cmd := exec.Command("java", "-Xmx1g", "-XX:+UseSerialGC", "-Dlog4j2.configurationFile="+log4jFile(), "-cp", kafkaJars(), "kafka.Kafka", file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := os.Create(data + ".log")
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	b := &Broker{Name: "kafka", Addr: addr, Data: data, Logs: logs, Preallocates: true, stop: func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		_ = out.Close()
	}}
	if err := waitPort(ctx, addr); err != nil {
		b.stop()
		return nil, fmt.Errorf("the peer, Apache Kafka, did not open %s, see %s.log: %w", addr, data, err)
	}
	return b, nil
}

func waitPort(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, brokerStartMax)
	defer cancel()
	for {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func freePorts(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
