package tiering

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/broker/commitlog"
	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
	"varve/protocol/event"
	"varve/protocol/record"
	"varve/tests/s3server"
	"varve/tiering/objstore"
)

// testClock moves both clocks alike, unless told otherwise.
type testClock struct {
	mu   sync.Mutex
	now  time.Time
	boot time.Duration
}

func (c *testClock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }
func (c *testClock) Boot() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.boot
}
func (c *testClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.boot = c.now.Add(d), c.boot+d
}

// testPart is a partition as a replica would show it.
type testPart struct {
	id    protocol.UUID
	epoch int32
	log   *commitlog.Log
	mu    sync.Mutex
	cfg   TierConfig
	limit int64 // LastStable, -1 = the log's end
}

func (p *testPart) TopicID() protocol.UUID  { return p.id }
func (p *testPart) Topic() string           { return "t" }
func (p *testPart) Index() int32            { return 0 }
func (p *testPart) LeaderEpoch() int32      { return p.epoch }
func (p *testPart) Log() *commitlog.Log     { return p.log }
func (p *testPart) LogStartMoved(off int64) { _ = p.log.SetLogStart(off) }
func (p *testPart) TierConfig() TierConfig  { p.mu.Lock(); defer p.mu.Unlock(); return p.cfg }
func (p *testPart) LastStable() int64 {
	if p.limit >= 0 {
		return p.limit
	}
	return p.log.End()
}

// world is one partition with all that is around it but the Manager, which comes
// and goes.
type world struct {
	t     *testing.T
	ctx   context.Context
	clock *testClock
	store *objstore.Faulty
	meta  *metastore.Store
	hooks *hookedMeta
	part  *testPart
	opts  Options
	rec   *event.Recorder
	m     *Manager
	made  []record.Batch                   // everything appended
	walk  func() (map[string]int64, error) // what the bucket holds, by key, without the code under test

	segmentBytes int32
}

// useMem gives the world an empty store in memory.
func (w *world) useMem(now func() time.Time) {
	mem := objstore.NewMem(now)
	w.store = objstore.NewFaulty(mem, 1)
	w.opts.Store = w.store
	w.walk = func() (map[string]int64, error) { return mem.Objects(), nil }
}

const testDeadlineMs = 60_000

func newWorld(t *testing.T, cfg TierConfig, change func(*Options)) *world {
	t.Helper()
	return newSizedWorld(t, cfg, 2000, change)
}

// newSizedWorld is newWorld with segments of another size.
func newSizedWorld(t *testing.T, cfg TierConfig, segmentBytes int32, change func(*Options)) *world {
	t.Helper()
	w := &world{t: t, ctx: context.Background(), segmentBytes: segmentBytes, rec: &event.Recorder{}, clock: &testClock{now: time.UnixMilli(1_700_000_000_000)}}
	ctx, cancel := context.WithTimeout(w.ctx, 20*time.Second)
	defer cancel()
	var err error
	if w.meta, err = metastore.Open(ctx, metastore.Options{Dir: t.TempDir(), NodeID: 1, ClusterID: "cluster", Now: w.clock.Now}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.meta.Close(w.ctx) })
	w.hooks = &hookedMeta{Meta: w.meta}
	w.openPart(cfg)
	w.opts = Options{
		Location: "mem:", Prefix: "p", Meta: w.hooks, ClusterID: "cluster", BrokerID: 1,
		DeleteDelayMs: 60_000, UploadDeadlineMs: testDeadlineMs, TaskIntervalMs: 1000, Concurrency: 1, Now: w.clock.Now, Events: w.rec.Emit,
	}
	w.useMem(nil)
	w.opts.Clock = NewClockGuard(ClockOptions{Now: w.clock.Now, Boottime: w.clock.Boot, Events: w.rec.Emit})
	if change != nil {
		change(&w.opts)
	}
	return w
}

// openPart makes the topic and its log.
func (w *world) openPart(cfg TierConfig) {
	id := protocol.NewUUID()
	_, err := w.meta.Propose(w.ctx, &metapb.Command{Body: &metapb.Command_CreateTopic{CreateTopic: &metapb.CreateTopic{
		TopicId: id[:], Name: "t", ImageIndex: w.meta.Image().Index(),
		Partitions: []*metapb.Partition{{Replicas: []int32{1}, Dirs: [][]byte{make([]byte, 16)}, Isr: []int32{1}, Leader: 1}},
	}}})
	if err != nil {
		w.t.Fatal(err)
	}
	logs, err := commitlog.OpenManager(commitlog.ManagerOptions{FS: commitlog.NewMemFS(), Dir: "log", NodeID: 1, ClusterID: "cluster", Now: w.clock.Now})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = logs.Close(w.ctx, 1) })
	c := commitlog.DefaultConfig()
	c.SegmentBytes, c.IndexIntervalBytes, c.FileDeleteDelayMs = w.segmentBytes, 300, 0
	log, err := logs.Create("t", id, 0, c)
	if err != nil {
		w.t.Fatal(err)
	}
	w.part = &testPart{id: id, log: log, cfg: cfg, limit: -1}
	if err := log.AssignEpoch(0, 0); err != nil {
		w.t.Fatal(err)
	}
}

