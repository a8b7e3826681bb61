package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTierImport: the log directory of a stopped node goes into a tier, where its records are read as the node served them.
// That a cluster then takes it in, and that Apache Kafka's directories can be read, is shown elsewhere.
func TestTierImport(t *testing.T) {
	n := start(t, t.TempDir(), "varve.topic.remote.storage.enable=false")
	ok(t, "topic", "create", "old", "--bootstrap-server", n.kafka, "--partitions", "2", "--config", "segment.bytes=1048576")
	in := filepath.Join(t.TempDir(), "in")
	var lines strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&lines, "%d:%d %s\n", i, i, strings.Repeat("y", 1000))
	}
	if err := os.WriteFile(in, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	ok(t, "produce", "old", "--file", in, "--bootstrap-server", n.kafka, "--key-separator", ":", "--compression", "zstd")
	var live [2]string
	for p := range live {
		live[p] = ok(t, "consume", "old", "--from-beginning", "--until-end", "--bootstrap-server", n.kafka, "--partition", fmt.Sprint(p), "--format", "json")
	}
	ok(t, "consume", "old", "--group", "readers", "--from-beginning", "--count", "3000", "--timeout-ms", "30000", "--bootstrap-server", n.kafka)
	logs := filepath.Join(n.data, "log")
	tier := "dir://" + filepath.ToSlash(t.TempDir())
	refused := func(code int, want string, args ...string) {
		t.Helper()
		got, _, errs := shell(t, append([]string{"tier", "import"}, args...)...)
		if got != code || !strings.Contains(errs, want) {
			t.Errorf("%v: %d %s", args, got, errs)
		}
	}
	n.stop()
	if out := ok(t, "tier", "import", "--from", logs, "--dry-run"); !strings.Contains(out, "old") || strings.Contains(out, "next:") {
		t.Error(out)
	}
	var done []importedLine
	out := ok(t, "tier", "import", "--from", logs, "--id", "in-1", tier, "--rename", "old=new", "--config", "retention.ms=-1", "--format", "json")
	if err := json.Unmarshal([]byte(out), &done); err != nil || len(done) != 2 || done[0].Topic != "new" || done[0].Records+done[1].Records != 3000 ||
		done[0].Groups != 1 || done[1].Groups != 1 || done[0].Configs["retention.ms"] != "-1" {
		t.Fatal(err, out)
	}
	if out := ok(t, "tier", "import", "--from", logs, "--id", "in-1", tier, "--rename", "old=new"); strings.Count(out, "imported before") != 2 || !strings.Contains(out, "restore --cluster in-1") {
		t.Error(out)
	}
	if out := ok(t, "tier", "restore", "--dry-run", "--from", tier, "--cluster", "in-1", "--format", "json"); !strings.Contains(out, `"groupOffsets": 2`) && !strings.Contains(out, `"groupOffsets":2`) {
		t.Error(out)
	}
	for p, want := range live {
		got := ok(t, "tier", "cat", "new", tier, "--partition", fmt.Sprint(p), "--format", "json")
		if strings.ReplaceAll(got, `"topic":"new"`, `"topic":"old"`) != want || want == "" {
			t.Errorf("partition %d: %d bytes, not %d", p, len(got), len(want))
		}
	}
	refused(exitUsage, "--from", "--id", "x", tier)
	refused(exitUsage, "--id", "--from", logs, tier)
	refused(exitUsage, "OLD=NEW", "--from", logs, "--id", "x", tier, "--rename", "a")
	refused(exitUsage, "--config", "--from", logs, "--id", "x", tier, "--config", "retention.ms=soon")
	refused(exitRuntime, "letters", "--from", logs, "--id", "a/b", tier)
	refused(exitRuntime, "no partition of", "--from", logs, "--id", "x", tier, "--topic", "zzz")
	refused(exitRuntime, "meta.properties", "--from", filepath.Join(n.data, "meta"), "--id", "x", tier)
}
