package compat

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"varve/tests/compat/edge"
	"varve/tests/node"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/edge.golden anew")

// table is what a broker answers to the list of edge calls, one line each: name, request, codes, and what Apache Kafka says
// where that differs.
func table(t *testing.T, addr string) string {
	t.Helper()
	results, err := edge.Run(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, r := range results {
		b.WriteString(r.Name + "\t" + r.Request + "\t" + r.Codes)
		if r.Kafka != "" {
			b.WriteString("\tKafka: " + r.Kafka)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// TestEdgeCalls: wrong and only just right calls, and the codes that answer them.
func TestEdgeCalls(t *testing.T) {
	n := node.StartT(t, node.Options{Data: t.TempDir(), Args: []string{
		"--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "varve.http.listen=127.0.0.1:0",
		"--set", "auto.create.topics.enable=false", "--set", "varve.topic.remote.storage.enable=false"}})
	got := table(t, n.Kafka)
	golden := filepath.Join("testdata", "edge.golden")
	if *rewrite {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	was, is := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	if len(was) != len(is) {
		t.Errorf("%d lines, the golden file has %d", len(is), len(was))
	}
	for i := range min(len(was), len(is)) {
		if was[i] != is[i] {
			t.Errorf("got\n\t%s\nwant\n\t%s", is[i], was[i])
		}
	}
	if len(is) < 200 {
		t.Errorf("only %d calls", len(is))
	}
}
