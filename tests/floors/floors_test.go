package floors

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// floors says on which floor each package stands. A package may import those of lower floors, and those named in sideways.
var floors = map[string]int{
	"protocol":             0,
	"protocol/event":       0,
	"protocol/record":      0,
	"broker/config":        0,
	"broker/commitlog":     1,
	"metastore":            1,
	"metastore/metapb":     1,
	"tiering/objstore":     1,
	"broker/security":      2,
	"metastore/controller": 2,
	"tiering":              2,
	"tiering/tierpb":       2,
	"broker/replica":       3,
	"broker/group":         4,
	"broker/netio":         4,
	"broker/txn":           4,
	"broker/admin":         5,
	"broker/api":           5,
	"broker":               6,
	"cmd/varve":            7,
}

// sideways are the imports that are allowed within a floor.
var sideways = map[string][]string{
	"protocol/event":  {"protocol"},
	"protocol/record": {"protocol"},
	"broker/config":   {"protocol"},
	"metastore":       {"metastore/metapb"},
	"tiering":         {"tiering/tierpb"},
}

func TestImportsPointDown(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range sources(t) {
		if strings.HasPrefix(s.pkg, "tests/") {
			continue
		}
		floor, ok := floors[s.pkg]
		if !ok {
			if !seen[s.pkg] {
				t.Errorf("%s has no floor: give it one in the table, and in docs/ARCHITECTURE.md", s.pkg)
			}
			seen[s.pkg] = true
			continue
		}
		for _, spec := range s.file.Imports {
			to, ours := own(spec)
			if !ours || to == s.pkg || s.test && testMayImport(s, to) {
				continue
			}
			below, known := floors[to]
			if known && below < floor || slices.Contains(sideways[s.pkg], to) {
				continue
			}
			t.Errorf("%s (floor %d) imports %s (floor %d): imports point down", s.at(spec), floor, to, below)
		}
	}
}

// testMayImport says what the tests of a package may use beyond what the package itself may: what is under tests, and, from
// an outside test package (package x_test), what stands on the same floor or below.
func testMayImport(s source, to string) bool {
	if strings.HasPrefix(to, "tests/") {
		return true
	}
	return strings.HasSuffix(s.file.Name.Name, "_test") && floors[to] <= floors[s.pkg]
}

// TestNobodyLinksTestCode: what is under tests never becomes part of the binary.
func TestNobodyLinksTestCode(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || strings.HasPrefix(s.pkg, "tests/") {
			continue
		}
		for _, spec := range s.file.Imports {
			if to, ours := own(spec); ours && (strings.HasPrefix(to, "tests/")) {
				t.Errorf("%s imports %s", s.at(spec), to)
			}
		}
	}
}

// TestCustomersPackagesAreImported: each of the packages that the customer named is imported by code of our own that is
// not a test.
func TestCustomersPackagesAreImported(t *testing.T) {
	missing := map[string]bool{}
	for _, p := range []string{"github.com/aws/aws-sdk-go-v2", "github.com/minio/minio-go/v7", "github.com/hashicorp/raft", "github.com/cockroachdb/pebble/v2", "github.com/klauspost/compress", "github.com/prometheus/client_golang"} {
		missing[p] = true
	}
	for _, s := range sources(t) {
		if s.test || strings.HasPrefix(s.pkg, "tests/") {
			continue
		}
		for _, spec := range s.file.Imports {
			for p := range missing {
				if strings.HasPrefix(strings.Trim(spec.Path.Value, `"`)+"/", p+"/") {
					delete(missing, p)
				}
			}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("nothing imports %s", p)
	}
}
