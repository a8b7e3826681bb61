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

func startVarve(ctx context.Context, o options, data string, sets ...string) (*side, error) {
	args := []string{"--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "varve.http.listen=127.0.0.1:0",
		"--set", "varve.topic.remote.storage.enable=false"} // no uploads beside what is measured
	for _, s := range sets {
		args = append(args, "--set", s)
	}
	n, err := node.Start(ctx, node.Options{Binary: o.varve, Data: data, Args: args})
	if err != nil {
		return nil, err
	}
	return &side{addr: n.Kafka, pid: n.PID(), stop: n.Kill}, nil
}

// cpuOf sums the scheduler's nanoseconds over a process's threads.
func cpuOf(pid int) (time.Duration, error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, task := range tasks {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, task.Name()))
		if err != nil {
			continue // the thread ended in between
		}
		var ns int64
		if _, err := fmt.Sscan(string(raw), &ns); err != nil {
			return 0, err
		}
		sum += time.Duration(ns)
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
