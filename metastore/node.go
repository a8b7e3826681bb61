package metastore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"

	"varve/metastore/metapb"
	"varve/protocol"
	"varve/protocol/event"
)

// Sizes and times of the node. A sole voter does not wait for any of them: see elect.
const (
	memTableBytes     = 4 << 20
	cacheBytes        = 8 << 20
	maxOpenTables     = 256
	walSegmentBytes   = 8 << 20
	snapshotsKept     = 2
	snapshotEntries   = 16384
	trailingEntries   = 4096
	snapshotRestShare = 10
	maxAppendEntries  = 256
	clusterTimeout    = time.Second
	leaseTimeout      = 500 * time.Millisecond
	barrierTimeout    = 10 * time.Second
	retryInterval     = time.Second
	refillInterval    = time.Minute
	notifyQueueLength = 16
)

// openPebble opens one state folder. Pebble has no log of its own: the Raft log holds every command that is not in its tables yet, and a
// batch reaches the tables whole or not at all.
func openPebble(f *folder, name string, log storageLog) (*handle, error) {
	cache := pebble.NewCache(cacheBytes)
	defer cache.Unref()
	opts := &pebble.Options{
		FS: f.fs, Cache: cache, MemTableSize: memTableBytes, MaxOpenFiles: maxOpenTables, DisableWAL: true,
		FormatMajorVersion: pebble.FormatTableFormatV6, Logger: log,
		CompactionConcurrencyRange: func() (int, int) { return compactionsMax, compactionsMax },
		EventListener:              &pebble.EventListener{BackgroundError: func(err error) { log.Errorf("background: %v", err) }},
	}
	opts.Experimental.CompactionScheduler = new(compactions)
	db, err := pebble.Open(f.path(name), opts)
	if err != nil {
		if errors.Is(err, pebble.ErrCorruption) {
			err = errors.Join(&protocol.CorruptionError{Where: f.path(name), What: err.Error()}, err)
		}
		return nil, err
	}
	if err := f.syncDir(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &handle{db: db, name: name}, nil
}

// storageLog passes Pebble's and Raft's errors on as events.
type storageLog struct {
	events event.Sink
	fatal  func(error)
}

func (s *Store) storageLog() storageLog { return storageLog{s.opts.Events, s.opts.Fatal} }

// Infof implements pebble.Logger; what is not an error is nobody's business.
func (storageLog) Infof(string, ...any) {}

// Errorf implements pebble.Logger.
func (l storageLog) Errorf(format string, args ...any) {
	l.events.Emit(StorageTrouble{What: fmt.Sprintf(format, args...)})
}

// Fatalf implements pebble.Logger. Pebble calls it when it cannot go on and relies on it not to return.
func (l storageLog) Fatalf(format string, args ...any) {
	l.Errorf(format, args...)
	err := fmt.Errorf("metadata folder: "+format, args...)
	if l.fatal != nil {
		l.fatal(err)
	}
	panic(err)
}

// Write takes Raft's log lines.
func (l storageLog) Write(line []byte) (int, error) {
	l.Errorf("%s", bytes.TrimSpace(line))
	return len(line), nil
}

// openState opens Pebble, and before anything else brings it up to the newest snapshot: Raft writes an installed snapshot down before it
// calls Restore, and after a crash in between it would go on as if it had been restored (invariant 15).
func (s *Store) openState() error {
	name, err := s.folder.stateDir()
	if err != nil {
		return err
	}
	h, err := openPebble(s.folder, name, s.storageLog())
	if err != nil {
		return err
	}
	s.fsm = &fsm{
		folder: s.folder, hub: s.hub, events: s.opts.Events, log: s.storageLog(), handle: h, sweepWake: make(chan struct{}, 1), journalLimit: s.opts.journalLimit,
	}
	if s.fsm.journalLimit == 0 {
		s.fsm.journalLimit = DefaultJournalEntries
	}
	l, err := load(h.db)
	if err != nil {
		return err
	}
	s.fsm.install(l)
	if err := s.catchUp(); err != nil {
		return err
	}
	img := s.Image()
	if img.FeatureLevel() > FeatureLevel {
		return &NewerError{Dir: s.opts.Dir, What: "feature level", Have: uint64(img.FeatureLevel()), Supported: FeatureLevel}
	}
	if img.ClusterID() != "" {
		return s.folder.checkCluster(img.ClusterID())
	}
	return nil
}

func (s *Store) snapshots() (*raft.FileSnapshotStore, error) {
	return raft.NewFileSnapshotStoreWithLogger(s.opts.Dir, snapshotsKept, s.raftLog())
}

func (s *Store) raftLog() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: "raft", Level: hclog.Error, DisableTime: true, Output: s.storageLog()})
}

