package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func someResults() *results {
	all := rows()
	r := &results{Runs: map[string]environment{"run-0": {CPUs: 2, Kafka: "4.4.0"}}}
	for _, w := range []row{all[len(all)-1], all[0]} {
		s := sample{}
		for i, f := range w.figures {
			s[f] = float64(i + 1)
		}
		r.Rows = append(r.Rows, &result{row: w, Name: w.name, Title: w.title, Bound: w.bound, Sides: w.sides, Figures: w.figures, Run: "run-0",
			Samples: map[string][]sample{varve: {s}, kafkaSide: {s}, bare: {s}}})
	}
	return r
}

func TestDocument(t *testing.T) {
	r := someResults()
	r.order()
	text, err := splice("before\n"+docsBegin+"\nold\n"+docsEnd+"\nafter\n", r.markdown(r.plots()))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"before\n", "\nafter\n", "**produce/64KiB-batches**", "**stall**", "bench-cpu.svg", "| produce/64KiB-batches | MB/s | 1x kafka | >= 2x kafka |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "\nold\n") || strings.Index(text, "**produce/64KiB-batches**") > strings.Index(text, "**stall**") {
		t.Errorf("old text or the wrong order in\n%s", text)
	}
	if strings.Contains(text, "Other work") {
		t.Error("rows without a load average are called busy")
	}
	r.Rows[0].Load, r.Rows[1].Load = "1.5 1 1", "31.5 2 2"
	if text := r.markdown(nil); !strings.Contains(text, "load averages reached 31.5 on 2 CPUs") {
		t.Errorf("nothing of a load of 31 in\n%s", text)
	}
	if _, err := splice("no markers", ""); err == nil {
		t.Error("a document without markers was changed")
	}
}

// TestPlotsAreXML: labels with any character give a document that parses, and bars that keep to the picture.
func TestPlotsAreXML(t *testing.T) {
	svg := plot("a < b & \"c\"", "note", []group{{label: "x>y", bars: []bar{{side: varve, value: 3, limit: 4}, {side: bare, value: 0}}}, {label: "nothing"}})
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
	if !strings.Contains(svg, `width="360.0"`) || !strings.Contains(svg, `x1="840.0"`) {
		t.Errorf("3 beside a limit of 4 is not three quarters of the width:\n%s", svg)
	}
}

func TestResultsAreMergedByName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	first := someResults()
	first.path = path
	for _, x := range first.Rows {
		if err := first.put(context.Background(), options{rows: regexp.MustCompile("")}, x); err != nil {
			t.Fatal(err)
		}
	}
	again, err := loadResults(path)
	if err != nil {
		t.Fatal(err)
	}
	newer := *again.Rows[0]
	newer.Seconds = 7
	if err := again.put(context.Background(), options{peer: true}, &newer); err != nil {
		t.Fatal(err)
	}
	got, err := loadResults(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 2 || got.Rows[0].Seconds != 7 || len(got.Rows[0].row.targets) == 0 || !strings.Contains(got.Rows[0].Command, "-peer -rows stall'") {
		t.Errorf("%d rows, the first %+v", len(got.Rows), got.Rows[0])
	}
}
