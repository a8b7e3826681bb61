package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"varve/tests/node"
)

const (
	roundMax  = 9 * time.Minute
	pollEvery = 20 * time.Millisecond
	// copies is how often a record stands in a log when all three chains are done: the first topic, and three of each chain.
	copies = 10
)

type options struct {
	rounds, records int
	direct, kafka   bool
	binary, test    string // varve and kgo's compiled tests; "" means that they are built
	keep            string // folder for data and logs
}

// buildTests compiles kgo's tests as they are in the module.
func buildTests(ctx context.Context, to string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", to, "github.com/twmb/franz-go/pkg/kgo")
	cmd.Dir = node.Root()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile kgo's tests: %w\n%s", err, out)
	}
	return nil
}

// round runs the chains once, with one restart, and reports in one line.
func round(ctx context.Context, o options, i int) (report string, err error) {
	ctx, cancel := context.WithTimeout(ctx, roundMax)
	defer cancel()
	dir := filepath.Join(o.keep, fmt.Sprint("round-", i))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	r := &run{o: o, dir: dir, hard: i%2 == 1}
	if err := r.up(ctx); err != nil {
		return "", errors.Join(err, r.down())
	}
	began := time.Now()
	err = r.chains(ctx)
	report = fmt.Sprintf("round %d, %s at %d of %d records, back after %s, chains took %s", i, r.how(), r.at, copies*o.records, r.away.Round(time.Millisecond), time.Since(began).Round(100*time.Millisecond))
	return report, errors.Join(err, r.down())
}

// run is one round.
type run struct {
	o    options
	dir  string
	hard bool // kill -9
	b    broker
	p    *proxy
	addr string // where clients find the broker

	at   int64 // records in all logs when the broker was stopped
	away time.Duration
}

func (r *run) how() string {
	if r.hard {
		return "kill -9"
	}
	return "SIGTERM"
}

func (r *run) up(ctx context.Context) (err error) {
	if !r.o.direct {
		if r.p, err = newProxy(); err != nil {
			return err
		}
		r.addr = r.p.addr()
	}
	if r.b, err = newBroker(r.o, r.dir, r.addr); err != nil {
		return err
	}
	at, err := r.b.start(ctx)
	if err != nil {
		return err
	}
	r.aim(at)
	return nil
}

func (r *run) aim(at string) {
	if r.p != nil {
		r.p.aim(at)
	} else {
		r.addr = at
	}
}

func (r *run) down() (err error) {
	if r.p != nil {
		err = r.p.close()
	}
	if r.b != nil {
		r.b.kill()
	}
	return err
}

// chains runs kgo's test, restarts the broker in its middle, and demands that it passes.
func (r *run) chains(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, r.o.test, "-test.v", "-test.run", "^TestGroupETL$", "-test.skip", "TestGroupETL/.*/848", "-test.timeout", roundMax.String())
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "KGO_SEEDS="+r.addr, "KGO_TEST_RF=1", fmt.Sprint("KGO_TEST_RECORDS=", r.o.records), "KGO_LOG_LEVEL=warn")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var stdout bytes.Buffer
	stderr, err := os.Create(filepath.Join(r.dir, "kgo.log"))
	if err != nil {
		return err
	}
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = &stdout, stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	ctx, ended := context.WithCancel(ctx)
	defer ended()
	var wg sync.WaitGroup
	var failed error
	wg.Go(func() { failed = cmd.Wait(); ended() })
	err = r.restart(ctx)
	if err != nil {
		_ = cmd.Cancel()
	}
	wg.Wait()
	if err := os.WriteFile(filepath.Join(r.dir, "kgo.out"), stdout.Bytes(), 0o644); err != nil {
		return err
	}
	return errors.Join(err, verdict(stdout.String(), failed))
}

// says finds the lines of a failed test's output that tell what went wrong.
var says = regexp.MustCompile(`^(--- SKIP|--- FAIL|panic:)|_test\.go:\d+: .*(errs?:|errs? |unable|got |expected|double)`)

// verdict demands that every chain passed.
func verdict(out string, failed error) error {
	passed, skipped := 0, false
	var why []string
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "--- PASS: TestGroupETL/") {
			passed++
		}
		skipped = skipped || strings.HasPrefix(line, "--- SKIP")
		if says.MatchString(line) {
			why = append(why, line)
		}
	}
	const want = 3 // range, cooperative-sticky, static
	if failed == nil && passed == want && !skipped {
		return nil
	}
	return errors.Join(failed, fmt.Errorf("%d of %d chains passed:\n%s", passed, want, strings.Join(why, "\n")))
}

// restart stops the broker once between a quarter and three quarters of all records have been written and more are
// seen to come, starts it again, and sees more come after that.
func (r *run) restart(ctx context.Context) error {
	total := int64(copies * r.o.records)
	from := total/4 + rand.Int64N(total/4)
	if _, err := r.await(ctx, from); err != nil {
		return err
	}
	at, err := r.await(ctx, from+1)
	if err != nil {
		return err
	}
	if r.at = at; at > total*3/4 {
		return fmt.Errorf("%d of %d records had been written when it was looked: too late", at, total)
	}
	began := time.Now()
	if r.hard {
		r.b.kill()
	} else if err := r.b.terminate(ctx); err != nil {
		return fmt.Errorf("SIGTERM: %w", err)
	}
	again, err := r.b.start(ctx)
	if err != nil {
		return fmt.Errorf("start again: %w", err)
	}
	r.away = time.Since(began)
	r.aim(again)
	_, err = r.await(ctx, at+1)
	return err
}

// await waits until so many records stand in all logs of topics that are not the broker's own, and returns how many.
func (r *run) await(ctx context.Context, records int64) (int64, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(r.addr), kgo.AlwaysRetryEOF(), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	adm := kadm.NewClient(c)
	for {
		var sum int64
		if ends, err := adm.ListEndOffsets(ctx); err == nil {
			ends.Each(func(o kadm.ListedOffset) { sum += max(0, o.Offset) })
		}
		if sum >= records {
			return sum, nil
		}
		select {
		case <-ctx.Done():
			return sum, fmt.Errorf("the chains ended with %d records in the logs, %d had to come", sum, records)
		case <-time.After(pollEvery):
		}
	}
}
