package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/broker/commitlog"
	"varve/broker/netio"
	"varve/broker/replica"
	"varve/metastore"
	"varve/protocol"
	"varve/tiering"
	"varve/tiering/objstore"
)

type fakeReplicas struct{}

func (fakeReplicas) Stats() replica.Stats {
	return replica.Stats{Topics: []replica.TopicStats{{Topic: "orders", BytesIn: 1000, BytesOut: 2000, MessagesIn: 10, ProduceRequests: 3, FetchRequests: 4, LocalBytes: 500}},
		Partitions: 2, Leaders: 1, UnderReplicated: 1, Offline: 1, DelayedProduces: 5, DelayedFetches: 6}
}

func (fakeReplicas) Describe() []replica.PartitionInfo {
	return []replica.PartitionInfo{{Topic: "orders", Partition: 0, State: replica.StateLeader, Leader: 1, Tiered: true, LogStart: 5, LocalStart: 50, End: 100, HighWatermark: 90, LastStable: 90, TierEnd: 60, LocalBytes: 500,
		Lost: []replica.LostRange{{Topic: "orders", From: 60, To: 63, At: time.Unix(1000, 0).UTC()}}},
		{Topic: "orders", Partition: 1, State: replica.StateElecting, Problem: "<b>waits</b>", TierEnd: -1}}
}

type fakeTier struct{}

func (fakeTier) Status() tiering.Status {
	return tiering.Status{Location: "dir:///tier", Errors: []string{"clock jumped"}, Cache: tiering.CacheStatus{CapacityBytes: 100, UsedBytes: 10, Hits: 7, Misses: 3},
		Partitions: []tiering.PartitionStatus{{Topic: "orders", Partition: 0, LogStart: 5, TierStart: 5, TierEnd: 60, Segments: 4, Bytes: 4096, LocalStart: 50, LocalEnd: 100, LocalBytes: 500, LagBytes: 40, LagOffsets: 40, LastError: "slow down", LastErrorMs: 9}}}
}

func (fakeTier) Verify(_ context.Context, o tiering.VerifyOptions) (tiering.VerifyReport, error) {
	if o.Level == tiering.VerifyIndex {
		return tiering.VerifyReport{}, errors.New("cut off")
	}
	o.Found(tiering.Finding{Kind: tiering.FoundOrphan, Key: "k", Bytes: 7, What: "no row names it", Repair: "deleted", Repaired: o.Repair})
	return tiering.VerifyReport{Objects: 3, Findings: 1}, nil
}

func (fakeTier) Stored(context.Context) ([]tiering.StoredTopic, error) {
	return []tiering.StoredTopic{{TopicID: protocol.UUID{15: 200}, Topic: "orders", Segments: 4, Bytes: 4096, DeletingObjects: 1, DeletingBytes: 7}}, nil
}

type fakeNetwork struct{}

func (fakeNetwork) Stats() netio.Stats {
	return netio.Stats{Connections: 2, Accepted: 9, BytesIn: 11, BytesOut: 22, SendfileBytes: 20, Requests: 30}
}

type fakeStore struct{}

func (fakeStore) Snapshot() []objstore.Usage {
	return []objstore.Usage{{Verb: "put", Cause: "upload", Calls: 4, Requests: 5, Errors: 1, Bytes: 4096, Seconds: 1.5, Dollars: 0.25}, {Verb: "get", Cause: "read", Calls: 8, Requests: 8, Bytes: 100, Dollars: 0.5}}
}

func (fakeStore) Detailed() []objstore.Usage {
	return []objstore.Usage{{Verb: "put", Cause: "upload", Group: protocol.UUID{15: 200}.String(), Requests: 5, Bytes: 4096}, {Verb: "get", Cause: "read", Group: "gone", Requests: 8, Bytes: 100}, {Verb: "list", Requests: 3}}
}

type fakeImage struct{}

