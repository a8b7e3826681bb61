package floors

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"varve/broker/config"
)

// TestConfigurationPageIsCurrent compares docs/configuration.md with the table in code.
func TestConfigurationPageIsCurrent(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != config.Markdown() {
		t.Error("docs/configuration.md differs from the table: run `make docs`")
	}
}

// readBy are the methods of config.Config that read a broker key by name.
var readBy = map[string]bool{"Int": true, "Int64": true, "Float": true, "Bool": true, "String": true, "List": true, "Duration": true}

// TestKeysThatActAreRead: a broker key says that it acts exactly when code outside of its row reads it, and only keys of
// the table are read.
func TestKeysThatActAreRead(t *testing.T) {
	broker := map[string]config.Key{}
	for _, k := range config.Keys() {
		if k.Scope == config.ScopeBroker {
			broker[k.Name] = k
		}
	}
	read, mayBeRead := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		if s.test || strings.HasPrefix(s.pkg, "tests/") || strings.HasPrefix(s.path, "broker/config/keys_") {
			continue
		}
		for name, at := range namedKeys(s) {
			if _, known := broker[name]; !known {
				t.Errorf("%s reads %s, which is not in the table", at, name)
			}
			read[name] = true
		}
		if s.pkg == "broker/config" {
			for _, name := range literals(s.file) {
				mayBeRead[name] = true
			}
		}
	}
	for name, k := range broker {
		if k.Acts && !read[name] && !mayBeRead[name] {
			t.Errorf("%s says that it acts, but nothing reads it", name)
		}
		if !k.Acts && read[name] {
			t.Errorf("%s is read, but says that it has no effect", name)
		}
	}
}

// TestTopicConfigurationIsUsed: no field of a topic's effective configuration is computed for nobody.
func TestTopicConfigurationIsUsed(t *testing.T) {
	unused := map[string]bool{}
	for f := range reflect.TypeFor[config.Topic]().Fields() {
		unused[f.Name] = true
	}
	for _, s := range sources(t) {
		if s.test || strings.HasPrefix(s.pkg, "tests/") || s.pkg == "broker/config" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				delete(unused, sel.Sel.Name)
			}
			return true
		})
	}
	for name := range unused {
		t.Errorf("nothing reads config.Topic.%s", name)
	}
}

// namedKeys returns the literal keys that a file asks a config.Config for, with where.
func namedKeys(s source) map[string]string {
	found := map[string]string{}
	ast.Inspect(s.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		lit, isLit := call.Args[0].(*ast.BasicLit)
		if !ok || !isLit || !readBy[sel.Sel.Name] || lit.Kind != token.STRING {
			return true
		}
		if name, err := strconv.Unquote(lit.Value); err == nil && strings.Contains(name, ".") && !strings.ContainsAny(name, " /%") {
			found[name] = s.at(call)
		}
		return true
	})
	return found
}

// literals returns all strings of a file.
func literals(f *ast.File) (all []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				all = append(all, text)
			}
		}
		return true
	})
	return all
}
