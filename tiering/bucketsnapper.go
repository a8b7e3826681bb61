package tiering

import (
	"context"
	"errors"
	"hash/crc32"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/tiering/objstore"
)

// ClusterState is the metastore as snapshots and restores see it; *metastore.Store satisfies it.
type ClusterState interface {
	Dump(ctx context.Context, emit func(*metapb.SnapshotRecord) error) (index uint64, err error)
	ProposeRestore(ctx context.Context, c *metapb.RestoreCommand) (metastore.Result, error)
}

// GroupOffsets are the committed offsets of consumer groups, by partition of the topic that they are stored in.
type GroupOffsets interface {
	Partitions() int32
	// Offsets returns what a partition holds; ok is false when its coordinator is elsewhere, or not ready.
	Offsets(ctx context.Context, partition int32) (offsets []*metapb.GroupOffset, ok bool)
	PutOffsets(ctx context.Context, offsets []*metapb.GroupOffset) error
}

const (
	defaultSnapshotIntervalMs = 600_000
	defaultSnapshotDeadline   = time.Hour
	lastSnapshotWait          = 5 * time.Second
	// snapRestShare: after a snapshot that took long, the next one comes after so many times that.
	snapRestShare = 50
	// offsetsInRecord and offsetBytesInRecord bound one record of group offsets.
	offsetsInRecord     = 1000
	offsetBytesInRecord = 1 << 20
	maxPruneKeys        = 1000
)

// snapshots takes one at the start, and then one an interval, for as long as ctx lives.
func (m *Manager) snapshots(ctx context.Context) {
	if m.o.State == nil {
		return
	}
	interval := time.Duration(m.o.SnapshotIntervalMs) * time.Millisecond
	for wait := min(interval, m.taskInterval()); ; {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		began := time.Now()
		sctx, cancel := context.WithTimeout(ctx, defaultSnapshotDeadline)
		done, err := m.snapshotOnce(sctx)
		cancel()
		m.note(&m.snapErr, err)
		wait = min(interval, m.taskInterval())
		if done && err == nil {
			wait = max(interval, snapRestShare*time.Since(began))
		}
	}
}

func (m *Manager) taskInterval() time.Duration {
	return time.Duration(m.o.TaskIntervalMs) * time.Millisecond
}

// lastSnapshot is the one of an orderly stop: with the last journal object it makes the bucket whole.
func (m *Manager) lastSnapshot(ctx context.Context) {
	if m.o.State == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSnapshotWait)
	defer cancel()
	_, err := m.snapshotOnce(ctx)
	m.note(&m.snapErr, err)
}

// snapshotOnce takes a snapshot, if this node is the one to do it and no restore is under way, and removes what no snapshot
// needs any more.
func (m *Manager) snapshotOnce(ctx context.Context) (done bool, err error) {
	m.snapMu.Lock()
	defer m.snapMu.Unlock()
	m.mu.Lock()
	claimed := m.ownerEpoch != 0
	m.mu.Unlock()
	img := m.o.Meta.Image()
	if r := img.Restore(); r != nil && r.Phase != metapb.RestorePhase_RESTORE_SNAPSHOT {
		return false, nil
	}
	if !claimed || !m.o.Meta.IsController() {
		return false, nil
	}
	if err := m.takeSnapshot(ctx); err != nil {
		return false, err
	}
	return true, m.prune(ctx)
}

