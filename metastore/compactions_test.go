package metastore

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestCompactionsRunWithoutATimer: tables that flushes pile up are merged, by compactions that follow each other, and nothing
// of Pebble's wakes up to look for them.
func TestCompactionsRunWithoutATimer(t *testing.T) {
	f, err := openFolder(vfs.NewMem(), "meta", 1, "cluster", nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := openPebble(f, stateName(1), storageLog{})
	if err != nil {
		t.Fatal(err)
	}
	const flushes = 60
	for i := range flushes {
		for k := range 20 {
			if err := h.db.Set(fmt.Appendf(nil, "%04d", k*37%100), fmt.Appendf(nil, "value %d", i), pebble.NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		m := h.db.Metrics()
		if m.Compact.Count > 1 && m.Compact.NumInProgress == 0 && m.Levels[0].Sublevels < 10 {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%d compactions, %d in progress, %d levels of unmerged tables", m.Compact.Count, m.Compact.NumInProgress, m.Levels[0].Sublevels)
		}
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if strings.Contains(string(stacks), "periodicGranter") {
		t.Error("Pebble's scheduler runs, with its ticker")
	}
	if err := h.db.Close(); err != nil {
		t.Fatal(err)
	}
	if ok, _ := new(compactions).TrySchedule(); !ok {
		t.Error("a new scheduler grants nothing")
	}
}

// TestCompactionsAfterTheEnd: a closed scheduler grants nothing.
func TestCompactionsAfterTheEnd(t *testing.T) {
	var c compactions
	if ok, _ := c.TrySchedule(); !ok {
		t.Fatal("the first compaction was refused")
	}
	if ok, _ := c.TrySchedule(); ok {
		t.Error("two at once")
	}
	c.Unregister()
	c.Done()
	if ok, _ := c.TrySchedule(); ok {
		t.Error("one after the end")
	}
}
