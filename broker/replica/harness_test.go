package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/broker/commitlog"
	"varve/broker/config"
	"varve/protocol"
	"varve/protocol/event"
	"varve/protocol/record"
	"varve/tiering"
)

// faultFS fails writes on demand.
type faultFS struct {
	vfs.FS
	mem   *commitlog.MemFS
	power *powerCut
	fail  atomic.Pointer[error]
	sync  atomic.Pointer[error] // fails syncs only
	ask   atomic.Pointer[func(errorfs.Op)]
}

func newFaultFS(mem *commitlog.MemFS, power *powerCut) *faultFS {
	f := &faultFS{mem: mem, power: power}
	f.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if ask := f.ask.Load(); ask != nil {
			(*ask)(op)
		}
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose {
			return nil
		}
		if err := f.sync.Load(); err != nil && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) {
			return *err
		}
		return f.write()
	}))
	return f
}

func (f *faultFS) write() error {
	if err := f.fail.Load(); err != nil {
		return *err
	}
	return f.power.write(f.mem)
}

// powerCut cuts the power before the nth write and keeps what the disk held then.
type powerCut struct {
	mu   sync.Mutex
	at   int
	left *commitlog.MemFS
}

func (c *powerCut) happened() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left != nil
}

func (c *powerCut) write(mem *commitlog.MemFS) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at--; c.at == 0 {
		c.left = mem.Crash(50, rand.New(rand.NewPCG(1, 1)))
	}
	if c.at <= 0 {
		return errors.New("power is off")
	}
	return nil
}

func (f *faultFS) Truncate(name string, sizeBytes int64) error {
	return f.mem.Truncate(name, sizeBytes)
}

// breakDisk makes writes fail.
func (n *node) breakDisk(err error) { n.disk.fail.Store(&err) }

// node is a Manager with all around it.
type node struct {
	t       testing.TB
	fs      *commitlog.MemFS
	disk    *faultFS
	logs    *commitlog.Manager
	m       *Manager
	tier    *memTier
	control ControlPlane
	events  event.Recorder
	cancel  context.CancelFunc
	ended   chan error
}

// nodeOptions start a node; zero values are a fresh, empty, untiered one.
type nodeOptions struct {
	fs      *commitlog.MemFS
	tier    Tier
	meta    Meta
	control ControlPlane
	sets    []string
	clock   func() bool
	now     func() time.Time
	mayFail bool      // Run may end with an error
	power   *powerCut // nil: there is always power
}

func startNode(t testing.TB, o nodeOptions) *node {
	t.Helper()
	n, err := openNode(t, o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func openNode(t testing.TB, o nodeOptions) (*node, error) {
	t.Helper()
	if o.fs == nil {
		o.fs = commitlog.NewMemFS()
	}
	conf, _, err := config.Load(config.LoadOptions{Sets: append([]string{"node.id=1"}, o.sets...), Data: "/data"})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, fs: o.fs, disk: newFaultFS(o.fs, o.power), control: o.control, ended: make(chan error, 1)}
	n.tier, _ = o.tier.(*memTier)
	n.logs, err = commitlog.OpenManager(commitlog.ManagerOptions{FS: n.disk, Dir: "/logs", NodeID: self, ClusterID: "c", Events: n.events.Emit})
	if err != nil {
		return nil, err
	}
	n.m, err = New(Options{
		NodeID: self, Logs: n.logs, Tier: o.tier, Meta: o.meta, Control: o.control, Config: conf,
		Events: n.events.Emit, ClockAgrees: o.clock, Now: o.now,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	go func() { n.ended <- n.m.Run(ctx) }()
	select {
	case <-n.m.Ready():
	case err := <-n.ended:
		n.ended <- err
		if !o.mayFail {
			t.Fatalf("run: %v", err)
		}
	}
	return n, nil
}

// stop ends the manager and closes its logs cleanly.
func (n *node) stop() {
	n.t.Helper()
	n.halt()
	if err := n.logs.Close(context.Background(), 1); err != nil {
		n.t.Error(err)
	}
}

// setConfig sets a dynamic value of all brokers.
func (n *node) setConfig(key, value string) {
	n.t.Helper()
	if err := n.m.conf.SetDynamic(nil, map[string]string{key: value}); err != nil {
		n.t.Fatal(err)
	}
	n.m.Reconfigure()
}

func (n *node) halt() {
	n.t.Helper()
	n.cancel()
	if err := <-n.ended; err != nil {
		n.t.Errorf("run: %v", err)
	}
}

// newNode starts a node that follows a book of its own, and stops it with the test.
func newNode(t testing.TB, o nodeOptions) (*node, *book) {
	t.Helper()
	b := newBook(t)
	o.meta, o.control = b.s, &bookControl{b: b}
	n := startNode(t, o)
	t.Cleanup(n.stop)
	return n, b
}

// await polls: what is waited for comes by itself and soon.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s", what)
		}
	}
}

