package tiering

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"varve/broker/commitlog"
	"varve/metastore"
	"varve/protocol"
	"varve/tiering/objstore"
)

// Merging makes one segment of small neighbours in the tier, so that a topic with a
// record now and then does not end as a million tiny objects. mergeplan.go says which.
// The partition's leader reads them into a file on local disk that has no name, so that
// nothing of it outlives the process, checks every byte, and builds the indexes anew; the
// new object is STARTED, stored, read back, and takes the place of the old ones by one
// REPLACE, which the metastore refuses unless the old ones still are exactly what it
// covers and the writer still leads. The old objects go as all do: after the delete
// delay, so that who reads them can finish. One merge is under way at a time, and only
// while no upload waits for its turn.

// lookForMergeLocked queues a partition whose segments have changed, or have been left alone for long enough.
func (m *Manager) lookForMergeLocked(pt *part) {
	s, now := &pt.merge, m.o.Now()
	due := s.look || s.dueMs > 0 && s.dueMs <= now.UnixMilli()
	if m.o.MergeMinSegments < 2 || m.parts[pt.key] != pt || !due || s.queued || s.task != nil || now.Before(s.notBefore) {
		return
	}
	s.queued = true
	m.mergeable = append(m.mergeable, pt)
	m.wakeUp()
}

// startMergeLocked starts the next merge, if there is one.
func (m *Manager) startMergeLocked(ctx context.Context, tasks *sync.WaitGroup) bool {
	if m.merging != nil || len(m.mergeable) == 0 {
		return false
	}
	pt := m.mergeable[0]
	m.mergeable[0], m.mergeable = nil, m.mergeable[1:]
	pt.merge.queued, pt.merge.look = false, false
	if m.parts[pt.key] != pt {
		return true
	}
	limit := 2 * m.uploadDeadline() // half to read, half to write
	tctx, cancel := context.WithTimeout(ctx, limit)
	t := &task{part: pt, started: m.o.Now(), deadline: m.o.Now().Add(limit), cancel: cancel, merge: true}
	m.merging, pt.merge.task = t, t
	m.tasks[t] = struct{}{}
	tasks.Go(func() {
		defer cancel()
		did, err := m.mergeOne(tctx, pt)
		m.finish(t, did, err)
	})
	return true
}

// mergeEndedLocked books the end of a merge; did: there was something to merge.
func (m *Manager) mergeEndedLocked(t *task, did bool, err error) {
	pt := t.part
	if now := m.parts[pt.key]; now != nil && (err != nil || t.freed) {
		now.doubts++ // its attempt may be in STARTED
		m.enqueueLocked(now)
	}
	if t.freed {
		return
	}
	m.merging, pt.merge.task, pt.merge.id = nil, nil, protocol.UUID{}
	pt.merge.look = pt.merge.look || did || err != nil
	if err == nil {
		pt.merge.fails, pt.merge.notBefore = 0, time.Time{}
	} else {
		wait := time.Duration(m.o.TaskIntervalMs) * time.Millisecond << min(pt.merge.fails, 10)
		pt.merge.fails++
		pt.merge.notBefore = m.o.Now().Add(min(wait, maxBackoff))
	}
	m.lookForMergeLocked(pt)
	m.wakeUp()
}

// mergeOne merges once, if there is something to merge.
func (m *Manager) mergeOne(ctx context.Context, pt *part) (did bool, err error) {
	cfg := pt.TierConfig()
	p := m.mergePolicy(cfg)
	if p.min < 2 {
		m.mu.Lock()
		defer m.mu.Unlock()
		pt.merge.dueMs = never
		return false, nil
	}
	m.mu.Lock()
	from := pt.merge.from
	if pt.merge.policy != p {
		from = 0
	}
	m.mu.Unlock()
	f, err := m.findMerge(pt, p, from)
	if err != nil {
		return false, err
	}
	m.mu.Lock()
	pt.merge.from, pt.merge.dueMs, pt.merge.policy = f.settled, f.dueMs, p
	m.mu.Unlock()
	if len(f.old) == 0 {
		return false, nil
	}
	err = m.mergeRows(ctx, pt, cfg, slices.Clone(f.old))
	var crash *crashError
	if err != nil && !errors.Is(err, context.Canceled) && !errors.As(err, &crash) {
		m.o.Events.Emit(MergeFailed{Topic: pt.name, Partition: pt.key.partition, Err: err})
	}
	return err == nil, err
}