// takeSnapshot writes the state as of now, and tells the metastore when it is in the bucket.
func (m *Manager) takeSnapshot(ctx context.Context) error {
	if err := m.checkOwner(ctx); err != nil {
		return err
	}
	began := m.o.Now()
	size, err := WriteSnapshot(m.o.Prefix, m.o.ClusterID, began.UnixMilli(), func(add func(*metapb.SnapshotRecord) error) error {
		_, err := m.o.State.Dump(ctx, add)
		if err != nil {
			return err
		}
		return m.dumpOffsets(ctx, add)
	}, func(key string, last bool, b []byte) error { return m.putSnapshot(ctx, key, last, b) })
	if err != nil {
		return err
	}
	if err := m.fail(fpSnapTaken); err != nil {
		return err
	}
	_, err = m.o.State.ProposeRestore(ctx, &metapb.RestoreCommand{Body: &metapb.RestoreCommand_Snapshot{Snapshot: &metapb.SnapshotTaken{Index: size.Index}}})
	if err == nil {
		m.o.Events.Emit(SnapshotWritten{SnapshotSize: size, TookMs: m.o.Now().Sub(began).Milliseconds()})
	}
	return err
}

// putSnapshot stores one object. A last one that is there already was written for the same index, by this controller or the
// one before it: the same state.
func (m *Manager) putSnapshot(ctx context.Context, key string, last bool, b []byte) error {
	fp := fpSnapPart
	if last {
		fp = fpSnapPut
	}
	if err := m.fail(fp); err != nil {
		return err
	}
	crc := crc32.Checksum(b, castagnoli)
	_, err := m.o.Store.Put(ctx, key, objstore.BytesBody(b), objstore.PutOptions{IfNoneMatch: last, CRC32C: &crc, Cause: "snapshot"})
	if last && errors.Is(err, objstore.ErrPrecondition) {
		return nil
	}
	return err
}

// dumpOffsets adds the offsets of all groups. A partition whose coordinator does not answer is carried over from the snapshot
// before, so that no snapshot ever loses offsets because somebody was absent.
func (m *Manager) dumpOffsets(ctx context.Context, add func(*metapb.SnapshotRecord) error) error {
	if m.o.Groups == nil {
		return nil
	}
	parts := m.o.Groups.Partitions()
	answered := map[int32]bool{}
	for p := range parts {
		offsets, ok := m.o.Groups.Offsets(ctx, p)
		if !ok {
			continue
		}
		answered[p] = true
		for len(offsets) > 0 {
			n := fitOffsets(offsets)
			g := &metapb.GroupOffsets{Partition: p, AsOfMs: m.o.Now().UnixMilli(), Offsets: offsets[:n]}
			if err := add(&metapb.SnapshotRecord{Body: &metapb.SnapshotRecord_GroupOffsets{GroupOffsets: g}}); err != nil {
				return err
			}
			offsets = offsets[n:]
		}
	}
	if len(answered) == int(parts) && parts > 0 {
		return nil
	}
	heads, err := listSnapshots(ctx, m.o.Store, m.o.Prefix, m.o.ClusterID)
	if err != nil || len(heads) == 0 {
		return err
	}
	_, err = m.snapReader().read(ctx, heads[len(heads)-1].index, func(r *metapb.SnapshotRecord) error {
		if g := r.GetGroupOffsets(); g != nil && !answered[g.Partition] {
			return add(r)
		}
		return nil
	})
	return err
}

// fitOffsets is how many offsets one record takes; at least one.
func fitOffsets(offsets []*metapb.GroupOffset) int {
	size := 0
	for i, o := range offsets {
		if size += proto.Size(o); i > 0 && (size > offsetBytesInRecord || i == offsetsInRecord) {
			return i
		}
	}
	return len(offsets)
}

func (m *Manager) snapReader() *snapReader {
	return newSnapReader(m.o.Store, m.o.Prefix, m.o.ClusterID)
}

func newSnapReader(store objstore.Store, prefix, cluster string) *snapReader {
	return &snapReader{prefix: prefix, cluster: cluster, get: func(ctx context.Context, key string, check func([]byte) error) error {
		return getChecked(ctx, store, key, maxSnapObjectBytes, "snapshot", check)
	}}
}

// listedSnapshot is the last object of a snapshot as LIST names it.
type listedSnapshot struct {
	index uint64
	at    time.Time
}

