package node

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// readyWaitMax bounds how long Start waits for the ready line; a node that needs longer is a failure.
const readyWaitMax = 60 * time.Second

// Root is the repository's top folder.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

var (
	buildOnce sync.Once
	buildPath string
	errBuild  error
)

// Binary builds cmd/varve once per test process, statically as `make build` does, and returns its path.
func Binary(t testing.TB) string {
	t.Helper()
	buildOnce.Do(func() {
		dir := filepath.Join(Root(), ".cache", "test-bin")
		if errBuild = os.MkdirAll(dir, 0o755); errBuild != nil {
			return
		}
		// Packages are tested by concurrent processes: each builds under its own name.
		buildPath = filepath.Join(dir, fmt.Sprintf("varve-%d", os.Getpid()))
		cmd := exec.Command("go", "build", "-trimpath", "-o", buildPath, "./cmd/varve")
		cmd.Dir = Root()
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			errBuild = fmt.Errorf("build cmd/varve: %w\n%s", err, out)
		}
	})
	if errBuild != nil {
		t.Fatal(errBuild)
	}
	return buildPath
}

// RemoveBinary deletes what Binary built; a package's TestMain calls it last.
func RemoveBinary() {
	if buildPath != "" {
		_ = os.Remove(buildPath)
	}
}

// Options of one process.
type Options struct {
	Binary string   // path of the varve binary
	Data   string   // --data; "" leaves the flag out
	Args   []string // further arguments after `server`
	Env    []string // added to the environment
	Dir    string   // working directory; "" is the caller's
	Wrap   []string // a command that runs it, such as strace with its flags
	Stderr io.Writer
}

// Node is one running process.
type Node struct {
	Kafka, HTTP, Tier string        // from the ready line
	Ready             time.Duration // from exec to the ready line

	cmd    *exec.Cmd
	done   chan struct{}
	wg     sync.WaitGroup // both readers end with the process
	stderr *tail
	stdout *tail
}

// ExitError says that a process ended before it was ready.
type ExitError struct {
	Code   int
	Stderr string
}

func (e *ExitError) Error() string { return fmt.Sprintf("varve exited with %d: %s", e.Code, e.Stderr) }

// Start runs `varve server` and returns when it printed its ready line, or an *ExitError when it ended first.
func Start(ctx context.Context, o Options) (*Node, error) {
	args := append([]string{}, o.Wrap...)
	args = append(args, o.Binary, "server")
	if o.Data != "" {
		args = append(args, "--data", o.Data)
	}
	args = append(args, o.Args...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Dir = append(os.Environ(), o.Env...), o.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	n := &Node{cmd: cmd, done: make(chan struct{}), stderr: &tail{also: o.Stderr}, stdout: &tail{}}
	cmd.Stderr = n.stderr
	pr, pw, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = pw
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, pr.Close(), pw.Close())
	}
	_ = pw.Close()
	ready := make(chan string, 1)
	n.wg.Go(func() { n.readStdout(pr, ready) })
	n.wg.Go(func() { _ = cmd.Wait(); close(n.done) })
	select {
	case line := <-ready:
		n.Ready = time.Since(began)
		n.parseReady(line)
		return n, nil
	case <-n.done:
		return nil, &ExitError{Code: cmd.ProcessState.ExitCode(), Stderr: n.stderr.String()}
	case <-ctx.Done():
		n.Kill()
		return nil, ctx.Err()
	case <-time.After(readyWaitMax):
		n.Kill()
		return nil, fmt.Errorf("no ready line within %s; stderr:\n%s", readyWaitMax, n.stderr.String())
	}
}

func (n *Node) readStdout(r io.ReadCloser, ready chan<- string) {
	defer r.Close()
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		line := sc.Text()
		_, _ = n.stdout.Write([]byte(line + "\n"))
		if strings.HasPrefix(line, "varve ready ") {
			select {
			case ready <- line:
			default:
			}
		}
	}
}

func (n *Node) parseReady(line string) {
	for _, f := range strings.Fields(line) {
		k, v, _ := strings.Cut(f, "=")
		switch k {
		case "kafka":
			n.Kafka = v
		case "http":
			n.HTTP = v
		case "tier":
			n.Tier = v
		}
	}
}

// StartT is Start for tests: it fails the test on error, kills the process at the end, compares its bucket with its metadata (see
// CheckTier; for the last of the nodes that use a bucket), and shows stderr on failure.
func StartT(t testing.TB, o Options) *Node {
	t.Helper()
	if o.Binary == "" {
		o.Binary = Binary(t)
	}
	n, err := Start(t.Context(), o)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() {
		n.Kill()
		checkOnce(t, o.Data, n.Tier)
		if t.Failed() {
			t.Logf("stderr of pid %d:\n%s", n.PID(), n.stderr.String())
		}
	})
	return n
}

// PID of the process (of the wrapper, when there is one).
func (n *Node) PID() int { return n.cmd.Process.Pid }

// Stderr returns the last part of what it logged.
func (n *Node) Stderr() string { return n.stderr.String() }

// Stdout returns the last part of what it printed.
func (n *Node) Stdout() string { return n.stdout.String() }

// Kill sends SIGKILL to the process and whatever it started, and waits for the end.
func (n *Node) Kill() {
	_ = syscall.Kill(-n.PID(), syscall.SIGKILL)
	n.wg.Wait()
}

// Terminate sends SIGTERM and returns the exit code, or an error when the process outlives the context.
func (n *Node) Terminate(ctx context.Context) (int, error) {
	if err := syscall.Kill(-n.PID(), syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return -1, err
	}
	return n.Exit(ctx)
}

// Exit waits for the process to end by itself and returns its exit code.
func (n *Node) Exit(ctx context.Context) (int, error) {
	select {
	case <-n.done:
		return n.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return -1, fmt.Errorf("still running: %w; stderr:\n%s", ctx.Err(), n.stderr.String())
	}
}

// RSSBytes is the process's resident set.
func (n *Node) RSSBytes() (int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.PID()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}
	return 0, errors.New("no VmRSS line")
}

// CPU is the processor time used so far, user and system together.
func (n *Node) CPU() (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.PID()))
	if err != nil {
		return 0, err
	}
	// Fields are counted after the command's closing bracket, which may itself hold spaces.
	f := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	var user, sys int64
	if _, err := fmt.Sscan(f[11], &user); err != nil {
		return 0, err
	}
	if _, err := fmt.Sscan(f[12], &sys); err != nil {
		return 0, err
	}
	const ticksPerSecond = 100
	return time.Duration(user+sys) * time.Second / ticksPerSecond, nil
}

// tailBytesMax is how much of a process's output is kept.
const tailBytesMax = 256 << 10

type tail struct {
	mu   sync.Mutex
	buf  []byte
	also io.Writer
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailBytesMax; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	if t.also != nil {
		return t.also.Write(p)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
