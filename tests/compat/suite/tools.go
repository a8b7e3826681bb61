package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"varve/tests/kafka"
)

const (
	tools        = "org.apache.kafka.tools."
	toolsTimeMax = 5 * time.Minute // a cell is up to nine processes one after the other
)

// toolsClient are Apache Kafka's own command-line tools, as their scripts run them.
func toolsClient() Client {
	cases := []Case{
		{Name: "topics", Run: toolTopics},
		{Name: "configs", Run: toolConfigs},
		{Name: "console", Run: toolConsole},
		{Name: "consumer-groups", Run: toolGroups},
		{Name: "get-offsets", Run: toolOffsets},
		{Name: "log-dirs", Run: toolLogDirs},
		{Name: "delete-records", Run: toolDeleteRecords},
		{Name: "verifiable", Run: toolVerifiable},
		{Name: "perf", Run: toolPerf},
		{Name: "api-versions", Run: toolVersions},
		{Name: "client-compatibility", Run: toolCompatibility},
		{Name: "dump-log", Run: dumpLog, Last: true},
	}
	for i := range cases {
		cases[i].Limit = toolsTimeMax
	}
	return Client{Name: "kafka-tools", Registry: registryMaven, Install: kafka.Install, Version: pinned("tests/kafka/kafka.pom.xml", "kafka.version"), Cases: cases}
}

// tool runs one of the tools against the cell's broker.
func tool(ctx context.Context, e *Env, stdin, class string, args ...string) (string, error) {
	out, err := run(kafka.Tool(ctx, kafka.Jars(), tools+class, append([]string{"--bootstrap-server", e.Broker.Addr}, args...)...), e, stdin)
	if err != nil {
		return out, fmt.Errorf("%s %s: %w", class, strings.Join(args, " "), err)
	}
	return out, nil
}

// step is one call of a tool and what its output must hold.
type step struct {
	class string
	args  []string
	holds []string
}

// steps runs them in order; output that comes late, as a change spreads, is asked for again.
func steps(ctx context.Context, e *Env, all ...step) error {
	for _, s := range all {
		for tries := 1; ; tries++ {
			out, err := tool(ctx, e, "", s.class, s.args...)
			if err == nil {
				err = contains(s.class+" "+strings.Join(s.args, " "), out, s.holds...)
			}
			if err == nil {
				break
			}
			if tries == 3 || ctx.Err() != nil {
				return err
			}
		}
	}
	return nil
}

func toolTopics(ctx context.Context, e *Env) error {
	topic := []string{"--topic", e.Name}
	with := func(args ...string) []string { return append(args, topic...) }
	err := steps(ctx, e,
		step{"TopicCommand", with("--create", "--if-not-exists", "--partitions", "3", "--replication-factor", "1", "--config", "retention.ms=3600000"), nil},
		step{"TopicCommand", with("--describe"), []string{"PartitionCount: 3", "retention.ms=3600000", "ReplicationFactor: 1"}},
		step{"TopicCommand", with("--alter", "--partitions", "5"), nil},
		step{"TopicCommand", with("--describe"), []string{"PartitionCount: 5", "Partition: 4"}},
		step{"TopicCommand", []string{"--list"}, []string{e.Name}},
		step{"TopicCommand", with("--delete"), nil})
	if err != nil {
		return err
	}
	out, err := tool(ctx, e, "", "TopicCommand", "--list")
	if err == nil && strings.Contains(out, e.Name) {
		err = errors.New("a deleted topic is listed")
	}
	return err
}

