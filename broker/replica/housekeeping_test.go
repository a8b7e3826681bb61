package replica

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"varve/broker/commitlog"
	"varve/protocol"
)

func TestExpiry(t *testing.T) {
	seg := func(base, next, size, newest int64) commitlog.SegmentInfo {
		return commitlog.SegmentInfo{Base: base, Next: next, SizeBytes: size, MaxTimestamp: newest, CreatedMs: newest, Sealed: true}
	}
	three := []commitlog.SegmentInfo{seg(0, 10, 100, 1000), seg(10, 20, 100, 2000), seg(20, 30, 50, 3000)}
	three[2].Sealed = false
	empty := append(slices.Clone(three[:2]), commitlog.SegmentInfo{Base: 20, Next: 20, MaxTimestamp: -1})
	noTime := []commitlog.SegmentInfo{{Base: 0, Next: 10, SizeBytes: 100, MaxTimestamp: -1, CreatedMs: 1000, Sealed: true}, three[2]}
	unordered := []commitlog.SegmentInfo{seg(0, 10, 100, 9000), seg(10, 20, 100, 1000), three[2]}
	for _, c := range []struct {
		name     string
		segments []commitlog.SegmentInfo
		e        expiry
		off      int64
		n        int
	}{
		{"no limits", three, expiry{nowMs: 1e6, hw: 30, timeMs: -1, bytes: -1}, 0, 0},
		{"by time", three, expiry{nowMs: 2500, hw: 30, timeMs: 1000, bytes: -1}, 10, 1},
		{"exactly at the limit stays", three, expiry{nowMs: 2000, hw: 30, timeMs: 1000, bytes: -1}, 0, 0},
		{"all, the active one too", three, expiry{nowMs: 1e6, hw: 30, timeMs: 1000, bytes: -1}, 30, 3},
		{"not above the watermark", three, expiry{nowMs: 1e6, hw: 19, timeMs: 1000, bytes: -1}, 10, 1},
		{"an empty active one stays", empty, expiry{nowMs: 1e6, hw: 20, timeMs: 0, bytes: 0}, 20, 2},
		{"no timestamps: the file's time", noTime, expiry{nowMs: 2500, hw: 30, timeMs: 1000, bytes: -1}, 10, 1},
		{"the first live one ends it", unordered, expiry{nowMs: 5000, hw: 30, timeMs: 1000, bytes: -1}, 0, 0},
		{"by size", three, expiry{nowMs: 0, hw: 30, timeMs: -1, bytes: 150}, 10, 1},
		{"never below the size", three, expiry{nowMs: 0, hw: 30, timeMs: -1, bytes: 151}, 0, 0},
		{"size zero", three, expiry{nowMs: 0, hw: 30, timeMs: -1, bytes: 0}, 30, 3},
		{"below log start", three, expiry{nowMs: 0, hw: 30, logStart: 20, timeMs: -1, bytes: -1}, 20, 2},
		{"log start inside", three, expiry{nowMs: 0, hw: 30, logStart: 15, timeMs: -1, bytes: -1}, 10, 1},
	} {
		if off, n := c.e.cut(c.segments); off != c.off || n != c.n {
			t.Errorf("%s: %d segments up to %d, want %d up to %d", c.name, n, off, c.n, c.off)
		}
	}
}

// TestRetention runs the ticker through virtual days.
func TestRetention(t *testing.T) {
	_, o, _ := prepared(t, []int32{self}, "retention.ms", "86400000", "segment.ms", "3600000", "retention.bytes", "-1")
	var clock atomic.Bool
	clock.Store(true)
	o.clock = clock.Load
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, o)
		defer n.stop()
		n.mustProduce("a", "1", "2")
		time.Sleep(2 * time.Hour)
		l, _ := n.logs.Get("a", 0)
		if s := l.Segments(); len(s) != 2 || !s[0].Sealed {
			t.Fatalf("segment.ms has passed: %+v", s)
		}
		n.mustProduce("a", "3")
		clock.Store(false)
		time.Sleep(30 * time.Hour)
		if l.LogStart() != 0 {
			t.Fatal("retention acted although the clock is not to be trusted")
		}
		clock.Store(true)
		time.Sleep(6 * time.Minute)
		d, _ := n.m.Describe("a", 0)
		if d.LogStart != 3 || d.LocalStart != 3 || d.End != 3 || d.LocalBytes != 0 {
			t.Fatalf("%+v", d)
		}
		if r := n.fetch(fetchReq("a", 0)); r.Err != protocol.OffsetOutOfRange {
			t.Fatalf("%+v", r)
		}
		if off := n.mustProduce("a", "4"); off != 3 {
			t.Fatalf("goes on at %d", off)
		}
	})
}

func TestRetentionLeavesTheTiersTopicsAlone(t *testing.T) {
	b := newBook(t)
	tier := newMemTier()
	n := startNode(t, nodeOptions{meta: b.s, control: &bookControl{b: b}, tier: tier})
	defer n.stop()
	id := b.topic("a", 1, []int32{self}, "remote.storage.enable", "true", "retention.bytes", "0", "internal.segment.bytes", "200")
	n.awaitState("a", 0, StateLeader)
	for range 10 {
		n.mustProduce("a", "0123456789")
	}
	p := n.m.hosted.Load().names["a"].partitions[0]
	p.tidy(time.Now(), true)
	if d, _ := n.m.Describe("a", 0); d.LogStart != 0 || d.LocalStart != 0 {
		t.Fatalf("%+v", d)
	}
	tier.mu.Lock()
	nudges := tier.nudges
	tier.mu.Unlock()
	if segments := len(p.role.Load().log.Segments()); nudges == 0 || nudges > segments {
		t.Fatalf("%d nudges for %d segments", nudges, segments)
	}
	led := tier.leads(id, 0)
	led.LogStartMoved(4)
	led.LogStartMoved(2)
	if d, _ := n.m.Describe("a", 0); d.LogStart != 4 {
		t.Fatalf("%+v", d)
	}
}

