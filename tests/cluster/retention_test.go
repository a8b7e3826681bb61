package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"varve/tests/node"
)

// TestStartWithWrongClock: a node that was last up a year ago, as its clock says, deletes nothing by age, on topics with and without a
// tier; by size it does.
func TestStartWithWrongClock(t *testing.T) {
	data := t.TempDir()
	sets := []string{"log.retention.check.interval.ms=200", "remote.log.manager.task.interval.ms=200", "log.segment.bytes=1048576"}
	n := node.StartT(t, withSets(data, sets...))
	topics := map[string]string{"tiered": "true", "local": "false"}
	for name, tiered := range topics {
		createTopic(t, n, name, 1, map[string]string{"remote.storage.enable": tiered, "retention.ms": "-1"})
		(&load{topic: name, partitions: 1, seed: 3}).produce(t, n, 4<<20)
	}
	path := filepath.Join(data, "meta", "clock")
	var clock map[string]any
	eventually(t, 20*time.Second, func() string {
		raw, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(raw, &clock)
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
	n.Kill()
	const yearMs = 365 * 24 * 3600 * 1000
	clock["wall_ms"] = int64(clock["wall_ms"].(float64)) - yearMs
	raw, err := json.Marshal(clock)
	if err == nil {
		err = os.WriteFile(path, raw, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	n = node.StartT(t, withSets(data, sets...))
	for name := range topics {
		alterTopic(t, n, name, "retention.ms", "1")
	}
	time.Sleep(3 * time.Second) // many rounds of retention
	for name := range topics {
		if at := logStarts(t, n, name); at != 0 {
			t.Fatalf("%s: log start moved to %d by a clock that is a year ahead", name, at)
		}
	}
	if !strings.Contains(n.Stderr(), "msg=tier_clock_judged retention=paused") {
		t.Fatalf("nothing is said:\n%s", n.Stderr())
	}
	for name := range topics {
		alterTopic(t, n, name, "retention.bytes", "1048576")
		eventually(t, 30*time.Second, func() string {
			if logStarts(t, n, name) == 0 {
				return name + ": retention by size waits for the clock"
			}
			return ""
		})
	}
}

func alterTopic(t *testing.T, n *node.Node, topic, key, value string) {
	t.Helper()
	got, err := kadm.NewClient(client(t, n)).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: key, Value: kadm.StringPtr(value)}}, topic)
	if err == nil {
		err = got[0].Err
	}
	if err != nil {
		t.Fatalf("%s=%s: %v", key, value, err)
	}
}

// logStarts is the log start of a topic's only partition.
func logStarts(t *testing.T, n *node.Node, topic string) int64 {
	t.Helper()
	listed, err := kadm.NewClient(client(t, n)).ListStartOffsets(t.Context(), topic)
	if err == nil {
		err = listed.Error()
	}
	o, ok := listed.Lookup(topic, 0)
	if err != nil || !ok {
		t.Fatal(fmt.Errorf("log start of %s: %w", topic, err))
	}
	return o.Offset
}