func (n *node) awaitState(topic string, index int32, s State) PartitionInfo {
	n.t.Helper()
	var d PartitionInfo
	await(n.t, fmt.Sprintf("%s-%d to be %s", topic, index, s), func() bool {
		d, _ = n.m.Describe(topic, index)
		return d.State == s
	})
	return d
}

func (n *node) awaitEpoch(topic string, index, epoch int32) {
	n.t.Helper()
	await(n.t, fmt.Sprintf("%s-%d at epoch %d", topic, index, epoch), func() bool {
		d, _ := n.m.Describe(topic, index)
		return d.LeaderEpoch == epoch && d.State == StateLeader
	})
}

// batchOf builds a batch of these values.
func batchOf(values ...string) record.Batch { return batchAt(time.Now().UnixMilli(), values...) }

func batchAt(ms int64, values ...string) record.Batch {
	return batchWith(record.Options{}, ms, values...)
}

func batchWith(o record.Options, ms int64, values ...string) record.Batch {
	bl := record.NewBuilder(o)
	for i, v := range values {
		if err := bl.Add(ms+int64(i), nil, []byte(v)); err != nil {
			panic(err)
		}
	}
	b, err := bl.Batch()
	if err != nil {
		panic(err)
	}
	return b
}

// produce appends one batch and waits for the answer.
func (n *node) produce(topic string, index int32, acks int16, b record.Batch) AppendResult {
	return <-n.produceAsync(topic, index, acks, time.Second, b)
}

func (n *node) produceAsync(topic string, index int32, acks int16, timeout time.Duration, b record.Batch) <-chan AppendResult {
	out := make(chan AppendResult, 1)
	var calls atomic.Int32
	n.m.Append(&AppendRequest{Acks: acks, Timeout: timeout, Partitions: []AppendPartition{{Topic: topic, Partition: index, Records: b}}},
		func(r []AppendResult) {
			if calls.Add(1) > 1 {
				panic("done was called twice")
			}
			out <- r[0]
		})
	return out
}

func (n *node) mustProduce(topic string, values ...string) int64 {
	n.t.Helper()
	r := n.produce(topic, 0, AcksAll, batchOf(values...))
	if r.Err != protocol.None {
		n.t.Fatalf("produce: %v %s", r.Err, r.Message)
	}
	return r.BaseOffset
}

// fetchReq asks for one partition from an offset on, without waiting.
func fetchReq(topic string, off int64) *FetchRequest {
	return &FetchRequest{
		ReplicaID: ConsumerID, MinBytes: 1, MaxBytes: 10 << 20,
		Partitions: []FetchPartition{{Topic: topic, CurrentLeaderEpoch: NoEpoch, LastFetchedEpoch: NoEpoch, Offset: off, LogStart: -1, MaxBytes: 1 << 20}},
	}
}

func (n *node) fetch(req *FetchRequest) FetchResult {
	return n.m.Fetch(context.Background(), req)[0]
}

// kv is a record as a test sees it.
type kv struct {
	off   int64
	value string
}

// records reads and releases a result's records.
func records(t testing.TB, r FetchResult) []kv {
	t.Helper()
	var out []kv
	for _, s := range r.Spans {
		buf, err := s.AppendTo(nil)
		if err != nil {
			t.Fatal(err)
		}
		for len(buf) > 0 {
			b, rest, err := record.Next(buf)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.CheckCRC(); err != nil {
				t.Fatal(err)
			}
			if !b.Control() {
				err = b.Each(func(r *record.Record) error {
					out = append(out, kv{r.Offset, string(r.Value)})
					return nil
				})
			}
			if err != nil {
				t.Fatal(err)
			}
			buf = rest
		}
	}
	protocol.ReleaseSpans(r.Spans)
	return out
}

// memTier is a Tier in memory: batches by partition, with what tests make of it.
type memTier struct {
	mu      sync.Mutex
	led     map[replicaKey]tiering.Partition
	nudges  int
	batches map[replicaKey][]record.Batch
	tail    func(ctx context.Context) (int64, []commitlog.EpochStart, []byte, error)
	before  func(ctx context.Context, r tiering.ReadRequest) error // runs before each Read
	ready   bool                                                   // ReadReady answers, without before
	later   func()                                                 // runs once, after a question about time was answered
}

func newMemTier() *memTier {
	return &memTier{led: map[replicaKey]tiering.Partition{}, batches: map[replicaKey][]record.Batch{}}
}

func (m *memTier) Lead(p tiering.Partition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.led[replicaKey{p.TopicID(), p.Index()}] = p
}

func (m *memTier) Unlead(id protocol.UUID, index int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.led, replicaKey{id, index})
}

