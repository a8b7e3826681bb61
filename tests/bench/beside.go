package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"varve/tests/s3server"
)

const (
	// besideMemoryBytes is the memory of the broker's control group, page cache included: less than half of what a round reads.
	besideMemoryBytes = 512 << 20
	// besideLonger times -paced is a round: 16 s by default, 1.6 GB of the tier.
	besideLonger = 2
)

// besideRow is about what a backfill costs producers: their latency while one reader goes through the tier at the store's
// rate, beside their latency on the same broker while another process moves the same bytes out of the same store.
func besideRow() row {
	l := load{shape: shape16K, partitions: 16, producers: 4, acks: -1}
	w := s3server.Weather{Latency: shapedDelay, BytesPerSec: shapedRate}
	r := row{name: "cold/beside-hot", title: fmt.Sprintf("produce, %v, 500 requests a second, while a reader of the tier, or bare GETs, move 100 MB/s; the broker has 512 MiB of memory", l.shape),
		bound: boundPaced, sides: []string{varve, bare}, figures: []string{"produce p50 ms", "produce p99 ms", "produce p99.9 ms", "beside MB/s", cpuPerGB, peakRSS}, alone: true,
		start: func(ctx context.Context, b *bench, side string) (*lane, error) {
			t, err := b.tiered(ctx)
			if err != nil {
				return nil, err
			}
			var other *lane
			if side == bare {
				if other, err = t.bareLane(ctx, bare, w); err != nil {
					return nil, err
				}
			}
			return &lane{cold: true, close: func() {
				if other != nil {
					other.close()
				}
			}, round: func(ctx context.Context) (sample, error) {
				leave := func() {}
				defer func() { t.stop(); leave() }()
				if err := t.start(ctx, t.weather(w)); err != nil {
					return nil, err
				}
				var err error
				if leave, err = limitMemory(t.node.PID(), besideMemoryBytes); err != nil {
					return nil, err
				}
				return t.beside(ctx, pace{load: l, perSecond: 500, lasting: besideLonger * b.paced}, other)
			}}, nil
		}}
	return r.want("produce p99 ms", bare, 1.3, false)
}

// beside produces at a fixed rate while something moves cold bytes: this broker, or other. Nothing is read twice in a round.
func (t *tiered) beside(ctx context.Context, p pace, other *lane) (sample, error) {
	if need := int64(shapedRate * p.lasting.Seconds()); !t.b.small && (t.bytes(1) < need || need < 2*besideMemoryBytes) {
		return nil, fmt.Errorf("a round reads %d bytes: the tier has %d (-cold-bytes), the broker's memory is %d", need, t.bytes(1), besideMemoryBytes)
	}
	s := &server{side: varve, addr: t.node.Kafka, pid: t.node.PID(), logs: filepath.Join(t.data, "log")}
	hot := "false"
	topic, err := t.b.newTopic(ctx, s, p.partitions, map[string]*string{"remote.storage.enable": &hot})
	if err != nil {
		return nil, err
	}
	if err := settleDisk(t.b.data); err != nil {
		return nil, err
	}
	var done atomic.Bool
	var moved atomic.Int64
	var g errgroup.Group
	began := time.Now()
	g.Go(func() error {
		if other != nil {
			return other.until(&done, &moved)
		}
		return t.readUntil(&done, &moved)
	})
	out, err := runPaced(s, topic, p)
	done.Store(true)
	took := time.Since(began)
	bytes := moved.Load()
	if gerr := g.Wait(); err == nil {
		err = gerr
	}
	if err != nil {
		return nil, err
	}
	out["beside MB/s"] = float64(bytes) / 1e6 / took.Seconds()
	return out, dropTopic(ctx, s, topic)
}

// readUntil reads the tier in order until done.
func (t *tiered) readUntil(done *atomic.Bool, moved *atomic.Int64) error {
	step := min(256, t.batches/2) // batches
	for at := 0; !done.Load(); at = (at + step) % (t.batches - step) {
		if _, err := t.readRange(t.node.Kafka, at, at+step, coldFetchBytes); err != nil {
			return err
		}
		moved.Add(int64(step * len(t.batch)))
	}
	return nil
}

// untilRequest has a bare reader move bytes until done.
func untilRequest(addr string, step int64, done *atomic.Bool, moved *atomic.Int64) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	for !done.Load() {
		var req [bareRequestBytes]byte
		binary.BigEndian.PutUint64(req[4:], uint64(step))
		if _, err := c.Write(req[:]); err != nil {
			return err
		}
		left := step
		for ; ; left -= min(left, bareGetBytes) {
			head, err := c.reply(8)
			if err != nil {
				return err
			}
			if len(head) < 8 {
				break
			}
			moved.Add(min(left, bareGetBytes))
		}
		moved.Add(left)
	}
	return nil
}

// limitMemory puts a process into a memory control group of its own, which leave removes once the process is gone.
func limitMemory(pid int, bytes int64) (leave func(), err error) {
	for _, v := range []struct{ root, limit string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"},
	} {
		dir := filepath.Join(v.root, "varve-bench-"+strconv.Itoa(pid))
		if err = os.Mkdir(dir, 0o755); err != nil {
			continue
		}
		if err = os.WriteFile(filepath.Join(dir, v.limit), []byte(strconv.FormatInt(bytes, 10)), 0o644); err == nil {
			err = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
		}
		if err == nil {
			return func() { _ = os.Remove(dir) }, nil // refused while the process is there
		}
		_ = os.Remove(dir)
	}
	return func() {}, fmt.Errorf("no control group for memory: %w", err)
}
