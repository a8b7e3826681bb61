package metastore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"varve/metastore/metapb"
	"varve/protocol"
	"varve/protocol/event"
)

// fsm is Raft's state machine. Raft calls it from one goroutine (Persist from another); readers take a handle.
type fsm struct {
	folder       *folder
	hub          *hub
	events       event.Sink
	log          storageLog // for Pebble
	journalLimit int64
	sweepWake    chan struct{} // capacity 1: topics wait to be swept

	applied   uint64
	snapped   atomic.Uint64 // index of the state in the last snapshot of this process's life
	locations atomic.Pointer[[]string]
	failed    atomic.Pointer[error]

	mu     sync.Mutex
	handle *handle // nil once closed
}

// handle keeps a Pebble open while readers use it.
type handle struct {
	db    *pebble.DB
	name  string // of its folder
	users sync.WaitGroup
}

// applied is the answer to one log entry.
type applied struct {
	result Result
	err    error
}

func (h *handle) release() { h.users.Done() }

func (h *handle) close() error {
	h.users.Wait()
	return h.db.Close()
}

// acquire returns the current Pebble; release it soon.
func (f *fsm) acquire() (*handle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.handle == nil {
		return nil, protocol.Errorf(protocol.NotController, "the metastore is closed")
	}
	f.handle.users.Add(1)
	return f.handle, nil
}

// swap puts another handle in place and returns the old one, which no new reader can get.
func (f *fsm) swap(h *handle) *handle {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.handle
	f.handle = h
	return old
}

// close makes the state durable, so that the next start has nothing to replay.
func (f *fsm) close() error {
	h := f.swap(nil)
	if h == nil {
		return nil
	}
	return errors.Join(flush(h.db), h.close())
}

// flushTimeout bounds the wait for a flush: Pebble tries again and again when the disk is full.
const flushTimeout = 10 * time.Second

// flush makes all that was applied durable.
func flush(db *pebble.DB) error {
	done, err := db.AsyncFlush()
	if err != nil {
		return err
	}
	timeout := time.NewTimer(flushTimeout)
	defer timeout.Stop()
	select {
	case <-done:
		return nil
	case <-timeout.C:
		return fmt.Errorf("metadata could not be written to disk within %s", flushTimeout)
	}
}

// failure is the error that stopped the state machine.
func (f *fsm) failure() error {
	if p := f.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// fail stops the state machine: the applied index stays behind, so that a restart replays from the log what was not applied.
func (f *fsm) fail(index uint64, err error) {
	err = fmt.Errorf("metadata state machine stopped at index %d: %w", index, err)
	if f.failed.CompareAndSwap(nil, &err) {
		f.events.Emit(StateFailed{Index: index, Err: err})
	}
}

func (f *fsm) location(n uint32) (string, error) {
	locs := *f.locations.Load()
	if int(n) >= len(locs) {
		return "", &protocol.CorruptionError{Where: "metastore segment row", What: fmt.Sprintf("location %d of %d", n, len(locs))}
	}
	return locs[n], nil
}

// Apply implements raft.FSM; Raft uses ApplyBatch.
func (f *fsm) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM: one Pebble batch with the applied index inside, then one new Image.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	out := make([]any, len(logs))
	answer := func(err error) []any {
		for i := range out {
			out[i] = applied{err: err}
		}
		return out
	}
	if err := f.failure(); err != nil {
		return answer(err)
	}
	t := f.begin()
	defer t.batch.Close()
	for i, l := range logs {
		if l.Type != raft.LogCommand || l.Index <= f.applied {
			out[i] = applied{result: Result{Index: l.Index}}
			continue
		}
		out[i] = t.run(l.Index, l.Data)
		if t.broken != nil {
			f.fail(l.Index, t.broken)
			return answer(f.failure())
		}
	}
	if err := f.commit(t); err != nil {
		f.fail(t.index, err)
		return answer(f.failure())
	}
	return out
}

func (f *fsm) begin() *tx {
	img := *f.hub.img.Load()
	return &tx{
		batch: f.handle.db.NewIndexedBatch(), img: &img, index: f.applied, changed: newChanges(),
		locations: *f.locations.Load(), journalLimit: f.journalLimit,
	}
}

func (f *fsm) commit(t *tx) error {
	if t.index == f.applied {
		return nil
	}
	t.set([]byte{nsApplied}, binary.BigEndian.AppendUint64(nil, t.index))
	if t.img.cluster != f.hub.img.Load().cluster {
		t.setProto([]byte{nsCluster}, t.img.cluster.row())
	}
	if t.broken != nil {
		return t.broken
	}
	f.locations.Store(&t.locations)
	if err := t.batch.Commit(pebble.NoSync); err != nil {
		return err
	}
	f.applied = t.index
	t.img.index = t.index
	f.hub.publish(t.img, t.changed)
	if t.img.tombstones.Len() > 0 {
		select {
		case f.sweepWake <- struct{}{}:
		default:
		}
	}
	return nil
}

func (c cluster) row() *metapb.ClusterRow {
	return &metapb.ClusterRow{
		ClusterId: c.ID, FeatureLevel: c.FeatureLevel, NextProducerId: c.NextProducerID, LastTopicDelete: c.LastTopicDelete,
		Journal: c.Journal, JournaledThrough: c.JournaledThrough, JournalEntries: c.JournalEntries,
		RestoredIndex: c.RestoredIndex, SnapshotIndex: c.SnapshotIndex,
	}
}

func clusterOf(r *metapb.ClusterRow) cluster {
	return cluster{
		ID: r.ClusterId, FeatureLevel: r.FeatureLevel, NextProducerID: r.NextProducerId, LastTopicDelete: r.LastTopicDelete,
		Journal: r.Journal, JournaledThrough: r.JournaledThrough, JournalEntries: r.JournalEntries,
		RestoredIndex: r.RestoredIndex, SnapshotIndex: r.SnapshotIndex,
	}
}

// rowEncoding makes equal rows equal bytes on every node.
var rowEncoding = proto.MarshalOptions{Deterministic: true}
