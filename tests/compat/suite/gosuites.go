package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"varve/tests/node"
)

const strangersTimeMax = 9 * time.Minute

func goClients() []Client {
	client := func(name string, names ...string) Client {
		return Client{Name: name, Install: installGoClients, Cases: program(func(ctx context.Context, c string) *exec.Cmd {
			return exec.CommandContext(ctx, cache("goclients"), name, c)
		}, names...)}
	}
	return []Client{
		client("sarama", "codec-none", "codec-gzip", "codec-snappy", "codec-lz4", "codec-zstd", "acks-0", "acks-1", "acks-all", "idempotent", "big",
			"by-time", "group-resume", "group-two", "admin-topics", "admin-records", "transaction"),
		client("kafka-go", "codec-none", "codec-gzip", "codec-snappy", "codec-lz4", "codec-zstd", "acks-0", "acks-1", "acks-all", "big",
			"by-time", "group-resume", "admin-topics"),
	}
}

// installGoClients builds the nested module, which keeps these clients out of varve's go.mod.
func installGoClients(ctx context.Context) error {
	dir := filepath.Join(node.Root(), "tests", "compat", "goclients")
	return command(ctx, dir, "go", "build", "-o", cache("goclients"), ".")
}

// strangers are test suites that others wrote for their clients, run as they are.
func strangers() []Client {
	kgo := func(name string, args ...string) Case {
		return Case{Name: name, Limit: strangersTimeMax, Run: func(ctx context.Context, e *Env) error {
			return testBinary(ctx, e, cache("kgo.test"), []string{"KGO_SEEDS=" + e.Broker.Addr, "KGO_TEST_RF=1", "KGO_TEST_RECORDS=50000", "KGO_LOG_LEVEL=none"}, args...)
		}}
	}
	kafkaGo := func(name string, args ...string) Case {
		return Case{Name: name, Limit: strangersTimeMax, Run: func(ctx context.Context, e *Env) error { return kafkaGoTests(ctx, e, args...) }}
	}
	return []Client{
		{Name: "franz-go-tests", Slow: true, Install: installKgoTests, Cases: []Case{
			kgo("plain", "-test.skip", "TestGroupETL|TestTxnEtl|Share|SCRAM|OAuth|TestIssue1034"),
			kgo("group-etl", "-test.run", "^TestGroupETL$"),
			kgo("txn-etl", "-test.run", "^TestTxnEtl$"),
			kgo("share-groups", "-test.run", "Share"),
		}},
		{Name: "kafka-go-tests", Slow: true, Install: installKafkaGoTests, Cases: []Case{
			kafkaGo("reader", "-test.run", "^TestReader"),
			kafkaGo("writer", "-test.run", "^Test(Writer|Conn|Dialer|Batch)"),
			kafkaGo("client", "-test.run", "^TestClient", "-test.skip", "Txn|EndTxn|ACL|Acl|Scram|Quota|TestClientInitProducerId|AddOffsets|AddPartitions"),
			kafkaGo("groups", "-test.run", "^Test(ConsumerGroup|Generation|.*Group)"),
			kafkaGo("transactions", "-test.run", "Txn|TestClientInitProducerId|AddOffsets|AddPartitions"),
		}},
	}
}

// testBinary runs a compiled test from its scratch folder and, of a failure, keeps the lines that name it.
func testBinary(ctx context.Context, e *Env, binary string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, binary, append([]string{"-test.v", "-test.timeout=8m50s"}, args...)...)
	cmd.Dir, cmd.Env = e.Dir, append(cmd.Environ(), env...)
	out, err := run(cmd, e, "")
	if err == nil {
		return nil
	}
	var failed []string
	for line := range strings.Lines(out) {
		if strings.Contains(line, "--- FAIL") || strings.HasPrefix(line, "panic:") {
			failed = append(failed, strings.TrimRight(line, "\n"))
		}
	}
	_ = os.WriteFile(cache("last-"+e.Name+"-"+e.Broker.Name+".log"), []byte(out), 0o644)
	return errors.Join(err, errors.New(tailOf(strings.Join(failed, "\n"), 40)))
}

func installKgoTests(ctx context.Context) error {
	return once("kgo-tests", []string{filepath.Join(node.Root(), "go.sum")}, func() error {
		return command(ctx, node.Root(), "go", "test", "-c", "-o", cache("kgo.test"), "github.com/twmb/franz-go/pkg/kgo")
	})
}

// kafkaGoAddress is what kafka-go's tests have in their text; the copy that is compiled asks the environment instead.
const kafkaGoAddress = "localhost:9092"

func installKafkaGoTests(ctx context.Context) error {
	module := filepath.Join(node.Root(), "tests", "compat", "goclients")
	return once("kafka-go-tests", []string{filepath.Join(module, "go.sum")}, func() error {
		find := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/segmentio/kafka-go")
		find.Dir = module
		dir, err := find.Output()
		if err != nil {
			return err
		}
		if err := copyModule(strings.TrimSpace(string(dir)), cache("kafka-go-src")); err != nil {
			return err
		}
		return command(ctx, cache("kafka-go-src"), "go", "test", "-c", "-o", cache("kafka-go.test"), ".")
	})
}

// copyModule copies a module's sources into a folder that can be written, with the address made a variable.
func copyModule(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(rel, "_test.go") && !strings.Contains(rel, string(filepath.Separator)) && strings.Contains(string(text), "package kafka\n") {
			text = []byte(strings.ReplaceAll(string(text), `"`+kafkaGoAddress+`"`, "compatAddress"))
		}
		return os.WriteFile(filepath.Join(to, rel), text, 0o644)
	})
	if err != nil {
		return err
	}
	const asks = "package kafka\n\nimport \"os\"\n\nvar compatAddress = os.Getenv(\"COMPAT_BOOTSTRAP\")\n"
	return os.WriteFile(filepath.Join(to, "compat_address_test.go"), []byte(asks), 0o644)
}

func kafkaGoTests(ctx context.Context, e *Env, args ...string) error {
	return testBinary(ctx, e, cache("kafka-go.test"), []string{"KAFKA_SKIP_NETTEST=1", "KAFKA_VERSION=4.0.0"}, args...)
}
