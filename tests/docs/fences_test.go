package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"varve/tests/node"
	"varve/tiering/objstore"
)

// commands returns the lines of all fences marked `sh`, by document.
func commands(t *testing.T) map[string][]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(node.Root(), "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, name := range append(names, filepath.Join(node.Root(), "README.md")) {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		inside := false
		for line := range strings.Lines(string(raw)) {
			line = strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(line, "```"):
				inside = line == "```sh"
			case inside && line != "" && !strings.HasPrefix(line, "#"):
				out[filepath.Base(name)] = append(out[filepath.Base(name)], line)
			}
		}
	}
	if len(out["README.md"]) == 0 {
		t.Fatal("the README shows no command")
	}
	return out
}

// TestMakeTargets: a make target in a document exists, and .ci/run runs it.
func TestMakeTargets(t *testing.T) {
	read := func(name string) string {
		raw, err := os.ReadFile(filepath.Join(node.Root(), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	makefile, ci := read("Makefile"), read(".ci/run")+read(".ci/run-serves")
	for doc, lines := range commands(t) {
		for _, line := range lines {
			target, ok := strings.CutPrefix(line, "make ")
			if !ok {
				continue
			}
			target, _, _ = strings.Cut(target, " ")
			if !strings.Contains(makefile, "\n"+target+":") {
				t.Errorf("%s: %q: no such target", doc, line)
			}
			if !regexp.MustCompile(`make -s ` + target + `\b`).MatchString(ci) {
				t.Errorf("%s: %q is not run by .ci/run", doc, line)
			}
		}
	}
}

// TestTierURLs: the store URLs in the documents are ones that varve takes.
func TestTierURLs(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(node.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	urls := regexp.MustCompile(`varve\.tier\.url=([^'\s]+)`).FindAllStringSubmatch(string(raw), -1)
	if len(urls) < 2 {
		t.Fatalf("%d store URLs in the README", len(urls))
	}
	for _, u := range urls {
		if _, err := objstore.ParseURL(u[1]); err != nil {
			t.Errorf("%s: %v", u[1], err)
		}
	}
}
