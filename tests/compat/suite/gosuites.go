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

	"varve/tests/kafka"
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
	return kafka.Once("kgo-tests", []string{filepath.Join(node.Root(), "go.sum")}, func() error {
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

// copyModule copies a module's sources into a folder that can be written: tests read them beside them.
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
		return os.WriteFile(filepath.Join(to, rel), text, 0o644)
	})
}

func moduleDir(ctx context.Context, from, module string) (string, error) {
	find := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	find.Dir = from
	dir, err := find.Output()
	return strings.TrimSpace(string(dir)), err
}
