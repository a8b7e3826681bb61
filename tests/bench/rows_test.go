package main

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
)

// TestRows: names are unique, targets name figures and sides of their row, and every row says what bounds it.
func TestRows(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rows() {
		if seen[r.name] || r.title == "" || r.bound == "" || r.start == nil || len(r.sides) == 0 || r.sides[0] != varve {
			t.Errorf("row %q is there twice or says too little", r.name)
		}
		seen[r.name] = true
		if got := choose(rows(), options{rows: regexp.MustCompile(r.name)}); len(got) != 1 {
			t.Errorf("-rows %s runs %d rows", r.name, len(got))
		}
		for _, g := range r.targets {
			if !slices.Contains(r.figures, g.figure) || g.side != "" && !slices.Contains(r.sides, g.side) {
				t.Errorf("%s: a target for %q beside %q", r.name, g.figure, g.side)
			}
		}
	}
}

func TestChoose(t *testing.T) {
	names := func(o options) string {
		var out []string
		for _, r := range choose(rows(), o) {
			out = append(out, r.name)
		}
		return fmt.Sprint(out)
	}
	none := regexp.MustCompile("")
	if got := names(options{rows: none}); got != "[produce/64KiB-batches produce/16KiB-batches produce/1MB-batches produce/small produce/8-producers consume/1-reader consume/8-readers consume/64KiB]" {
		t.Errorf("without flags: %s", got)
	}
	if got := names(options{rows: none, plot: true}); got != "[]" {
		t.Errorf("-plot alone: %s", got)
	}
	if got := names(options{rows: regexp.MustCompile("^stall$"), peer: true}); got != "[stall]" {
		t.Errorf("by name: %s", got)
	}
	for _, r := range choose(rows(), options{rows: none, peer: true}) {
		if r.alone {
			t.Errorf("%s runs though nobody named it", r.name)
		}
	}
	if n := len(choose(rows(), options{rows: none, small: true})); n != len(rows()) {
		t.Errorf("-small runs %d rows of %d", n, len(rows()))
	}
	b := &bench{options: options{sides: regexp.MustCompile("."), peer: false}}
	if got := fmt.Sprint(b.sidesOf(rows()[0])); got != "[varve bare]" {
		t.Errorf("without the peer: %s", got)
	}
}
