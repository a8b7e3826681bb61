package localstack

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"varve/tests/node"
)

const (
	patience   = 60 * time.Second
	lines      = 300_000
	linesBytes = 1 << 20 // a segment; the lines make several
)

func TestMain(m *testing.M) {
	code := m.Run()
	node.RemoveBinary()
	os.Exit(code)
}

// output can be read while it is written to.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// dev is one run of localstack/dev-s3.sh.
type dev struct {
	t           *testing.T
	cmd         *exec.Cmd
	out, err    output
	done        chan error
	kafka, http string
	varve, data string
	port        int
}

var ready = regexp.MustCompile(`(?m)^varve ready kafka=(\S+) http=(\S+) tier=(\S+)$`)

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// startDev runs the script as `make dev-s3` does, on free ports and with quick settling.
func startDev(t *testing.T, data string) *dev {
	t.Helper()
	d := &dev{t: t, done: make(chan error, 1), varve: node.Binary(t), data: data, port: freePort(t)}
	d.cmd = exec.Command(folder("dev-s3.sh"), "--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "varve.http.listen=127.0.0.1:0",
		"--set", "remote.log.manager.task.interval.ms=200", "--set", "log.retention.check.interval.ms=200")
	d.cmd.Env = append(os.Environ(), "DEV_S3_VARVE="+d.varve, "DEV_S3_DATA="+data, fmt.Sprintf("DEV_S3_PORT=%d", d.port))
	if os.Getenv("VARVE_TOOLS_DIR") == "" {
		d.cmd.Env = append(d.cmd.Env, "VARVE_TOOLS_DIR="+filepath.Join(node.Root(), ".cache", "bin"))
	}
	d.cmd.Stdout, d.cmd.Stderr = &d.out, &d.err
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { d.done <- d.cmd.Wait() }()
	t.Cleanup(func() { _ = d.cmd.Process.Signal(syscall.SIGTERM) })
	d.wait("no ready line", func() bool { return ready.MatchString(d.out.String()) })
	m := ready.FindStringSubmatch(d.out.String())
	d.kafka, d.http = m[1], m[2]
	if !strings.HasPrefix(m[3], "s3://varve/dev?") {
		t.Errorf("tier %s", m[3])
	}
	return d
}

func (d *dev) wait(what string, cond func() bool) {
	d.t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-d.done:
			d.t.Fatalf("%s: it ended: %v\n%s%s", what, err, d.out.String(), d.err.String())
		default:
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("%s\n%s%s", what, d.out.String(), d.err.String())
		}
	}
}

// interrupt does what Ctrl-C does, and waits for the end.
func (d *dev) interrupt() {
	d.t.Helper()
	if err := syscall.Kill(-d.cmd.Process.Pid, syscall.SIGINT); err != nil {
		d.t.Fatal(err)
	}
	select {
	case err := <-d.done:
		if err != nil {
			d.t.Errorf("after Ctrl-C: %v\n%s", err, d.err.String())
		}
	case <-time.After(patience):
		d.t.Fatalf("still running after Ctrl-C\n%s", d.err.String())
	}
	for _, addr := range []string{d.kafka, d.http, "127.0.0.1:" + strconv.Itoa(d.port)} {
		if conn, err := net.Dial("tcp", addr); err == nil {
			_ = conn.Close()
			d.t.Errorf("%s still answers", addr)
		}
	}
}

// tool runs a command of the binary against the node.
func (d *dev) tool(stdin string, args ...string) string {
	d.t.Helper()
	cmd := exec.Command(d.varve, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		d.t.Fatalf("varve %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String()
}

// objects are the segments that the S3 server holds.
func (d *dev) objects() (n int) {
	d.t.Helper()
	err := filepath.WalkDir(filepath.Join(d.data, "s3", "buckets", "varve"), func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && strings.HasSuffix(path, ".seg") {
			n++
		}
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

// TestDevS3 produces, lets it settle into the S3 server until local copies are freed, reads all back, stops with Ctrl-C,
// starts again on the same data, and reads it once more.
func TestDevS3(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	d := startDev(t, data)
	var input strings.Builder
	for i := range lines {
		fmt.Fprintf(&input, "line %d\n", i)
	}
	at := []string{"--bootstrap-server", d.kafka}
	d.tool("", append([]string{"topic", "create", "t", "--config", fmt.Sprintf("segment.bytes=%d", linesBytes), "--config", "local.retention.bytes=1"}, at...)...)
	d.tool(input.String(), append([]string{"produce", "t"}, at...)...)
	d.wait("nothing was freed after settling", func() bool {
		out := d.tool("", append([]string{"topic", "describe", "t", "--format", "json"}, at...)...)
		m := regexp.MustCompile(`"localStart": (\d+)`).FindStringSubmatch(out)
		return m != nil && m[1] != "0" && d.objects() >= 2
	})
	read := append([]string{"consume", "t", "--from-beginning", "--until-end"}, at...)
	if got := d.tool("", read...); got != input.String() {
		t.Errorf("%d bytes came back of %d", len(got), input.Len())
	}
	d.interrupt()
	if strings.Contains(d.err.String(), "level=ERROR") {
		t.Errorf("the node lost its store while it stopped:\n%s", d.err.String())
	}

	d = startDev(t, data)
	if got := d.tool("", "consume", "t", "--from-beginning", "--until-end", "--bootstrap-server", d.kafka); got != input.String() {
		t.Errorf("%d bytes came back of %d after a restart", len(got), input.Len())
	}
	d.interrupt()
}

// TestDevS3Refuses: what is in the way is named.
func TestDevS3Refuses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, tc := range []struct {
		code int
		want string
		env  []string
	}{
		{2, "run `make build tools`", []string{"DEV_S3_VARVE=" + t.TempDir() + "/none"}},
		{2, "run `make build tools`", []string{"DEV_S3_VARVE=" + node.Binary(t), "VARVE_TOOLS_DIR=" + t.TempDir()}},
		{1, "DEV_S3_PORT", []string{"DEV_S3_VARVE=" + node.Binary(t), "VARVE_TOOLS_DIR=" + fakeTools(t), "DEV_S3_PORT=" + port}},
	} {
		cmd := exec.Command(folder("dev-s3.sh"))
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), tc.env...)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != tc.code || !strings.Contains(string(out), tc.want) {
			t.Errorf("%v: %v, want exit %d and %q:\n%s", tc.env, err, tc.code, tc.want, out)
		}
	}
}

// fakeTools is a folder with a versitygw that ends at once.
func fakeTools(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "versitygw"), []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}
