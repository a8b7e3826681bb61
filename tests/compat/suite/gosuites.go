package main

import (
	"context"
	"errors"
	"fmt"
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
			return testBinary(ctx, e, cache("kgo-src"), cache("kgo.test"), []string{"KGO_SEEDS=" + e.Broker.Addr, "KGO_TEST_RF=1", "KGO_TEST_RECORDS=50000", "KGO_LOG_LEVEL=none"}, args...)
		}}
	}
	kafkaGo := func(name string, args ...string) Case {
		return Case{Name: name, Limit: strangersTimeMax, Run: func(ctx context.Context, e *Env) error { return kafkaGoTests(ctx, e, args...) }}
	}
	return []Client{
		{Name: "franz-go-tests", Slow: true, Install: installKgoTests, Cases: []Case{
			// TestAudit tests look at the client alone, against the clock.
			// TestIssueProduceBrokerTooOldFailsRecords wants a broker that is older than topic ids.
			kgo("plain", "-test.skip", "TestGroupETL|TestTxnEtl|TestAudit|Share|SCRAM|OAuth|848|TestIssueProduceBrokerTooOldFailsRecords"),
			kgo("group-etl", "-test.run", "^TestGroupETL$", "-test.skip", "848"),
			kgo("kip-848", "-test.run", "TestGroupETL/.*/848|TestGroupSimple/848|Test848"),
			kgo("txn-etl", "-test.run", "^TestTxnEtl$"),
			kgo("share-groups", "-test.run", "Share"),
		}},
		{Name: "kafka-go-tests", Slow: true, Install: installKafkaGoTests, Cases: []Case{
			// The sub-test that is skipped fails on Apache Kafka 4.4 too.
			kafkaGo("reader", "-test.run", "^TestReader", "-test.skip", "TestReaderConsumerGroup/consumer_group_rebalance_across"),
		}},
	}
}

// testBinary runs a compiled test in the folder of its sources and, of a failure, keeps the lines that name it. A test that
// was skipped because the broker lacks something has not passed.
func testBinary(ctx context.Context, e *Env, dir, binary string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, binary, append([]string{"-test.v", "-test.timeout=8m50s"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(cmd.Environ(), env...)
	out, err := run(cmd, e, "")
	var bad []string
	for line := range strings.Lines(out) {
		if strings.Contains(line, "--- FAIL") || strings.Contains(line, "--- SKIP") || strings.HasPrefix(line, "panic:") {
			bad = append(bad, strings.TrimRight(line, "\n"))
		}
	}
	log := cache("last-" + e.Name + "-" + e.Broker.Name + ".log")
	if wrote := os.WriteFile(log, []byte(out), 0o644); wrote != nil {
		return wrote
	}
	if err == nil && len(bad) == 0 {
		return nil
	}
	if err != nil {
		err = errors.New(strings.SplitN(err.Error(), "\n", 2)[0])
	}
	return errors.Join(err, fmt.Errorf("%s\nall of it is in %s", tailOf(strings.Join(bad, "\n"), 40), log))
}

func installKgoTests(ctx context.Context) error {
	return once("kgo-tests", []string{filepath.Join(node.Root(), "go.sum")}, func() error {
		dir, err := moduleDir(ctx, node.Root(), "github.com/twmb/franz-go")
		if err != nil {
			return err
		}
		if err := copyModule(filepath.Join(dir, "pkg", "kgo"), cache("kgo-src")); err != nil {
			return err
		}
		return command(ctx, node.Root(), "go", "test", "-c", "-o", cache("kgo.test"), "github.com/twmb/franz-go/pkg/kgo")
	})
}

// kafkaGoAddress is what kafka-go's tests have in their text; the copy that is compiled asks the environment instead.
const kafkaGoAddress = "localhost:9092"

// constAddress turns the two constants among them into variables.
var constAddress = strings.NewReplacer("const broker = compatAddress", "var broker = compatAddress",
	"const (\n\t\ttcp   = \"tcp\"\n\t\tkafka = compatAddress", "var (\n\t\ttcp   = \"tcp\"\n\t\tkafka = compatAddress")

func installKafkaGoTests(ctx context.Context) error {
	module := filepath.Join(node.Root(), "tests", "compat", "goclients")
	return once("kafka-go-tests", []string{filepath.Join(module, "go.sum")}, func() error {
		dir, err := moduleDir(ctx, module, "github.com/segmentio/kafka-go")
		if err != nil {
			return err
		}
		to := cache("kafka-go-src")
		const asks = "package kafka\n\nimport \"os\"\n\nvar compatAddress = os.Getenv(\"COMPAT_BOOTSTRAP\")\n"
		if err := errors.Join(copyModule(dir, to), os.WriteFile(filepath.Join(to, "compat_address_test.go"), []byte(asks), 0o644)); err != nil {
			return err
		}
		return command(ctx, cache("kafka-go-src"), "go", "test", "-mod=mod", "-c", "-o", cache("kafka-go.test"), ".")
	})
}

// copyModule copies a module's sources into a folder that can be written, with the address made a variable.
func copyModule(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
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
			text = []byte(constAddress.Replace(strings.ReplaceAll(string(text), `"`+kafkaGoAddress+`"`, "compatAddress")))
		}
		return os.WriteFile(filepath.Join(to, rel), text, 0o644)
	})
}

func moduleDir(ctx context.Context, from, module string) (string, error) {
	find := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	find.Dir = from
	dir, err := find.Output()
	return strings.TrimSpace(string(dir)), err
}

func kafkaGoTests(ctx context.Context, e *Env, args ...string) error {
	return testBinary(ctx, e, cache("kafka-go-src"), cache("kafka-go.test"), []string{"KAFKA_SKIP_NETTEST=1", "KAFKA_VERSION=4.0.0"}, args...)
}
