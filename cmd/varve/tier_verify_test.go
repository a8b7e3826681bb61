package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"varve/broker/admin"
)

// settledNode is a running node whose topic "layers" has several objects in its dir tier; it returns their files.
func settledNode(t *testing.T) (*node, []string) {
	t.Helper()
	n := start(t, t.TempDir(), "remote.log.manager.task.interval.ms=100", "varve.tier.journal.interval.ms=100")
	ok(t, "topic", "create", "layers", "--bootstrap-server", n.kafka, "--config", "segment.bytes=1048576")
	in := filepath.Join(t.TempDir(), "in")
	var lines strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&lines, "%d %s\n", i, strings.Repeat("x", 1000))
	}
	if err := os.WriteFile(in, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	ok(t, "produce", "layers", "--file", in, "--bootstrap-server", n.kafka, "--compression", "none")
	dir := filepath.Join(n.data, "tier")
	for range 200 {
		var files []string
		err := filepath.Walk(dir, func(p string, _ os.FileInfo, err error) error {
			if strings.HasSuffix(p, ".seg.obj") {
				files = append(files, p)
			}
			return err
		})
		var st admin.TierStatus
		if jerr := json.Unmarshal([]byte(ok(t, "tier", "status", "--http", n.http, "--format", "json")), &st); jerr != nil || err != nil && !os.IsNotExist(err) {
			t.Fatal(err, jerr)
		}
		if len(files) >= 4 && st.Total.Segments == int64(len(files)) {
			return n, files
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("nothing settles")
	return nil, nil
}

// TestTierVerify: a sound tier, a damaged one, one that cannot be read, each with its exit code.
func TestTierVerify(t *testing.T) {
	n, files := settledNode(t)
	verify := func(want int, args ...string) string {
		t.Helper()
		code, out, errs := shell(t, append([]string{"tier", "verify", "--http", n.http}, args...)...)
		if code != want {
			t.Fatalf("%v: exit %d, not %d\n%s%s", args, code, want, out, errs)
		}
		return out + errs
	}
	for _, level := range []string{"list", "index", "data"} {
		if out := verify(exitOK, "--level", level); !strings.Contains(out, "0 findings") {
			t.Errorf("%s: %s", level, out)
		}
	}
	if out := verify(exitOK, "--topic", "lay*"); !strings.Contains(out, fmt.Sprintf("%d segments of 1 partitions", len(files))) {
		t.Error(out)
	}
	verify(verifyUnchecked, "--topic", "nothing")
	verify(verifyUnchecked, "--level", "deep")
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(files[1])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/3] ^= 1
	if err := os.WriteFile(files[1], b, 0o600); err != nil {
		t.Fatal(err)
	}
	out := verify(verifyFindings, "--level", "data", "--format", "json")
	var rep verified
	if err := json.Unmarshal([]byte(out), &rep); err != nil {
		t.Fatal(err, out)
	}
	kinds := map[string]int{}
	for _, f := range rep.Found {
		kinds[f.Kind]++
	}
	if rep.Findings != 2 || kinds["missing"] != 1 || kinds["corrupt"] != 1 || rep.Segments != int64(len(files)) {
		t.Errorf("%+v", rep)
	}
	if out := verify(verifyFindings, "--level", "list"); !strings.Contains(out, "missing  layers-0 [0, ") {
		t.Error(out)
	}
	if out := verify(exitOK, "--level", "data", "--repair"); strings.Count(out, "stored anew from the local log") != 2 {
		t.Error(out)
	}
	if out := verify(exitOK, "--level", "data"); !strings.Contains(out, "0 findings") {
		t.Error(out)
	}
}
