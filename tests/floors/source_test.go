package floors

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "varve"

// source is one parsed Go file.
type source struct {
	path      string // from the repository's top, with slashes
	pkg       string // folder, the same way
	file      *ast.File
	fset      *token.FileSet
	lines     int
	generated bool
	test      bool
}

func (s source) at(n ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.fset.Position(n.Pos()).Line)
}

// sources returns every Go file below the repository's top, parsed once for all tests.
func sources(t *testing.T) []source {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 50 {
		t.Fatalf("only %d files were found: the walk is broken", len(all))
	}
	return all
}

var parsed = sync.OnceValues(parseAll)

func parseAll() (all []source, err error) {
	root := filepath.Join("..", "..")
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() {
			if rel != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "bin" || base == "varve-data") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") {
			return nil
		}
		s, err := parse(name, filepath.ToSlash(rel))
		all = append(all, s)
		return err
	})
	return all, err
}

func parse(name, rel string) (source, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return source{}, err
	}
	return source{
		path: rel, pkg: path.Dir(rel), file: f, fset: fset,
		lines:     fset.File(f.Pos()).LineCount(),
		generated: strings.HasSuffix(rel, ".pb.go") && ast.IsGenerated(f),
		test:      strings.HasSuffix(rel, "_test.go"),
	}, nil
}

// own returns the folder of an import of ours, false for anybody else's.
func own(spec *ast.ImportSpec) (string, bool) {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return "", false
	}
	return strings.CutPrefix(p, module+"/")
}
