package compat

import (
	"flag"
	"path/filepath"
	"testing"

	"varve/tests/compat/edge"
	"varve/tests/node"
)

var rewrite = flag.Bool("rewrite", false, "write varve's answers in testdata/edge.golden anew")

// TestEdgeCalls: wrong and only just right calls, the codes that answer them, and why Apache Kafka answers otherwise where
// it does. `make edge-peer` asks Apache Kafka afresh.
func TestEdgeCalls(t *testing.T) {
	args := []string{"--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "varve.http.listen=127.0.0.1:0",
		"--set", "varve.topic.remote.storage.enable=false"}
	for _, kv := range edge.Settings() {
		args = append(args, "--set", kv)
	}
	n := node.StartT(t, node.Options{Data: t.TempDir(), Args: args})
	results, err := edge.Run(t.Context(), n.Kafka)
	if err != nil {
		t.Fatal(err)
	}
	golden, err := edge.ReadGolden(filepath.Join("testdata", "edge.golden"), filepath.Join("testdata", "edge.differs"))
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := golden.Rewrite(edge.Varve, results); err != nil {
			t.Fatal(err)
		}
		if golden, err = edge.ReadGolden(filepath.Join("testdata", "edge.golden"), filepath.Join("testdata", "edge.differs")); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range append(golden.Check(edge.Varve, results), golden.CheckReasons()...) {
		t.Error(bad)
	}
	if len(results) < 200 {
		t.Errorf("only %d calls", len(results))
	}
}
