package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 1 << 20: 400, 8 << 20: 200, 16 << 20: 100, 1 << 30: 100} {
		if got := gcPercent(live); got != want {
			t.Errorf("%d bytes live: %d%%, want %d%%", live, got, want)
		}
	}
}

// TestGCPacerFollowsTheLiveHeap: each collection sets the pace of the next.
func TestGCPacerFollowsTheLiveHeap(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	paceGC()
	percent := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	await := func(what string, ok func(int) bool) {
		t.Helper()
		for range 200 {
			runtime.GC()
			time.Sleep(time.Millisecond)
			if ok(percent()) {
				return
			}
		}
		t.Fatalf("%s: still at %d%%", what, percent())
	}
	await("a small heap", func(p int) bool { return p > 110 })
	held := make([]byte, 4*gcFloorBytes)
	await("a large heap", func(p int) bool { return p <= 113 })
	runtime.KeepAlive(held)
	held = nil
	await("a small heap again", func(p int) bool { return p > 110 })
}
