package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// gcFloorBytes is how much garbage comes together, at least, before it is collected. A broker whose live heap is two
	// megabytes would otherwise collect fifteen times a second, and empty its pools of buffers each time.
	gcFloorBytes = 16 << 20
	// gcLeastHeapBytes is the smallest heap at which the runtime collects, times GOGC/100.
	gcLeastHeapBytes = 4 << 20
	// gcPercentStep is the change, as a part of what is in force, that is worth stopping the world for.
	gcPercentStep = 8
)

// paceGC makes the collector wait for gcFloorBytes of garbage while the live heap is smaller than that, and for as much as
// is live when it is larger, as it does by itself. GOGC, where it is set, goes before; GOMEMLIMIT holds as ever.
func paceGC() {
	if os.Getenv("GOGC") == "" {
		p := &gcPacer{percent: debug.SetGCPercent(100), sample: []metrics.Sample{
			{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}}
		debug.SetGCPercent(p.percent)
		p.collected(nil)
	}
}

type gcPacer struct {
	percent int
	sample  []metrics.Sample
}

// gcTick is garbage from the start: its finalizer runs after each collection.
type gcTick struct{ p *gcPacer }

func (p *gcPacer) collected(*gcTick) {
	metrics.Read(p.sample)
	var scanned uint64
	for _, s := range p.sample {
		scanned += s.Value.Uint64()
	}
	if want := gcPercent(scanned); want > p.percent+p.percent/gcPercentStep || want < p.percent-p.percent/gcPercentStep {
		debug.SetGCPercent(want)
		p.percent = want
	}
	runtime.SetFinalizer(&gcTick{p}, p.collected)
}

// gcPercent is what may come on top of the live heap, as a share of it and of the roots, as the runtime reckons.
func gcPercent(scannedBytes uint64) int {
	return int(max(gcFloorBytes*100/max(scannedBytes, gcLeastHeapBytes), 100))
}
