package tiering

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync"
	"time"

	"varve/protocol"
)

// Manager settles the partitions that this broker leads and reads from the tier.
// All methods are safe for concurrent use.
type Manager struct {
	o        Options
	location string // what rows say: where the store is and the folder in it
	ownerKey string
	clock    *ClockGuard

	mem       *memory
	cache     *chunkCache
	indexFile *chunkCache
	indexes   *indexCache
	fills     *filler
	streams   *streams
	giants    chan struct{} // held while a batch larger than maxReadBytes is read

	wake   chan struct{} // something was queued or a slot came free
	retain chan struct{} // retention has something to do at once

	snapMu sync.Mutex // one snapshot at a time
	freeMu sync.Mutex // held while local segments go, and while leave looks where the local log begins
	job    restoreJob

	mu          sync.Mutex
	ownerEpoch  int64 // epoch of our owner object, 0 = not seen yet
	ownerErr    error
	deleteLimit time.Duration // of one batch of deletes, as the owner object has it; 0 = not seen yet
	clockErr    error
	parts       map[partKey]*part
	queue       uploadQueue // partitions to look at for uploads, each at most once
	tasks       map[*task]struct{}
	gate        storeGate
	merging     *task   // the one merge under way
	mergeable   []*part // partitions to look at for a merge, each at most once
	nextSweep   time.Time
	sweepErr    error
	gcErr       error
	journalErr  error
	snapErr     error
	restoreErr  error
	scrubbed    [VerifyData + 1]ScrubPass // the last pass of each level
}

type partKey struct {
	topic     protocol.UUID
	partition int32
}

// part is a led partition. Its fields are guarded by Manager.mu.
type part struct {
	Partition
	key       partKey
	name      string    // its topic's, so that no method of Partition is called under Manager.mu
	slot      int       // its place in the queue, -1 when it is not there
	since     time.Time // when it came into the queue
	due       time.Time // what the queue is ordered by
	waits     backlog   // as last seen
	again     bool      // nudged while a task was at work
	doubts    uint64    // rises whenever an attempt of unknown outcome may be left in STARTED
	swept     uint64    // the doubts that were looked into
	task      *task
	fails     int
	notBefore time.Time // of the next upload, after a failure
	lastErr   error
	lastErrAt time.Time
	lagging   bool // as last told
	merge     mergeState
}

// task is one worker busy with one partition's uploads.
type task struct {
	part     *part
	started  time.Time
	deadline time.Time
	cancel   context.CancelFunc
	trial    bool // it finds out whether the store takes uploads again
	extra    int  // slots beside its own, for segments on their way at the same time
	merge    bool // it merges; it has no slot
	freed    bool // given up by the watchdog: its slots and partition are no longer its
}

// Bounds of one step each.
const (
	metaDeadline     = 30 * time.Second
	deleteDeadline   = 60 * time.Second // of one batch of deletes
	journalDeadline  = 60 * time.Second
	stuckGrace       = 30 * time.Second // after a task's deadline, before it is given up
	maxBackoff       = 10 * time.Minute
	maxStuckTasks    = 16 // given-up tasks that may still be out there
	maxUploadsInTask = 8  // segments in a row before other partitions have their turn
	shutdownWait     = 5 * time.Second
	lastJournalWait  = 2 * time.Second
)

// New returns a Manager. It empties the cache file; nothing else is touched before
// Run.
func New(o Options) (*Manager, error) {
	o = o.withDefaults()
	if o.Store == nil || o.Meta == nil || o.ClusterID == "" || strings.Contains(o.ClusterID, "/") {
		return nil, &protocol.InvariantError{What: "tiering needs a store, a metastore and a cluster id"}
	}
	o.Prefix = strings.Trim(path.Clean("/"+o.Prefix), "/")
	cache, err := openCache(o.CacheDir, cacheFileName, o.CacheBytes)
	if err != nil {
		return nil, err
	}
	indexFile, err := openCache(o.CacheDir, indexFileName, o.IndexCacheBytes)
	if err != nil {
		cache.close()
		return nil, err
	}
	m := &Manager{
		o: o, clock: o.Clock, location: locationOf(o.Location, o.Prefix, ""), ownerKey: ownerKey(o.Prefix, o.ClusterID),
		mem: newMemory(o.ReadMemoryBytes, o.Now), cache: cache, indexFile: indexFile, indexes: newIndexCache(), fills: newFiller(),
		streams: newStreams(o.Now), giants: make(chan struct{}, 1),
		wake: make(chan struct{}, 1), retain: make(chan struct{}, 1), parts: map[partKey]*part{}, tasks: map[*task]struct{}{},
	}
	m.mem.spill, m.job.wake = m.spill, make(chan struct{}, 1)
	return m, nil
}

