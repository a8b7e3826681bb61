package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTierCatAndInspect read a tier whose node is gone, and name what is damaged.
func TestTierCatAndInspect(t *testing.T) {
	n, files := settledNode(t)
	live := ok(t, "consume", "layers", "--from-beginning", "--until-end", "--bootstrap-server", n.kafka, "--format", "json")
	n.stop()
	url := "dir://" + filepath.ToSlash(filepath.Join(n.data, "tier"))
	got := ok(t, "tier", "cat", "layers", url, "--format", "json")
	if got == "" || !strings.HasPrefix(live, got) {
		t.Errorf("%d bytes are not the first of the %d that the broker served", len(got), len(live))
	}
	lines := strings.SplitAfter(got, "\n")
	if out := ok(t, "tier", "cat", "layers", url, "--format", "json", "--from", "1234", "--count", "3"); out != strings.Join(lines[1234:1237], "") {
		t.Errorf("three records from 1234:\n%s", out)
	}
	key, err := filepath.Rel(filepath.Join(n.data, "tier"), strings.TrimSuffix(files[1], ".obj"))
	if err != nil {
		t.Fatal(err)
	}
	var seg inspected
	if err := json.Unmarshal([]byte(ok(t, "tier", "inspect", filepath.ToSlash(key), url, "--format", "json")), &seg); err != nil {
		t.Fatal(err)
	}
	if seg.Topic != "layers" || seg.Records == 0 || seg.Base == 0 || seg.Configs["segment.bytes"] != "1048576" {
		t.Errorf("%+v", seg)
	}
	if out := ok(t, "tier", "inspect", filepath.ToSlash(key), url); !strings.Contains(out, "layers, id "+seg.TopicID) {
		t.Error(out)
	}
	if out := ok(t, "tier", "cat", seg.TopicID, url, "--print", "offset", "--from", "10", "--count", "1"); out != "10\n" {
		t.Error(out)
	}
	refused := func(want string, args ...string) {
		t.Helper()
		if code, _, errs := shell(t, append([]string{"tier"}, args...)...); code != exitRuntime || !strings.Contains(errs, want) {
			t.Errorf("%v: %d %s", args, code, errs)
		}
	}
	refused("it holds layers (id", "cat", "nothing", url)
	refused("nothing of partition 7", "cat", "layers", url, "--partition", "7")
	refused("not found", "inspect", key+"x", url)
	b, err := os.ReadFile(files[1])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/3] ^= 1
	if err := os.WriteFile(files[1], b, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("CRC32C of", "cat", "layers", url)
}
