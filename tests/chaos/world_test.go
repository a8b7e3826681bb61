package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"varve/broker/admin"
	"varve/tests/node"
	"varve/tests/s3server"
)

var (
	rounds  = flag.Int("chaos.rounds", 5, "rounds of faults for each store")
	seed    = flag.Uint64("chaos.seed", 0, "seed of the faults; 0 takes one by the clock")
	scheme  = flag.String("chaos.scheme", "s3", "client of the S3 server: s3 or minio")
	verbose = flag.Bool("chaos.log", false, "show what the node logs")
)

func TestMain(m *testing.M) {
	flag.Parse()
	s3server.TempInMemory()
	code := m.Run()
	node.RemoveBinary()
	os.Exit(code)
}

// world is one node with its store and all that uses it.
type world struct {
	t       *testing.T
	ctx     context.Context
	rng     *rand.Rand
	options node.Options
	node    *node.Node
	addr    string // of all its lives
	topics  []*topic
	quiet   sync.RWMutex // held shared by readers in a pass, exclusively while history is rewritten
	alarms  *alarms
	server  *s3server.Server // nil for dir
	proxy   *s3server.Proxy
	env     []string
	tierURL string // past the proxy
}

// settings make everything happen within seconds.
var settings = []string{
	"varve.http.listen=127.0.0.1:0",
	"remote.log.manager.task.interval.ms=100",
	"log.retention.check.interval.ms=200",
	"log.segment.delete.delay.ms=0",
	"replica.high.watermark.checkpoint.interval.ms=200",
	"varve.tier.upload.max.lag.ms=1000",
	"varve.tier.upload.deadline.ms=4000",
	"varve.tier.delete.delay.ms=0",
	"varve.tier.merge.min.segments=3",
	"varve.tier.merge.max.bytes=16777216",
	"varve.tier.journal.interval.ms=200",
	"varve.tier.cache.bytes=8388608",
}

func newWorld(t *testing.T, s3 bool) *world { return newWorldIn(t, s3, t.TempDir()) }

func newWorldIn(t *testing.T, s3 bool, data string) *world {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("-chaos.seed=%d", s)
	w := &world{t: t, ctx: t.Context(), rng: rand.New(rand.NewPCG(s, 1)), alarms: &alarms{t: t}, addr: freePort(t)}
	w.tierURL = "dir://" + filepath.Join(data, "bucket")
	via := w.tierURL
	if s3 {
		w.server = s3server.Start(t)
		w.proxy = s3server.StartProxy(t, w.server)
		w.env = w.server.Env()
		of := func(endpoint string) string {
			style := "region=us-east-1&path-style=true&"
			if *scheme == "minio" {
				style = ""
			}
			return fmt.Sprintf("%s://%s/deep?%sendpoint=%s", *scheme, w.server.Bucket, style, url.QueryEscape(endpoint))
		}
		w.tierURL, via = of(w.server.Endpoint), of(w.proxy.Endpoint)
	}
	w.options = node.Options{Binary: node.Binary(t), Data: data, Env: w.env, Stderr: w.alarms}
	for _, kv := range append([]string{"listeners=PLAINTEXT://" + w.addr, "varve.tier.url=" + via}, settings...) {
		w.options.Args = append(w.options.Args, "--set", kv)
	}
	w.start()
	t.Cleanup(func() {
		w.node.Kill()
		node.CheckTier(t, data, w.tierURL)
		if t.Failed() {
			t.Logf("stderr:\n%s", w.node.Stderr())
		}
	})
	return w
}

// freePort finds an address that stays the node's over all its lives.
func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (w *world) start() {
	w.t.Helper()
	n, err := node.Start(w.ctx, w.options)
	for try := 0; err != nil && strings.Contains(err.Error(), "address already in use") && try < 20; try++ {
		time.Sleep(100 * time.Millisecond)
		n, err = node.Start(w.ctx, w.options)
	}
	if err != nil {
		w.t.Fatalf("start: %v", err)
	}
	w.node = n
}

func (w *world) client(opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	// A node that is killed right after a connection's first request looks to franz-go like one that wants SASL; it gives up
	// then, unless told that it is not so.
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(w.addr), kgo.AlwaysRetryEOF(), kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond })}, opts...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) admin(fn func(*kadm.Client) error) error {
	c := w.client()
	defer c.Close()
	return fn(kadm.NewClient(c))
}

// insist repeats a request that may meet a node which is about to be killed.
func (w *world) insist(fn func(*kadm.Client) error) error {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := w.admin(fn)
		var said *kerr.Error
		if err == nil || errors.As(err, &said) && !said.Retriable || time.Now().After(deadline) {
			return err
		}
	}
}

// status asks the broker what it knows of the tier.
func (w *world) status() (st admin.TierStatus, err error) {
	resp, err := http.Get("http://" + w.node.HTTP + "/api/v1/tier/status")
	if err != nil {
		return st, err
	}
	defer resp.Body.Close()
	return st, json.NewDecoder(resp.Body).Decode(&st)
}

// eventually polls until reason is empty; the last one is what a failure prints.
func (w *world) eventually(bound time.Duration, check func() (reason string)) {
	w.t.Helper()
	for deadline := time.Now().Add(bound); ; time.Sleep(100 * time.Millisecond) {
		reason := check()
		if reason == "" {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("after %s: %s", bound, reason)
		}
	}
}

// alarms reads the node's log for what must never be said.
type alarms struct {
	t       *testing.T
	mu      sync.Mutex
	partial []byte
	found   []string
	losing  bool // folders were erased: lost ranges are reported rightly
}

var (
	neverSaid = regexp.MustCompile(`msg=(tier_corruption|tier_object_missing|tier_journal_forked|partition_failed|handler_panicked|request_answered_twice|log_dir_offline|metastore_failed|metastore_storage_trouble|unclean_election|tier_read_failed)|^panic:|DATA RACE|invariant`)
	lossSaid  = regexp.MustCompile(`msg=offsets_lost`)
)

func (a *alarms) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if *verbose {
		_, _ = os.Stderr.Write(p)
	}
	a.partial = append(a.partial, p...)
	for {
		i := bytes.IndexByte(a.partial, '\n')
		if i < 0 {
			return len(p), nil
		}
		line := string(a.partial[:i])
		a.partial = a.partial[i+1:]
		if neverSaid.MatchString(line) || lossSaid.MatchString(line) && !a.losing {
			a.found = append(a.found, line)
		}
	}
}

func (a *alarms) expectLoss(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.losing = on
}

// take returns what was said since the last call.
func (a *alarms) take() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.found) == 0 {
		return nil
	}
	err := errors.New("the node said:\n" + strings.Join(a.found[:min(len(a.found), 5)], "\n"))
	a.found = nil
	return err
}
