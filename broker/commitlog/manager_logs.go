package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"varve/protocol"
)

// maxNameBytes is what file systems take as a name.
const maxNameBytes = 255

// deleteMark ends the names of folders that are to be removed. Partitions are
// also created under such a name and renamed when complete, so that a folder
// without it always has its metadata.
const deleteMark = "-delete"

// maxPartitionMetadataBytes bounds partition.metadata.
const maxPartitionMetadataBytes = 4096

// deletedName is a name for a folder on its way out (UnifiedLog.logDeleteDirName).
func (tp topicPartition) deletedName() string {
	suffix := fmt.Sprintf("-%d.%s%s", tp.partition, strings.ReplaceAll(protocol.NewUUID().String(), "-", "_"), deleteMark)
	return tp.topic[:min(len(tp.topic), maxNameBytes-len(suffix))] + suffix
}

// parseFolder reads "topic-partition".
func parseFolder(name string) (topicPartition, bool) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 {
		return topicPartition{}, false
	}
	p, err := strconv.ParseInt(name[i+1:], 10, 32)
	if err != nil || p < 0 || name[i+1:] != strconv.FormatInt(p, 10) {
		return topicPartition{}, false
	}
	return topicPartition{name[:i], int32(p)}, true
}

// LoadAll recovers all partition folders, some at a time. conf tells each log's
// configuration. Folders left by deletions are removed. An error is the disk's
// or names a log that cannot be loaded.
func (m *Manager) LoadAll(ctx context.Context, conf func(topic string, id protocol.UUID, p int32) Config) error {
	if err := m.start(); err != nil {
		return err
	}
	names, err := m.fs.List(m.opts.Dir)
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(m.opts.RecoveryThreads)
	for _, name := range names {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return m.loadFolder(name, conf)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	m.loaded.Store(true)
	return nil
}

func (m *Manager) loadFolder(name string, conf func(topic string, id protocol.UUID, p int32) Config) error {
	path := m.path(name)
	if strings.HasSuffix(name, deleteMark) {
		return m.fs.RemoveAll(path)
	}
	if strings.HasSuffix(name, tmpSuffix) {
		return removeIfThere(m.fs, path)
	}
	st, err := m.fs.Stat(path)
	if err != nil {
		return err
	}
	tp, ok := parseFolder(name)
	if !ok || !st.IsDir() {
		return nil
	}
	metadata := m.fs.PathJoin(path, partitionFile)
	data, err := readFile(m.fs, metadata, maxPartitionMetadataBytes)
	var id protocol.UUID
	if err == nil {
		id, err = decodePartition(data, metadata)
	}
	var corrupt *protocol.CorruptionError
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &corrupt) {
		m.mu.Lock()
		m.strays = append(m.strays, path)
		m.mu.Unlock()
		m.opts.Events.Emit(StrayFolder{Path: path, Err: err})
		return nil
	}
	if err != nil {
		return err
	}
	l := m.newLog(tp, id, conf(tp.topic, id, tp.partition))
	if err := l.load(m.loadState(tp)); err != nil {
		return fmt.Errorf("loading %s: %w", path, err)
	}
	m.mu.Lock()
	m.logs[tp] = l
	m.mu.Unlock()
	if l.cfg.Load().FlushMessages == 1 && l.recoveryPoint.Load() < l.end.Load() {
		m.flusher.ask(l)
	}
	return nil
}

func (m *Manager) loadState(tp topicPartition) loadState {
	m.checkpoints.Lock()
	defer m.checkpoints.Unlock()
	st := loadState{clean: m.clean, recoveryPoint: m.recoveryPoints.written[tp], logStart: -1}
	if off, ok := m.logStarts.written[tp]; ok {
		st.logStart = off
	}
	return st
}

func (m *Manager) newLog(tp topicPartition, id protocol.UUID, c Config) *Log {
	l := &Log{m: m, dir: m.path(tp.String()), tp: tp, topic: id, producers: newProducers()}
	l.cfg.Store(&c)
	l.highWatermark.Store(m.HighWatermark(tp.topic, tp.partition))
	return l
}

