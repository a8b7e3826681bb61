package s3server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sys/unix"
)

// Kind is which server to start.
type Kind string

// The servers there are.
const (
	Versitygw Kind = "versitygw"
	Moto      Kind = "moto"
)

// Options say what to start. The zero value is versitygw with a bucket in a new folder.
type Options struct {
	Kind   Kind
	Dir    string // data folder; "" makes a temporary one, which Stop removes
	Bucket string // created at the start; "" means "varve-test"
}

// Server is a running S3 server. Its fields do not change, not even by Restart.
type Server struct {
	URL       string // tier URL for aws-sdk-go-v2 (s3://...)
	MinioURL  string // tier URL for minio-go (minio://...)
	Endpoint  string // http://127.0.0.1:port
	Bucket    string
	AccessKey string
	SecretKey string

	kind    Kind
	binary  string
	dir     string
	tempDir bool
	port    string

	mu   sync.Mutex
	proc *process
}

const (
	region          = "us-east-1"
	startTimeout    = 20 * time.Second
	startPoll       = 20 * time.Millisecond
	maxStarts       = 5
	maxOutputBytes  = 64 << 10
	defaultBucket   = "varve-test"
	testAccessKey   = "varvetestaccess"
	testSecretKey   = "varve-test-secret-key"
	versitygwModule = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
)

// Start starts a versitygw for one test and stops it at the test's end.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartKind(t, Versitygw)
}

// StartKind is Start for any kind of server.
func StartKind(t testing.TB, kind Kind) *Server {
	t.Helper()
	s, err := StartProcess(context.Background(), Options{Kind: kind, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Setenv puts the server's credentials where both SDKs look for them.
func (s *Server) Setenv(t testing.TB) {
	for _, kv := range s.Env() {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
}

// Env is Setenv's environment for a child process.
func (s *Server) Env() []string {
	return []string{
		"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey,
		"AWS_SESSION_TOKEN=", "AWS_EC2_METADATA_DISABLED=true",
	}
}

// StartProcess starts a server outside of a test. The caller calls Stop.
func StartProcess(ctx context.Context, o Options) (*Server, error) {
	s := &Server{
		Bucket: o.Bucket, AccessKey: testAccessKey, SecretKey: testSecretKey,
		kind: o.Kind, dir: o.Dir, tempDir: o.Dir == "",
	}
	if s.kind == "" {
		s.kind = Versitygw
	}
	if s.Bucket == "" {
		s.Bucket = defaultBucket
	}
	var err error
	if s.binary, err = findBinary(s.kind); err != nil {
		return nil, err
	}
	if s.tempDir {
		if s.dir, err = os.MkdirTemp("", "varve-s3-"); err != nil {
			return nil, err
		}
	}
	for try := 1; ; try++ {
		if err = s.choosePort(); err == nil {
			if err = s.Restart(ctx); err == nil {
				break
			}
		}
		if try == maxStarts || ctx.Err() != nil {
			s.Stop()
			return nil, err
		}
	}
	if err := s.CreateBucket(ctx, s.Bucket); err != nil {
		s.Stop()
		return nil, err
	}
	if s.kind == Versitygw { // moto has no folder
		running.Store(s.Endpoint, s)
	}
	return s, nil
}

// choosePort takes a port that is free now; somebody may be faster, then Restart fails.
func (s *Server) choosePort() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	_, s.port, err = net.SplitHostPort(l.Addr().String())
	if err := errors.Join(err, l.Close()); err != nil {
		return err
	}
	s.Endpoint = "http://127.0.0.1:" + s.port
	query := "?endpoint=" + url.QueryEscape(s.Endpoint) + "&region=" + region
	s.URL, s.MinioURL = "s3://"+s.Bucket+query, "minio://"+s.Bucket+query
	return nil
}

// findBinary looks where `make tools` and .ci/run put the servers.
func findBinary(kind Kind) (string, error) {
	if kind == Moto {
		path, err := exec.LookPath("moto_server")
		if err != nil {
			return "", fmt.Errorf("s3server: no moto_server on the PATH: pip install 'moto[server,s3]': %w", err)
		}
		return path, nil
	}
	var tried []string
	if dir := os.Getenv("VARVE_TOOLS_DIR"); dir != "" {
		tried = append(tried, filepath.Join(dir, string(kind)))
	}
	if root, err := repositoryRoot(); err == nil {
		tried = append(tried, filepath.Join(root, ".cache", "bin", string(kind)))
	}
	for _, path := range tried {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("s3server: no versitygw in %q: run `make tools` (it does go install %s)", tried, versitygwModule)
}

// repositoryRoot is the nearest folder above the current one with a go.mod.
func repositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("s3server: not inside the repository")
		}
		dir = filepath.Dir(dir)
	}
}

// Restart starts the server again, on the same port and data, and waits until it answers.
func (s *Server) Restart(ctx context.Context) error {
	s.Kill()
	args, err := s.args()
	if err != nil {
		return err
	}
	p, err := startProcess(s.binary, args)
	if err != nil {
		return fmt.Errorf("s3server: start %s: %w", s.binary, err)
	}
	s.mu.Lock()
	s.proc = p
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if s.answers(ctx) {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("s3server: %s ended while starting:\n%s", s.kind, p.output())
		case <-ctx.Done():
			s.Kill()
			return fmt.Errorf("s3server: %s does not answer: %w\n%s", s.kind, ctx.Err(), p.output())
		case <-time.After(startPoll):
		}
	}
}

