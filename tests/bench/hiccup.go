package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// The meter is a process of its own beside a stall run. It says when the machine itself stood still, and when the broker's
// and the generator's threads waited for a processor or slept in the kernel, so that a gap can be put down to what made it.

// What a spell is of.
const (
	spellSleeper   = "sleeper late"         // the meter's own thread, which only sleeps, woke up late
	spellWriter    = "small write"          // the meter's own small write to the same file system took long
	spellSteal     = "processor stolen"     // the hypervisor ran somebody else
	spellBroker    = "broker waits for CPU" // a thread of the broker was runnable and did not run
	spellGenerator = "generator waits for CPU"
	spellAppend    = "append in the kernel" // a thread of the broker slept on the disk in a call that an append makes
	spellFlush     = "broker's other disk"  // the same in any other call, such as fsync
)

const (
	hiccupEvery   = time.Millisecond     // the sleeper's nap
	hiccupFrom    = 4 * time.Millisecond // shorter spells are not told
	hiccupWrite   = 512                  // bytes of a small write
	hiccupWrites  = 2 * time.Millisecond // between two of them
	hiccupLook    = 4 * time.Millisecond // between two looks at the threads
	hiccupRelist  = time.Second          // between two looks for new threads
	hiccupSteal   = 20 * time.Millisecond
	hiccupThreads = 32 // the busiest of each process that are looked at
	meterWait     = 10 * time.Second
)

// spell is a length of time in which something stood still, by the monotonic clock.
type spell struct {
	Kind   string `json:"kind"`
	FromNs int64  `json:"fromNs"`
	ForNs  int64  `json:"forNs"`
}

func monotonicNs() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // there is no Linux without it
	return ts.Nano()
}

// hiccups is the meter as its parent sees it.
type hiccups struct {
	cmd *exec.Cmd
	in  io.Closer
	out io.Reader
	dir string
}

// startMeter watches a broker and this process. dir is on the file system under test.
func startMeter(ctx context.Context, dir string, brokerPID int) (*hiccups, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	h := &hiccups{dir: filepath.Join(dir, "hiccups")}
	h.cmd = exec.CommandContext(ctx, self, "-meter", h.dir, "-meter-pids", fmt.Sprintf("%d,%d", brokerPID, os.Getpid()))
	h.cmd.Stderr, h.cmd.WaitDelay = os.Stderr, meterWait
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if h.out, err = h.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	return h, h.cmd.Start()
}

// stop ends the meter and returns what it saw, in the order of time.
func (h *hiccups) stop() (out []spell, err error) {
	err = h.in.Close()
	for dec := json.NewDecoder(h.out); ; {
		var s spell
		if derr := dec.Decode(&s); errors.Is(derr, io.EOF) {
			break
		} else if derr != nil {
			err = errors.Join(err, derr)
			break
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b spell) int { return cmp.Compare(a.FromNs, b.FromNs) })
	return out, errors.Join(err, h.cmd.Wait(), os.RemoveAll(h.dir))
}

// teller writes spells as they end.
type teller struct {
	mu  sync.Mutex
	out *json.Encoder
}

func (t *teller) tell(kind string, fromNs, forNs int64) error {
	if forNs < int64(hiccupFrom) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.out.Encode(spell{kind, fromNs, forNs})
}

// runMeter is the meter's own process; it ends when its input does.
func runMeter(dir, pids string) error {
	var broker, generator int
	if _, err := fmt.Sscanf(pids, "%d,%d", &broker, &generator); err != nil {
		return fmt.Errorf("-meter-pids %q: %w", pids, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	t := &teller{out: json.NewEncoder(out)}
	ctx, cancel := context.WithCancel(context.Background())
	var g errgroup.Group
	g.Go(func() error {
		defer cancel()
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	})
	g.Go(func() error { return t.sleep(ctx) })
	g.Go(func() error { return t.write(ctx, filepath.Join(dir, "small")) })
	g.Go(func() error { return t.steal(ctx) })
	g.Go(func() error { return t.watch(ctx, broker, generator) })
	return errors.Join(g.Wait(), out.Flush())
}

// nap sleeps on this thread, without Go's timers, and returns by how much it overslept.
func nap(d time.Duration) (lateNs int64) {
	began := monotonicNs()
	ts := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&ts, nil) // cut short by a signal it is not late
	return monotonicNs() - began - d.Nanoseconds()
}

func (t *teller) sleep(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for ctx.Err() == nil {
		late := nap(hiccupEvery)
		if err := t.tell(spellSleeper, monotonicNs()-late, late); err != nil {
			return err
		}
	}
	return nil
}

func (t *teller) write(ctx context.Context, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, hiccupWrite)
	for at := int64(0); ctx.Err() == nil; at += hiccupWrite {
		nap(hiccupWrites)
		began := monotonicNs()
		if _, err := f.WriteAt(buf, at); err != nil {
			return err
		}
		if err := t.tell(spellWriter, began, monotonicNs()-began); err != nil {
			return err
		}
	}
	return nil
}

// steal reads how much of the processors went to others; the kernel counts in hundredths of a second, over all of them.
func (t *teller) steal(ctx context.Context) error {
	const perSecond, field = 100, 8
	before := int64(-1)
	for ctx.Err() == nil {
		raw, err := os.ReadFile("/proc/stat")
		if err != nil {
			return err
		}
		if f := strings.Fields(string(raw[:max(0, strings.IndexByte(string(raw), '\n'))])); len(f) > field {
			now, err := strconv.ParseInt(f[field], 10, 64)
			if err != nil {
				return err
			}
			if took := (now - before) * int64(time.Second) / perSecond; before >= 0 && took > 0 {
				if err := t.tell(spellSteal, monotonicNs()-max(took, int64(hiccupSteal)), took); err != nil {
					return err
				}
			}
			before = now
		}
		nap(hiccupSteal)
	}
	return nil
}
