//go:build kafka

package imports

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"varve/tests/kafka"
	"varve/tests/node"
)

func TestMain(m *testing.M) {
	code := m.Run()
	node.RemoveBinary()
	os.Exit(code)
}

func start(t *testing.T, o kafka.Options) *kafka.Node {
	t.Helper()
	n, err := kafka.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Kill)
	return n
}

func stop(t *testing.T, n *kafka.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := n.Terminate(ctx); err != nil {
		t.Fatal(err)
	}
}

// topics of the test, with their Kafka configs. Segments are small, so that each has several.
var topics = map[string]map[string]string{
	"plain":     {"segment.bytes": "1048576"},
	"txn":       {"segment.bytes": "1048576"},
	"compacted": {"segment.bytes": "1048576", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "1000", "max.compaction.lag.ms": "2000"},
	"trimmed":   {"segment.bytes": "1048576"},
}

const partitions = 2

func client(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func produce(t *testing.T, c *kgo.Client, topic string, from, n int, key func(i int) []byte) {
	t.Helper()
	records := make([]*kgo.Record, 0, n)
	for i := from; i < from+n; i++ {
		records = append(records, &kgo.Record{Topic: topic, Partition: int32(i % partitions), Key: key(i), Value: value(i),
			Headers: []kgo.RecordHeader{{Key: "i", Value: fmt.Append(nil, i)}}, Timestamp: time.UnixMilli(1_700_000_000_000 + int64(i))})
	}
	if err := c.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// value is 900 bytes that no codec makes much smaller, the same for the same number.
func value(i int) []byte {
	b := make([]byte, 900)
	_, _ = rand.NewChaCha8([32]byte{byte(i), byte(i >> 8)}).Read(b) // never fails
	return b
}

func plainKey(i int) []byte { return fmt.Append(nil, "k", i) }

// fill writes with every codec, in transactions that commit and abort, over and over the same keys, and deletes records.
func fill(t *testing.T, addr string) {
	t.Helper()
	adm := kadm.NewClient(client(t, addr))
	for name, configs := range topics {
		cfg := map[string]*string{}
		for k, v := range configs {
			cfg[k] = &v
		}
		if _, err := adm.CreateTopic(t.Context(), partitions, 1, cfg, name); err != nil {
			t.Fatal(err)
		}
	}
	for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		c := client(t, addr, kgo.ProducerBatchCompression(codec))
		produce(t, c, "plain", i*2000, 2000, plainKey)
		produce(t, c, "trimmed", i*2000, 2000, plainKey)
		produce(t, c, "compacted", i*3000, 3000, func(i int) []byte { return fmt.Append(nil, "k", i%50) })
	}
	txn := client(t, addr, kgo.TransactionalID("import"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	for i := range 12 {
		if err := txn.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		produce(t, txn, "txn", i*500, 500, plainKey)
		if err := txn.EndTransaction(t.Context(), kgo.TransactionEndTry(i%3 != 1)); err != nil {
			t.Fatal(err)
		}
	}
	offsets := kadm.Offsets{}
	offsets.AddOffset("trimmed", 0, 1234, -1)
	if _, err := adm.DeleteRecords(t.Context(), offsets); err != nil {
		t.Fatal(err)
	}
	commit(t, adm)
}

// commit commits offsets of three groups: one goes on within what is there, one lies below the first record that is left, one is deleted.
func commit(t *testing.T, adm *kadm.Client) {
	t.Helper()
	for group, at := range map[string]kadm.Offset{
		"goes-on": {Topic: "plain", Partition: 1, At: 700, LeaderEpoch: -1, Metadata: "halfway"},
		"behind":  {Topic: "trimmed", Partition: 0, At: 10, LeaderEpoch: -1},
		"gone":    {Topic: "plain", Partition: 0, At: 5, LeaderEpoch: -1},
	} {
		for _, o := range []kadm.Offset{{Topic: at.Topic, Partition: at.Partition, At: 1, LeaderEpoch: -1}, at} {
			offsets := kadm.Offsets{}
			offsets.Add(o)
			if err := adm.CommitAllOffsets(t.Context(), group, offsets); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := adm.DeleteGroup(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
}

// checkGroups: the groups stand where they stood, the one whose records are gone at the first that there is.
func checkGroups(t *testing.T, adm *kadm.Client) {
	t.Helper()
	for group, want := range map[string]string{"goes-on": "plain-1 700 halfway", "behind": "trimmed-0 1234 ", "gone": ""} {
		all, err := adm.FetchOffsets(t.Context(), group)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		all.Offsets().Each(func(o kadm.Offset) { got += fmt.Sprintf("%s-%d %d %s", o.Topic, o.Partition, o.At, o.Metadata) })
		if got != want {
			t.Errorf("group %s: %q, not %q", group, got, want)
		}
	}
}

// checkConfigs: the topics have the configs that they had, but for those that a tiered topic cannot have.
func checkConfigs(t *testing.T, adm *kadm.Client) {
	t.Helper()
	all, err := adm.DescribeTopicConfigs(t.Context(), "plain", "compacted", "trimmed")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		got := map[string]string{}
		for _, c := range r.Configs {
			if c.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
				got[c.Key] = c.MaybeValue()
			}
		}
		if got["segment.bytes"] != "1048576" || got["remote.storage.enable"] != "true" || got["retention.ms"] != "-1" || got["cleanup.policy"] == "compact" {
			t.Errorf("%s: %v", r.Name, got)
		}
		if want := topics[r.Name]["max.compaction.lag.ms"]; got["max.compaction.lag.ms"] != want {
			t.Errorf("%s: max.compaction.lag.ms is %q, not %q", r.Name, got["max.compaction.lag.ms"], want)
		}
	}
}

// waitCompacted waits until the cleaner has been through, so that offsets are missing.
func waitCompacted(t *testing.T, addr string) {
	t.Helper()
	c := client(t, addr)
	for i := range 60 {
		if n := len(read(t, addr, "compacted", 0, false)); n < 5000 {
			return
		}
		// A record now and then makes the active segment roll.
		produce(t, c, "compacted", i, partitions, func(int) []byte { return []byte("late") })
		time.Sleep(time.Second)
	}
	t.Fatal("nothing was compacted within a minute")
}

// read returns all records of a partition as lines.
func read(t *testing.T, addr, topic string, partition int32, committed bool) (lines []string) {
	t.Helper()
	level := kgo.ReadUncommitted()
	if committed {
		level = kgo.ReadCommitted()
	}
	c := client(t, addr, kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(), kgo.FetchMaxWait(200*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))
	defer c.Close()
	ends, err := kadm.NewClient(c).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, partition)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for next := int64(0); next < end.Offset; {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("%s-%d at %d of %d: %v", topic, partition, next, end.Offset, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			lines = append(lines, fmt.Sprintf("%d %d %q %q %v control %v", r.Offset, r.Timestamp.UnixMilli(), r.Key, r.Value, r.Headers, r.Attrs.IsControl()))
		})
	}
	return lines
}

// served is everything that a broker serves of the topics.
func served(t *testing.T, addr string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for topic := range topics {
		for p := range int32(partitions) {
			for _, committed := range []bool{false, true} {
				all[fmt.Sprintf("%s-%d committed %v", topic, p, committed)] = read(t, addr, topic, p, committed)
			}
		}
	}
	return all
}

// TestKafkaLogDirectory: what Apache Kafka wrote reads equal from Apache Kafka and, imported, from varve; writing goes on
// behind it.
func TestKafkaLogDirectory(t *testing.T) {
	work := t.TempDir()
	peer := start(t, kafka.Options{Data: filepath.Join(work, "kafka"), JVM: []string{"-Xmx1g"}, Props: []string{
		"offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
		"log.cleaner.backoff.ms=500", "metadata.log.max.record.bytes.between.snapshots=20000", "log.retention.ms=-1", "auto.create.topics.enable=false",
	}})
	fill(t, peer.Addr)
	waitCompacted(t, peer.Addr)
	want := served(t, peer.Addr)
	stop(t, peer)
	n := node.StartT(t, node.Options{Data: filepath.Join(work, "varve"), Args: []string{"--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "varve.http.listen=127.0.0.1:0"}})
	out, err := exec.CommandContext(t.Context(), node.Binary(t), "tier", "import", "--from", peer.Logs, "--id", "from-kafka", n.Tier, "--config", "retention.ms=-1").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	if out, err := exec.CommandContext(t.Context(), node.Binary(t), "tier", "restore", "--http", n.HTTP, "--from", n.Tier, "--cluster", "from-kafka").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	adm := kadm.NewClient(client(t, n.Kafka))
	checkGroups(t, adm)
	checkConfigs(t, adm)
	got := served(t, n.Kafka)
	for what, lines := range want {
		if strings.Join(got[what], "\n") != strings.Join(lines, "\n") {
			t.Errorf("%s: %d records, not the %d of Apache Kafka", what, len(got[what]), len(lines))
		}
	}
	if a, b := len(want["txn-0 committed true"]), len(want["txn-0 committed false"]); a == b || a == 0 {
		t.Errorf("%d committed of %d: nothing was aborted", a, b)
	}
	if first := want["trimmed-0 committed false"][0]; !strings.HasPrefix(first, "1234 ") {
		t.Errorf("trimmed begins with %.40s", first)
	}
	c := client(t, n.Kafka)
	produce(t, c, "plain", 0, 10, plainKey)
	after := read(t, n.Kafka, "plain", 0, false)
	if had := len(want["plain-0 committed false"]); len(after) != had+5 || !strings.HasPrefix(after[had], fmt.Sprint(had)+" ") {
		t.Errorf("%d records after 5 more", len(after))
	}
}
