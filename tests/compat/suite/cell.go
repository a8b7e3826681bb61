package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	cellTimeMax   = 150 * time.Second
	outputKeptMax = 64 << 10 // bytes of a cell's output
)

// Client is one thing that people use to talk to a broker, at one version.
type Client struct {
	Name     string
	Registry string // where Install gets it
	Install  func(ctx context.Context) error
	Version  func() string
	Slow     bool // not part of the fast half
	Cases    []Case
}

// Case is one thing that a client does.
type Case struct {
	Name  string
	Limit time.Duration // 0 means cellTimeMax
	Last  bool          // looks at what the others left behind: runs after them, alone
	Run   func(ctx context.Context, e *Env) error
}

// Env is what a cell knows.
type Env struct {
	Broker *Broker
	Name   string // unique: the cell's topics and groups begin with it
	Dir    string // scratch folder of the cell
	Case   string
}

// Cell is the outcome of one case of one client on one broker.
type Cell struct {
	Client, Case, Broker string
	Err                  error
	Took                 time.Duration
}

// runCell runs a case. On Apache Kafka a failed one gets a second try under other names: right after a topic was made on
// first use, a broker short of processor time may refuse one of several batches in flight, which says nothing of varve.
func runCell(ctx context.Context, b *Broker, cl Client, c Case, scratch string) Cell {
	cell := tryCell(ctx, b, cl, c, scratch, cl.Name+"-"+c.Name)
	if cell.Err != nil && b.Name == "kafka" && !c.Last {
		cell = tryCell(ctx, b, cl, c, scratch, cl.Name+"-"+c.Name+"-again")
	}
	return cell
}

func tryCell(ctx context.Context, b *Broker, cl Client, c Case, scratch, name string) Cell {
	limit := c.Limit
	if limit == 0 {
		limit = cellTimeMax
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cell := Cell{Client: cl.Name, Case: c.Name, Broker: b.Name}
	dir, err := os.MkdirTemp(scratch, "cell-")
	if err != nil {
		cell.Err = err
		return cell
	}
	began := time.Now()
	cell.Err = c.Run(ctx, &Env{Broker: b, Name: name, Dir: dir, Case: c.Name})
	cell.Took = time.Since(began)
	if cell.Err != nil && ctx.Err() != nil {
		cell.Err = fmt.Errorf("not done within %s: %w", limit, cell.Err)
	}
	return cell
}

// run executes a command in a process group of its own, feeds stdin and returns its stdout; a failure carries the end of
// everything it said.
func run(cmd *exec.Cmd, e *Env, stdin string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	cmd.Env = append(cmd.Environ(), "COMPAT_BOOTSTRAP="+e.Broker.Addr, "COMPAT_NAME="+e.Name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	err := cmd.Run()
	if cmd.Process != nil {
		if killed := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); killed != nil && !errors.Is(killed, syscall.ESRCH) {
			err = errors.Join(err, killed)
		}
	}
	if err != nil {
		said := stderr.String() + stdout.String()
		if over := len(said) - outputKeptMax; over > 0 {
			said = said[over:]
		}
		return stdout.String(), fmt.Errorf("%w\n%s", err, tailOf(said, 25))
	}
	return stdout.String(), nil
}

// program makes cases of a program of ours: it is called with the case's name.
func program(command func(ctx context.Context, name string) *exec.Cmd, names ...string) (cases []Case) {
	for _, name := range names {
		cases = append(cases, Case{Name: name, Run: func(ctx context.Context, e *Env) error {
			_, err := run(command(ctx, name), e, "")
			return err
		}})
	}
	return cases
}

// want fails with both texts when they differ.
func want(what, got, expected string) error {
	if got == expected {
		return nil
	}
	return fmt.Errorf("%s: got %.300q (%d bytes), want %.300q (%d bytes)", what, got, len(got), expected, len(expected))
}

// contains fails unless every part is in the text.
func contains(what, text string, parts ...string) error {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return fmt.Errorf("%s: no %q in\n%s", what, p, tailOf(text, 20))
		}
	}
	return nil
}
