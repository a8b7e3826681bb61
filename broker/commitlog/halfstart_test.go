package commitlog

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"varve/protocol"
	"varve/protocol/record"
)

func openAgain(t *testing.T, fsys FS) *Manager {
	t.Helper()
	m, err := OpenManager(ManagerOptions{FS: fsys, Dir: "logs", NodeID: 1, ClusterID: "c", RecoveryThreads: 1})
	must(t, err)
	return m
}

// TestHalfLoadedDirectoryKeepsItsCheckpoints: a load that stops half-way, and checkpoints written meanwhile, cost no log
// its log start, high watermark or recovery point, and leave no marker of a clean shutdown.
func TestHalfLoadedDirectoryKeepsItsCheckpoints(t *testing.T) {
	fsys := NewMemFS()
	ctx := context.Background()
	conf := func(string, protocol.UUID, int32) Config { return DefaultConfig() }
	m := openAgain(t, fsys)
	if err := m.LoadAll(ctx, conf); err != nil {
		t.Fatal(err)
	}
	const logs = 4
	for p := range int32(logs) {
		l, err := m.Create("t", protocol.UUID{1}, p, DefaultConfig())
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if _, err := l.AppendAsLeader(batch(t, 1, record.Options{}), 0, OriginClient); err != nil {
				t.Fatal(err)
			}
		}
		l.SetHighWatermark(10)
		if err := l.SetLogStart(5); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Close(ctx, 7); err != nil {
		t.Fatal(err)
	}

	m = openAgain(t, fsys)
	seen := 0
	stop, cancel := context.WithCancel(ctx)
	err := m.LoadAll(stop, func(string, protocol.UUID, int32) Config {
		if seen++; seen == 2 {
			cancel()
			if err := m.Checkpoint(); err != nil {
				t.Error(err)
			}
		}
		return DefaultConfig()
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("half a load: %v", err)
	}
	if err := m.Close(ctx, -1); err != nil {
		t.Fatal(err)
	}

	m = openAgain(t, fsys)
	if _, clean := m.CleanShutdown(); clean {
		t.Fatal("half a load left a marker of a clean shutdown")
	}
	if err := m.LoadAll(ctx, conf); err != nil {
		t.Fatal(err)
	}
	for p := range int32(logs) {
		l, _ := m.Get("t", p)
		if got := fmt.Sprint(l.LogStart(), l.End(), m.HighWatermark("t", p)); got != "5 10 10" {
			t.Errorf("partition %d has log start, end and high watermark %s, want 5 10 10", p, got)
		}
	}
	if err := m.Close(ctx, -1); err != nil {
		t.Fatal(err)
	}
}
