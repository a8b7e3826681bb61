package metastore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"google.golang.org/protobuf/proto"

	"varve/metastore/metapb"
	"varve/protocol"
	"varve/protocol/event"
)

// FeatureLevel is the newest feature level this version can write and read.
const FeatureLevel = 1

// MaxCommandBytes bounds one Raft log entry.
const MaxCommandBytes = 4 << 20

// enqueueTimeout bounds the wait for a place in Raft's queue when the caller's context has no deadline.
const enqueueTimeout = 10 * time.Second

// Options say where the metastore lives and who it is.
type Options struct {
	Dir              string // made when it is not there
	NodeID           int32
	ClusterID        string        // "" takes the folder's, or a new one at bootstrap
	SnapshotInterval time.Duration // after a snapshot, the next one comes so much later if anything has changed; 0 = after so many entries only
	NoJournal        bool          // nothing drains the journal outbox (no tier is configured): queue nothing
	FS               vfs.FS        // for Pebble and the folder's own files; nil = disk. The Raft log always is on disk
	Now              func() time.Time
	Events           event.Sink
	// Fatal is told when the state can no longer be written, and must end the process: Pebble does not go on after that. nil panics.
	Fatal func(error)

	// voters and transport are for tests of several nodes in one process.
	voters        []raft.Server
	transport     raft.Transport
	snapshotEvery uint64 // log entries; 0 = default
	trailingLogs  uint64 // entries kept behind a snapshot; 0 = default
	journalLimit  int64  // entries; 0 = default
}

// Store is the metadata of the cluster on this node: a Raft voter and its state machine.
type Store struct {
	opts   Options
	folder *folder
	fsm    *fsm
	hub    *hub
	wal    *wal.WAL
	raft   *raft.Raft
	server raft.ServerID
	sole   bool // the only voter
	trans  raft.Transport

	leadMu   sync.Mutex
	lead     chan struct{} // closed when leadership is lost; nil while not controller
	leadWake chan struct{} // closed and replaced when lead changes

	stop    context.CancelFunc
	stopped context.Context
	wg      sync.WaitGroup
	closing atomic.Bool
	gate    sync.RWMutex // held for reading by proposals under way
	closed  bool         // under gate
}

// Result is what a command answers.
type Result struct {
	Index        uint64       // raft index of the command
	Epoch        int64        // RegisterBroker: the broker's epoch
	State        SegmentState // SegmentFinish, SegmentReplace: the row's state afterwards
	Reason       string       // why a FINISHED or REPLACE was refused just now
	First, Count int64        // AllocateProducerIds
	Kept         int          // SegmentsGone: rows that had to stay
	More         bool         // SweepTopic, DeleteTopic: rows are left for the next step
}

// Open opens or makes the metastore, and waits until a sole voter leads and has bootstrapped the cluster. Of several voters it
// waits for none.
//
// Errors: *ForeignError, *NewerError, *protocol.CorruptionError, file system errors, ctx's error.
func Open(ctx context.Context, o Options) (s *Store, err error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	s = &Store{opts: o, hub: newHub(), leadWake: make(chan struct{})}
	s.stopped, s.stop = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, s.shutdown())
			s = nil
		}
	}()
	if s.folder, err = openFolder(o.FS, o.Dir, o.NodeID, o.ClusterID, o.Events); err != nil {
		return s, err
	}
	s.server = raft.ServerID(fmt.Sprintf("%d+%s", o.NodeID, s.folder.stamp.directory))
	if err = s.openState(); err != nil {
		return s, err
	}
	if err = s.openRaft(); err != nil {
		return s, err
	}
	if s.sole {
		err = s.waitBootstrapped(ctx)
	}
	return s, err
}

// waitBootstrapped waits until this node leads and the cluster id is in the image.
func (s *Store) waitBootstrapped(ctx context.Context) error {
	if _, err := s.WaitController(ctx); err != nil {
		return err
	}
	if err := s.fsm.failure(); err != nil {
		return err
	}
	return s.folder.checkCluster(s.Image().ClusterID())
}

// Close hands leadership on where there is another voter, stops Raft, and makes the state durable.
func (s *Store) Close(ctx context.Context) error {
	if s.closing.Swap(true) {
		return nil
	}
	if !s.sole && s.raft.State() == raft.Leader {
		if err := s.raft.LeadershipTransfer().Error(); err != nil {
			s.opts.Events.Emit(StorageTrouble{What: "leadership transfer: " + err.Error()})
		}
	}
	return errors.Join(s.shutdown(), ctx.Err())
}

