package main

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// running is produce with an input that stays open.
type running struct {
	in        *os.File
	out, errs buffer
	code      chan int
	stop      context.CancelFunc
}

func runProducing(t *testing.T, s tools, args ...string) *running {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &running{in: w, code: make(chan int, 1), stop: cancel}
	go func() {
		p.code <- run(ctx, append(append([]string{"produce"}, args...), s.at...), nil, r, &p.out, &p.errs)
		_ = r.Close()
	}()
	t.Cleanup(func() { cancel(); _ = w.Close() })
	return p
}

// end waits for the exit code.
func (p *running) end(t *testing.T) int {
	t.Helper()
	select {
	case code := <-p.code:
		return code
	case <-time.After(20 * time.Second):
		t.Fatal("still running")
		return -1
	}
}

// TestProduceEndsOnCtrlC: what was typed before is written, though the input is still open.
func TestProduceEndsOnCtrlC(t *testing.T) {
	s := start(t, t.TempDir()).tools(t)
	s.want(exitOK, "", "topic", "create", "t")
	p := runProducing(t, s, "t")
	if _, err := io.WriteString(p.in, "one\ntwo\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "lines do not arrive before the input ends", func() bool { return s.read("t", "--from-beginning") == "one\ntwo\n" })
	p.stop()
	if code := p.end(t); code != exitOK || !strings.Contains(p.out.String(), "produced 2 records") {
		t.Errorf("exit %d\n%s%s", code, p.out.String(), p.errs.String())
	}
}

// TestProduceWithoutItsBroker: a broker that goes away is told within the bound, with what is lost.
func TestProduceWithoutItsBroker(t *testing.T) {
	n := start(t, t.TempDir())
	s := n.tools(t)
	s.want(exitOK, "", "topic", "create", "t")
	p := runProducing(t, s, "t", "--timeout", "2s")
	if _, err := io.WriteString(p.in, "one\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first line does not arrive", func() bool { return s.read("t", "--from-beginning") == "one\n" })
	n.stop()
	if _, err := io.WriteString(p.in, "two\n"); err != nil {
		t.Fatal(err)
	}
	_ = p.in.Close()
	began := time.Now()
	code := p.end(t)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	if out, errs := p.out.String(), p.errs.String(); code != exitRuntime || !strings.Contains(out, "produced 1 records") || !strings.Contains(errs, "1 records were not acknowledged in time") || !strings.Contains(errs, "trying again") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}
