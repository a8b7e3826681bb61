package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestPageNamesEveryCell: docs/clients.md has each case of each client and no other; what it says fails on varve is listed
// with what it waits for, and nothing fails on Apache Kafka but what is said to.
func TestPageNamesEveryCell(t *testing.T) {
	page, err := os.ReadFile(goldenFile())
	if err != nil {
		t.Fatal(err)
	}
	waits, err := readWaits(suiteDir("waits"))
	if err != nil {
		t.Fatal(err)
	}
	golden := readGolden(string(page))
	if len(golden) < 200 {
		t.Fatalf("%d cells in the table", len(golden))
	}
	left := maps.Clone(golden)
	for _, cl := range clients() {
		if v := cl.Version(); cl.Registry != registryDebian && (v == "" || strings.Contains(v, " ")) {
			t.Errorf("%s has version %q", cl.Name, v)
		}
		for _, c := range cl.Cases {
			k := cellKey{cl.Name, c.Name}
			row, ok := golden[k]
			delete(left, k)
			w, waiting := waitOf(waits, cl.Name, c.Name)
			theirs := waiting && strings.HasPrefix(w.Why, peerFault)
			switch {
			case !ok:
				t.Errorf("%v is not in docs/clients.md: make compat COMPATFLAGS='-peer -write'", k)
			case row.varve == notRun || row.kafka == notRun:
				t.Errorf("%v was not run on both: %+v", k, row)
			case row.varve == fails && !waiting:
				t.Errorf("%v fails on varve and waits for nothing", k)
			case row.varve == passes && waiting && !theirs:
				t.Errorf("%v passes on varve and is listed as waiting", k)
			case (row.kafka == fails) != theirs:
				t.Errorf("%v on Apache Kafka: %s, listed: %t", k, row.kafka, theirs)
			}
		}
	}
	for k := range left {
		t.Errorf("docs/clients.md has %v, the suite has not", k)
	}
}

// TestReport: a run fails when a cell fails that may not, when one that waits passes, and when the page says otherwise.
func TestReport(t *testing.T) {
	cell := func(broker string, err error) Cell { return Cell{Client: "a", Case: "x", Broker: broker, Err: err} }
	bad := errors.New("bad")
	waits := []Wait{{"a", "x", "security"}}
	theirs := []Wait{{"a", "x", peerFault + ": slow"}}
	page := func(varve, kafka string) Golden { return Golden{{"a", "x"}: {varve, kafka}} }
	for name, c := range map[string]struct {
		cells  []Cell
		waits  []Wait
		golden Golden
		fault  string
	}{
		"both pass":                    {[]Cell{cell("varve", nil), cell("kafka", nil)}, nil, page(passes, passes), ""},
		"varve alone passes":           {[]Cell{cell("varve", nil)}, nil, page(passes, passes), ""},
		"fails on varve":               {[]Cell{cell("varve", bad), cell("kafka", nil)}, nil, page(passes, passes), "REGRESSION"},
		"fails on varve, run alone":    {[]Cell{cell("varve", bad)}, nil, page(passes, passes), "REGRESSION"},
		"fails, and the page knows":    {[]Cell{cell("varve", bad)}, nil, page(fails, passes), "REGRESSION"},
		"waits":                        {[]Cell{cell("varve", bad), cell("kafka", nil)}, waits, page(fails, passes), ""},
		"waits, but the page does not": {[]Cell{cell("varve", bad)}, waits, page(passes, passes), "docs/clients.md says pass"},
		"waits and passes":             {[]Cell{cell("varve", nil)}, waits, page(fails, passes), "strike it"},
		"passes, the page says fails":  {[]Cell{cell("varve", nil)}, nil, page(fails, passes), "docs/clients.md says fails"},
		"fails on both":                {[]Cell{cell("varve", bad), cell("kafka", bad)}, nil, page(passes, passes), "mend the test"},
		"fails on both, listed":        {[]Cell{cell("varve", bad), cell("kafka", bad)}, theirs, page(fails, fails), ""},
		"listed, but passes there":     {[]Cell{cell("varve", bad), cell("kafka", nil)}, theirs, page(fails, fails), "passes on Apache Kafka"},
		"not in the page":              {[]Cell{cell("varve", nil)}, nil, Golden{}, "not in docs/clients.md"},
	} {
		var out strings.Builder
		table := Table{waits: c.waits, cells: c.cells}
		err := table.Report(&out, c.golden)
		if (err != nil) != (c.fault != "") || !strings.Contains(out.String(), c.fault) {
			t.Errorf("%s: %v, want %q in\n%s", name, err, c.fault, &out)
		}
	}
}

