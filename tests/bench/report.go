package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"varve/tests/kafka"
	"varve/tests/node"
)

// result is what a row gave.
type result struct {
	row     row
	Name    string              `json:"name"`
	Title   string              `json:"title"`
	Bound   string              `json:"bound"`
	Sides   []string            `json:"sides"`
	Figures []string            `json:"figures"`
	Samples map[string][]sample `json:"samples"`         // by side, a sample for each round
	Notes   map[string][]string `json:"notes,omitempty"` // by side
	Command string              `json:"command"`
	Load    string              `json:"load"` // the machine's load average when the row ended
	Seconds float64             `json:"seconds"`
	At      time.Time           `json:"at"`
	Run     string              `json:"run"` // which machine and versions, see results.Runs
}

// of is a figure of each round of a side; nothing when one of them lacks it.
func (r *result) of(side, figure string) (out []float64) {
	for _, s := range r.Samples[side] {
		v, ok := s[figure]
		if !ok {
			return nil
		}
		out = append(out, v)
	}
	return out
}

// ratioTo is the first side's figure as a ratio to another's.
func (r *result) ratioTo(side, figure string) float64 {
	return ratio(r.of(r.Sides[0], figure), r.of(side, figure))
}

func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "-"
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// cells is the row's table: a head, then a line for each figure.
func (r *result) cells() [][]string {
	head := append([]string{"figure"}, r.Sides...)
	for _, s := range r.Sides[1:] {
		head = append(head, r.Sides[0]+"/"+s)
	}
	out := [][]string{head}
	for _, f := range r.Figures {
		line := []string{f}
		for _, s := range r.Sides {
			if v := r.of(s, f); v == nil {
				line = append(line, "-")
			} else {
				line = append(line, number(median(v)))
			}
		}
		for _, s := range r.Sides[1:] {
			line = append(line, number(r.ratioTo(s, f)))
		}
		out = append(out, line)
	}
	return out
}

func (r *result) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s (medians of %d rounds in turn, %.0f s in all)\n", r.Name, r.Title, len(r.Samples[r.Sides[0]]), r.Seconds)
	t := tabwriter.NewWriter(w, 2, 4, 2, ' ', 0)
	for _, line := range r.cells() {
		fmt.Fprintf(t, "  %s\n", strings.Join(line, "\t"))
	}
	_ = t.Flush()
	for _, line := range r.notes() {
		fmt.Fprintf(w, "  %s\n", line)
	}
	for _, v := range r.verdicts() {
		fmt.Fprintf(w, "  %s\n", v)
	}
}

// notes are the lines about single events, those of the first side first.
func (r *result) notes() (out []string) {
	for _, side := range r.Sides {
		for _, line := range r.Notes[side] {
			out = append(out, side+": "+line)
		}
	}
	return out
}

// verdict is how a row stands to one of its targets.
type verdict struct {
	target
	row    string
	is     float64
	factor float64 // how far from the limit: 1 meets it, 2 is twice as far as allowed
}

func (v verdict) met() bool { return v.factor <= 1 }

func (v verdict) String() string {
	word := "met"
	if !v.met() {
		word = "SHORT"
	}
	is, want := v.words()
	return fmt.Sprintf("%s: %s %s, wanted %s", word, v.figure, is, want)
}

// sortVerdicts puts the farthest from its limit first.
func sortVerdicts(v []verdict) {
	slices.SortStableFunc(v, func(a, b verdict) int { return cmp.Compare(b.factor, a.factor) })
}

// verdicts hold the row against its targets; those of sides that took no part are left out.
func (r *result) verdicts() (out []verdict) {
	for _, t := range r.row.targets {
		v := verdict{target: t, row: r.Name}
		if t.side == "" {
			v.is = median(r.of(r.Sides[0], t.figure))
		} else if slices.Contains(r.Sides[1:], t.side) {
			v.is = r.ratioTo(t.side, t.figure)
		} else {
			continue
		}
		v.factor = v.is / t.limit
		if t.least {
			v.factor = t.limit / v.is
		}
		out = append(out, v)
	}
	sortVerdicts(out)
	return out
}

