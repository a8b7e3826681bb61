package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"varve/tests/kafka"
	"varve/tests/node"
)

const strangersTimeMax = 20 * time.Minute

func goClients() []Client {
	client := func(name, module string, names ...string) Client {
		return Client{Name: name, Registry: registryGo, Install: installGoClients, Version: pinned(goClientsMod, module),
			Cases: program(func(ctx context.Context, c string) *exec.Cmd {
				return exec.CommandContext(ctx, cache("goclients"), name, c)
			}, names...)}
	}
	return []Client{
		client("sarama", "github.com/IBM/sarama", "codec-none", "codec-gzip", "codec-snappy", "codec-lz4", "codec-zstd", "acks-0", "acks-1", "acks-all", "idempotent", "big",
			"by-time", "group-resume", "group-two", "admin-topics", "admin-records", "transaction"),
		client("kafka-go", "github.com/segmentio/kafka-go", "codec-none", "codec-gzip", "codec-snappy", "codec-lz4", "codec-zstd", "acks-0", "acks-1", "acks-all", "big",
			"by-time", "group-resume", "admin-topics"),
	}
}

// installGoClients builds the nested module, which keeps these clients out of varve's go.mod.
func installGoClients(ctx context.Context) error {
	dir := filepath.Join(node.Root(), "tests", "compat", "goclients")
	return command(ctx, dir, "go", "build", "-o", cache("goclients"), ".")
}

// strangers are test suites that others wrote for their clients, run as they are. franz-go's kadm module is not among them:
// its tests look at the module alone and talk to no broker; kadm is driven by kgo's tests and by varve's own tools.
func strangers() []Client {
	kgo := func(name string, args ...string) Case {
		return Case{Name: name, Limit: strangersTimeMax, Run: func(ctx context.Context, e *Env) error {
			t := testBinary{dir: cache("kgo-src"), binary: cache("kgo.test"),
				env: []string{"KGO_SEEDS=" + e.Broker.Addr, "KGO_TEST_RF=1", "KGO_TEST_RECORDS=50000", "KGO_LOG_LEVEL=none"}}
			return t.run(ctx, e, args...)
		}}
	}
	kafkaGo := func(name string, args ...string) Case {
		return Case{Name: name, Limit: strangersTimeMax, Run: func(ctx context.Context, e *Env) error {
			t := testBinary{dir: cache("kafka-go-src"), binary: cache("kafka-go.test"), own: true, env: []string{"KAFKA_SKIP_NETTEST=1", "KAFKA_VERSION=4.0.0"}}
			return t.run(ctx, e, args...)
		}}
	}
	return []Client{
		{Name: "franz-go-tests", Slow: true, Registry: registryGo, Install: installKgoTests, Version: pinned("go.mod", "github.com/twmb/franz-go"), Cases: []Case{
			// TestAudit tests look at the client alone, against the clock.
			// TestIssueProduceBrokerTooOldFailsRecords wants a broker that is older than topic ids.
			kgo("plain", "-test.skip", "TestGroupETL|TestTxnEtl|TestAudit|Share|SCRAM|OAuth|848|^TestGroupSimple$/^848$|TestIssueProduceBrokerTooOldFailsRecords"),
			kgo("group-etl", "-test.run", "^TestGroupETL$", "-test.skip", "^TestGroupETL$/./^848$"),
			kgo("kip-848", "-test.run", "TestGroupETL/.*/848|TestGroupSimple/848|Test848"),
			kgo("txn-etl", "-test.run", "^TestTxnEtl$"),
			kgo("share-groups", "-test.run", "Share"),
		}},
		{Name: "kafka-go-tests", Slow: true, Registry: registryGo, Install: installKafkaGoTests,
			Version: pinned(goClientsMod, "github.com/segmentio/kafka-go"), Cases: []Case{
				kafkaGo("plain", "-test.skip", strings.Join(slices.Concat(kafkaGoLeftOut, kafkaGoElsewhere), "|")),
				kafkaGo("transactions", "-test.run", "^TestClientFindCoordinator$"),
				kafkaGo("quotas", "-test.run", "^TestClientAlterClientQuotas$"),
				kafkaGo("scram", "-test.run", "^Test(Alter|Describe)UserScramCredentials$"),
				kafkaGo("reassignments", "-test.run", "^TestClient(Alter|List)PartitionReassignments"),
			}},
	}
}

const goClientsMod = "tests/compat/goclients/go.mod"

// kafkaGoElsewhere are kafka-go's tests that have a cell of their own.
var kafkaGoElsewhere = []string{"^TestClientFindCoordinator$", "^TestClientAlterClientQuotas$", "UserScramCredentials$", "PartitionReassignments"}