func (s *Store) catchUp() error {
	snaps, err := s.snapshots()
	if err != nil {
		return err
	}
	list, err := snaps.List()
	if err != nil || len(list) == 0 || list[0].Index <= s.fsm.applied {
		return err
	}
	_, r, err := snaps.Open(list[0].ID)
	if err != nil {
		return &protocol.CorruptionError{Where: "metastore snapshot " + list[0].ID, What: err.Error()}
	}
	defer r.Close()
	return s.fsm.restore(r, true)
}

func (s *Store) raftConfig(notify chan bool) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = s.server
	c.Logger = s.raftLog()
	c.NoSnapshotRestoreOnStart = true
	c.BatchApplyCh = true
	c.MaxAppendEntries = maxAppendEntries
	c.SnapshotThreshold = snapshotEntries
	c.TrailingLogs = trailingEntries
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = clusterTimeout, clusterTimeout, leaseTimeout
	if s.opts.snapshotEvery > 0 {
		c.SnapshotThreshold, c.SnapshotInterval = s.opts.snapshotEvery, 10*time.Millisecond
	}
	if s.opts.trailingLogs > 0 {
		c.TrailingLogs = s.opts.trailingLogs
	}
	c.NotifyCh = notify
	return c
}

func (s *Store) openRaft() error {
	dir := filepath.Join(s.opts.Dir, "raft")
	err := makeDir(vfs.Default, dir)
	if err != nil {
		return err
	}
	if s.wal, err = wal.Open(dir, wal.WithSegmentSize(walSegmentBytes), wal.WithLogger(s.raftLog())); err != nil {
		return fmt.Errorf("metadata log: %w", err)
	}
	log := roomyLog{s.wal, s.folder.reserve}
	snaps, err := s.snapshots()
	if err != nil {
		return err
	}
	if err := s.closeGap(snaps); err != nil {
		return err
	}
	voters := s.opts.voters
	trans := s.opts.transport
	var alone *raft.InmemTransport
	if trans == nil {
		_, alone = raft.NewInmemTransport("")
		trans = alone
		voters = []raft.Server{{ID: s.server, Address: alone.LocalAddr()}}
	}
	s.sole, s.trans = len(voters) == 1, trans
	notify := make(chan bool, notifyQueueLength)
	conf := s.raftConfig(notify)
	if s.sole {
		if err := s.bootstrapAgain(log, snaps); err != nil {
			return err
		}
	}
	exists, err := raft.HasExistingState(log, log, snaps)
	if err != nil {
		return err
	}
	if !exists {
		if err := raft.BootstrapCluster(conf, log, log, snaps, trans, raft.Configuration{Servers: voters}); err != nil {
			return err
		}
	}
	if s.raft, err = raft.NewRaft(conf, s.fsm, log, log, snaps, trans); err != nil {
		return err
	}
	leaders := make(chan raft.Observation, notifyQueueLength)
	s.raft.RegisterObserver(raft.NewObserver(leaders, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	}))
	s.wg.Go(func() { s.keep(notify, leaders) })
	if s.opts.SnapshotInterval > 0 {
		s.wg.Go(s.snapshotEvery)
	}
	if alone != nil {
		s.elect(alone)
	}
	return nil
}

// raftTermKey is where Raft keeps its term (keyCurrentTerm of hashicorp/raft).
var raftTermKey = []byte("CurrentTerm")

// bootstrapAgain takes back the term of a bootstrap that a crash cut off. raft.BootstrapCluster writes the term, then the entry that names the
// voters; with the term alone Raft takes the cluster for an existing one and waits for ever for others to name them. A sole voter has none.
func (s *Store) bootstrapAgain(log roomyLog, snaps *raft.FileSnapshotStore) error {
	last, err1 := log.LastIndex()
	list, err2 := snaps.List()
	term, err3 := log.GetUint64(raftTermKey)
	if err := errors.Join(err1, err2, err3); err != nil || term == 0 || last > 0 || len(list) > 0 || s.fsm.applied > 0 {
		return err
	}
	return log.SetUint64(raftTermKey, 0)
}

// snapshotEvery takes a snapshot an interval after the last one if there is anything new; Raft's own come after so many entries. A large
// state costs the disk so much writing that snapshotRestShare of the time passes without.
func (s *Store) snapshotEvery() {
	last := s.fsm.snapped.Load()
	for wait := s.opts.SnapshotInterval; ; {
		select {
		case <-time.After(wait):
		case <-s.stopped.Done():
			return
		}
		began := time.Now()
		if at := s.fsm.snapped.Load(); at == last && s.Image().Index() > at {
			if err := s.raft.Snapshot().Error(); err != nil && s.stopped.Err() == nil {
				s.opts.Events.Emit(StorageTrouble{What: "metadata snapshot: " + err.Error()})
			}
		}
		last = s.fsm.snapped.Load()
		wait = max(s.opts.SnapshotInterval, snapshotRestShare*time.Since(began))
	}
}