// Create makes a new, empty log, or returns the one that is there with the same
// topic id. With another id the error is InconsistentTopicID.
func (m *Manager) Create(topic string, id protocol.UUID, p int32, c Config) (*Log, error) {
	if err := m.start(); err != nil {
		return nil, err
	}
	if err := m.offlineError(); err != nil {
		return nil, err
	}
	tp := topicPartition{topic, p}
	if l, ok := m.Get(topic, p); ok {
		if l.topic != id {
			return nil, protocol.Errorf(protocol.InconsistentTopicID, "%s holds topic id %s, not %s", l.dir, l.topic, id)
		}
		return l, nil
	}
	if _, err := m.fs.Stat(m.path(tp.String())); err == nil {
		return nil, protocol.Errorf(protocol.InconsistentTopicID, "%s is there but was not loaded", m.path(tp.String()))
	}
	l := m.newLog(tp, id, c)
	l.highWatermark.Store(-1)
	if err := m.create(l); err != nil {
		return nil, l.diskError("creating a partition", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if other, ok := m.logs[tp]; ok {
		return other, nil
	}
	m.logs[tp] = l
	return l, nil
}

// create builds the folder under a name that the next start would remove, and
// renames it when it is complete.
func (m *Manager) create(l *Log) error {
	if err := m.forget(l.tp); err != nil {
		return err
	}
	work := m.path(l.tp.deletedName())
	if err := m.fs.MkdirAll(work, 0o755); err != nil {
		return err
	}
	if err := writeFileAtomic(m.fs, m.fs.PathJoin(work, partitionFile), encodePartition(l.topic)); err != nil {
		return errors.Join(err, m.fs.RemoveAll(work))
	}
	if err := m.fs.Rename(work, l.dir); err != nil {
		return errors.Join(err, m.fs.RemoveAll(work))
	}
	err := syncDir(m.fs, m.opts.Dir)
	if err == nil {
		err = l.load(loadState{clean: true, logStart: 0})
	}
	if err != nil {
		return errors.Join(err, m.discard(l.dir, l.tp, 0))
	}
	return nil
}

// Delete takes a log out of use and renames its folder; the files go after the
// topic's file.delete.delay.ms. Readers keep what they hold. A log that is not
// there is no error.
func (m *Manager) Delete(topic string, p int32) error {
	tp := topicPartition{topic, p}
	m.mu.Lock()
	l, ok := m.logs[tp]
	delete(m.logs, tp)
	m.mu.Unlock()
	if !ok {
		return nil
	}
	l.shut(errClosed)
	return l.diskError("deleting a partition", m.discard(l.dir, tp, l.cfg.Load().FileDeleteDelayMs))
}

func (m *Manager) discard(dir string, tp topicPartition, delayMs int64) error {
	name := m.path(tp.deletedName())
	if err := m.fs.Rename(dir, name); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if err := syncDir(m.fs, m.opts.Dir); err != nil {
		return err
	}
	m.mu.Lock()
	m.trash = append(m.trash, trashFolder{path: name, due: m.opts.Now().Add(time.Duration(delayMs) * time.Millisecond)})
	m.mu.Unlock()
	return nil
}

// emptyTrash removes the folders that are due; one that cannot be removed is
// left for the next start.
func (m *Manager) emptyTrash(now time.Time) {
	m.mu.Lock()
	var due []string
	rest := m.trash[:0]
	for _, t := range m.trash {
		if t.due.After(now) {
			rest = append(rest, t)
		} else {
			due = append(due, t.path)
		}
	}
	m.trash = rest
	m.mu.Unlock()
	for _, path := range due {
		if err := m.fs.RemoveAll(path); err != nil {
			m.opts.Events.Emit(StrayFolder{Path: path, Err: err})
		}
	}
}

// housekeeping runs deletions, flush.ms and checkpoints until ctx ends.
func (m *Manager) housekeeping(ctx context.Context) {
	tick := time.NewTicker(time.Duration(min(housekeepingMs, m.opts.CheckpointIntervalMs)) * time.Millisecond)
	defer tick.Stop()
	checkpointed := m.opts.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := m.opts.Now()
		m.emptyTrash(now)
		m.disk.tick()
		logs := m.All()
		for _, l := range logs {
			if l.flushDue(now.UnixMilli()) {
				m.flusher.ask(l)
			}
			l.expireSpare(now.UnixMilli())
		}
		if now.Sub(checkpointed) < time.Duration(m.opts.CheckpointIntervalMs)*time.Millisecond {
			continue
		}
		checkpointed = now
		for _, l := range logs {
			l.expireProducers(now.UnixMilli())
		}
		_ = m.Checkpoint() // a failure took the directory offline, or the disk is full and the next round tries again
	}
}

func (l *Log) expireProducers(nowMs int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.producers.expire(nowMs, l.cfg.Load().ProducerIDExpirationMs)
}

// closeLogs closes all logs, as many at a time as are loaded at a time.
func (m *Manager) closeLogs(ctx context.Context) error {
	var g errgroup.Group
	g.SetLimit(m.opts.RecoveryThreads)
	for _, l := range m.All() {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return l.close()
		})
	}
	return g.Wait()
}