// start begins the life of a Manager.
func (w *world) start() {
	w.t.Helper()
	var err error
	if w.m, err = New(w.opts); err != nil {
		w.t.Fatal(err)
	}
	w.m.Lead(w.part)
}

// stop ends it, in whatever state it is.
func (w *world) stop() {
	w.m.fills.close()
	w.m.cache.close()
}

// append writes n batches of 3 records whose timestamps are age before now.
func (w *world) append(n int, age time.Duration) { w.appendSized(n, 60, age) }

// appendSized is append with values of so many bytes.
func (w *world) appendSized(n, bytes int, age time.Duration) {
	w.t.Helper()
	for range n {
		b := testBatch(w.t, 0, 3, bytes, w.clock.Now().Add(-age).UnixMilli())
		b = stripProducer(w.t, b)
		if _, err := w.part.log.AppendAsLeader(b, w.part.epoch, commitlog.OriginClient); err != nil {
			w.t.Fatal(err)
		}
		w.made = append(w.made, b)
	}
}

// stripProducer rebuilds a batch without an idempotent producer.
func stripProducer(t *testing.T, b record.Batch) record.Batch {
	bl := record.NewBuilder(record.Options{})
	for it := b.Records(); it.Next(); {
		r := it.Record()
		if err := bl.Add(r.Timestamp, r.Key, r.Value); err != nil {
			t.Fatal(err)
		}
	}
	out, err := bl.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(out)
}

func (w *world) pt() *part {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	return w.m.parts[partKey{w.part.id, 0}]
}

// round does once what Run's loops do, on this goroutine.
func (w *world) round() error {
	m := w.m
	if m.ownerEpoch == 0 {
		if err := m.ClaimOwner(w.ctx); err != nil {
			return err
		}
	}
	m.readClock()
	var errs []error
	t := &task{part: w.pt(), cancel: func() {}}
	m.mu.Lock()
	m.tasks[t] = struct{}{}
	if t.part.slot >= 0 {
		heap.Remove(&m.queue, t.part.slot)
	}
	m.mu.Unlock()
	_, err := m.uploadSome(w.ctx, t)
	m.mu.Lock()
	delete(m.tasks, t)
	m.mu.Unlock()
	errs = append(errs, err)
	if !crashed(err) {
		errs = append(errs, m.retainPart(w.ctx, w.pt()))
	}
	if !crashed(errors.Join(errs...)) {
		errs = append(errs, m.journalAll(w.ctx))
	}
	if !crashed(errors.Join(errs...)) {
		errs = append(errs, m.collect(w.ctx))
	}
	return errors.Join(errs...)
}

func crashed(err error) bool {
	var c *crashError
	return errors.As(err, &c)
}

// settle runs rounds until nothing is pending any more.
func (w *world) settle() {
	w.t.Helper()
	var last error
	for range 30 {
		w.clock.advance(5 * time.Minute)
		err := w.round()
		last = err
		rows, _, perr := w.meta.PendingSegments(metastore.Cursor{}, 10)
		out, _, _, jerr := w.meta.JournalPending(10)
		if err := errors.Join(perr, jerr); err != nil {
			w.t.Fatal(err)
		}
		if err == nil && len(rows) == 0 && len(out) == 0 {
			return
		}
	}
	w.t.Fatalf("does not come to rest: %v; %+v", last, w.m.Status())
}

