//go:build external

package docs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"varve/tests/node"
)

// TestDocumentedCommands types each document's commands at a node on the default ports. The namespace has nothing but a
// loopback of its own, so that whatever else runs on this machine is out of reach.
func TestDocumentedCommands(t *testing.T) {
	binary := node.Binary(t)
	t.Cleanup(node.RemoveBinary)
	for doc, lines := range commands(t) {
		t.Run(doc, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(binary, filepath.Join(dir, "bin", "varve")); err != nil {
				t.Fatal(err)
			}
			script := []string{"set -euo pipefail", "ip link set lo up", "bin/varve server >ready 2>log &",
				"for _ in $(seq 100); do grep -q '^varve ready' ready && break; sleep 0.1; done", "cat ready"}
			for _, line := range lines {
				if !strings.HasPrefix(line, "make ") {
					script = append(script, "echo '> "+strings.ReplaceAll(line, "'", `'\''`)+"'", line)
				}
			}
			script = append(script, "kill %1", "wait %1")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "unshare", "--net", "bash", "-m", "-c", strings.Join(script, "\n"))
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				log, _ := os.ReadFile(filepath.Join(dir, "log"))
				t.Fatalf("%v\n%s\nlog:\n%s", err, out, log)
			}
		})
	}
}
