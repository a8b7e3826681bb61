package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// gapFrom is from where on a gap is looked into.
	gapFrom = 20 * time.Millisecond
	// gapsTold is how many are told beside the longest: those that waits for a processor explain least.
	gapsTold = 10
)

// gap is a time in which a connection with requests under way had no reply: from the reply before to the late one.
type gap struct {
	fromNs, toNs int64 // monotonic
	lateNs       int64 // by how much the late reply's request was written after both its time and the reply before
	oursNs       int64 // what is left without the waits for a processor; see ours
}

func (g gap) lasting() time.Duration { return time.Duration(g.toNs - g.fromNs) }

// within sums what spells of these kinds cover of [from, to), each moment once.
func within(spells []spell, from, to int64, kinds ...string) (coveredNs int64) {
	for _, s := range spells { // in the order of their beginnings
		if s.FromNs >= to {
			break
		}
		if end := min(s.FromNs+s.ForNs, to); slices.Contains(kinds, s.Kind) && end > from {
			begin := max(s.FromNs, from)
			coveredNs += end - begin
			from = end
		}
	}
	return coveredNs
}

// machines are the kinds that are nobody's doing: somebody else had the processor.
var machines = []string{spellSleeper, spellSteal, spellBroker, spellGenerator}

// ours is what is left of a gap without the generator's lateness and the waits for a processor. Any thread's wait counts: on
// a busy machine it is the least that it may be.
func (g gap) ours(spells []spell) (ns int64) {
	from := g.fromNs + g.lateNs
	return g.toNs - from - within(spells, from, g.toNs, machines...)
}

// words tell where a gap's time went.
func (g gap) words(spells []spell, began int64) string {
	ms := func(ns int64) string { return number(float64(ns) / 1e6) }
	out := []string{fmt.Sprintf("gap of %s ms at %.3f s", ms(g.toNs-g.fromNs), float64(g.fromNs-began)/1e9)}
	if g.lateNs > 0 {
		out = append(out, "request written "+ms(g.lateNs)+" late")
	}
	for _, kind := range []string{spellGenerator, spellBroker, spellAppend, spellFlush, spellSleeper, spellWriter, spellSteal} {
		if ns := within(spells, g.fromNs, g.toNs, kind); ns > 0 {
			out = append(out, kind+" "+ms(ns))
		}
	}
	left := g.toNs - g.fromNs - g.lateNs - within(spells, g.fromNs+g.lateNs, g.toNs, append([]string{spellAppend}, machines...)...)
	return strings.Join(append(out, "no spell "+ms(max(left, 0))), ", ")
}

// gaps finds those that last from gapFrom on, after the lead-in.
func (r *pacedRun) gaps() (out []gap) {
	for k, acks := range r.acked {
		for j := 1; j < len(acks); j++ {
			i := k + j*r.producers
			if r.due(i) < r.leadIn() || acks[j]-acks[j-1] < gapFrom {
				continue
			}
			late := min(max(r.sent[i]-max(r.due(i), acks[j-1]), 0), acks[j]-acks[j-1])
			out = append(out, gap{fromNs: r.beganNs + int64(acks[j-1]), toNs: r.beganNs + int64(acks[j]), lateNs: int64(late)})
		}
	}
	slices.SortFunc(out, func(a, b gap) int { return cmp.Compare(b.lasting(), a.lasting()) })
	return out
}

// explain adds to a sample what the meter saw, and returns a line for each long gap.
func (r *pacedRun) explain(out sample) (notes []string) {
	spells := slices.DeleteFunc(r.spells, func(s spell) bool { return s.FromNs < r.beganNs+int64(r.leadIn()) })
	for name, kind := range map[string]string{"longest hiccup of the machine ms": spellSleeper, "longest small write ms": spellWriter,
		"longest append in the kernel ms": spellAppend, "longest wait for CPU ms": spellBroker} {
		longest := int64(0)
		for _, s := range spells {
			if s.Kind == kind {
				longest = max(longest, s.ForNs)
			}
		}
		out[name] = float64(longest) / 1e6
	}
	gaps := r.gaps()
	out["gaps over 20 ms"], out["longest gap less waits for CPU ms"] = float64(len(gaps)), out["longest gap ms"]
	if len(gaps) == 0 { // none is long enough to be looked into
		return nil
	}
	longest := gaps[0]
	for i := range gaps {
		gaps[i].oursNs = gaps[i].ours(spells)
	}
	slices.SortStableFunc(gaps, func(a, b gap) int { return cmp.Compare(b.oursNs, a.oursNs) })
	out["longest gap less waits for CPU ms"] = float64(gaps[0].oursNs) / 1e6
	notes = append(notes, longest.words(spells, r.beganNs))
	for _, g := range gaps[:min(len(gaps), gapsTold)] {
		if line := g.words(spells, r.beganNs); line != notes[0] {
			notes = append(notes, line)
		}
	}
	return notes
}