// listSnapshots names the snapshots there are, in the order of their indexes.
func listSnapshots(ctx context.Context, store objstore.Store, prefix, cluster string) (out []listedSnapshot, err error) {
	err = store.List(ctx, snapPrefix(prefix, cluster), "", func(o objstore.ObjectInfo) bool {
		if index, part, err := ParseSnapshotKey(o.Key); err == nil && !part {
			out = append(out, listedSnapshot{index, o.ModTime})
		}
		return true
	})
	return out, err
}

// prune removes the snapshots that no point in time within the delete delay needs, and the journal up to the oldest one that
// stays.
func (m *Manager) prune(ctx context.Context) error {
	if m.readClock() != nil || m.mayDelete() != nil {
		return nil
	}
	heads, err := listSnapshots(ctx, m.o.Store, m.o.Prefix, m.o.ClusterID)
	if err != nil {
		return err
	}
	oldest := oldestNeeded(heads, m.o.Now().Add(-time.Duration(m.o.DeleteDelayMs)*time.Millisecond))
	if oldest == 0 {
		return nil
	}
	var keys []string
	err = m.o.Store.List(ctx, snapPrefix(m.o.Prefix, m.o.ClusterID), "", func(o objstore.ObjectInfo) bool {
		if index, _, err := ParseSnapshotKey(o.Key); err == nil && index < oldest {
			keys = append(keys, o.Key)
		}
		return len(keys) < maxPruneKeys
	})
	if err != nil {
		return err
	}
	before := "" // the journal object before the one that LIST names
	err = m.o.Store.List(ctx, journalPrefix(m.o.Prefix, m.o.ClusterID), "", func(o objstore.ObjectInfo) bool {
		first, err := ParseJournalKey(o.Key)
		if err != nil {
			return true
		}
		if first > oldest+1 {
			return false
		}
		if before != "" {
			keys = append(keys, before) // all of it lies below first, or is said again there
		}
		before = o.Key
		return len(keys) < 2*maxPruneKeys
	})
	if err != nil {
		return err
	}
	return m.deleteMeta(ctx, keys)
}

// oldestNeeded is the youngest snapshot from which every time since `since` can be reached: the newest one taken before it.
func oldestNeeded(heads []listedSnapshot, since time.Time) (oldest uint64) {
	for _, h := range heads {
		if h.at.IsZero() || !h.at.Before(since) {
			break
		}
		oldest = h.index
	}
	return oldest
}

func (m *Manager) deleteMeta(ctx context.Context, keys []string) error {
	for some := range slices.Chunk(keys, maxPruneKeys) {
		if err := m.deleteSome(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) deleteSome(ctx context.Context, keys []string) error {
	ctx, cancel := context.WithTimeout(ctx, m.deleteWithin())
	defer cancel()
	if err := m.checkOwner(ctx); err != nil {
		return err
	}
	if err := m.fail(fpSnapPrune); err != nil {
		return err
	}
	left, err := m.o.Store.Delete(ctx, keys)
	if err != nil {
		return err
	}
	return firstKeyError(left)
}

// errNotWhole keeps objects until what was restored is in a snapshot of this cluster's own.
var errNotWhole = errors.New("tiering: nothing is deleted before a snapshot of this cluster holds what was restored")

// mayDelete says whether objects may be deleted at all.
func (m *Manager) mayDelete() error {
	if m.o.State == nil {
		return nil
	}
	img := m.o.Meta.Image()
	if img.Restore() != nil || img.RestoredIndex() > img.SnapshotIndex() {
		return errNotWhole
	}
	return nil
}

// held says whether the partition's topic was restored and waits to be released.
func (m *Manager) held(pt *part) bool {
	if m.o.State == nil {
		return false
	}
	t, ok := m.o.Meta.Image().TopicByID(pt.key.topic)
	return ok && t.Held
}

// deleteWithin bounds one batch of deletes.
func (m *Manager) deleteWithin() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.deleteLimit == 0 {
		return deleteDeadline
	}
	return m.deleteLimit
}
