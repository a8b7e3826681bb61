package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"varve/tests/node"
)

const (
	// busyLoad is the load average for each CPU that a run of its own on the machine does not reach.
	busyLoad  = 3
	docsBegin = "<!-- bench:begin -->"
	docsEnd   = "<!-- bench:end -->"
)

// writeDocs puts the tables between the markers of docs/performance.md and the plots into docs/img.
func writeDocs(r *results) error {
	if len(r.Rows) == 0 {
		return errors.New("-plot: no results; name a -json file that has some")
	}
	r.order()
	docs := filepath.Join(node.Root(), "docs")
	file := filepath.Join(docs, "performance.md")
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	plots := r.plots()
	text, err := splice(string(raw), r.markdown(plots))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := os.MkdirAll(filepath.Join(docs, "img"), 0o755); err != nil {
		return err
	}
	for name, svg := range plots {
		if err := os.WriteFile(filepath.Join(docs, "img", name), []byte(svg), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// busiest is the highest load average of a row, and the number of CPUs of its machine.
func (r *results) busiest() (top float64, cpus int) {
	for _, x := range r.Rows {
		var load float64
		if _, err := fmt.Sscan(x.Load, &load); err == nil && load >= top {
			top, cpus = load, r.Runs[x.Run].CPUs
		}
	}
	return top, cpus
}

// splice replaces what stands between the markers.
func splice(text, with string) (string, error) {
	before, rest, ok := strings.Cut(text, docsBegin)
	_, after, ok2 := strings.Cut(rest, docsEnd)
	if !ok || !ok2 {
		return "", fmt.Errorf("it needs the lines %s and %s", docsBegin, docsEnd)
	}
	return before + docsBegin + "\n" + with + docsEnd + after, nil
}

// order puts the rows in the order of the table in code; rows that are not there any more come last.
func (r *results) order() {
	place := map[string]int{}
	for i, w := range rows() {
		place[w.name] = i + 1
	}
	at := func(x *result) int {
		if p := place[x.Name]; p > 0 {
			return p
		}
		return math.MaxInt
	}
	slices.SortStableFunc(r.Rows, func(a, b *result) int { return at(a) - at(b) })
}

func (r *results) markdown(plots map[string]string) string {
	var b strings.Builder
	b.WriteString("\n### The machine and the versions\n\n")
	for _, name := range slices.Sorted(maps.Keys(r.Runs)) {
		if !slices.ContainsFunc(r.Rows, func(x *result) bool { return x.Run == name }) {
			continue
		}
		e := r.Runs[name]
		fmt.Fprintf(&b, "- %s: %d CPUs (%s), %d MB of memory, Linux %s, %s, TCP with %s; varve %s with %s; Apache Kafka %s on %s, `%s`; flags `%s`\n", name,
			e.CPUs, e.CPU, e.MemoryMB, e.Kernel, e.Filesystem, cmp.Or(e.Congestion, "what the system had"), e.Varve, e.Go, e.Kafka, e.Java, e.JVM, e.Options)
	}
	b.WriteString("\nBoth brokers read `tests/bench/server.properties`.\n")
	if top, cpus := r.busiest(); top > busyLoad*float64(cpus) {
		fmt.Fprintf(&b, "\n**Other work shared the machine**: load averages reached %s on %d CPUs, and stand beside each row. Ratios of CPU and of\n"+
			"throughput bear that; latencies and gaps are then mostly waits for a processor, on all sides.\n", number(top), cpus)
	}
	verdicts := r.verdicts()
	list := func(head string, met bool) {
		fmt.Fprintf(&b, "\n### %s\n\n| row | figure | is | wanted |\n|---|---|---|---|\n", head)
		for _, v := range verdicts {
			if v.met() == met {
				is, want := v.words()
				fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", v.row, v.figure, is, want)
			}
		}
	}
	list("Short of the mark, the farthest first", false)
	list("Met", true)
	b.WriteString("\n### Plots\n\n")
	for _, name := range slices.Sorted(maps.Keys(plots)) {
		fmt.Fprintf(&b, "![%s](img/%s)\n\n", strings.TrimSuffix(name, ".svg"), name)
	}
	b.WriteString("### Each row\n\nMedians; a ratio is the median of the rounds' own ratios.\n")
	for _, x := range r.Rows {
		x.markdown(&b)
	}
	return b.String()
}

func (r *result) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "\n**%s**: %s. %d rounds of each side, load average %s (%s).\n\n", r.Name, r.Title, len(r.Samples[r.Sides[0]]), r.Load, r.Run)
	for i, line := range r.cells() {
		fmt.Fprintf(b, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			fmt.Fprintf(b, "|%s\n", strings.Repeat("---|", len(line)))
		}
	}
	for i, line := range r.notes() {
		if i == 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(b, "- %s\n", line)
	}
	fmt.Fprintf(b, "\n`%s`. Bounded by: %s\n", r.Command, r.Bound)
}

// verdicts of all rows, the farthest from its limit first.
func (r *results) verdicts() (out []verdict) {
	for _, x := range r.Rows {
		out = append(out, x.verdicts()...)
	}
	sortVerdicts(out)
	return out
}

// words say what is and what was wanted.
func (v verdict) words() (is, want string) {
	how, unit := "<=", ""
	if v.least {
		how = ">="
	}
	if v.side != "" {
		unit = "x " + v.side
	}
	return number(v.is) + unit, how + " " + number(v.limit) + unit
}

// plots are the figures that the rows share, by file name.
func (r *results) plots() map[string]string {
	note := "Each group has its own scale. Median of the rounds."
	out := map[string]string{
		"bench-throughput.svg": plot("Throughput, MB/s (more is better)", note, r.groups("MB/s", "produce/", "consume/", "mixed", "clients/")),
		"bench-cpu.svg":        plot("Broker CPU seconds per GB (less is better)", note, r.groups(cpuPerGB, "produce/", "consume/", "mixed", "clients/")),
		"bench-memory.svg": plot("Resident memory, MB (less is better)", note,
			append(r.groups(peakRSS, "produce/64KiB-batches", "produce/Xmx512m", "consume/1-reader"), r.groups("RSS MB", "idle/", "start/")...)),
	}
	var latency, goals []group
	for _, f := range []string{"produce p50 ms", "produce p99 ms", "produce p99.9 ms", "end-to-end p50 ms", "end-to-end p99 ms", "end-to-end p99.9 ms"} {
		for _, g := range r.groups(f, "latency/") {
			g.label += ", " + strings.TrimSuffix(f, " ms")
			latency = append(latency, g)
		}
	}
	slices.SortStableFunc(latency, func(a, b group) int {
		an, _, _ := strings.Cut(a.label, ",")
		bn, _, _ := strings.Cut(b.label, ",")
		return strings.Compare(an, bn)
	})
	out["bench-latency.svg"] = plot("Latency at a fixed rate, ms (less is better)", note, latency)
	for _, v := range r.verdicts() {
		_, want := v.words()
		goals = append(goals, group{label: v.row + ": " + v.figure + ", wanted " + want, bars: []bar{{side: varve, value: v.is, limit: v.limit}}})
	}
	out["bench-goals.svg"] = plot("What was asked for: varve, and the limit in red", "Farthest from its limit first.", goals)
	return out
}

// groups are a figure's medians of the rows whose names begin so.
func (r *results) groups(figure string, prefixes ...string) (out []group) {
	for _, x := range r.Rows {
		if !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(x.Name, p) }) {
			continue
		}
		g := group{label: x.Name}
		for _, s := range x.Sides {
			if v := x.of(s, figure); v != nil {
				g.bars = append(g.bars, bar{side: s, value: median(v)})
			}
		}
		if len(g.bars) > 0 {
			out = append(out, g)
		}
	}
	return out
}
