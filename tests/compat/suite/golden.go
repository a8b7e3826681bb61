package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"varve/tests/node"
)

const (
	tableBegins = "<!-- written by make compat COMPATFLAGS='-peer -write' -->\n"
	tableEnds   = "<!-- end of what is written -->\n"
)

// Golden is what docs/clients.md says of each cell: the committed outcomes that a run is compared with.
type Golden map[cellKey]goldenRow

type cellKey struct{ client, name string }

type goldenRow struct{ varve, kafka string }

// The words of an outcome.
const (
	passes = "pass"
	fails  = "fails"
	notRun = "-"
)

func goldenFile() string { return filepath.Join(node.Root(), "docs", "clients.md") }

var goldenLine = regexp.MustCompile(`(?m)^\| ([a-z][a-zA-Z0-9.-]*) \| ([a-z][a-z0-9-]*) \| (pass|fails|-) \| (pass|fails|-) \|`)

// readGolden parses the table of cells; a page without one holds none.
func readGolden(page string) Golden {
	g := Golden{}
	for _, m := range goldenLine.FindAllStringSubmatch(page, -1) {
		g[cellKey{m[1], m[2]}] = goldenRow{varve: m[3], kafka: m[4]}
	}
	return g
}

func outcome(c Cell) string {
	if c.Err != nil {
		return fails
	}
	return passes
}

// differs says what is wrong with a row beside the committed table; "" when nothing is.
func (g Golden) differs(r *row) string {
	want, known := g[cellKey{r.client, r.name}]
	if !known {
		return "not in docs/clients.md: run with -write"
	}
	for b, said := range map[string]string{"varve": want.varve, "kafka": want.kafka} {
		if c, ran := r.by[b]; ran && outcome(c) != said {
			return fmt.Sprintf("%s on %s, but docs/clients.md says %s", outcome(c), b, said)
		}
	}
	return ""
}

// merge takes over the outcomes of a run, and drops cells that the suite no longer has.
func (g Golden) merge(rows []*row, all []Client) Golden {
	merged := Golden{}
	for _, cl := range all {
		for _, c := range cl.Cases {
			if old, ok := g[cellKey{cl.Name, c.Name}]; ok {
				merged[cellKey{cl.Name, c.Name}] = old
			}
		}
	}
	for _, r := range rows {
		k := cellKey{r.client, r.name}
		now, ok := merged[k]
		if !ok {
			now = goldenRow{varve: notRun, kafka: notRun}
		}
		if c, ran := r.by["varve"]; ran {
			now.varve = outcome(c)
		}
		if c, ran := r.by["kafka"]; ran {
			now.kafka = outcome(c)
		}
		merged[k] = now
	}
	return merged
}

// markdown is the part of the page that the suite writes.
func (g Golden) markdown(all []Client, waits []Wait) string {
	var b strings.Builder
	b.WriteString("| client | version | from | cells | pass on varve | pass on Apache Kafka |\n|---|---|---|---|---|---|\n")
	for _, cl := range all {
		here, there := 0, 0
		for _, c := range cl.Cases {
			r := g[cellKey{cl.Name, c.Name}]
			if r.varve == passes {
				here++
			}
			if r.kafka == passes {
				there++
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %d |\n", cl.Name, cl.Version(), cl.Registry, len(cl.Cases), here, there)
	}
	b.WriteString("\n| client | case | varve | Apache Kafka | |\n|---|---|---|---|---|\n")
	order := slices.SortedFunc(maps.Keys(g), func(a, b cellKey) int {
		return strings.Compare(a.client+" "+a.name, b.client+" "+b.name)
	})
	for _, k := range order {
		note := ""
		if w, ok := waitOf(waits, k.client, k.name); ok {
			note = "waits for " + w.Why
			if strings.HasPrefix(w.Why, peerFault) {
				note = w.Why
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", k.client, k.name, g[k].varve, g[k].kafka, note)
	}
	return b.String()
}

// writeGolden puts the table into the page, between its marks.
func writeGolden(g Golden, all []Client, waits []Wait) error {
	page, err := os.ReadFile(goldenFile())
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(page), tableBegins)
	_, tail, ok2 := strings.Cut(rest, tableEnds)
	if !ok || !ok2 {
		return fmt.Errorf("%s: no lines %q and %q", goldenFile(), tableBegins, tableEnds)
	}
	text := head + tableBegins + "\n" + g.markdown(all, waits) + "\n" + tableEnds + tail
	return os.WriteFile(goldenFile(), []byte(text), 0o644)
}
