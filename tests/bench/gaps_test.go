package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// TestGapsAreExplained: a gap counts from the reply before, and what spells and a late generator cover of it is told, each
// moment once.
func TestGapsAreExplained(t *testing.T) {
	const ms = int64(time.Millisecond)
	r := pacedRun{pace: pace{load: load{producers: 1}, perSecond: 100, lasting: 2 * time.Second}, total: 200, beganNs: 1000 * ms, acked: make([][]time.Duration, 1)}
	for i := range r.total {
		sent := r.due(i)
		at := sent + 2*time.Millisecond
		switch i {
		case 5: // the lead-in does not count
			at += 500 * time.Millisecond
		case 100: // 30 ms late in the writing, then 60 ms until the reply: a gap from 992 to 1090
			sent += 30 * time.Millisecond
			at = sent + 60*time.Millisecond
		}
		r.sent, r.acked[0] = append(r.sent, sent), append(r.acked[0], at)
	}
	// From 1030 to 1090 the broker has the request: two threads wait for a processor, overlapping, from 1040 to 1060, the disk
	// holds up an append from 1060 to 1080.
	r.spells = []spell{{spellSleeper, 1001 * ms, 99 * ms}, {spellFlush, 2000 * ms, 90 * ms}, {spellBroker, 2040 * ms, 15 * ms}, {spellBroker, 2045 * ms, 15 * ms},
		{spellAppend, 2060 * ms, 20 * ms}, {spellGenerator, 2200 * ms, 50 * ms}}
	out := sample{"longest gap ms": 98}
	notes := r.explain(out)
	for name, want := range map[string]float64{"gaps over 20 ms": 1, "longest gap less waits for CPU ms": 98 - 30 - 20, "longest append in the kernel ms": 20,
		"longest wait for CPU ms": 15, "longest hiccup of the machine ms": 0, "longest small write ms": 0} {
		if got := out[name]; got < want-0.001 || got > want+0.001 {
			t.Errorf("%s is %v, not %v", name, got, want)
		}
	}
	if len(notes) != 1 || !strings.HasPrefix(notes[0], "gap of 98.0 ms at 0.992 s, request written 30.0 late, broker waits for CPU 20.0, append in the kernel 20.0, broker's other disk 90.0") ||
		!strings.HasSuffix(notes[0], "no spell 28.0") {
		t.Errorf("notes are %q", notes)
	}
}

// TestMeterSeesThreads: this process's own threads are found, and what they waited is told once.
func TestMeterSeesThreads(t *testing.T) {
	var out bytes.Buffer
	m := &teller{out: json.NewEncoder(&out)}
	known, buf := map[string]*thread{}, make([]byte, 1024)
	watched := relist(known, os.Getpid(), false, buf)
	if len(watched) == 0 || len(watched) > hiccupThreads {
		t.Fatalf("%d threads", len(watched))
	}
	th := watched[0]
	defer th.close()
	if err := th.look(m, buf); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	th.waitedNs -= int64(time.Second) // as if it had waited since
	th.asleepNs, th.asleepIn = monotonicNs()-int64(time.Minute), spellAppend
	for range 1000 { // this process may be asleep on its disk just now
		if err := th.look(m, buf); err != nil {
			t.Fatal(err)
		}
		if th.asleepNs == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	var waited, slept spell
	dec := json.NewDecoder(&out)
	if err := dec.Decode(&waited); err != nil || waited.Kind != spellBroker || waited.ForNs < int64(time.Second) {
		t.Fatalf("%+v, %v", waited, err)
	}
	for slept.Kind != spellAppend {
		if err := dec.Decode(&slept); err != nil {
			t.Fatalf("%+v, %v", slept, err)
		}
	}
	if slept.ForNs < int64(time.Minute) {
		t.Fatalf("%+v", slept)
	}
	if len(relist(known, 1<<30, false, buf)) > 0 {
		t.Fatal("threads of a process that does not exist")
	}
}