func (s *Server) args() ([]string, error) {
	if s.kind == Moto {
		return []string{"-H", "127.0.0.1", "-p", s.port}, nil
	}
	data := filepath.Join(s.dir, "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, err
	}
	args := []string{
		"--access", s.AccessKey, "--secret", s.SecretKey, "--region", region,
		"--port", "127.0.0.1:" + s.port, "--keep-alive", "--quiet", "posix",
	}
	if unix.Setxattr(s.dir, "user.varve", []byte("1"), 0) != nil {
		// A file system without extended attributes: metadata goes beside.
		sidecar := filepath.Join(s.dir, "sidecar")
		if err := os.MkdirAll(sidecar, 0o755); err != nil {
			return nil, err
		}
		args = append(args, "--sidecar", sidecar)
	}
	return append(args, data), nil
}

func (s *Server) answers(ctx context.Context) bool {
	path := "/"
	if s.kind == Moto {
		path = "/moto-api/"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint+path, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return s.kind != Moto || resp.StatusCode == http.StatusOK
}

// CreateBucket makes a further bucket.
func (s *Server) CreateBucket(ctx context.Context, name string) error {
	c, err := minio.New("127.0.0.1:"+s.port, &minio.Options{
		Creds:  credentials.NewStaticV4(s.AccessKey, s.SecretKey, ""),
		Region: region, BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		return fmt.Errorf("s3server: %w", err)
	}
	if err := c.MakeBucket(ctx, name, minio.MakeBucketOptions{Region: region}); err != nil {
		return fmt.Errorf("s3server: create bucket %s: %w", name, err)
	}
	return nil
}

// PID is the server's process; 0 when it does not run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.cmd.Process.Pid
}

// Kill ends the server as a crash would; its data stays.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		s.proc.kill()
		s.proc = nil
	}
}

// Stop kills the server and removes the folder that StartProcess made for it.
func (s *Server) Stop() {
	s.Kill()
	running.Delete(s.Endpoint)
	if s.tempDir {
		os.RemoveAll(s.dir)
	}
}

// process is a child together with the goroutine that waits for it.
type process struct {
	cmd  *exec.Cmd
	wg   sync.WaitGroup
	done chan struct{}

	mu  sync.Mutex
	out bytes.Buffer
}

// Write keeps the first maxOutputBytes of what the child says.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.Write(b[:min(len(b), maxOutputBytes-p.out.Len())])
	return len(b), nil
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

func startProcess(binary string, args []string) (*process, error) {
	p := &process{cmd: exec.Command(binary, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = p, p, dieWithParent()
	started := make(chan error, 1)
	p.wg.Go(func() {
		// The child dies with the thread that made it, so this thread stays until then.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.cmd.Wait() // by our signal, mostly; output() tells of other ends
		}
	})
	if err := <-started; err != nil {
		p.wg.Wait()
		return nil, err
	}
	return p, nil
}

func (p *process) kill() {
	p.cmd.Process.Kill() // an error means that it has ended
	p.wg.Wait()
}
