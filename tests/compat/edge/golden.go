package edge

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Column says whose answers are meant.
type Column int

// The columns of the golden file.
const (
	Varve Column = iota
	Kafka
)

// line is one call of the golden file: name, request, and the codes of both brokers, separated by tabs.
type line struct {
	name, request string
	codes         [2]string
}

// Golden is what both brokers are known to answer, and why they differ where they do.
type Golden struct {
	path    string
	lines   []line
	reasons map[string]string // by the name of a call
}

// ReadGolden reads the file of answers, and beside it the reasons of all differences: a call's name, a tab and the reason,
// one a line; # begins a comment.
func ReadGolden(path, reasons string) (*Golden, error) {
	g := &Golden{path: path, reasons: map[string]string{}}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for l := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(l, "\n"), "\t")
		if len(f) != 4 {
			return nil, fmt.Errorf("%s: want name, request, varve's codes and Kafka's: %q", path, l)
		}
		g.lines = append(g.lines, line{f[0], f[1], [2]string{f[2], f[3]}})
	}
	if text, err = os.ReadFile(reasons); err != nil {
		return nil, err
	}
	for l := range strings.Lines(string(text)) {
		if l = strings.TrimSpace(l); l == "" || l[0] == '#' {
			continue
		}
		name, why, ok := strings.Cut(l, "\t")
		if _, twice := g.reasons[name]; !ok || twice || why == "" {
			return nil, fmt.Errorf("%s: want a call's name, a tab and a reason, once: %q", reasons, l)
		}
		g.reasons[name] = why
	}
	return g, nil
}

// Check compares a broker's answers with the golden file and returns what is wrong, one complaint each.
func (g *Golden) Check(c Column, results []Result) (bad []string) {
	if len(results) != len(g.lines) {
		bad = append(bad, fmt.Sprintf("%d calls, the golden file has %d", len(results), len(g.lines)))
	}
	for i := range min(len(results), len(g.lines)) {
		r, want := results[i], g.lines[i]
		if r.Name != want.name || r.Request != want.request || r.Codes != want.codes[c] {
			bad = append(bad, fmt.Sprintf("got\n\t%s\t%s\t%s\nwant\n\t%s\t%s\t%s", r.Name, r.Request, r.Codes, want.name, want.request, want.codes[c]))
		}
	}
	return bad
}

// CheckReasons demands a reason for each difference, and a difference for each reason.
func (g *Golden) CheckReasons() (bad []string) {
	left := map[string]bool{}
	for name := range g.reasons {
		left[name] = true
	}
	for _, l := range g.lines {
		_, explained := g.reasons[l.name]
		switch differ := l.codes[Varve] != l.codes[Kafka]; {
		case differ && !explained:
			bad = append(bad, fmt.Sprintf("%q: varve answers %s, Apache Kafka %s, and nothing says why", l.name, l.codes[Varve], l.codes[Kafka]))
		case !differ && explained:
			bad = append(bad, fmt.Sprintf("%q has a reason to differ and does not", l.name))
		}
		delete(left, l.name)
	}
	for name := range left {
		bad = append(bad, fmt.Sprintf("there is a reason for %q, which is no call", name))
	}
	return bad
}

// Rewrite puts a broker's answers into the golden file, in the order of the results; what the other one answered to calls
// of the same name stays.
func (g *Golden) Rewrite(c Column, results []Result) error {
	var b strings.Builder
	for i, r := range results {
		l := line{name: r.Name, request: r.Request, codes: [2]string{"?", "?"}}
		if at := slices.IndexFunc(g.lines, func(l line) bool { return l.name == r.Name }); at >= 0 {
			l.codes = g.lines[at].codes
		}
		l.codes[c] = r.Codes
		if slices.ContainsFunc(results[:i], func(other Result) bool { return other.Name == r.Name }) {
			return fmt.Errorf("two calls are named %q", r.Name)
		}
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", l.name, l.request, l.codes[Varve], l.codes[Kafka])
	}
	return os.WriteFile(g.path, []byte(b.String()), 0o600)
}

// Settings are the broker settings under which the list is run, in Kafka's names.
func Settings() []string {
	return []string{
		"node.id=1", "auto.create.topics.enable=false", "num.partitions=1", "default.replication.factor=1", "min.insync.replicas=1",
		"offsets.topic.replication.factor=1", "offsets.topic.num.partitions=4",
		"transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1", "transaction.state.log.num.partitions=4",
		"share.coordinator.state.topic.replication.factor=1", "share.coordinator.state.topic.min.isr=1",
		"group.initial.rebalance.delay.ms=0", fmt.Sprint("group.max.size=", groupMaxSize),
	}
}