// TestBrokenDisk: after a failed write the folder is offline; clients hear it, nothing hangs.
func TestBrokenDisk(t *testing.T) {
	b := newBook(t)
	n := startNode(t, nodeOptions{meta: b.s, control: &bookControl{b: b}})
	b.topic("a", 1, []int32{self}, "flush.messages", "1")
	n.awaitState("a", 0, StateLeader)
	n.mustProduce("a", "v")
	n.breakDisk(errors.New("i/o error"))
	r := n.produce("a", 0, AcksAll, batchOf("w"))
	if r.Err != protocol.KafkaStorageError && r.Err != protocol.RequestTimedOut {
		t.Fatalf("%+v", r)
	}
	await(t, "the folder to be offline", func() bool { return n.logs.Offline() != nil })
	if r = n.produce("a", 0, AcksAll, batchOf("w")); r.Err != protocol.KafkaStorageError {
		t.Fatalf("%+v", r)
	}
	if d, _ := n.m.Describe("a", 0); d.State != StateOffline || n.m.Stats().Offline != 1 {
		t.Fatalf("%+v", d)
	}
	n.halt()
	if err := n.logs.Close(context.Background(), 1); protocol.CodeOf(err) != protocol.KafkaStorageError {
		t.Fatalf("close: %v", err)
	}
}

// TestFullDiskRecovers: what could not be made, elected or appended on a full disk is once there is room, without a restart; no
// log is said to have failed.
func TestFullDiskRecovers(t *testing.T) {
	b := newBook(t)
	n := startNode(t, nodeOptions{meta: b.s, control: &bookControl{b: b}})
	defer n.stop()
	id := b.topic("a", 1, []int32{self})
	n.awaitState("a", 0, StateLeader)
	n.mustProduce("a", "v")
	n.breakDisk(syscall.ENOSPC)
	b.lead(id, 0, self)
	b.topic("new", 2, []int32{self})
	for _, name := range []string{"a", "new"} {
		if d := n.awaitState(name, 0, StateOffline); d.Problem == "" {
			t.Fatalf("%+v", d)
		}
		if r := n.produce(name, 0, AcksAll, batchOf("w")); r.Err != protocol.KafkaStorageError {
			t.Fatalf("%+v", r)
		}
	}
	n.disk.fail.Store(nil)
	for _, name := range []string{"a", "new"} {
		n.awaitState(name, 0, StateLeader)
	}
	n.awaitState("new", 1, StateLeader)
	if off := n.mustProduce("a", "w"); off != 1 {
		t.Fatalf("goes on at %d", off)
	}
	n.breakDisk(syscall.ENOSPC)
	if r := n.produce("new", 0, AcksAll, batchOf("w")); r.Err != protocol.KafkaStorageError {
		t.Fatalf("%+v", r)
	}
	n.disk.fail.Store(nil)
	n.mustProduce("new", "w")
	if failed := n.events.Count("partition_failed"); failed != 0 {
		t.Fatalf("%d logs are said to have failed: %+v", failed, n.events.All())
	}
}

// TestBrokenSync: who waits for a flush that fails is told at once, not at his deadline.
func TestBrokenSync(t *testing.T) {
	b := newBook(t)
	n := startNode(t, nodeOptions{meta: b.s, control: &bookControl{b: b}})
	b.topic("a", 1, []int32{self}, "flush.messages", "1")
	n.awaitState("a", 0, StateLeader)
	n.mustProduce("a", "v")
	broken := errors.New("i/o error")
	n.disk.sync.Store(&broken)
	for _, acks := range []int16{AcksAll, AcksLeader} {
		select {
		case r := <-n.produceAsync("a", 0, acks, time.Hour, batchOf("w")):
			if r.Err != protocol.KafkaStorageError {
				t.Fatalf("%+v", r)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("still waiting")
		}
	}
	n.halt()
	if err := n.logs.Close(context.Background(), 1); protocol.CodeOf(err) != protocol.KafkaStorageError {
		t.Fatalf("close: %v", err)
	}
}

func TestAppendQueue(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var q appendQueue
		var all []*waitEntry
		for range 1 + rng.IntN(30) {
			e := &waitEntry{offset: int64(rng.IntN(20))}
			all = append(all, e)
			q.push(e)
		}
		removed := map[*waitEntry]bool{}
		for _, e := range all[:rng.IntN(len(all))] {
			if !q.remove(e) || q.remove(e) {
				t.Fatal("an entry is removed once")
			}
			removed[e] = true
		}
		reached := int64(-1)
		for len(q.entries) > 0 {
			reached += int64(1 + rng.IntN(5))
			for _, e := range q.popThrough(reached) {
				if e.offset > reached || removed[e] {
					t.Fatalf("offset %d came at %d", e.offset, reached)
				}
				removed[e] = true
			}
			if len(q.entries) > 0 && q.entries[0].offset <= reached {
				t.Fatal("one was left")
			}
		}
		if len(removed) != len(all) {
			t.Fatalf("%d of %d entries came out", len(removed), len(all))
		}
	}
}