// mergeRows makes one segment of neighbours.
func (m *Manager) mergeRows(ctx context.Context, pt *part, cfg TierConfig, old []metastore.RemoteSegment) error {
	u := &upload{m: m, pt: pt, epoch: pt.LeaderEpoch(), old: old}
	st, err := m.o.Meta.Tier(pt.key.topic, pt.key.partition)
	if err != nil {
		return err
	}
	u.start = st.LogStart
	exp, err := m.gather(ctx, old, cfg)
	if err != nil {
		return err
	}
	defer exp.Close()
	u.began = m.o.Now()
	if err := u.encode(exp, cfg); err != nil {
		return err
	}
	m.mu.Lock()
	if err = ctx.Err(); err == nil { // one that was given up leaves its row to retire
		pt.merge.id = u.row.ID
	}
	m.mu.Unlock()
	if err != nil {
		return err
	}
	if err := u.put(ctx); err != nil {
		return err
	}
	if err := u.verify(ctx); err != nil {
		return u.abandon(ctx, err)
	}
	return u.conclude(ctx)
}

// verify reads back what says where everything in the new object is. Its log was checked
// by the store as it came in.
func (u *upload) verify(ctx context.Context) error {
	if err := u.m.fail(fpMergeVerify); err != nil {
		return err
	}
	key := u.m.rowKey(u.row)
	b, err := u.m.getRange(ctx, key, u.row.IndexOff, int64(u.row.IndexLen), objstore.CauseMerge)
	if err == nil && !bytes.Equal(b, u.enc.tail) {
		err = corrupt(key, "it reads otherwise than it was written")
		u.m.alarm(u.row, err)
	}
	return err
}

// gathering puts a merged segment together.
type gathering struct {
	m      *Manager
	file   *os.File
	size   int64
	buf    []byte
	scan   *batchScan
	index  *commitlog.IndexBuilder
	exp    *commitlog.Export
	marker int64 // offset of the last one in the transaction index
}

// newGathering begins a segment of [base, next), whose first batch has the time firstTimestamp.
func (m *Manager) newGathering(base, next, firstTimestamp int64, cfg TierConfig) (*gathering, error) {
	file, err := unnamedFile(m.o.CacheDir)
	if err != nil {
		return nil, err
	}
	interval := cfg.IndexIntervalBytes
	if interval <= 0 {
		interval = commitlog.DefaultConfig().IndexIntervalBytes
	}
	g := &gathering{m: m, file: file, buf: make([]byte, chunkBytes), scan: newBatchScan(base, next), marker: -1,
		index: commitlog.NewIndexBuilder(base, interval)}
	g.exp = &commitlog.Export{Base: base, Next: next, FirstTimestamp: firstTimestamp, MaxTimestamp: -1}
	g.scan.each = g.index.Add
	return g, nil
}

// done ends the gathering, with what went wrong in the midst of it.
func (g *gathering) done(err error) (*commitlog.Export, error) {
	if err == nil {
		err = g.scan.finish()
	}
	if err == nil {
		var newest int64
		g.exp.OffsetIndex, g.exp.TimeIndex, newest, err = g.index.Indexes()
		if err == nil && newest > g.exp.MaxTimestamp {
			err = corrupt(fmt.Sprintf("segment %d-%d", g.exp.Base, g.exp.Next), "a record of time %d, but the newest of its sources is %d", newest, g.exp.MaxTimestamp)
		}
	}
	g.exp.Log = protocol.Span{File: g.file, Len: g.size, Release: func() { g.file.Close() }}
	if err != nil {
		g.exp.Close()
		return nil, err
	}
	return g.exp, nil
}

// gather reads the old segments into one.
func (m *Manager) gather(ctx context.Context, old []metastore.RemoteSegment, cfg TierConfig) (*commitlog.Export, error) {
	first := old[0]
	g, err := m.newGathering(first.Base, old[len(old)-1].Next, first.FirstTimestamp, cfg)
	if err != nil {
		return nil, err
	}
	for _, r := range old {
		if err = g.take(ctx, r); err != nil {
			break
		}
	}
	return g.done(err)
}

