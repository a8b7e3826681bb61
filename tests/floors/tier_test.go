package floors

import (
	"go/ast"
	"strings"
	"testing"
)

// TestBucketsAreCompared: whatever starts a node for a test does so by node.StartT, which compares the bucket with the metadata at the
// test's end, or says node.CheckTier itself; where nodes must not come up there is nothing to compare.
func TestBucketsAreCompared(t *testing.T) {
	const starts, checks = "node.Start", "node.CheckTier"
	refusing := map[string]string{
		"tests/cluster/startup_test.go": "nodes that end before they are ready",
		"tests/bench":                   "measurements, which end their nodes in the midst of work",
		"tests/compat":                  "clients' words with a node, hardly any of which reach the tier",
	}
	said := map[string]map[string]bool{} // calls by file
	for _, s := range sources(t) {
		if !strings.HasPrefix(s.path, "tests/") {
			continue
		}
		said[s.path] = map[string]bool{}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok {
					said[s.path][x.Name+"."+sel.Sel.Name] = true
				}
			}
			return true
		})
	}
	found := false
	for path, calls := range said {
		exempt := refusing[path] != ""
		for dir := path; strings.Contains(dir, "/"); {
			dir = dir[:strings.LastIndex(dir, "/")]
			exempt = exempt || refusing[dir] != ""
		}
		if exempt || !calls[starts] {
			continue
		}
		found = true
		if !calls[checks] {
			t.Errorf("%s: %s without %s", path, starts, checks)
		}
	}
	if !found {
		t.Error("no file starts a node: the test looks for the wrong thing")
	}
}