func (fakeImage) ClusterID() string        { return "cluster-1" }
func (fakeImage) Controller() int32        { return 1 }
func (fakeImage) Index() uint64            { return 77 }
func (fakeImage) JournaledThrough() uint64 { return 70 }
func (fakeImage) JournalEntries() int64    { return 2 }
func (fakeImage) TopicCount() int          { return 1 }
func (fakeImage) PartitionCount() int      { return 2 }
func (fakeImage) Brokers() []*metastore.Broker {
	return []*metastore.Broker{{ID: 1, Endpoints: []metastore.Endpoint{{Name: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "::1", Port: 9092}}}, {ID: 2, Fenced: true}}
}

func (fakeImage) Topics() iter.Seq[*metastore.Topic] {
	return slices.Values([]*metastore.Topic{{Name: "orders", Configs: map[string]string{"segment.bytes": "1048576"}, Partitions: []*metastore.Partition{
		{Index: 0, Replicas: []int32{1}, ISR: []int32{1}, Leader: 1, LeaderEpoch: 3}, {Index: 1, Replicas: []int32{1}, ISR: []int32{1}, Leader: -1}}}})
}

func (f fakeImage) Topic(name string) (*metastore.Topic, bool) {
	for t := range f.Topics() {
		if t.Name == name {
			return t, true
		}
	}
	return nil, false
}

type running struct {
	*Server
	stop context.CancelFunc
	wait func() error
}