func (m *memTier) leads(id protocol.UUID, index int32) tiering.Partition {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.led[replicaKey{id, index}]
}

func (m *memTier) Nudge(protocol.UUID, int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nudges++
}

func (m *memTier) setBefore(fn func(ctx context.Context, r tiering.ReadRequest) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before = fn
}

func (m *memTier) setTail(fn func(ctx context.Context) (int64, []commitlog.EpochStart, []byte, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tail = fn
}

func (m *memTier) ReadReady(r tiering.ReadRequest) (res tiering.ReadResult, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ready {
		return res, false
	}
	res, err := m.batchesFrom(m.batches[replicaKey{r.TopicID, r.Partition}], r)
	return res, err == nil
}

func (m *memTier) Read(ctx context.Context, r tiering.ReadRequest) (tiering.ReadResult, error) {
	m.mu.Lock()
	before, batches := m.before, m.batches[replicaKey{r.TopicID, r.Partition}]
	m.mu.Unlock()
	if before != nil {
		if err := before(ctx, r); err != nil {
			return tiering.ReadResult{}, err
		}
	}
	return m.batchesFrom(batches, r)
}

func (m *memTier) batchesFrom(batches []record.Batch, r tiering.ReadRequest) (tiering.ReadResult, error) {
	res := tiering.ReadResult{NextOffset: r.Offset}
	n := 0
	for _, b := range batches {
		if b.LastOffset() < r.Offset {
			continue
		}
		if n += b.Size(); n > r.MaxBytes && (len(res.Spans) > 0 || !r.MinOne) {
			break
		}
		res.Spans = append(res.Spans, protocol.MemSpan(b))
		res.NextOffset = b.NextOffset()
	}
	if len(res.Spans) == 0 && n == 0 {
		return res, protocol.OffsetOutOfRange
	}
	return res, nil
}

func (m *memTier) OffsetForTimestamp(ctx context.Context, id protocol.UUID, index int32, ts int64) (commitlog.TimestampOffset, bool, error) {
	m.mu.Lock()
	before := m.before
	m.mu.Unlock()
	if before != nil {
		if err := before(ctx, tiering.ReadRequest{}); err != nil {
			return commitlog.TimestampOffset{}, false, err
		}
	}
	m.mu.Lock()
	later := m.later
	m.later = nil
	defer func() {
		m.mu.Unlock()
		if later != nil {
			later()
		}
	}()
	for _, b := range m.batches[replicaKey{id, index}] {
		var out commitlog.TimestampOffset
		found := false
		err := b.Times(func(off, at int64) bool {
			if found = at >= ts; found {
				out = commitlog.TimestampOffset{Timestamp: at, Offset: off, LeaderEpoch: b.LeaderEpoch()}
			}
			return !found
		})
		if err != nil || found {
			return out, found, err
		}
	}
	return commitlog.TimestampOffset{}, false, nil
}

func (m *memTier) MaxTimestamp(ctx context.Context, id protocol.UUID, index int32) (commitlog.TimestampOffset, bool, error) {
	m.mu.Lock()
	best := int64(-1)
	for _, b := range m.batches[replicaKey{id, index}] {
		best = max(best, b.MaxTimestamp())
	}
	m.mu.Unlock()
	return m.OffsetForTimestamp(ctx, id, index, best)
}

func (m *memTier) Tail(ctx context.Context, _ protocol.UUID, _ int32) (int64, []commitlog.EpochStart, []byte, error) {
	m.mu.Lock()
	tail := m.tail
	m.mu.Unlock()
	if tail == nil {
		return 0, nil, nil, errors.New("no tail")
	}
	return tail(ctx)
}

// settle moves a partition's local log below an offset into the tier, as uploads and local retention would. The book's
// own tier state stays; setTier is the caller's.
func (n *node) settle(topic string, id protocol.UUID, below int64) {
	n.t.Helper()
	l, _ := n.logs.Get(topic, 0)
	if err := l.Roll(); err != nil {
		n.t.Fatal(err)
	}
	var all []record.Batch
	for off := l.LocalStart(); off < below; {
		s, err := l.Read(off, 1<<20, below, true)
		if err != nil {
			n.t.Fatal(err)
		}
		buf, err := s.Span.AppendTo(nil)
		if err != nil {
			n.t.Fatal(err)
		}
		s.Release()
		for len(buf) > 0 {
			b, rest, err := record.Next(buf)
			if err != nil {
				n.t.Fatal(err)
			}
			all, buf, off = append(all, b), rest, b.NextOffset()
		}
	}
	n.tier.mu.Lock()
	n.tier.batches[replicaKey{id, 0}] = append(n.tier.batches[replicaKey{id, 0}], all...)
	n.tier.mu.Unlock()
	if _, err := l.FreeBelow(below); err != nil {
		n.t.Fatal(err)
	}
}