func (s *Store) shutdown() error {
	s.gate.Lock() // waits for proposals under way
	s.closed = true
	s.gate.Unlock()
	s.stop()
	var errs []error
	if s.raft != nil {
		errs = append(errs, s.raft.Shutdown().Error())
		if c, ok := s.trans.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	s.wg.Wait()
	if s.wal != nil {
		errs = append(errs, s.wal.Close())
	}
	s.hub.close()
	if s.fsm != nil {
		errs = append(errs, s.fsm.close())
	}
	if s.folder != nil {
		errs = append(errs, s.folder.close())
	}
	return errors.Join(errs...)
}

// ClusterID is the cluster's id.
func (s *Store) ClusterID() string { return s.Image().ClusterID() }

// ServerID is this voter's Raft id: node id and the id of the metadata folder (invariant 18).
func (s *Store) ServerID() string { return string(s.server) }

// Image is the newest state, lock-free.
func (s *Store) Image() *Image { return s.hub.img.Load() }

// Subscribe calls fn with every change, in order, on one goroutine of its own; changes that pile up while fn runs come as one. The first
// call names everything there is. cancel does not wait for a call that is under way; Close does.
func (s *Store) Subscribe(fn func(Delta)) (cancel func()) { return s.hub.subscribe(fn) }

// Now is the clock that stamps commands.
func (s *Store) Now() time.Time { return s.opts.Now() }

// NodeID is this node's id.
func (s *Store) NodeID() int32 { return s.opts.NodeID }

// Propose commits a command and waits until this node has applied it: reads after it see it. The command's time is stamped here.
// ctx bounds the wait for a place in the queue; after that, commit or the loss of leadership ends the wait.
//
// Errors: the state machine's refusals (*protocol.Error, InvalidUpdateVersion for stale versions); NotController when another node
// leads; RequestTimedOut when it is not known whether the command was committed (repeat it: commands are idempotent or guarded).
func (s *Store) Propose(ctx context.Context, cmd *metapb.Command) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	s.gate.RLock()
	defer s.gate.RUnlock()
	if s.closed {
		return Result{}, protocol.Errorf(protocol.NotController, "the metastore is closed")
	}
	cmd.TimeMs = s.opts.Now().UnixMilli()
	data, err := proto.Marshal(cmd)
	if err != nil {
		return Result{}, &protocol.InvariantError{What: "command cannot be encoded: " + err.Error()}
	}
	if len(data) > MaxCommandBytes {
		return Result{}, protocol.Errorf(protocol.InvalidRequest, "metadata change of %d bytes exceeds %d", len(data), MaxCommandBytes)
	}
	timeout := enqueueTimeout
	if d, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(d), time.Millisecond)
	}
	f := s.raft.Apply(data, timeout)
	if err := f.Error(); err != nil {
		return Result{}, raftError(err)
	}
	a, ok := f.Response().(applied)
	if !ok {
		return Result{}, &protocol.InvariantError{What: fmt.Sprintf("state machine answered %T", f.Response())}
	}
	if a.result.Reason != "" {
		s.emitRefused(cmd, a.result)
	}
	return a.result, a.err
}

func (s *Store) emitRefused(cmd *metapb.Command, r Result) {
	seg := cmd.GetSegmentFinish().GetSegment()
	if seg == nil {
		seg = cmd.GetSegmentReplace().GetSegment()
	}
	id, _ := uuidOf(seg.GetId())
	topic, _ := uuidOf(seg.GetTopicId())
	s.opts.Events.Emit(SegmentRefused{Segment: id, TopicID: topic, Part: seg.GetPartition(), Reason: r.Reason})
}

func raftError(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrRaftShutdown):
		return protocol.Errorf(protocol.NotController, "%s", err)
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrAbortedByRestore), errors.Is(err, raft.ErrEnqueueTimeout):
		return protocol.Errorf(protocol.RequestTimedOut, "%s", err)
	}
	return fmt.Errorf("metadata quorum: %w", err)
}

// IsController reports whether this node leads the quorum and has applied everything committed before it did.
func (s *Store) IsController() bool {
	s.leadMu.Lock()
	defer s.leadMu.Unlock()
	return s.lead != nil
}

// WaitController waits until this node is the controller. The channel is closed when it no longer is.
//
// Errors: ctx's, NotController once the store closes.
func (s *Store) WaitController(ctx context.Context) (lost <-chan struct{}, err error) {
	for {
		s.leadMu.Lock()
		lead, wake := s.lead, s.leadWake
		s.leadMu.Unlock()
		if lead != nil {
			return lead, nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.stopped.Done():
			return nil, protocol.Errorf(protocol.NotController, "the metastore is closed")
		}
	}
}

func (s *Store) setLead(on bool) {
	s.leadMu.Lock()
	defer s.leadMu.Unlock()
	if on == (s.lead != nil) {
		return
	}
	if on {
		s.lead = make(chan struct{})
		s.opts.Events.Emit(BecameController{NodeID: s.opts.NodeID})
	} else {
		close(s.lead)
		s.lead = nil
		s.opts.Events.Emit(LostController{NodeID: s.opts.NodeID})
	}
	close(s.leadWake)
	s.leadWake = make(chan struct{})
}

// nodeOf reads the node id out of a Raft server id, -1 when there is none.
func nodeOf(id raft.ServerID) int32 {
	node, _, _ := strings.Cut(string(id), "+")
	n, err := strconv.ParseInt(node, 10, 32)
	if err != nil {
		return -1
	}
	return int32(n)
}