// start runs a server on a free port; it is stopped at the end of the test.
func start(t *testing.T, src Sources) running {
	t.Helper()
	s, err := Listen("127.0.0.1:0", src)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { done <- s.Run(ctx) })
	r := running{s, cancel, sync.OnceValue(func() error { cancel(); wg.Wait(); return <-done })}
	t.Cleanup(func() {
		if err := r.wait(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func full(events *Events) Sources {
	return Sources{NodeID: 1, Version: "v-test", Replicas: fakeReplicas{}, Tier: fakeTier{}, Network: fakeNetwork{}, Image: func() Image { return fakeImage{} }, Store: fakeStore{}, Events: events,
		Disk: func() commitlog.DiskState {
			return commitlog.DiskState{RoomBytes: 300, ShortBytes: 400, TightBytes: 200, ReserveBytes: 100, Level: commitlog.DiskIsShort}
		},
		Requests: func() []Requests {
			return []Requests{{API: "Fetch", Errors: 1, Seconds: 1.5, Bounds: []float64{.1, 1}, Buckets: []uint64{2, 0, 3}}}
		},
		Lags: func() []Lag { return []Lag{{Group: "g", Topic: "t", Partition: 3, Lag: 17}} },
		Now:  func() time.Time { return time.Unix(5000, 0) }}
}

func get(t *testing.T, s running, path string) (int, string) {
	t.Helper()
	res, err := http.Get("http://" + s.Addr() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// golden compares with a file of testdata, or writes it when VARVE_TEST_REWRITE is set.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("VARVE_TEST_REWRITE") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s", path, got)
	}
}

func TestHealth(t *testing.T) {
	problem := errors.New("the first metadata image is being applied")
	var mu sync.Mutex
	s := start(t, Sources{Ready: func() error { mu.Lock(); defer mu.Unlock(); return problem }})
	if code, body := get(t, s, "/livez"); code != 200 || body != "ok\n" {
		t.Error(code, body)
	}
	if code, body := get(t, s, "/readyz"); code != 503 || !strings.Contains(body, problem.Error()) {
		t.Error(code, body)
	}
	mu.Lock()
	problem = nil
	mu.Unlock()
	if code, body := get(t, s, "/readyz"); code != 200 || body != "ok\n" {
		t.Error(code, body)
	}
}

func TestMetricsGolden(t *testing.T) {
	events := &Events{}
	events.Emit(tiering.SegmentUploaded{Topic: "orders", Bytes: 100})
	events.Emit(tiering.SegmentUploaded{Topic: "orders", Bytes: 23})
	events.Emit(tiering.SegmentUploaded{Topic: "deleted since", Bytes: 1})
	events.Emit(tiering.SegmentsMerged{Topic: "orders", Bytes: 70, Sources: 9})
	s := start(t, full(events))
	code, body := get(t, s, "/metrics")
	if code != 200 {
		t.Fatal(code, body)
	}
	ours := regexp.MustCompile(`(?m)^(# TYPE )?(kafka|varve)_.*\n`).FindAllString(body, -1)
	golden(t, "metrics.txt", strings.Join(ours, ""))
	if !strings.Contains(body, "go_goroutines ") || !strings.Contains(body, "process_resident_memory_bytes ") {
		t.Error("the runtime's and the process's own metrics are missing")
	}
	if helps := strings.Count(body, "# HELP varve_"); helps == 0 || strings.Contains(body, "# HELP varve_ready \n") {
		t.Error("metrics without help")
	}
}

func TestPartsThatAreNotThereAreLeftOut(t *testing.T) {
	s := start(t, Sources{NodeID: 4})
	_, body := get(t, s, "/metrics")
	if !strings.Contains(body, "varve_ready 1") || strings.Contains(body, "kafka_") || strings.Contains(body, "varve_tier") {
		t.Error(body)
	}
	if code, body := get(t, s, "/api/v1/tier/status"); code != 404 || !strings.Contains(body, "varve.tier.url") {
		t.Error(code, body)
	}
	if code, body := get(t, s, "/api/v1/topics"); code != 200 || body != "[]\n" {
		t.Error(code, body)
	}
	if code, body := get(t, s, "/"); code != 200 || !strings.Contains(body, "There is no tier") {
		t.Error(code, body)
	}
}

func TestAPIGolden(t *testing.T) {
	s := start(t, full(&Events{}))
	for _, name := range []string{"cluster", "topics", "tier/status", "tier/usage"} {
		code, body := get(t, s, "/api/v1/"+name)
		if code != 200 || !json.Valid([]byte(body)) {
			t.Errorf("%s: %d %s", name, code, body)
		}
		golden(t, strings.ReplaceAll(name, "/", "_")+".json", body)
	}
	if code, body := get(t, s, "/api/v2/x"); code != 404 || !strings.Contains(body, "/api/v1/topics") {
		t.Error(code, body)
	}
	if code, _ := get(t, s, "/nothing"); code != 404 {
		t.Error(code)
	}
}

func TestPageIsEscaped(t *testing.T) {
	s := start(t, full(&Events{}))
	code, body := get(t, s, "/")
	for _, want := range []string{"Serving clients.", "orders", "4.0 KiB", "clock jumped", "3 offsets were lost", "&lt;b&gt;waits&lt;/b&gt;", "slow down", "fenced", "0.250000"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if code != 200 || strings.Contains(body, "<script") || strings.Contains(body, "<b>waits") {
		t.Error(code, body)
	}
}

func TestOnlyReads(t *testing.T) {
	s := start(t, Sources{})
	res, err := http.Post("http://"+s.Addr()+"/api/v1/topics", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") != "GET, HEAD" {
		t.Error(res.Status)
	}
}

// TestVerifyRoute: a tool's POST is answered line by line; a browser's, and what is wrong, is refused.
func TestVerifyRoute(t *testing.T) {
	s := start(t, full(&Events{}))
	for _, tc := range []struct {
		query, contentType, origin string
		code                       int
		want                       string
	}{
		{"level=list&repair=true&rate=5", "application/json", "", 200, `"repaired":true}}` + "\n" + `{"report":{"level":"list","objects":3`},
		{"level=index", "application/json", "", 200, `{"error":"cut off"}`},
		{"level=deep", "application/json", "", 400, "list, index or data"},
		{"level=list&repair=perhaps", "application/json", "", 400, "true or false"},
		{"level=list&rate=-1", "application/json", "", 400, "bytes per second"},
		{"level=list&topic=[", "application/json", "", 400, "syntax error"},
		{"level=list&topic=nothing", "application/json", "", 400, "there is no topic"},
		{"level=list", "text/plain", "", 403, "browsers"},
		{"level=list", "application/json", "http://elsewhere", 403, "browsers"},
	} {
		req, err := http.NewRequest(http.MethodPost, "http://"+s.Addr()+"/api/v1/tier/verify?"+tc.query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", tc.contentType)
		if tc.origin != "" {
			req.Header.Set("Origin", tc.origin)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != tc.code || !strings.Contains(string(body), tc.want) {
			t.Errorf("%s: %d %s %v", tc.query, res.StatusCode, body, err)
		}
	}
	if code, body := get(t, s, "/api/v1/tier/verify"); code != 405 || !strings.Contains(body, "POST") {
		t.Error(code, body)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	s := start(t, Sources{})
	var open []net.Conn
	for range maxConnections {
		c, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	one, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if _, err := io.WriteString(one, "GET /livez HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := one.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var netErr net.Error
	if _, err := one.Read(make([]byte, 1)); !errors.As(err, &netErr) || !netErr.Timeout() {
		t.Fatalf("a connection over the bound was answered: %v", err)
	}
	for _, c := range open {
		_ = c.Close()
	}
	if err := one.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(one)
	if err != nil || !strings.Contains(string(answer), "200 OK") {
		t.Fatalf("%q %v", answer, err)
	}
}

func TestLargeHeaderIsRefused(t *testing.T) {
	s := start(t, Sources{})
	req, err := http.NewRequest(http.MethodGet, "http://"+s.Addr()+"/livez", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Long", strings.Repeat("x", 4*maxHeaderBytes))
	res, err := http.DefaultClient.Do(req)
	if err == nil {
		defer res.Body.Close()
		if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Error(res.Status)
		}
	}
}

func TestStopClosesThePort(t *testing.T) {
	s := start(t, Sources{})
	get(t, s, "/livez")
	if err := s.wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", s.Addr()); err == nil {
		t.Error("the port is still open")
	}
	if _, err := Listen(s.Addr()+"x", Sources{}); err == nil {
		t.Error("a bad address must be an error")
	}
}

func TestEventNamesAreBounded(t *testing.T) {
	var c Events
	for i := range maxEventNames + 50 {
		c.Emit(named{i})
	}
	names, _, _ := c.snapshot(func(string) bool { return true })
	if len(names) > maxEventNames+1 || names[eventKey{"other", ""}] != 50 {
		t.Errorf("%d names, %d others", len(names), names[eventKey{"other", ""}])
	}
}

// The interfaces are met by the real ones.
var (
	_ Tier       = (*tiering.Manager)(nil)
	_ Network    = (*netio.Server)(nil)
	_ StoreUsage = (*objstore.Counters)(nil)
	_ Image      = (*metastore.Image)(nil)
)

// TestMetricsOfUnreadableNames: a client may name a group by any bytes, and another like what is shown for it; neither takes the metrics
// of all away.
func TestMetricsOfUnreadableNames(t *testing.T) {
	src := full(&Events{})
	src.Lags = func() []Lag {
		return []Lag{{Group: "a\xff", Topic: "t", Lag: 1}, {Group: "a\xfe", Topic: "t", Lag: 2}, {Group: `"a\xfe"`, Topic: "t", Lag: 3}, {Group: "b", Topic: "t", Lag: 4}}
	}
	code, body := get(t, start(t, src), "/metrics")
	for _, want := range []string{`{consumergroup="\"a\\xff\"",partition="0",topic="t"} 1`, `{consumergroup="b",partition="0",topic="t"} 4`, "varve_connections "} {
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%d, %s is missing", code, want)
		}
	}
}

// TestDiskWithoutReserve: steps that do not act and room that is not known are not shown as numbers.
func TestDiskWithoutReserve(t *testing.T) {
	src := full(&Events{})
	src.Disk = func() commitlog.DiskState { return commitlog.DiskState{RoomBytes: -1} }
	code, body := get(t, start(t, src), "/metrics")
	if code != http.StatusOK || strings.Contains(body, "varve_disk_room_bytes ") || strings.Contains(body, "varve_disk_step_bytes{") || !strings.Contains(body, "varve_disk_level 0\n") {
		t.Errorf("%d %s", code, body)
	}
}
