package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"varve/protocol"
)

// Manager owns one log directory: its lock, its identity, its checkpoints and
// all logs in it.
type Manager struct {
	opts    ManagerOptions
	fs      FS
	cache   *fileCache
	flusher *flusher
	tending chan *Log
	lock    io.Closer
	props   metaProperties

	clean      bool
	cleanEpoch int64
	offline    atomic.Pointer[error]

	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	logs    map[topicPartition]*Log
	strays  []string
	trash   []trashFolder
	started bool // the clean-shutdown marker is gone
	disk    *diskGuard
	loaded  atomic.Bool // LoadAll has finished: logs holds all that the checkpoints name
	closed  bool

	// checkpoints guards the three files: what one says is collected and
	// written under it, so that an older view never replaces a newer one.
	checkpoints    sync.Mutex
	recoveryPoints *offsetCheckpoint
	logStarts      *offsetCheckpoint
	highWatermarks *offsetCheckpoint
	savedHW        map[topicPartition]int64 // as found at the start
}

// trashFolder is a deleted partition whose files are yet to go.
type trashFolder struct {
	path string
	due  time.Time
}

// Bounds and defaults of ManagerOptions.
const (
	defaultOpenFiles       = 4096
	defaultRecoveryThreads = 4
	defaultFlushThreads    = 4
	defaultCheckpointMs    = 60_000
	// housekeepingMs is how often deletions and flush.ms are looked at.
	housekeepingMs = 1000
)

func (o *ManagerOptions) setDefaults() {
	if o.FS == nil {
		o.FS = DiskFS()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxOpenFiles <= 0 {
		o.MaxOpenFiles = defaultOpenFiles
	}
	if o.RecoveryThreads <= 0 {
		o.RecoveryThreads = defaultRecoveryThreads
	}
	if o.FlushThreads <= 0 {
		o.FlushThreads = defaultFlushThreads
	}
	if o.CheckpointIntervalMs <= 0 {
		o.CheckpointIntervalMs = defaultCheckpointMs
	}
}

// OpenManager locks a log directory, creating it if need be, and reads who it
// belongs to and how it was left. LoadAll must follow before logs are used.
//
// Errors: *LockedError when another process has it, *ForeignError when it
// belongs to another cluster or node or to a newer version.
func OpenManager(opts ManagerOptions) (*Manager, error) {
	opts.setDefaults()
	if err := makeDir(opts.FS, opts.Dir); err != nil {
		return nil, err
	}
	lock, err := opts.FS.Lock(filepath.Join(opts.Dir, lockFile))
	if err != nil {
		return nil, &LockedError{Dir: opts.Dir, Err: err}
	}
	m := &Manager{opts: opts, fs: opts.FS, lock: lock, logs: map[topicPartition]*Log{},
		tending: make(chan *Log, tendLogsMax),
		cache:   &fileCache{fs: opts.FS, maxOpenFiles: opts.MaxOpenFiles},
		disk:    newDiskGuard(opts.FS, opts.Dir, opts.DiskReserveBytes, opts.Now, opts.Events)}
	if err := m.open(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	m.flusher = startFlusher(opts.FlushThreads)
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.wg.Go(func() { m.housekeeping(ctx) })
	m.wg.Go(func() { m.tendAll(ctx) })
	return m, nil
}

// makeDir creates the directory and whatever is missing above it, and makes the
// names durable.
func makeDir(fsys FS, dir string) error {
	if _, err := fsys.Stat(dir); err == nil {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDir(fsys, parent); err != nil {
			return err
		}
	}
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return syncDir(fsys, parent)
}

func (m *Manager) open() (err error) {
	if m.props, err = m.loadProperties(); err != nil {
		return err
	}
	data, err := readFile(m.fs, m.path(cleanShutdownFile), maxCheckpointBytes)
	switch {
	case err == nil:
		m.clean, m.cleanEpoch = true, decodeCleanShutdown(data)
	case errors.Is(err, fs.ErrNotExist):
		m.cleanEpoch = -1
	default:
		return err
	}
	for _, c := range []struct {
		file string
		to   **offsetCheckpoint
	}{{recoveryPointFile, &m.recoveryPoints}, {logStartFile, &m.logStarts}, {highWatermarkFile, &m.highWatermarks}} {
		loaded, damage, err := loadOffsets(m.fs, m.path(c.file))
		if err != nil {
			return err
		}
		if damage != nil {
			m.opts.Events.Emit(CheckpointDamaged{File: m.path(c.file), Err: damage})
		}
		*c.to = loaded
	}
	m.savedHW = m.highWatermarks.written
	return nil
}

func (m *Manager) path(name string) string { return filepath.Join(m.opts.Dir, name) }

// DirectoryID identifies this directory for ever (KIP-858).
func (m *Manager) DirectoryID() protocol.UUID { return m.props.directoryID }

// ClusterID is the cluster the directory belongs to, "" while none is known.
func (m *Manager) ClusterID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.props.clusterID
}

// CleanShutdown reports whether the last stop was clean, and the broker epoch
// of that time, -1 if unknown.
func (m *Manager) CleanShutdown() (brokerEpoch int64, clean bool) { return m.cleanEpoch, m.clean }

// Offline returns why the directory serves nothing any more, nil while it does.
func (m *Manager) Offline() error { return m.offlineError() }

func (m *Manager) offlineError() error {
	if e := m.offline.Load(); e != nil {
		return *e
	}
	return nil
}

// goOffline stops all writing for good; only a restart, with recovery, helps.
func (m *Manager) goOffline(cause error) error {
	err := protocol.Errorf(protocol.KafkaStorageError, "log directory %s is offline: %v", m.opts.Dir, cause)
	if m.offline.CompareAndSwap(nil, &err) {
		m.opts.Events.Emit(DirOffline{Dir: m.opts.Dir, Err: cause})
	}
	return m.offlineError()
}

// Get returns a loaded log.
func (m *Manager) Get(topic string, p int32) (*Log, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, ok := m.logs[topicPartition{topic, p}]
	return l, ok
}

// All returns all logs, in no order.
func (m *Manager) All() []*Log {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*Log, 0, len(m.logs))
	for _, l := range m.logs {
		out = append(out, l)
	}
	return out
}

