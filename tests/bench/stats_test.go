package main

import (
	"math"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i)
	}
	sorted := sortedCopy(hundred)
	for _, c := range []struct {
		of   []time.Duration
		at   float64
		want time.Duration
	}{
		{sorted, 0.5, 50}, {sorted, 0.99, 99}, {sorted, 0.999, 100}, {sorted, 1, 100}, {sorted, 0, 1},
		{sorted[:1], 0.5, 1}, {sorted[:3], 0.5, 2}, {nil, 0.5, 0},
	} {
		if got := quantile(c.of, c.at); got != c.want {
			t.Errorf("quantile %v of %d values is %d, not %d", c.at, len(c.of), got, c.want)
		}
	}
	if hundred[0] != 100 {
		t.Error("sorting changed its input")
	}
}

func TestMedianAndRatio(t *testing.T) {
	if m := median([]float64{3, 1, 2}); m != 2 {
		t.Errorf("median %v", m)
	}
	if m := median([]float64{4, 1, 3, 2}); m != 2.5 {
		t.Errorf("median %v", m)
	}
	// The machine became ten times slower in the last round: the ratio does not see it, a ratio of medians would.
	a, b := []float64{10, 12, 1.1}, []float64{20, 20, 2}
	if r := ratio(a, b); math.Abs(r-0.55) > 1e-9 {
		t.Errorf("ratio %v, not the median of 0.5, 0.6 and 0.55", r)
	}
	for _, c := range [][2][]float64{{nil, nil}, {{1}, {0}}} {
		if r := ratio(c[0], c[1]); !math.IsNaN(r) {
			t.Errorf("ratio of %v is %v", c, r)
		}
	}
}

func TestRound(t *testing.T) {
	s := sample{"a": 123456.789, "b": 0.000123456789, "c": 0}
	s.round()
	if s["a"] != 123460 || s["b"] != 0.00012346 || s["c"] != 0 {
		t.Errorf("%v", s)
	}
}

func TestVerdict(t *testing.T) {
	r := result{row: row{}.want("MB/s", "kafka", 2, true).want("CPU", "kafka", 0.5, false).want("CPU", "bare", 2, false).want("RSS", "", 100, false),
		Name: "x", Sides: []string{"varve", "kafka"},
		Samples: map[string][]sample{"varve": {{"MB/s": 300, "CPU": 1, "RSS": 50}}, "kafka": {{"MB/s": 100, "CPU": 1, "RSS": 900}}}}
	var got []string
	for _, v := range r.verdicts() {
		got = append(got, v.String())
	}
	want := []string{"SHORT: CPU 1x kafka, wanted <= 0.5x kafka", "met: MB/s 3x kafka, wanted >= 2x kafka", "met: RSS 50.0, wanted <= 100"}
	if len(got) != len(want) {
		t.Fatalf("%q", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%q, not %q", got[i], want[i])
		}
	}
}
