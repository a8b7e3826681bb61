package floors

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	maxFileLines = 600
	maxFuncLines = 70
)

// TestLengths: files and functions, tests included, stay short enough to be read in one go.
func TestLengths(t *testing.T) {
	for _, s := range sources(t) {
		if s.generated {
			continue
		}
		if s.lines > maxFileLines {
			t.Errorf("%s has %d lines, the bound is %d", s.path, s.lines, maxFileLines)
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.FuncDecl, *ast.FuncLit:
				lines := s.fset.Position(n.End()).Line - s.fset.Position(n.Pos()).Line + 1
				if lines > maxFuncLines {
					t.Errorf("%s: a function of %d lines, the bound is %d", s.at(n), lines, maxFuncLines)
				}
			}
			return true
		})
	}
}

// TestEveryPackageSaysWhatItIsFor: there is a doc.go with the package comment, and no other file has one.
func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	said := map[string]bool{}
	for _, s := range sources(t) {
		said[s.pkg] = said[s.pkg] || false
		if s.file.Doc == nil || s.generated {
			continue
		}
		if filepath.Base(s.path) != "doc.go" {
			t.Errorf("%s has a package comment: it belongs into doc.go", s.path)
			continue
		}
		want := "Package " + s.file.Name.Name + " "
		if s.file.Name.Name == "main" {
			want = "Command "
		}
		text := s.file.Doc.Text()
		if !strings.HasPrefix(text, want) || len(text) < 200 {
			t.Errorf("%s: the comment begins with %q and says purpose, invariants, crash cases and non-goals", s.path, want)
		}
		said[s.pkg] = true
	}
	for pkg, ok := range said {
		if !ok && !generatedOnly(t, pkg) {
			t.Errorf("%s has no doc.go", pkg)
		}
	}
}

func generatedOnly(t *testing.T, pkg string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pkg), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f, ".pb.go") {
			return false
		}
	}
	return true
}

// TestGoroutinesHaveOwners: outside of tests nobody writes a go statement; sync.WaitGroup.Go and errgroup.Group.Go make the
// owner wait.
func TestGoroutinesHaveOwners(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s: a goroutine without an owner: use WaitGroup.Go or errgroup", s.at(g))
			}
			return true
		})
	}
}

// TestNothingIsSkipped: a test that cannot run fails.
func TestNothingIsSkipped(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || !s.test && !strings.HasPrefix(s.pkg, "tests/") {
				return true
			}
			switch sel.Sel.Name {
			case "Skip", "Skipf", "SkipNow":
				t.Errorf("%s: %s: a test that cannot run fails", s.at(sel), sel.Sel.Name)
			}
			return true
		})
	}
}

// unfinished are the words that mark work put off, in the form that people write them.
var unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)

// unportable are paths and hosts of the machines that this was written on.
var unportable = regexp.MustCompile(`(/wo` + `rk/|/ro` + `ot/|proxy\.gol` + `ang\.org|registry\.npm` + `js\.org)`)

// TestNoWordsOfUnfinishedWork looks at every text file that is part of the repository.
func TestNoWordsOfUnfinishedWork(t *testing.T) {
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() {
			if base == ".git" || base == ".cache" || base == "testdata" || base == "bin" || base == "varve-data" {
				return filepath.SkipDir
			}
			return nil
		}
		if !textual(base) {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			if m := unfinished.FindString(line); m != "" {
				t.Errorf("%s:%d: %s", name, i+1, m)
			}
			if m := unportable.FindString(line); m != "" {
				t.Errorf("%s:%d: %s belongs to one machine", name, i+1, m)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func textual(base string) bool {
	switch filepath.Ext(base) {
	case ".go", ".md", ".proto", ".sh", ".html", ".yml", ".yaml":
		return true
	}
	return base == "Makefile" || base == "run" || base == "run-serves"
}