func toolConfigs(ctx context.Context, e *Env) error {
	topic := []string{"--entity-type", "topics", "--entity-name", e.Name}
	with := func(args ...string) []string { return append(args, topic...) }
	return steps(ctx, e,
		step{"TopicCommand", []string{"--create", "--if-not-exists", "--topic", e.Name}, nil},
		step{"ConfigCommand", with("--alter", "--add-config", "retention.ms=1234567,max.message.bytes=2000000"), []string{"Completed updating config"}},
		step{"ConfigCommand", with("--describe"), []string{"retention.ms=1234567", "max.message.bytes=2000000", "DYNAMIC_TOPIC_CONFIG"}},
		step{"ConfigCommand", with("--alter", "--delete-config", "retention.ms"), []string{"Completed updating config"}},
		step{"ConfigCommand", with("--describe", "--all"), []string{"retention.ms=604800000", "max.message.bytes=2000000"}},
		step{"ConfigCommand", []string{"--entity-type", "brokers", "--entity-default", "--alter", "--add-config", "log.cleaner.threads=2"}, []string{"Completed updating"}},
		step{"ConfigCommand", []string{"--entity-type", "brokers", "--entity-default", "--describe"}, []string{"log.cleaner.threads=2"}},
		step{"ConfigCommand", []string{"--entity-type", "brokers", "--entity-default", "--alter", "--delete-config", "log.cleaner.threads"}, []string{"Completed updating"}},
		step{"ConfigCommand", []string{"--entity-type", "brokers", "--entity-name", "1", "--describe", "--all"}, []string{"num.partitions=4"}})
}

func toolProduce(ctx context.Context, e *Env, lines string) error {
	_, err := tool(ctx, e, lines, "ConsoleProducer", "--topic", e.Name, "--reader-property", "parse.key=true", "--reader-property", "key.separator=:",
		"--compression-codec", "zstd")
	return err
}

