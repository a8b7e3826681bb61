package main

import (
	"os"
	"path/filepath"
	"testing"

	"varve/tests/node"
)

func TestMain(m *testing.M) {
	code := m.Run()
	node.RemoveBinary()
	os.Exit(code)
}

// TestChainsOverRestarts: kgo's group chains, shorter, over a SIGTERM and over a kill -9.
func TestChainsOverRestarts(t *testing.T) {
	dir := t.TempDir()
	o := options{records: 4000, binary: node.Binary(t), test: filepath.Join(dir, "kgo.test"), keep: dir}
	if err := buildTests(t.Context(), o.test); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"SIGTERM", "kill"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report, err := round(t.Context(), o, i)
			t.Log(report)
			if err != nil {
				t.Error(err)
			}
		})
	}
}