func TestPageRoundTrip(t *testing.T) {
	all := []Client{{Name: "b-1.2", Version: func() string { return "1" }, Cases: []Case{{Name: "x"}, {Name: "y-z"}}}}
	g := Golden{{"b-1.2", "x"}: {passes, notRun}, {"gone", "x"}: {passes, passes}}
	g = g.merge([]*row{{client: "b-1.2", name: "y-z", by: map[string]Cell{"varve": {Err: io.EOF}, "kafka": {}}}}, all)
	want := Golden{{"b-1.2", "x"}: {passes, notRun}, {"b-1.2", "y-z"}: {fails, passes}}
	if again := readGolden(g.markdown(all, nil)); !maps.Equal(again, want) {
		t.Fatalf("%v, want %v", again, want)
	}
}

// TestInstallWithoutRegistry: what could not be fetched is left out where that is allowed; kcat, the Go clients, and what
// failed for another reason never are.
func TestInstallWithoutRegistry(t *testing.T) {
	down := errors.New("pip: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution")
	client := func(registry string, err error) Client {
		return Client{Name: registry, Registry: registry, Install: func(context.Context) error { return err }}
	}
	for name, c := range map[string]struct {
		client        Client
		allowed, lost bool
		fault         bool
	}{
		"down and allowed":     {client(registryPyPI, down), true, true, false},
		"down":                 {client(registryPyPI, down), false, false, true},
		"too slow":             {client(registryMaven, context.DeadlineExceeded), true, true, false},
		"broken":               {client(registryNpm, errors.New("npm: E404 not in this registry")), true, false, true},
		"kcat":                 {client(registryDebian, down), true, false, true},
		"a Go client":          {client(registryGo, down), true, false, true},
		"installed, no matter": {client(registryMaven, nil), true, false, false},
	} {
		here, missing, err := install(t.Context(), []Client{c.client}, c.allowed)
		if (err != nil) != c.fault || (len(missing) == 1) != c.lost || len(here)+len(missing) != 1 {
			t.Errorf("%s: %d here, %d missing, %v", name, len(here), len(missing), err)
		}
	}
}

func TestUnreachable(t *testing.T) {
	for said, want := range map[string]bool{
		"mvn: Could not transfer artifact a:b:pom:1 from/to central: Unknown host repo":            true,
		"mvn: Connect to repo:443 failed: Connection timed out":                                    true,
		"mvn: Could not transfer artifact a:b:pom:1: status code: 503, reason phrase: Unavailable": true,
		"npm error code ENOTFOUND": true,
		"npm error network request failed, reason: connect ECONNREFUSED 127.0.0.1:443":               true,
		"pip: NewConnectionError('<pip._vendor.urllib3 object>: [Errno 101] Network is unreachable'": true,
		"go: dial tcp: lookup proxy: no such host":                                                   true,
		"mvn: Could not find artifact a:b:pom:1 in central":                                          false,
		"npm error code E404": false,
		"pip: ERROR: No matching distribution found for aiokafka==99": false,
		"javac: error: cannot find symbol":                            false,
	} {
		if got := unreachable(errors.New(said)); got != want {
			t.Errorf("%q: %t", said, got)
		}
	}
}

func TestNotPassed(t *testing.T) {
	out := "=== RUN TestA\n--- FAIL: TestA (0.1s)\n    --- PASS: TestA/one (0.1s)\n    --- FAIL: TestA/two_(2) (0.1s)\n--- SKIP: TestB (0.0s)\n--- PASS: TestC (0s)\n"
	got := notPassed(out)
	if want := []string{"TestA/two_(2)", "TestB"}; !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	if p, want := onlyThese(got), `^TestA$/^two_\(2\)$|^TestB$`; p != want {
		t.Fatalf("%s, want %s", p, want)
	}
	if got := notPassed("panic: oh\n"); !slices.Equal(got, []string{"panic"}) {
		t.Fatalf("%q", got)
	}
}

// TestComplaints: the lines of DumpLogSegments that matter are heard, and its remark on files that begin later than 0 is not.
func TestComplaints(t *testing.T) {
	for line, want := range map[string]bool{
		"baseOffset: 0 lastOffset: 98 count: 99 crc: 1 isvalid: true":  false,
		"baseOffset: 0 lastOffset: 98 count: 99 crc: 1 isvalid: false": true,
		"Non-consecutive offsets in /x/00000000000000000990.log":       false,
		"  -1 is followed by 990":                                      false,
		"  99 is followed by 101":                                      true,
		"Mismatches in :/x/00000000000000000000.index":                 true,
		"/x/00000000000000000000.index passed sanity check.":           false,
	} {
		if got := complaints.MatchString(fmt.Sprintf("Dumping /x\n%s\nend\n", line)); got != want {
			t.Errorf("%q: %t", line, got)
		}
	}
}