// check compares bucket, metastore and what was appended.
func (w *world) check() {
	w.t.Helper()
	st, err := w.meta.Tier(w.part.id, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	w.checkList()
	w.checkRecords(st)
	if at := w.part.log.LogStart(); at != st.LogStart {
		w.t.Fatalf("the replica's log starts at %d, the metastore says %d", at, st.LogStart)
	}
	if local := w.part.log.LocalStart(); local > max(st.End, st.LogStart) {
		w.t.Fatalf("hole between the tier's end %d and the local start %d", st.End, local)
	}
}

// checkList: the bucket holds one object per row, and nothing else, as a look at it without the code under test shows.
func (w *world) checkList() {
	w.t.Helper()
	objects, err := w.walk()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, diff := range s3server.Differences(objects, plainRows(w.rows()), nil) {
		w.t.Error(diff)
	}
}

// plainRows are rows in the words of the listing that shares no code with this package.
func plainRows(rows []metastore.RemoteSegment) (out []s3server.Row) {
	for _, r := range rows {
		out = append(out, s3server.Row{
			ID: r.ID.String(), TopicID: r.TopicID.String(), Partition: r.Partition, Base: r.Base, Next: r.Next,
			MaxTimestamp: r.MaxTimestamp, LeaderEpoch: r.LeaderEpoch, Generation: r.Generation, Bytes: r.ObjectBytes,
		})
	}
	return out
}

// checkRecords reads from log start to the end, from the tier as far as it goes.
func (w *world) checkRecords(st metastore.TierState) {
	w.t.Helper()
	var want, got []byte
	for _, b := range w.made {
		if b.NextOffset() > st.LogStart {
			want = append(want, b...)
		}
	}
	off := st.LogStart
	for off < st.End {
		res, err := w.m.Read(w.ctx, ReadRequest{TopicID: w.part.id, Offset: off, MaxBytes: 1000, MinOne: true})
		if err != nil {
			w.t.Fatalf("tier, offset %d: %v", off, err)
		}
		got, off = append(got, joined(res)...), res.NextOffset
	}
	for off < w.part.log.End() {
		s, err := w.part.log.Read(off, 1000, w.part.log.End(), true)
		if err != nil {
			w.t.Fatalf("log, offset %d: %v", off, err)
		}
		if got, err = s.AppendTo(got); err != nil {
			w.t.Fatal(err)
		}
		off = s.NextOffset
		if s.Release != nil {
			s.Release()
		}
	}
	if !bytes.Equal(got, want) {
		w.t.Fatalf("%d bytes read from %d on, %d written", len(got), st.LogStart, len(want))
	}
}

// hookedMeta lets a test fail or watch calls of the real metastore.
type hookedMeta struct {
	Meta
	finish  func() error      // before SegmentFinish; an error is returned instead
	replied func() error      // after it: the reply is lost
	changes func(call string) // before each change
}

func (h *hookedMeta) saw(call string) {
	if h.changes != nil {
		h.changes(call)
	}
}

func (h *hookedMeta) SegmentStart(ctx context.Context, s metastore.RemoteSegment, b int32) error {
	h.saw("SegmentStart")
	return h.Meta.SegmentStart(ctx, s, b)
}

func (h *hookedMeta) SegmentFinish(ctx context.Context, s metastore.RemoteSegment) (metastore.SegmentState, error) {
	h.saw("SegmentFinish")
	if h.finish != nil {
		if err := h.finish(); err != nil {
			return 0, err
		}
	}
	state, err := h.Meta.SegmentFinish(ctx, s)
	if err == nil && h.replied != nil {
		err = h.replied()
	}
	return state, err
}

func (h *hookedMeta) SegmentReplace(ctx context.Context, old []protocol.UUID, s metastore.RemoteSegment) (metastore.SegmentState, error) {
	h.saw("SegmentReplace")
	state, err := h.Meta.SegmentReplace(ctx, old, s)
	if err == nil && h.replied != nil {
		err = h.replied()
	}
	return state, err
}

func (h *hookedMeta) SegmentsDelete(ctx context.Context, t protocol.UUID, p, e int32, ids []protocol.UUID) error {
	h.saw("SegmentsDelete")
	return h.Meta.SegmentsDelete(ctx, t, p, e, ids)
}

func (h *hookedMeta) SegmentsGone(ctx context.Context, ids ...protocol.UUID) error {
	h.saw("SegmentsGone")
	return h.Meta.SegmentsGone(ctx, ids...)
}

func (h *hookedMeta) AdvanceLogStart(ctx context.Context, t protocol.UUID, p, e int32, off int64) error {
	h.saw("AdvanceLogStart")
	return h.Meta.AdvanceLogStart(ctx, t, p, e, off)
}

func (h *hookedMeta) JournalClear(ctx context.Context, through uint64) error {
	h.saw("JournalClear")
	return h.Meta.JournalClear(ctx, through)
}

// watchedStore tells of each change.
type watchedStore struct {
	objstore.Store
	changes func(call string)
}

func (s *watchedStore) Put(ctx context.Context, key string, b objstore.Body, o objstore.PutOptions) (objstore.ObjectInfo, error) {
	s.changes("Put")
	return s.Store.Put(ctx, key, b, o)
}

func (s *watchedStore) Delete(ctx context.Context, keys []string) ([]objstore.KeyError, error) {
	s.changes("Delete")
	return s.Store.Delete(ctx, keys)
}

// story is a life in rounds that takes every step there is. Each round ends, for
// good or bad, and the next goes on from what is there.
func (w *world) story(restart func(err error)) {
	w.t.Helper()
	round := func() {
		w.t.Helper()
		if err := w.round(); crashed(err) {
			restart(err)
		}
	}
	w.store.Add(objstore.Fault{Kind: objstore.FaultLostReply, Verb: objstore.VerbPut, Key: ".seg", Skip: 1})
	finishes := 0
	w.hooks.finish = func() error {
		if finishes++; finishes == 3 {
			return protocol.Errorf(protocol.InvalidRequest, "refused for the test")
		}
		return nil
	}
	for i := range 8 {
		w.append(8, 0)
		w.clock.advance(2 * time.Minute)
		if i == 5 {
			w.append(3, 90*time.Minute) // old records: past local retention at once
		}
		round()
	}
	w.clock.advance(20 * time.Minute) // the active segment is sealed by age
	round()
	w.append(30, 0)
	for range 4 {
		w.clock.advance(2 * time.Minute)
		round()
	}
}

func storyConfig() TierConfig {
	return TierConfig{
		RetentionMs: -1, RetentionBytes: 9000, LocalRetentionMs: 3_600_000, LocalRetentionBytes: 4000, UploadMaxLagMs: 600_000,
		Configs: map[string]string{"retention.bytes": "9000"},
	}
}

// TestEveryStepHasAFailpoint: the story hits all that are listed, none is hit that is
// not listed, and no two changes happen without one between them.
func TestEveryStepHasAFailpoint(t *testing.T) {
	hit := map[string]int{}
	armed := false
	w := newWorld(t, storyConfig(), func(o *Options) {
		o.Failpoint = func(name string) error { hit[name]++; armed = true; return nil }
	})
	w.hooks.changes = func(call string) {
		if !armed {
			t.Errorf("%s follows another change without a failpoint between", call)
		}
		armed = false
	}
	w.opts.Store = &watchedStore{w.store, w.hooks.changes}
	w.start()
	w.story(nil)
	w.settle()
	w.check()
	w.stop()
	for _, name := range failpoints {
		if hit[name] == 0 {
			t.Errorf("the story never hits %s", name)
		}
		delete(hit, name)
	}
	for name := range hit {
		t.Errorf("%s is not in the list", name)
	}
}

// TestCrashAtEveryStep ends the Manager at each failpoint, the first or the second
// time it comes by, and goes on with a new one. In the end every record is there
// and the bucket holds exactly what the metastore says.
func TestCrashAtEveryStep(t *testing.T) {
	for _, name := range failpoints {
		for _, nth := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s-%d", name, nth), func(t *testing.T) {
				t.Parallel()
				left := nth
				w := newWorld(t, storyConfig(), func(o *Options) {
					o.Failpoint = func(at string) error {
						if at == name {
							if left--; left == 0 {
								return errors.New("crash")
							}
						}
						return nil
					}
				})
				w.start()
				w.story(func(err error) {
					if !strings.Contains(err.Error(), name) {
						t.Errorf("crash at %s: %v", name, err)
					}
					w.stop()
					w.start()
				})
				if left > 0 && nth == 1 {
					t.Errorf("%s was not hit", name)
				}
				w.settle()
				w.check()
				w.stop()
			})
		}
	}
}

// TestLogStartToldAgain: a crash between the metastore's move of log start and the
// replica's is made good although nothing moves it any further.
func TestLogStartToldAgain(t *testing.T) {
	w := newWorld(t, storyConfig(), func(o *Options) {
		o.Failpoint = func(name string) error {
			if name == fpStartApply {
				return errors.New("crash")
			}
			return nil
		}
	})
	w.start()
	w.append(60, 0)
	if err := w.round(); !crashed(err) || w.part.log.LogStart() != 0 {
		t.Fatalf("log starts at %d: %v", w.part.log.LogStart(), err)
	}
	w.stop()
	w.opts.Failpoint, w.part.cfg = nil, keepAll()
	w.start()
	defer w.stop()
	w.settle()
	if w.part.log.LogStart() == 0 {
		t.Fatal("log start did not move")
	}
	w.check()
}
