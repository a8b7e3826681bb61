package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// thread is one that is looked at again and again, through files that stay open.
type thread struct {
	tid       string
	generator bool
	sched     *os.File // its time on a processor and its time waiting for one, in nanoseconds
	stat      *os.File // its state
	syscall   string

	ranNs, waitedNs int64
	recentNs        int64 // ran since the last look for new threads
	asleepNs        int64 // since when it sleeps on the disk, 0 when it does not
	asleepIn        string
}

// appendCalls are those that stand between a request and its reply.
var appendCalls = []int64{unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_PWRITE64, unix.SYS_PWRITEV, unix.SYS_FALLOCATE, unix.SYS_OPENAT}

// watch looks at the threads of both processes until ctx ends, or they do.
func (t *teller) watch(ctx context.Context, broker, generator int) error {
	known := map[string]*thread{}
	defer func() {
		for _, th := range known {
			th.close()
		}
	}()
	var watched []*thread
	var listed time.Time
	for buf := make([]byte, 1024); ctx.Err() == nil; nap(hiccupLook) {
		if time.Since(listed) > hiccupRelist {
			watched = slices.Concat(relist(known, broker, false, buf), relist(known, generator, true, buf))
			listed = time.Now()
		}
		for _, th := range watched {
			if err := th.look(t, buf); err != nil {
				return err
			}
		}
	}
	return nil
}

// relist opens the files of threads that are new and returns the process's busiest.
func relist(known map[string]*thread, pid int, generator bool, buf []byte) (busiest []*thread) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return nil // it ended
	}
	for _, e := range tasks {
		th := known[e.Name()]
		if th == nil {
			path := filepath.Join(dir, e.Name())
			th = &thread{tid: e.Name(), generator: generator, syscall: filepath.Join(path, "syscall")}
			var serr, terr error
			th.sched, serr = os.Open(filepath.Join(path, "schedstat"))
			th.stat, terr = os.Open(filepath.Join(path, "stat"))
			if serr != nil || terr != nil {
				th.close()
				continue // it ended in between
			}
			known[th.tid] = th
			th.account(buf)
		}
		busiest = append(busiest, th)
	}
	slices.SortFunc(busiest, func(a, b *thread) int { return cmp.Compare(b.recentNs, a.recentNs) })
	for _, th := range busiest {
		th.recentNs = 0
	}
	return busiest[:min(len(busiest), hiccupThreads)]
}

func (th *thread) close() {
	for _, f := range []*os.File{th.sched, th.stat} {
		if f != nil {
			_ = f.Close() // read only
		}
	}
}

// account reads how long the thread ran and waited since the last time; ok is false once it is gone.
func (th *thread) account(buf []byte) (waitedNs int64, ok bool) {
	n, err := th.sched.ReadAt(buf, 0)
	if n == 0 && err != nil {
		return 0, false
	}
	f := strings.Fields(string(buf[:n]))
	if len(f) < 2 {
		return 0, false
	}
	ran, err1 := strconv.ParseInt(f[0], 10, 64)
	waited, err2 := strconv.ParseInt(f[1], 10, 64)
	if err1 != nil || err2 != nil {
		return 0, false
	}
	waitedNs = waited - th.waitedNs
	th.recentNs += ran - th.ranNs
	th.ranNs, th.waitedNs = ran, waited
	return waitedNs, true
}

// look tells of a wait for a processor that ended, and of a sleep on the disk once it has.
func (th *thread) look(t *teller, buf []byte) error {
	waited, ok := th.account(buf)
	if !ok {
		return nil
	}
	now := monotonicNs()
	kind := spellBroker
	if th.generator {
		kind = spellGenerator
	}
	if err := t.tell(kind, now-waited, waited); err != nil || th.generator {
		return err
	}
	n, err := th.stat.ReadAt(buf, 0)
	if n == 0 && err != nil {
		return nil
	}
	state := bytes.LastIndexByte(buf[:n], ')') + 2
	asleep := state < n && buf[state] == 'D'
	switch {
	case asleep && th.asleepNs == 0:
		th.asleepNs, th.asleepIn = now, th.sleepsIn()
	case !asleep && th.asleepNs > 0:
		from := th.asleepNs
		th.asleepNs = 0
		return t.tell(th.asleepIn, from, now-from)
	}
	return nil
}

// sleepsIn says by its system call what a thread sleeps for; what cannot be told, as the sleep was over already, is no append.
func (th *thread) sleepsIn() string {
	raw, err := os.ReadFile(th.syscall)
	number, _, _ := strings.Cut(string(raw), " ")
	if n, perr := strconv.ParseInt(strings.TrimSpace(number), 10, 64); err == nil && perr == nil && slices.Contains(appendCalls, n) {
		return spellAppend
	}
	return spellFlush
}
