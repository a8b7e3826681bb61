package commitlog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"varve/protocol"
	"varve/protocol/record"
)

// crowd has everything that may happen to a log happen at once.
type crowd struct {
	t      *testing.T
	l      *Log
	m      *Manager
	stop   atomic.Bool
	reads  atomic.Int64
	cuts   atomic.Int64
	frees  atomic.Int64
	copies atomic.Int64
}

func TestReadersAgainstEverything(t *testing.T) {
	for _, fs := range []FS{NewMemFS(), DiskFS()} {
		t.Run(fmt.Sprintf("%T", fs), func(t *testing.T) {
			dir := testDir
			if fs == DiskFS() {
				dir = t.TempDir()
			}
			crowded(t, ManagerOptions{FS: fs, Dir: dir, NodeID: 1, MaxOpenFiles: 8, CheckpointIntervalMs: 20})
		})
	}
}

func crowded(t *testing.T, o ManagerOptions) {
	m, err := OpenManager(o)
	must(t, err)
	cfg := testConfig()
	l, err := m.Create("t", testID, 0, cfg)
	must(t, err)
	c := &crowd{t: t, l: l, m: m}
	var g errgroup.Group
	for i := range 3 {
		g.Go(func() error { return c.reader(uint64(i)) })
	}
	g.Go(c.timeReader)
	g.Go(c.truncator)
	g.Go(c.freer)
	g.Go(c.exporter)
	g.Go(func() error {
		defer c.stop.Store(true)
		return c.appender(3000)
	})
	must(t, g.Wait())
	checkLog(t, l)
	if c.reads.Load() == 0 || c.cuts.Load() == 0 || c.frees.Load() == 0 {
		t.Fatalf("%d reads, %d cuts, %d frees", c.reads.Load(), c.cuts.Load(), c.frees.Load())
	}
	must(t, m.Close(context.Background(), 1))
	for _, s := range l.segments() {
		if s.log.pins != 0 {
			t.Fatalf("%s is pinned %d times", s.log.path, s.log.pins)
		}
	}
}

func (c *crowd) appender(n int) error {
	// On a busy machine the others may not have had their turn by then.
	for i := 0; i < n || i < 20*n && (c.cuts.Load() == 0 || c.frees.Load() == 0); i++ {
		b := batch(c.t, 1+i%5, record.Options{}, int64(1000+i%700))
		if _, err := c.l.AppendAsLeader(b, int32(i/500), OriginClient); err != nil && !errors.Is(err, protocol.FencedLeaderEpoch) {
			return err
		}
	}
	return nil
}

func (c *crowd) reader(seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 3))
	for !c.stop.Load() {
		start, end := c.l.LocalStart(), c.l.End()
		if end <= start {
			continue
		}
		off := start + rng.Int64N(end-start)
		s, err := c.l.Read(off, 1+rng.IntN(9000), end, true)
		if errors.Is(err, protocol.OffsetOutOfRange) {
			continue
		}
		if err != nil {
			return err
		}
		if s.Len == 0 {
			continue
		}
		if err := c.check(s, off); err != nil {
			return err
		}
		c.reads.Add(1)
	}
	return nil
}

// check reads a slice twice, slowly, as a connection would.
func (c *crowd) check(s Slice, off int64) error {
	defer s.Release()
	buf := make([]byte, s.Len)
	for range 2 {
		if n, err := s.File.ReadAt(buf, s.Off); n < len(buf) {
			return fmt.Errorf("slice of %d bytes gave %d: %w", s.Len, n, err)
		}
		next := int64(-1)
		for rest := buf; len(rest) > 0; {
			b, r, err := record.Next(rest)
			if err != nil {
				return err
			}
			if err := b.CheckCRC(); err != nil {
				return err
			}
			if next < 0 && (b.BaseOffset() > off || b.LastOffset() < off) || next >= 0 && b.BaseOffset() != next {
				return fmt.Errorf("%s after %d, asked for %d", b, next, off)
			}
			next, rest = b.NextOffset(), r
		}
		if next != s.NextOffset {
			return fmt.Errorf("slice ends at %d, says %d", next, s.NextOffset)
		}
	}
	return nil
}

func (c *crowd) timeReader() error {
	rng := rand.New(rand.NewPCG(9, 9))
	for !c.stop.Load() {
		if _, _, err := c.l.OffsetForTimestamp(1000 + rng.Int64N(800)); err != nil {
			return err
		}
		if _, _, err := c.l.MaxTimestamp(); err != nil {
			return err
		}
		if _, err := c.l.AbortedIn(c.l.LocalStart(), c.l.End()); err != nil && !errors.Is(err, protocol.OffsetOutOfRange) {
			return err
		}
		c.l.Segments()
		c.l.SizeBytes()
		c.l.LastStable(c.l.End())
	}
	return nil
}

func (c *crowd) truncator() error {
	rng := rand.New(rand.NewPCG(5, 5))
	for !c.stop.Load() {
		end := c.l.End()
		off := max(end-rng.Int64N(60), c.l.LogStart(), c.l.LocalStart())
		if off < end {
			if err := c.l.TruncateTo(off); err != nil {
				return err
			}
			c.cuts.Add(1)
		}
		if err := c.m.Checkpoint(); err != nil {
			return err
		}
	}
	return nil
}

func (c *crowd) freer() error {
	for !c.stop.Load() {
		off := c.l.End() - 900
		if off <= c.l.LogStart() {
			continue
		}
		if err := c.l.SetLogStart(off); err != nil && !errors.Is(err, protocol.OffsetOutOfRange) {
			return err
		}
		n, err := c.l.FreeBelow(off)
		if err != nil {
			return err
		}
		if n > 0 {
			c.frees.Add(1)
		}
	}
	return nil
}

func (c *crowd) exporter() error {
	for !c.stop.Load() {
		e, err := c.l.Export(c.l.LocalStart(), c.l.End())
		if errors.Is(err, protocol.OffsetOutOfRange) || e == nil && err == nil {
			continue
		}
		if err != nil {
			return err
		}
		buf := make([]byte, e.Log.Len)
		if n, err := e.Log.File.ReadAt(buf, e.Log.Off); n < len(buf) {
			return err
		}
		e.Close()
		c.copies.Add(1)
	}
	return nil
}