// kafkaGoLeftOut are kafka-go's tests that no broker of today on the profile can pass, each with why.
var kafkaGoLeftOut = []string{
	"^TestConn$/^nettest$", "^TestReadTruncatedMessages$", "^TestConsumerGroupWithMissingTopic$", // skipped by themselves
	"^TestClientAddOffsetsToTxn$", "^TestClientAddPartitionsToTxn$", "^TestClientInitProducerId$", "^TestClientTxnOffsetCommit$", // skip themselves from Kafka 3 on
	"^TestUnsupportedSASLMechanism$", "^TestWriter$/SASL", // want a listener with SASL at 9093
	"^TestClient(Create|Delete|Describe)ACLs$",            // want an authorizer
	"^TestClientElectLeaders$",                            // gives the broker 0 ms; Kafka answers that this was too short
	"^TestReaderConsumerGroup$/verify_offset_commit",      // their helper getOffsets calls a function that it never set
	"^TestReaderConsumerGroup$/commits_on_close$",         // the same
	"^TestReaderReadCompactedMessage$",                    // wants segments smaller than Kafka allows since 4.0
	"^TestRebalanceTooManyConsumers$",                     // joins a group before its topic exists and does not wait long enough for the next look
	"^TestReaderConsumerGroup$/consumer_group_rebalance$", // wants 12 records of partitions that hold 8, from whoever reads first
}

// peerTriesMax is how often Apache Kafka may try a test: it answers the creation of a topic before the topic can be used, on
// which many tests trip that write at once.
const peerTriesMax = 5

// testBinary is a compiled test, run in the folder of its sources.
type testBinary struct {
	dir, binary string
	env         []string
	own         bool // beside a broker of its own at localhost:9092
}

// run fails with the names of what failed. A test that was skipped because the broker lacks something has not passed.
func (t testBinary) run(ctx context.Context, e *Env, args ...string) error {
	tries, all := 1, ""
	if e.Broker.Name == "kafka" {
		tries = peerTriesMax
	}
	var failed []string
	for try := range tries {
		out, err := t.once(ctx, e, args...)
		all += out
		now := notPassed(out)
		if try > 0 {
			now = slices.DeleteFunc(now, func(n string) bool { return !slices.Contains(failed, n) })
		}
		failed = now
		if log := cache("last-" + e.Name + "-" + e.Broker.Name + ".log"); len(failed) > 0 || err != nil {
			if wrote := os.WriteFile(log, []byte(all), 0o644); wrote != nil {
				return wrote
			}
			err = fmt.Errorf("%v\n%s\nall of it is in %s", errors.Join(err), tailOf(strings.Join(failed, "\n"), 40), log)
		}
		if len(failed) == 0 && (err == nil || try > 0 && ctx.Err() == nil) {
			return nil
		}
		if try == tries-1 || ctx.Err() != nil || len(failed) == 0 {
			return err
		}
		args = append(args[:len(args):len(args)], "-test.run", onlyThese(failed))
	}
	return nil
}

func (t testBinary) once(ctx context.Context, e *Env, args ...string) (string, error) {
	args = append([]string{"-test.v", "-test.timeout=8m50s"}, args...)
	cmd := exec.CommandContext(ctx, t.binary, args...)
	if t.own {
		var err error
		if cmd, err = beside(ctx, e, "", append([]string{t.binary}, args...)...); err != nil {
			return "", err
		}
	}
	cmd.Dir, cmd.Env = t.dir, append(cmd.Environ(), t.env...)
	out, err := run(cmd, e, "")
	if err != nil {
		err = errors.New(strings.SplitN(err.Error(), "\n", 2)[0])
	}
	return out, err
}

var verdictLine = regexp.MustCompile(`(?m)^\s*--- (FAIL|SKIP): (\S+)|^panic: `)

// notPassed names the tests that failed or were skipped: of those that failed because a part of them did, the part alone.
func notPassed(out string) (names []string) {
	for _, m := range verdictLine.FindAllStringSubmatch(out, -1) {
		if m[2] == "" {
			m[2] = "panic"
		}
		names = append(names, m[2])
	}
	return slices.DeleteFunc(names, func(n string) bool {
		return slices.ContainsFunc(names, func(other string) bool { return strings.HasPrefix(other, n+"/") })
	})
}

// onlyThese is the pattern that runs exactly these tests.
func onlyThese(names []string) string {
	var patterns []string
	for _, n := range names {
		var parts []string
		for part := range strings.SplitSeq(n, "/") {
			parts = append(parts, "^"+regexp.QuoteMeta(part)+"$")
		}
		patterns = append(patterns, strings.Join(parts, "/"))
	}
	return strings.Join(patterns, "|")
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

func installKafkaGoTests(ctx context.Context) error {
	return kafka.Once("kafka-go-tests", []string{filepath.Join(node.Root(), goClientsMod)}, func() error {
		module := filepath.Join(node.Root(), filepath.Dir(goClientsMod))
		dir, err := moduleDir(ctx, module, "github.com/segmentio/kafka-go")
		if err != nil {
			return err
		}
		if err := copyModule(dir, cache("kafka-go-src")); err != nil {
			return err
		}
		return command(ctx, module, "go", "test", "-c", "-o", cache("kafka-go.test"), "github.com/segmentio/kafka-go")
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