// environment is what a run's figures depend on.
type environment struct {
	CPUs       int    `json:"cpus"`
	CPU        string `json:"cpu"`
	MemoryMB   int64  `json:"memoryMB"`
	Kernel     string `json:"kernel"`
	Filesystem string `json:"filesystem"`
	Congestion string `json:"congestion"` // TCP's congestion control: what loopback costs hangs on it
	Go         string `json:"go"`
	Java       string `json:"java"`
	Kafka      string `json:"kafka"`
	Varve      string `json:"varve"` // the commit
	Properties string `json:"properties"`
	JVM        string `json:"jvm"`
	Options    string `json:"options"` // what the command line set, or its defaults
}

// results are the rows of one or more runs.
type results struct {
	path string
	now  *environment           // of this run
	Runs map[string]environment `json:"runs"`
	Rows []*result              `json:"rows"`
}

// loadResults reads a file of results, or begins an empty one; path may be "".
func loadResults(path string) (*results, error) {
	r := &results{path: path, Runs: map[string]environment{}}
	if path == "" {
		return r, nil
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, r)
	}
	all := rows()
	for _, res := range r.Rows {
		if i := slices.IndexFunc(all, func(w row) bool { return w.name == res.Name }); i >= 0 {
			res.row = all[i]
		}
	}
	return r, err
}

// put adds a row, in the place of an older one of the same name, and saves.
func (r *results) put(ctx context.Context, o options, res *result) error {
	res.Command = command(o, res.Name)
	if raw, err := os.ReadFile("/proc/loadavg"); err == nil {
		res.Load = strings.Join(strings.Fields(string(raw))[:3], " ")
	}
	if r.now == nil { // once: the tree may move on while a run lasts
		env := describe(ctx, o)
		r.now = &env
	}
	for _, samples := range res.Samples {
		for _, s := range samples {
			s.round()
		}
	}
	env := *r.now
	for i := 0; ; i++ {
		res.Run = fmt.Sprintf("run-%d", i)
		have, ok := r.Runs[res.Run]
		if !ok || have == env {
			r.Runs[res.Run] = env
			break
		}
	}
	if i := slices.IndexFunc(r.Rows, func(have *result) bool { return have.Name == res.Name }); i >= 0 {
		r.Rows[i] = res
	} else {
		r.Rows = append(r.Rows, res)
	}
	maps.DeleteFunc(r.Runs, func(name string, _ environment) bool {
		return !slices.ContainsFunc(r.Rows, func(x *result) bool { return x.Run == name })
	})
	if r.path == "" {
		return nil
	}
	raw, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.path, append(raw, '\n'), 0o644)
}

// command reproduces a row.
func command(o options, name string) string {
	flags := "-rows " + name
	if o.peer {
		flags = "-peer " + flags
	}
	return "make bench BENCHFLAGS='" + flags + "'"
}

func describe(ctx context.Context, o options) environment {
	say := func(name string, args ...string) string {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = node.Root()
		out, err := cmd.CombinedOutput()
		if err != nil {
			return ""
		}
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return line
	}
	e := environment{CPUs: runtime.NumCPU(), Kernel: say("uname", "-r"), Go: runtime.Version(), Java: say("java", "-version"),
		Kafka: kafka.Version(), Varve: say("git", "describe", "--always", "--dirty"), JVM: strings.Join(jvm(kafkaSide), " "),
		Filesystem: say("findmnt", "-n", "-o", "FSTYPE", "--target", filepath.Dir(o.data)),
		Options: fmt.Sprintf("-rounds %d -bytes %d -paced %v -idle %v -stall %v -stall-mbps %d -recover-bytes %d -connections %d -cold-bytes %d", o.rounds, o.bytes, o.paced,
			o.idle, o.stall, o.stallMBps, o.recoverBytes, o.connections, o.coldBytes)}
	if raw, err := os.ReadFile(propertiesFile()); err == nil {
		e.Properties = string(raw)
	}
	if raw, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(raw)) {
			if name, v, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
				e.CPU = strings.TrimSpace(v)
				break
			}
		}
	}
	if raw, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control"); err == nil {
		e.Congestion = strings.TrimSpace(string(raw))
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		e.MemoryMB = int64(info.Totalram) * int64(info.Unit) >> 20
	}
	return e
}