// elect makes a sole voter stand for election at once, as if a leader had handed over to it. So it leads within milliseconds though its
// timeouts are those of a cluster; short ones would have it wake a hundred times a second to see whether it has lost touch with itself.
// Should the message be lost it stands after the heartbeat timeout.
func (s *Store) elect(alone *raft.InmemTransport) {
	_, caller := raft.NewInmemTransport("")
	caller.Connect(alone.LocalAddr(), alone)
	req := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}
	if err := caller.TimeoutNow(s.server, alone.LocalAddr(), req, &raft.TimeoutNowResponse{}); err != nil {
		s.opts.Events.Emit(StorageTrouble{What: "electing the only voter: " + err.Error()})
	}
}

// closeGap empties a log that ends before the newest snapshot. Raft does that after Restore, and after a crash before it the log would refuse
// every entry that follows the snapshot: raft-wal takes no gaps.
func (s *Store) closeGap(snaps *raft.FileSnapshotStore) error {
	list, err := snaps.List()
	if err != nil || len(list) == 0 {
		return err
	}
	first, err1 := s.wal.FirstIndex()
	last, err2 := s.wal.LastIndex()
	if err := errors.Join(err1, err2); err != nil || last == 0 || last >= list[0].Index {
		return err
	}
	return s.wal.DeleteRange(first, last)
}

// keep follows leadership and does what the leader must: barrier, bootstrap, journal switch, sweeping deleted topics.
func (s *Store) keep(notify <-chan bool, leaders <-chan raft.Observation) {
	retry := time.NewTimer(0)
	defer retry.Stop()
	refill := time.NewTicker(refillInterval)
	defer refill.Stop()
	leader := false
	for {
		select {
		case <-s.stopped.Done():
			s.setLead(false)
			return
		case leader = <-notify:
			if !leader {
				s.setLead(false)
			}
		case <-leaders:
		case <-refill.C:
			s.folder.reserve.fill()
			continue
		case <-s.fsm.sweepWake:
		case <-retry.C:
		}
		_, id := s.raft.LeaderWithID()
		s.hub.setController(nodeOf(id))
		if !leader {
			continue
		}
		if err := s.leaderWork(); err != nil && s.stopped.Err() == nil {
			retry.Reset(retryInterval)
		}
	}
}

func (s *Store) leaderWork() error {
	if !s.IsController() {
		if err := s.barrier(); err != nil {
			return err
		}
		if err := s.bootstrap(s.stopped); err != nil {
			return err
		}
		s.setLead(true)
	}
	return s.sweepTopics(s.stopped)
}

// barrier waits until everything committed before is applied, and until the log has passed the state's index: see passState. Close waits for it:
// Raft does not answer what is queued when it shuts down.
func (s *Store) barrier() error {
	s.gate.RLock()
	defer s.gate.RUnlock()
	if s.closed {
		return raft.ErrRaftShutdown
	}
	if err := s.raft.Barrier(barrierTimeout).Error(); err != nil {
		return err
	}
	return s.passState()
}

// passState fills a log that ends before the state does, with entries that change nothing. A log loses its tail to a damaged block, or to a backup
// that copied it before the state; commands at indexes that the state has had would be passed over and answered as if they had been applied.
func (s *Store) passState() error {
	for applied := s.Image().Index(); s.raft.LastIndex() < applied; {
		fill := make([]raft.Future, min(applied-s.raft.LastIndex(), maxAppendEntries))
		for i := range fill {
			fill[i] = s.raft.Barrier(barrierTimeout)
		}
		for _, f := range fill {
			if err := f.Error(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) bootstrap(ctx context.Context) error {
	if s.Image().ClusterID() == "" {
		_, err := s.Propose(ctx, &metapb.Command{Body: &metapb.Command_Bootstrap{Bootstrap: &metapb.Bootstrap{
			ClusterId: s.folder.stamp.cluster, FeatureLevel: FeatureLevel, Journal: !s.opts.NoJournal,
		}}})
		return err
	}
	if s.Image().cluster.Journal == s.opts.NoJournal {
		_, err := s.Propose(ctx, &metapb.Command{Body: &metapb.Command_JournalSwitch{JournalSwitch: &metapb.JournalSwitch{Enabled: !s.opts.NoJournal}}})
		return err
	}
	return nil
}

// sweepTopics works off the tombstones of deleted topics.
func (s *Store) sweepTopics(ctx context.Context) error {
	for it := s.Image().tombstones.Iterator(); !it.Done(); {
		id, row, _ := it.Next()
		for ok := true; ok; row, ok = s.Image().tombstones.Get(id) {
			_, err := s.Propose(ctx, &metapb.Command{Body: &metapb.Command_SweepTopic{SweepTopic: &metapb.SweepTopic{
				TopicId: []byte(id), MaxRows: sweepRowsInline, ExpectSwept: row.Swept,
			}}})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