// unnamedFile makes a file that goes with its descriptor.
func unnamedFile(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "varve-aside-*")
	if err != nil {
		return nil, fmt.Errorf("tiering: local room to set things aside: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// take appends one segment: its log, its aborted transactions, and what it knows of the
// end of it all.
func (g *gathering) take(ctx context.Context, r metastore.RemoteSegment) error {
	x, err := g.m.index(ctx, r)
	if err != nil {
		return err
	}
	if err := g.copyLog(ctx, r, x); err != nil {
		return err
	}
	g.takeEnd(r.MaxTimestamp, x.ProducerSnapshot, x.Epochs)
	g.takeTxns(x.TxnIndex)
	return nil
}

// takeLocal appends a part of the local log.
func (g *gathering) takeLocal(exp *commitlog.Export) error {
	src := spanReader(exp.Log)
	for off := int64(0); off < exp.Log.Len; {
		b := g.buf[:min(int64(len(g.buf)), exp.Log.Len-off)]
		if n, err := src.ReadAt(b, off); n < len(b) {
			return fmt.Errorf("tiering: local log: %w", err)
		}
		if err := g.append(b); err != nil {
			return err
		}
		off += int64(len(b))
	}
	g.takeEnd(exp.MaxTimestamp, exp.ProducerSnapshot, exp.Epochs)
	g.takeTxns(exp.TxnIndex)
	return nil
}

// takeEnd takes what is known where a source ends.
func (g *gathering) takeEnd(maxTimestamp int64, producers []byte, epochs []commitlog.EpochStart) {
	g.exp.MaxTimestamp = max(g.exp.MaxTimestamp, maxTimestamp)
	g.exp.ProducerSnapshot = producers
	for _, e := range epochs {
		if n := len(g.exp.Epochs); n == 0 || e.Epoch > g.exp.Epochs[n-1].Epoch {
			g.exp.Epochs = append(g.exp.Epochs, e)
		}
	}
}

// append checks bytes of the log and writes them to the file.
func (g *gathering) append(b []byte) error {
	if err := g.scan.feed(b); err != nil {
		return err
	}
	if _, err := g.file.WriteAt(b, g.size); err != nil {
		return fmt.Errorf("tiering: local room for a merge: %w", err)
	}
	g.size += int64(len(b))
	return nil
}

// takeTxns appends aborted transactions, which are ordered by their markers. What a
// segment repeats of the one before it is left out.
func (g *gathering) takeTxns(index []byte) {
	for ; len(index) >= txnEntryBytes; index = index[txnEntryBytes:] {
		if marker := int64(binary.BigEndian.Uint64(index[18:])); marker > g.marker {
			g.exp.TxnIndex = append(g.exp.TxnIndex, index[:txnEntryBytes]...)
			g.marker = marker
		}
	}
}

// maxMergeReads is how often the log of one segment is read on after its body broke off.
const maxMergeReads = 4

// copyLog appends the checked log of one segment to the file.
func (g *gathering) copyLog(ctx context.Context, r metastore.RemoteSegment, x *SegmentIndex) error {
	left := x.Chunks
	for reads := 1; len(left) > 0; reads++ {
		n, err := g.copyChunks(ctx, r, left)
		left = left[n:]
		if err != nil && (reads == maxMergeReads || !objstore.IsRetryable(err)) {
			g.m.alarm(r, err)
			return err
		}
	}
	return nil
}

// copyChunks reads chunks by one GET and returns how many arrived whole.
func (g *gathering) copyChunks(ctx context.Context, r metastore.RemoteSegment, chunks []Chunk) (n int, err error) {
	key := g.m.rowKey(r)
	last := chunks[len(chunks)-1]
	off := chunks[0].Stored
	body, err := g.m.o.Store.Get(ctx, key, off, last.Stored+int64(last.Length)-off, objstore.CauseMerge)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	for _, c := range chunks {
		b := g.buf[:c.Length]
		if _, err := io.ReadFull(body, b); err != nil {
			return n, fmt.Errorf("tiering: merge: chunk at %d of %s: %w", c.Stored, key, err)
		}
		if crc32.Checksum(b, castagnoli) != c.CRC32C {
			return n, corrupt(key, "CRC32C of the chunk at %d", c.Stored)
		}
		if err := g.append(b); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
