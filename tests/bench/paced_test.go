package main

import (
	"testing"
	"time"
)

// TestPacedReport: latencies count from when a request was due, the lead-in does not count, and a gap is one connection's.
func TestPacedReport(t *testing.T) {
	ms := time.Millisecond
	r := pacedRun{pace: pace{load: load{producers: 2}, perSecond: 100, lasting: time.Second, consume: true}, total: 100, acked: make([][]time.Duration, 2),
		seen: make([]time.Duration, 100)}
	for i := range 100 {
		at := r.due(i) + 2*ms
		switch {
		case i < 10:
			at += 500 * ms // before the lead-in ends
		case i == 50:
			at += 80 * ms
		}
		r.acked[i%2], r.seen[i] = append(r.acked[i%2], at), at+ms
	}
	s := sample{}
	r.report(s)
	// Request 48 was acknowledged at 482 ms, request 50 of the same connection at 582.
	for name, want := range (sample{"produce p50 ms": 2, "produce max ms": 82, "end-to-end p50 ms": 3, "end-to-end max ms": 83, "longest gap ms": 100, "gaps over 50 ms": 1}) {
		if got := s[name]; got < want-0.001 || got > want+0.001 {
			t.Errorf("%s is %v, not %v", name, got, want)
		}
	}
}
