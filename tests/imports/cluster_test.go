//go:build kafka

package imports

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"varve/tests/kafka"
	"varve/tests/node"
)

// create makes a topic, again when one of its name is not gone yet.
func create(t *testing.T, adm *kadm.Client, topic string, replicas int16, configs map[string]*string) {
	t.Helper()
	var err error
	for range 50 {
		if _, err = adm.CreateTopic(t.Context(), partitions, replicas, configs, topic); err == nil {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Fatal(err)
}

// waitISR waits until all partitions of a topic have so many replicas in sync, and a leader.
func waitISR(t *testing.T, adm *kadm.Client, topic string, n int) {
	t.Helper()
	for range 300 {
		all, err := adm.ListTopics(t.Context(), topic)
		ok := err == nil && len(all[topic].Partitions) == partitions
		for _, p := range all[topic].Partitions {
			ok = ok && len(p.ISR) == n && p.Leader >= 0
		}
		if ok {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Fatalf("topic %s has not %d replicas in sync", topic, n)
}

// segmentsOf are the names of a partition's segment files in a log directory.
func segmentsOf(t *testing.T, logs, partition string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(logs, partition, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, filepath.Base(f))
	}
	return names
}

func commitAt(t *testing.T, adm *kadm.Client, at int64) {
	t.Helper()
	offsets := kadm.Offsets{}
	offsets.AddOffset("both", 1, at, -1)
	if err := adm.CommitAllOffsets(t.Context(), "readers", offsets); err != nil {
		t.Fatal(err)
	}
}

// readAll adds what a broker serves of topics.
func readAll(t *testing.T, addr string, into map[string][]string, names ...string) {
	t.Helper()
	for _, topic := range names {
		for p := range int32(partitions) {
			into[fmt.Sprintf("%s-%d", topic, p)] = read(t, addr, topic, p, false)
		}
	}
}

// whileAway is what the second broker misses: records, a topic, and that one was deleted and made again.
func whileAway(t *testing.T, addr string) {
	t.Helper()
	c := client(t, addr)
	adm := kadm.NewClient(c)
	waitISR(t, adm, "both", 1)
	produce(t, c, "both", 6000, 1000, plainKey)
	if _, err := adm.DeleteTopic(t.Context(), "again"); err != nil {
		t.Fatal(err)
	}
	segmentBytes := "1048576"
	create(t, adm, "again", 1, map[string]*string{"segment.bytes": &segmentBytes})
	create(t, adm, "late", 1, map[string]*string{"segment.bytes": &segmentBytes})
	fresh := client(t, addr) // knows nothing of the topic that was deleted
	produce(t, fresh, "again", 9000, 500, plainKey)
	produce(t, fresh, "late", 0, 2000, plainKey)
	commitAt(t, adm, 3100)
}

// TestKafkaCluster: the directories of two brokers, one of which was away at the end, come in as the cluster served them: partitions that
// only one has, replicas that rolled at different offsets, of two topics of one name that which is not deleted, and configs as the newer
// of two metadata logs has them.
func TestKafkaCluster(t *testing.T) {
	work := t.TempDir()
	broker := func(id int, controller string, segmentBytes int) *kafka.Node {
		return start(t, kafka.Options{Data: filepath.Join(work, fmt.Sprint("kafka", id)), ID: id, Controller: controller, JVM: []string{"-Xmx512m"}, Props: []string{
			"offsets.topic.replication.factor=2", "offsets.topic.num.partitions=4", "log.retention.ms=-1", "auto.create.topics.enable=false",
			fmt.Sprintf("log.segment.bytes=%d", segmentBytes),
		}})
	}
	one := broker(1, "", 1<<20)
	two := broker(2, one.Controller, 3<<19)
	c := client(t, one.Addr)
	adm := kadm.NewClient(c)
	for topic, replicas := range map[string]int16{"both": 2, "again": 2, "single": 1} {
		create(t, adm, topic, replicas, nil)
		waitISR(t, adm, topic, int(replicas))
	}
	for i := range 6 { // a request after the other: followers fetch in steps of their own
		for _, topic := range []string{"both", "again", "single"} {
			produce(t, c, topic, i*1000, 1000, plainKey)
		}
	}
	commitAt(t, adm, 700)
	waitISR(t, adm, "both", 2)
	want := map[string][]string{}
	readAll(t, one.Addr, want, "single")
	stop(t, two)
	whileAway(t, one.Addr)
	readAll(t, one.Addr, want, "both", "again", "late")
	stop(t, one)
	if a, b := segmentsOf(t, one.Logs, "both-0"), segmentsOf(t, two.Logs, "both-0"); slices.Equal(a, b) || len(b) < 2 {
		t.Errorf("both rolled alike: %v %v", a, b)
	}
	n := node.StartT(t, node.Options{Data: filepath.Join(work, "varve"), Args: []string{"--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "varve.http.listen=127.0.0.1:0"}})
	varve := func(args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), node.Binary(t), args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Logf("%s", out)
	}
	varve("tier", "import", "--from", two.Logs, "--from", one.Logs, "--id", "from-two", n.Tier, "--config", "retention.ms=-1")
	varve("tier", "restore", "--http", n.HTTP, "--from", n.Tier, "--cluster", "from-two")
	checkCluster(t, n.Kafka, want)
}

func checkCluster(t *testing.T, addr string, want map[string][]string) {
	t.Helper()
	got := map[string][]string{}
	readAll(t, addr, got, "both", "again", "single", "late")
	for what, lines := range want {
		if len(lines) == 0 || strings.Join(got[what], "\n") != strings.Join(lines, "\n") {
			t.Errorf("%s: %d records, not the %d of Apache Kafka", what, len(got[what]), len(lines))
		}
	}
	adm := kadm.NewClient(client(t, addr))
	for _, topic := range []string{"late", "again"} {
		all, err := adm.DescribeTopicConfigs(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		own := slices.IndexFunc(all[0].Configs, func(c kadm.Config) bool { return c.Key == "segment.bytes" && c.MaybeValue() == "1048576" })
		if own < 0 {
			t.Errorf("%s lacks the segment.bytes that it had", topic)
		}
	}
	offsets, err := adm.FetchOffsets(t.Context(), "readers")
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := offsets.Lookup("both", 1); !ok || o.At != 3100 {
		t.Errorf("the group stands at %+v", o)
	}
}
