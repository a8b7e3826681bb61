package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"varve/broker"
	"varve/broker/config"
)

const (
	demoTopic        = "go-source"
	demoPartitions   = 3
	demoSegmentBytes = 4 << 20
	demoLocalBytes   = 8 << 20
	demoSettleMs     = 120_000
)

func demoCommand() *command {
	return &command{
		name: "demo",
		args: "[--source DIR] [--tier URL] [--dir DIR]",
		summary: "Show the main job on real input: start a node in a temporary folder, load the source tree of the installed Go line by line into a topic of 3 partitions with small segments, " +
			"let it settle into the tier until the local copies are freed, read everything back from offset 0 and compare checksums. " +
			"It exits with 0 only if every file came back byte for byte.",
		examples: []string{
			"varve demo",
			"varve demo --source /usr/share/doc",
			"varve demo --tier 'minio://bucket/demo?endpoint=http://127.0.0.1:9000'",
		},
		run: runDemo,
	}
}

// demo is one run of the command.
type demo struct {
	c        *call
	source   string
	progress *progress
	broker   *broker.Broker
	files    map[string]*demoFile
	loaded   demoTotal
	read     demoTotal
	took     map[string]time.Duration
	local    map[int32]int64 // first local offset when reading began
	fromTier demoTotal
}

type demoTotal struct{ records, bytes int64 }

func runDemo(c *call) int {
	source := c.flags.String("source", "", "folder `DIR` whose files are loaded; by default the source tree of the Go that `go env GOROOT` names")
	tier := c.flags.String("tier", "", "`URL` of another object store than a temporary folder; what is put there stays")
	dir := c.flags.String("dir", "", "working folder `DIR`, which must not exist and stays; by default a temporary one that is removed")
	if _, code, done := c.parse(0, 0); done {
		return code
	}
	ctx, stop := signal.NotifyContext(c.ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	d := &demo{c: c, source: *source, progress: newProgress(c.stdout), files: map[string]*demoFile{}, took: map[string]time.Duration{}}
	if err := d.findSource(ctx); err != nil {
		return c.failed("%v", err)
	}
	work, remove, err := workFolder(*dir)
	if err != nil {
		return c.failed("%v", err)
	}
	defer remove()
	sets := []string{
		"listeners=PLAINTEXT://127.0.0.1:0", "varve.http.listen=127.0.0.1:0",
		"remote.log.manager.task.interval.ms=500", "log.retention.check.interval.ms=500", "varve.tier.journal.interval.ms=1000",
	}
	if *tier != "" {
		sets = append(sets, "varve.tier.url="+*tier)
	}
	cfg, _, err := config.Load(config.LoadOptions{Sets: sets, Data: work})
	if err != nil {
		printConfigErrors(c.stderr, err)
		return exitUsage
	}
	var level slog.LevelVar
	level.Set(slog.LevelWarn)
	log := slog.New(slog.NewTextHandler(c.stderr, &slog.HandlerOptions{Level: &level}))
	began := time.Now()
	if d.broker, err = broker.Start(ctx, cfg, broker.Options{Log: log, Version: buildVersion().Version}); err != nil {
		return c.startFailed(err)
	}
	d.took["start"] = time.Since(began)
	err = d.run(ctx)
	level.Set(slog.LevelError) // that a stopping node loses its roles is no news
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeoutMs*time.Millisecond)
	defer cancel()
	err = errors.Join(err, d.broker.Drain(bound))
	if err != nil {
		d.progress.end()
		return c.failed("%v", err)
	}
	return exitOK
}

// run does the work against the broker that was started.
func (d *demo) run(ctx context.Context) error {
	fmt.Fprintf(d.c.stdout, "node: Kafka %s, HTTP %s, started in %s\n", d.broker.KafkaAddr(), d.broker.HTTPAddr(), d.took["start"].Round(time.Millisecond))
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{{"load", d.load}, {"settle", d.settle}, {"read back", d.readBack}} {
		began := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		d.took[step.name] = time.Since(began)
	}
	if err := d.compare(); err != nil {
		return err
	}
	return d.report(ctx)
}

// findSource defaults to the source tree of the installed Go.
func (d *demo) findSource(ctx context.Context) error {
	if d.source == "" {
		out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
		if err != nil {
			return fmt.Errorf("`go env GOROOT`: %w; name another folder of files with --source", err)
		}
		d.source = filepath.Join(strings.TrimSpace(string(out)), "src")
	}
	info, err := os.Stat(d.source)
	if err == nil && !info.IsDir() {
		err = errors.New(d.source + " is no folder")
	}
	if err != nil {
		return fmt.Errorf("--source: %w", err)
	}
	d.source, err = filepath.EvalSymlinks(d.source)
	return err
}

func workFolder(dir string) (work string, remove func(), err error) {
	if dir != "" {
		return dir, func() {}, os.Mkdir(dir, 0o755)
	}
	work, err = os.MkdirTemp("", "varve-demo-")
	return work, func() { _ = os.RemoveAll(work) }, err // a folder left in the temporary directory does no harm
}

// progress writes one line that changes, on a terminal; elsewhere a line every few seconds.
type progress struct {
	w        io.Writer
	terminal bool
	last     time.Time
	width    int
}

func newProgress(w io.Writer) *progress {
	return &progress{w: w, terminal: terminal(w)}
}

func (p *progress) show(format string, args ...any) {
	every := 5 * time.Second
	if p.terminal {
		every = 100 * time.Millisecond
	}
	if time.Since(p.last) < every {
		return
	}
	p.last = time.Now()
	line := fmt.Sprintf(format, args...)
	if !p.terminal {
		fmt.Fprintln(p.w, line)
		return
	}
	fmt.Fprintf(p.w, "\r%-*s", p.width, line)
	p.width = len(line)
}

// end leaves the line behind, and lets the next show write at once.
func (p *progress) end() {
	if p.terminal && p.width > 0 {
		fmt.Fprintf(p.w, "\r%*s\r", p.width, "")
	}
	p.width, p.last = 0, time.Time{}
}