// Strays names the folders that look like partitions and could not be loaded,
// for lack of a readable partition.metadata.
func (m *Manager) Strays() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.strays)
}

// HighWatermark is what the checkpoint said at the start, -1 unknown.
func (m *Manager) HighWatermark(topic string, p int32) int64 {
	if off, ok := m.savedHW[topicPartition{topic, p}]; ok {
		return off
	}
	return -1
}

// start removes the clean-shutdown marker before anything is changed.
func (m *Manager) start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errClosed
	}
	if m.started {
		return nil
	}
	if err := removeIfThere(m.fs, m.path(cleanShutdownFile)); err != nil {
		return err
	}
	if err := syncDir(m.fs, m.opts.Dir); err != nil {
		return err
	}
	m.started = true
	return nil
}

func (m *Manager) isStarted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.started
}

// Checkpoint writes recovery points, log starts and high watermarks.
func (m *Manager) Checkpoint() error {
	if err := m.offlineError(); err != nil {
		return err
	}
	err := m.writeCheckpoints()
	if err != nil && !isFull(err) {
		return m.goOffline(fmt.Errorf("checkpoint: %w", err))
	}
	return err
}

func (m *Manager) writeCheckpoints() error {
	m.checkpoints.Lock()
	defer m.checkpoints.Unlock()
	hw := m.collect(m.highWatermarks, func(l *Log) int64 { return l.highWatermark.Load() })
	return errors.Join(
		m.recoveryPoints.write(m.collect(m.recoveryPoints, func(l *Log) int64 { return l.recoveryPoint.Load() })),
		m.logStarts.write(m.collect(m.logStarts, func(l *Log) int64 { return l.logStart.Load() })),
		m.highWatermarks.write(hw))
}

// collect asks each log for an offset; negative ones are unknown and left out. What the checkpoint says of logs that
// are not loaded yet stays: their loading has yet to read it, in this life or after a crash.
func (m *Manager) collect(c *offsetCheckpoint, get func(*Log) int64) map[topicPartition]int64 {
	out := map[topicPartition]int64{}
	if !m.loaded.Load() {
		maps.Copy(out, c.written)
	}
	for _, l := range m.All() {
		if off := get(l); off >= 0 {
			out[l.tp] = off
		}
	}
	return out
}

func (m *Manager) checkpointLogStart() error {
	m.checkpoints.Lock()
	defer m.checkpoints.Unlock()
	return m.logStarts.write(m.collect(m.logStarts, func(l *Log) int64 { return l.logStart.Load() }))
}

// lowerRecoveryPoint rewrites the checkpoint if it claims more than off.
func (m *Manager) lowerRecoveryPoint(tp topicPartition, off int64) error {
	m.checkpoints.Lock()
	defer m.checkpoints.Unlock()
	if m.recoveryPoints.written[tp] <= off {
		return nil
	}
	lowered := maps.Clone(m.recoveryPoints.written)
	lowered[tp] = off
	return m.recoveryPoints.write(lowered)
}

// forget takes a partition out of the checkpoints that still name it from an
// earlier life, before it is created again.
func (m *Manager) forget(tp topicPartition) error {
	m.checkpoints.Lock()
	defer m.checkpoints.Unlock()
	for _, c := range []*offsetCheckpoint{m.recoveryPoints, m.logStarts, m.highWatermarks} {
		if _, ok := c.written[tp]; !ok {
			continue
		}
		without := map[topicPartition]int64{}
		for k, v := range c.written {
			if k != tp {
				without[k] = v
			}
		}
		if err := c.write(without); err != nil {
			return err
		}
	}
	return nil
}

// Close flushes and closes all logs and leaves the clean-shutdown marker, last
// of all, with the broker epoch (-1 unknown). When anything fails the marker is
// not written and the next start recovers; nor is it when LoadAll did not finish,
// since logs that were not recovered are as a crash may have left them. A marker
// of the life before then stands if nothing was started. Slices still held stay
// readable.
func (m *Manager) Close(ctx context.Context, brokerEpoch int64) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	m.wg.Wait()
	m.flusher.stop()
	err := m.offlineError()
	if err == nil {
		err = m.closeLogs(ctx)
	}
	if err == nil && m.isStarted() {
		err = m.writeCheckpoints()
	}
	if err == nil && m.loaded.Load() {
		err = writeFileAtomic(m.fs, m.path(cleanShutdownFile), encodeCleanShutdown(brokerEpoch))
	}
	return errors.Join(err, m.lock.Close())
}
