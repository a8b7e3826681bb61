package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// usage is the kernel's account of a process.
type usage struct {
	cpu      time.Duration // user and system, of threads that have ended too, in the scheduler's nanoseconds
	switches int64         // context switches of the threads there are, asked for or not
}

// spent is what a process used while something was done to it.
type spent struct {
	usage
	wall time.Duration
	peak int64 // the largest resident set in bytes, within this time where the kernel lets it be reset
}

// cpuOf reads the process's CPU clock; see clock_getcpuclockid(3) for the clock's id.
func cpuOf(pid int) (time.Duration, error) {
	const clockOfProcess = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|clockOfProcess), &ts); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

func usageOf(pid int) (sum usage, err error) {
	if sum.cpu, err = cpuOf(pid); err != nil {
		return sum, err
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(tasks) == 0 {
		return sum, fmt.Errorf("process %d is gone: %w", pid, err)
	}
	for _, task := range tasks {
		status, err := os.ReadFile(task)
		if err != nil {
			continue // the thread ended in between
		}
		sum.switches += statusField(status, "voluntary_ctxt_switches") + statusField(status, "nonvoluntary_ctxt_switches")
	}
	return sum, nil
}

// statusField is a number in /proc/<pid>/status; 0 when it is not there.
func statusField(status []byte, name string) int64 {
	sc := bufio.NewScanner(bytes.NewReader(status))
	for sc.Scan() {
		if f := strings.Fields(sc.Text()); len(f) >= 2 && f[0] == name+":" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}

// residentOf returns the resident set now and its peak, in bytes.
func residentOf(pid int) (now, peak int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return statusField(status, "VmRSS") << 10, statusField(status, "VmHWM") << 10, err
}

// resetPeak makes the peak that of the time from now on; where the kernel does not let us, it stays that of the process.
func resetPeak(pid int) { _ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) }

func descriptorsOf(pid int) (int, error) {
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(fds), err
}

// measure accounts for what do makes a process do.
func measure(pid int, do func() error) (out spent, err error) {
	resetPeak(pid)
	before, err := usageOf(pid)
	if err != nil {
		return out, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return out, err
	}
	out.wall = time.Since(began)
	after, err := usageOf(pid)
	if err != nil {
		return out, err
	}
	out.usage = usage{cpu: after.cpu - before.cpu, switches: max(after.switches-before.switches, 0)}
	_, out.peak, err = residentOf(pid)
	return out, err
}

// Names of the figures that several rows share.
const (
	cpuPerGB = "CPU s/GB"
	cpuPerM  = "CPU s/M records"
	perReq   = "switches/request"
	peakRSS  = "peak RSS MB"
)

// moved turns the account of a round that moved so much into figures.
func (s spent) moved(requests, records, bytes int64) sample {
	gb := float64(bytes) / 1e9
	return sample{
		"MB/s":       gb * 1000 / s.wall.Seconds(),
		"requests/s": float64(requests) / s.wall.Seconds(),
		cpuPerGB:     s.cpu.Seconds() / gb,
		cpuPerM:      s.cpu.Seconds() / (float64(records) / 1e6),
		perReq:       float64(s.switches) / float64(requests),
		peakRSS:      float64(s.peak) / 1e6,
		"CPU %":      100 * s.cpu.Seconds() / s.wall.Seconds(),
	}
}

// latencies adds the quantiles of what was measured, in milliseconds.
func (s sample) latencies(prefix string, d []time.Duration) {
	sorted := sortedCopy(d)
	for _, q := range []struct {
		name string
		at   float64
	}{{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1}} {
		s[prefix+q.name+" ms"] = quantile(sorted, q.at).Seconds() * 1000
	}
}

// round keeps five digits: more is noise, and the files of results are read by people.
func (s sample) round() {
	for name, v := range s {
		if r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 5, 64), 64); err == nil {
			s[name] = r
		}
	}
}
