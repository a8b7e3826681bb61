package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Reasons are the only things that a cell may wait for.
var reasons = []string{"transactions", "KIP-848", "share groups", "security", "several brokers"}

// peerFault marks a cell that fails on Apache Kafka too: the fault is the test's.
const peerFault = "fails on Apache Kafka too"

// Wait is one line of the file waits: client, case and why it may fail.
type Wait struct{ Client, Case, Why string }

// readWaits parses the file: `client case why`, one a line; # begins a comment.
func readWaits(path string) (waits []Wait, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for n := 1; sc.Scan(); n++ {
		line, _, _ := strings.Cut(sc.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) < 3 {
			return nil, fmt.Errorf("%s:%d: want client, case and reason", path, n)
		}
		w := Wait{Client: fields[0], Case: fields[1], Why: strings.Join(fields[2:], " ")}
		if !slices.Contains(reasons, w.Why) && !strings.HasPrefix(w.Why, peerFault+": ") {
			return nil, fmt.Errorf("%s:%d: %q is not a reason: %s, or %q with the reason", path, n, w.Why, strings.Join(reasons, ", "), peerFault)
		}
		waits = append(waits, w)
	}
	return waits, sc.Err()
}

func waitOf(waits []Wait, client, name string) (Wait, bool) {
	at := slices.IndexFunc(waits, func(w Wait) bool { return w.Client == client && w.Case == name })
	if at < 0 {
		return Wait{}, false
	}
	return waits[at], true
}

// Table collects the cells of all brokers.
type Table struct {
	waits   []Wait
	missing []Client // not installed
	cells   []Cell
}

// Add appends one outcome.
func (t *Table) Add(c Cell) { t.cells = append(t.cells, c) }

func (c Cell) line() string {
	word := "pass"
	if c.Err != nil {
		word = "FAIL"
	}
	return fmt.Sprintf("%-6s %s %-26s %-22s %s", c.Broker, word, c.Client, c.Case, c.Took.Round(10*time.Millisecond))
}

// row is one client and case over the brokers.
type row struct {
	client, name string
	by           map[string]Cell
}

func (t *Table) rows() (rows []*row, brokers []string) {
	for _, c := range t.cells {
		if !slices.Contains(brokers, c.Broker) {
			brokers = append(brokers, c.Broker)
		}
		at := slices.IndexFunc(rows, func(r *row) bool { return r.client == c.Client && r.name == c.Case })
		if at < 0 {
			at = len(rows)
			rows = append(rows, &row{client: c.Client, name: c.Case, by: map[string]Cell{}})
		}
		rows[at].by[c.Broker] = c
	}
	slices.SortStableFunc(rows, func(a, b *row) int { return strings.Compare(a.client+" "+a.name, b.client+" "+b.name) })
	return rows, brokers
}

// Report prints the table, what failed and why, and returns an error when a cell fails that may not, passes though it is
// listed as waiting, or is not what the committed table says; nil leaves that one out.
func (t *Table) Report(w io.Writer, golden Golden) error {
	rows, brokers := t.rows()
	fmt.Fprintf(w, "\n%-26s %-22s", "client", "case")
	for _, b := range brokers {
		fmt.Fprintf(w, " %-14s", b)
	}
	fmt.Fprintln(w)
	passed, waiting, bad := 0, 0, 0
	for _, r := range rows {
		verdict, fault := judge(r, t.waits)
		if golden != nil && !fault {
			if differs := golden.differs(r); differs != "" {
				verdict, fault = differs, true
			}
		}
		fmt.Fprintf(w, "%-26s %-22s", r.client, r.name)
		for _, b := range brokers {
			fmt.Fprintf(w, " %-14s", r.word(b))
		}
		fmt.Fprintln(w, " "+verdict)
		switch {
		case fault:
			bad++
		case verdict != "":
			waiting++
		default:
			passed++
		}
	}
	for _, cl := range t.missing {
		fmt.Fprintf(w, "%-26s %-22s not installed: %s was not reached\n", cl.Name, fmt.Sprintf("(%d cases)", len(cl.Cases)), cl.Registry)
	}
	for _, r := range rows {
		for _, b := range brokers {
			if c := r.by[b]; c.Err != nil {
				fmt.Fprintf(w, "\n-- %s %s on %s: %v\n", r.client, r.name, b, c.Err)
			}
		}
	}
	fmt.Fprintf(w, "\n%d cells passed, %d wait, %d failed\n", passed, waiting, bad)
	if bad > 0 {
		return fmt.Errorf("%d cells are not as they must be", bad)
	}
	return nil
}

func (r *row) word(broker string) string {
	c, ran := r.by[broker]
	switch {
	case !ran:
		return notRun
	case c.Err != nil:
		return "FAIL"
	}
	return fmt.Sprintf("pass %.1fs", c.Took.Seconds())
}

// judge says what is to be said of a row, and whether it fails the run.
func judge(r *row, waits []Wait) (verdict string, fault bool) {
	w, _ := waitOf(waits, r.client, r.name)
	why := w.Why
	varve, ranHere := r.by["varve"]
	kafka, ranThere := r.by["kafka"]
	switch {
	case ranThere && kafka.Err != nil && !strings.HasPrefix(why, peerFault):
		return "fails on Apache Kafka: mend the test or list it", true
	case ranThere && kafka.Err == nil && strings.HasPrefix(why, peerFault):
		return "passes on Apache Kafka: strike it from waits", true
	case ranHere && varve.Err == nil && why != "" && !strings.HasPrefix(why, peerFault):
		return "passes: strike it from waits", true
	case ranHere && varve.Err != nil && why == "":
		return "REGRESSION", true
	}
	if why != "" {
		return "waits: " + why, false
	}
	return "", false
}