func toolConsole(ctx context.Context, e *Env) error {
	var lines strings.Builder
	for i := range 300 {
		fmt.Fprintf(&lines, "one:line %d\n", i) // one key, so one partition and one order
	}
	if err := toolProduce(ctx, e, lines.String()); err != nil {
		return err
	}
	out, err := tool(ctx, e, "", "consumer.ConsoleConsumer", "--topic", e.Name, "--from-beginning", "--max-messages", "300", "--timeout-ms", "30000",
		"--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
	return errors.Join(err, want("console consumer", out, lines.String()))
}

func toolGroups(ctx context.Context, e *Env) error {
	if err := toolProduce(ctx, e, kcatLines(100)); err != nil {
		return err
	}
	group := []string{"--group", e.Name}
	with := func(args ...string) []string { return append(args, group...) }
	_, err := tool(ctx, e, "", "consumer.ConsoleConsumer", "--topic", e.Name, "--group", e.Name, "--from-beginning", "--max-messages", "100", "--timeout-ms", "30000")
	if err != nil {
		return err
	}
	const class = "consumer.group.ConsumerGroupCommand"
	return steps(ctx, e,
		step{class, []string{"--list"}, []string{e.Name}},
		step{class, with("--describe"), []string{e.Name, "LAG"}},
		step{class, with("--describe", "--state"), []string{"Empty"}},
		step{class, with("--describe", "--members"), nil},
		step{class, with("--reset-offsets", "--to-earliest", "--topic", e.Name, "--dry-run"), []string{"NEW-OFFSET"}},
		step{class, with("--reset-offsets", "--to-earliest", "--topic", e.Name, "--execute"), []string{"NEW-OFFSET"}},
		step{class, with("--reset-offsets", "--shift-by", "3", "--topic", e.Name+":0", "--execute"), []string{"NEW-OFFSET"}},
		step{class, with("--delete-offsets", "--topic", e.Name), []string{"Successful"}},
		step{class, with("--delete"), []string{"successful"}})
}

func toolOffsets(ctx context.Context, e *Env) error {
	if err := toolProduce(ctx, e, strings.Repeat("one:line\n", 100)); err != nil {
		return err
	}
	sum := func(at string) (total int, err error) {
		out, err := tool(ctx, e, "", "GetOffsetShell", "--topic", e.Name, "--time", at)
		for line := range strings.Lines(out) {
			var n int
			if f := strings.Split(strings.TrimSpace(line), ":"); len(f) == 3 {
				_, _ = fmt.Sscan(f[2], &n)
				total += n
			}
		}
		return total, err
	}
	for at, expected := range map[string]int{"latest": 100, "earliest": 0, "-1": 100, "1": 0} {
		got, err := sum(at)
		// Partitions without a record answer -1 or nothing by time: three of four here.
		if err != nil || got != expected && got != expected-3 {
			return errors.Join(err, fmt.Errorf("offsets at %s sum to %d, want %d", at, got, expected))
		}
	}
	// The first record of the latest millisecond, whichever that is.
	got, err := sum("max-timestamp")
	if err == nil && (got < -3 || got > 99) {
		err = fmt.Errorf("the latest timestamp is at %d", got)
	}
	return err
}

func toolLogDirs(ctx context.Context, e *Env) error {
	if err := toolProduce(ctx, e, kcatLines(100)); err != nil {
		return err
	}
	return steps(ctx, e, step{"LogDirsCommand", []string{"--describe", "--topic-list", e.Name}, []string{e.Broker.Logs, `"partition":"` + e.Name + `-0"`, `"error":null`}})
}

func toolDeleteRecords(ctx context.Context, e *Env) error {
	if err := toolProduce(ctx, e, strings.Repeat("one:line\n", 100)); err != nil {
		return err
	}
	file := filepath.Join(e.Dir, "delete.json")
	var parts []string
	for p := range 4 {
		parts = append(parts, fmt.Sprintf(`{"topic":%q,"partition":%d,"offset":-1}`, e.Name, p))
	}
	if err := os.WriteFile(file, []byte(`{"version":1,"partitions":[`+strings.Join(parts, ",")+`]}`), 0o600); err != nil {
		return err
	}
	return steps(ctx, e,
		step{"DeleteRecordsCommand", []string{"--offset-json-file", file}, []string{"low_watermark: 100"}},
		step{"GetOffsetShell", []string{"--topic", e.Name, "--time", "earliest"}, []string{":100"}})
}

func toolVerifiable(ctx context.Context, e *Env) error {
	out, err := tool(ctx, e, "", "VerifiableProducer", "--topic", e.Name, "--max-messages", "3000", "--acks", "-1")
	if err := errors.Join(err, contains("producer", out, `"acked":3000`)); err != nil {
		return err
	}
	out, err = tool(ctx, e, "", "VerifiableConsumer", "--topic", e.Name, "--group-id", e.Name, "--max-messages", "3000", "--session-timeout", "6000", "--reset-policy", "earliest")
	return errors.Join(err, contains("consumer", out, `"name":"offsets_committed"`, `"name":"shutdown_complete"`))
}

func toolPerf(ctx context.Context, e *Env) error {
	out, err := tool(ctx, e, "", "ProducerPerformance", "--topic", e.Name, "--num-records", "50000", "--record-size", "100", "--throughput", "-1")
	if err := errors.Join(err, contains("producer", out, "50000 records sent")); err != nil {
		return err
	}
	out, err = tool(ctx, e, "", "ConsumerPerformance", "--topic", e.Name, "--group", e.Name, "--num-records", "50000", "--timeout", "30000")
	return errors.Join(err, contains("consumer", out, ", 50000,"))
}

func toolVersions(ctx context.Context, e *Env) error {
	return steps(ctx, e, step{"BrokerApiVersionsCommand", nil, []string{"(id: 1 ", "Produce(0): ", "Fetch(1): "}})
}

func toolCompatibility(ctx context.Context, e *Env) error {
	// It reads the records of a single partition in order.
	if _, err := tool(ctx, e, "", "TopicCommand", "--create", "--topic", e.Name, "--partitions", "1"); err != nil {
		return err
	}
	_, err := tool(ctx, e, "", "ClientCompatibilityTest", "--topic", e.Name, "--num-cluster-nodes", "1", "--offsets-for-times-supported", "True",
		"--cluster-id-supported", "True", "--expect-record-too-large-exception", "False", "--create-topics-supported", "True",
		"--describe-acls-supported", "True", "--describe-configs-supported", "True", "--idempotent-producer-supported", "True")
	return err
}
