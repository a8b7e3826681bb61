package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"varve/tests/node"
)

// side is a process under measurement and its address.
type side struct {
	addr string
	pid  int
	stop func()
}

func startBare(ctx context.Context, kind, path string) (*side, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-bare", kind, "-bare-file", path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "bare ready ")
	if err != nil || !ok {
		stop()
		return nil, fmt.Errorf("bare server said %q: %w", line, errors.Join(err, io.ErrUnexpectedEOF))
	}
	return &side{addr: addr, pid: cmd.Process.Pid, stop: stop}, nil
}

func startVarve(ctx context.Context, binary, data string, sets ...string) (*side, error) {
	args := []string{"--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "varve.http.listen=127.0.0.1:0",
		"--set", "varve.topic.remote.storage.enable=false"} // no uploads beside what is measured
	for _, s := range sets {
		args = append(args, "--set", s)
	}
	n, err := node.Start(ctx, node.Options{Binary: binary, Data: data, Args: args})
	if err != nil {
		return nil, err
	}
	return &side{addr: n.Kafka, pid: n.PID(), stop: n.Kill}, nil
}

// usage is the kernel's account of a process.
type usage struct {
	cpu      time.Duration // the scheduler's nanoseconds
	switches int64         // context switches, asked for or not
}

// usageOf sums over a process's threads. One that ended takes its share with it: the Go runtime keeps its threads.
func usageOf(pid int) (sum usage, err error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(tasks) == 0 {
		return sum, fmt.Errorf("process %d is gone: %w", pid, err)
	}
	for _, task := range tasks {
		stat, err1 := os.ReadFile(filepath.Join(task, "schedstat"))
		status, err2 := os.ReadFile(filepath.Join(task, "status"))
		if err1 != nil || err2 != nil {
			continue // the thread ended in between
		}
		var ns int64
		if _, err := fmt.Sscan(string(stat), &ns); err != nil {
			return sum, err
		}
		sum.cpu += time.Duration(ns)
		for line := range strings.Lines(string(status)) {
			if name, value, _ := strings.Cut(line, ":"); strings.HasSuffix(name, "_ctxt_switches") {
				n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
				if err != nil {
					return sum, err
				}
				sum.switches += n
			}
		}
	}
	return sum, nil
}

// conn is the raw client of both sides.
type conn struct {
	net.Conn
	in  *bufio.Reader
	buf []byte
}

func dial(addr string) (*conn, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, in: bufio.NewReaderSize(c, 4096), buf: make([]byte, 1<<20)}, nil
}

// reply reads a whole reply: head bytes are kept and returned, the rest is read and dropped. size excludes the 4 bytes.
func (c *conn) reply(headMax int) (head []byte, size int, err error) {
	var raw [4]byte
	if _, err := io.ReadFull(c.in, raw[:]); err != nil {
		return nil, 0, err
	}
	size = int(binary.BigEndian.Uint32(raw[:]))
	head = make([]byte, min(headMax, size))
	if _, err := io.ReadFull(c.in, head); err != nil {
		return nil, 0, err
	}
	for left := size - len(head); left > 0; {
		n, err := c.in.Read(c.buf[:min(left, len(c.buf))])
		if err != nil {
			return nil, 0, err
		}
		left -= n
	}
	return head, size, nil
}