// Lead starts to settle p, or takes note of a new leadership over it.
func (m *Manager) Lead(p Partition) {
	k, name := partKey{p.TopicID(), p.Index()}, p.Topic()
	if p.TierConfig().Left {
		defer m.RetainSoon()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.parts[k]; old != nil {
		m.dropLocked(old)
	}
	pt := &part{Partition: p, key: k, name: name, slot: -1, doubts: 1, merge: mergeState{look: true}}
	m.parts[k] = pt
	m.enqueueLocked(pt)
}

// Unlead ends the settling of a partition; a step under way is cancelled.
func (m *Manager) Unlead(topicID protocol.UUID, partition int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.parts[partKey{topicID, partition}]; old != nil {
		m.dropLocked(old)
	}
}

func (m *Manager) dropLocked(pt *part) {
	delete(m.parts, pt.key)
	if pt.task != nil {
		pt.task.cancel()
		pt.task.extra = 0
	}
	if pt.merge.task != nil {
		pt.merge.task.cancel()
	}
}

// Nudge says that a segment of the partition has sealed or become stable.
func (m *Manager) Nudge(topicID protocol.UUID, partition int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if pt := m.parts[partKey{topicID, partition}]; pt != nil {
		m.enqueueLocked(pt)
	}
}

func (m *Manager) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends and owns all goroutines of the Manager. It returns nil
// then, or the error that makes work impossible: *OwnerError.
func (m *Manager) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var loops, tasks sync.WaitGroup
	var foreign *OwnerError
	loops.Go(func() { m.dispatch(ctx, &tasks) })
	loops.Go(func() {
		m.every(ctx, m.o.TaskIntervalMs, func() {
			if err := m.tick(ctx); errors.As(err, &foreign) {
				cancel()
			}
		})
	})
	loops.Go(func() { m.retainLoop(ctx) })
	loops.Go(func() { m.every(ctx, m.o.TaskIntervalMs, func() { m.note(&m.gcErr, m.collect(ctx)) }) })
	loops.Go(func() { m.every(ctx, m.o.TaskIntervalMs, func() { m.note(&m.sweepErr, m.sweepUploads(ctx)) }) })
	loops.Go(func() { m.every(ctx, m.o.JournalIntervalMs, func() { m.note(&m.journalErr, m.journalAll(ctx)) }) })
	loops.Go(func() { m.scrub(ctx) })
	loops.Go(func() { m.snapshots(ctx) })
	loops.Go(func() { m.restores(ctx) })
	loops.Wait()
	m.fills.close()
	m.waitTasks(&tasks)
	if foreign == nil {
		m.lastJournal(ctx)
		m.lastSnapshot(ctx)
	}
	m.cache.close()
	m.indexFile.close()
	if foreign != nil {
		return foreign
	}
	return nil
}

// waitTasks waits for the workers, but not for ever for one that a store holds
// although its context has ended.
func (m *Manager) waitTasks(tasks *sync.WaitGroup) {
	done := make(chan struct{})
	var w sync.WaitGroup
	w.Go(func() { tasks.Wait(); close(done) })
	select {
	case <-done:
	case <-time.After(shutdownWait):
	}
}

// lastJournal writes what the outbox still holds, so that a node which was stopped in order, and then lost its disk, is in
// the bucket whole.
func (m *Manager) lastJournal(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastJournalWait)
	defer cancel()
	m.note(&m.journalErr, m.journalAll(ctx))
}

// every calls fn now and then after each interval until ctx ends.
func (m *Manager) every(ctx context.Context, intervalMs int64, fn func()) {
	t := time.NewTicker(time.Duration(intervalMs) * time.Millisecond)
	defer t.Stop()
	for {
		fn()
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

func (m *Manager) note(dst *error, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*dst = err
}

// tick looks at the clocks, frees stuck partitions, queues those with something to
// upload, and claims the prefix if that is still to do.
func (m *Manager) tick(ctx context.Context) error {
	m.readClock()
	m.watch()
	m.mem.trim()
	m.lookForWork()
	m.probeStore(ctx)
	m.mu.Lock()
	claimed := m.ownerEpoch != 0
	m.mu.Unlock()
	if claimed {
		return m.stillOwner(ctx)
	}
	octx, cancel := context.WithTimeout(ctx, metaDeadline)
	defer cancel()
	err := m.ClaimOwner(octx)
	m.note(&m.ownerErr, err)
	m.wakeUp()
	return err
}
