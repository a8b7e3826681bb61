package tiering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
	"varve/tiering/objstore"
)

// sourcePartition is one partition as of the point in time: what a metastore had of it.
type sourcePartition struct {
	key      partKey
	name     string // of its topic
	cluster  string // whose folder in the bucket it is in
	dead     bool   // its topic is deleted: all that is left goes
	state    metastore.TierState
	finished []metastore.RemoteSegment
	pending  []metastore.RemoteSegment                 // STARTED and DELETE_STARTED
	rows     map[protocol.UUID]metastore.RemoteSegment // all of them, while the journal is applied
	keep     bool                                      // objects that no row names are left alone: there are no rows to go by

	missing, unlisted int // objects that rows name and the bucket has not; and the other way round
	found             []string
}

func newSourcePartition(p *metapb.SnapshotPartition) *sourcePartition {
	out := &sourcePartition{state: metastore.TierStateFromProto(p.Tier)}
	if len(p.TopicId) == 16 {
		out.key = partKey{protocol.UUID(p.TopicId), p.Partition}
	}
	return out
}

func (p *sourcePartition) addRows(g *metapb.SnapshotSegments, places []string) error {
	if p == nil || len(g.TopicId) != 16 || p.key != (partKey{protocol.UUID(g.TopicId), g.Partition}) {
		return corrupt("snapshot", "segment rows outside of their partition")
	}
	rows, err := metastore.UnpackSegments(g.Rows, p.key.topic, p.key.partition, places)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if r.State == metastore.SegFinished {
			p.finished = append(p.finished, r)
		} else {
			p.pending = append(p.pending, r)
		}
	}
	return nil
}

// applyAll does to the partition what the commands behind its journal entries did.
func (p *sourcePartition) applyAll(entries []*metapb.JournalEntry) {
	if len(entries) == 0 {
		return
	}
	p.rows = make(map[protocol.UUID]metastore.RemoteSegment, len(p.finished)+len(p.pending)+len(entries))
	for _, r := range slices.Concat(p.finished, p.pending) {
		p.rows[r.ID] = r
	}
	for _, e := range entries {
		p.apply(e)
	}
	p.finished, p.pending = p.finished[:0], p.pending[:0]
	for _, r := range p.rows {
		if r.State == metastore.SegFinished {
			p.finished = append(p.finished, r)
		} else {
			p.pending = append(p.pending, r)
		}
	}
	p.rows = nil
}

func (p *sourcePartition) apply(e *metapb.JournalEntry) {
	replaces := slices.ContainsFunc(e.Records, func(r *metapb.JournalRecord) bool { return r.GetReplaced() != nil })
	for _, r := range e.Records {
		switch b := r.Body.(type) {
		case *metapb.JournalRecord_Finished:
			p.finish(b.Finished, e.TimeMs, true)
		case *metapb.JournalRecord_Replaced:
			p.finish(b.Replaced.Segment, e.TimeMs, false)
		case *metapb.JournalRecord_LogStart:
			p.advance(b.LogStart.LogStart)
		case *metapb.JournalRecord_DeleteStarted:
			p.advance(b.DeleteStarted.LogStart)
			for _, s := range b.DeleteStarted.Segments {
				p.startDelete(s, e.TimeMs, !replaces)
			}
		}
	}
}

func (p *sourcePartition) finish(in *metapb.Segment, timeMs int64, atEnd bool) {
	s, ok := metastore.SegmentFromProto(in)
	if !ok {
		p.found = append(p.found, "a journal entry names a segment without an id")
		return
	}
	if atEnd {
		p.state.Extend(&s)
	}
	s.State, s.StateTimeMs, s.Epochs = metastore.SegFinished, timeMs, nil
	p.rows[s.ID] = s
}

func (p *sourcePartition) advance(off int64) {
	if off > p.state.LogStart {
		p.state.LogStart = off
	}
}

// startDelete moves a row to DELETE_STARTED. One that was readable and not below log start goes from the end on: its topic
// has left the tier, unless another row takes its place.
func (p *sourcePartition) startDelete(in *metapb.Segment, timeMs int64, fromEnd bool) {
	s, ok := metastore.SegmentFromProto(in)
	if !ok {
		p.found = append(p.found, "a journal entry names a segment without an id")
		return
	}
	s.NeverFinished = p.rows[s.ID].State != metastore.SegFinished
	if fromEnd && !s.NeverFinished && s.Next > p.state.LogStart {
		p.state.End = min(p.state.End, max(s.Base, p.state.LogStart))
	}
	s.State, s.StateTimeMs, s.Epochs = metastore.SegDeleteStarted, timeMs, nil
	p.rows[s.ID] = s
}

// settle compares the rows with the objects that are there, and makes of both what the new cluster takes in.
func (p *sourcePartition) settle(ctx context.Context, store objstore.Store, prefix string, nowMs int64) error {
	if err := p.compare(ctx, store, prefix, nowMs); err != nil {
		return err
	}
	if p.dead {
		for _, r := range p.finished {
			r.State, r.StateTimeMs = metastore.SegDeleteStarted, nowMs
			p.pending = append(p.pending, r)
		}
		p.finished, p.state = nil, metastore.TierState{}
	}
	for i := range p.pending {
		if r := &p.pending[i]; r.State == metastore.SegStarted {
			r.State, r.StateTimeMs, r.NeverFinished = metastore.SegDeleteStarted, nowMs, true
		}
		p.pending[i].DeleteIndex = 0
	}
	slices.SortFunc(p.finished, func(a, b metastore.RemoteSegment) int { return cmp.Compare(a.Base, b.Base) })
	p.state.Bytes, p.state.Count = 0, int64(len(p.finished))
	for i, r := range p.finished {
		p.state.Bytes += r.LogBytes
		switch {
		case i > 0 && r.Base < p.finished[i-1].Next:
			return corrupt("restored partition", "segments %s and %s of %s-%d overlap", p.finished[i-1].ID, r.ID, p.name, p.key.partition)
		case i > 0 && r.Base > max(p.finished[i-1].Next, p.state.LogStart):
			p.found = append(p.found, fmt.Sprintf("%s-%d: no segment claims offsets [%d, %d)", p.name, p.key.partition, p.finished[i-1].Next, r.Base))
		}
	}
	p.state.Trim()
	return nil
}

// compare lists the folders that the partition's rows name, in the order of both. A row whose object is not listed is looked at by
// itself: a LIST may be stale. Readable segments that are gone at the beginning raise the log start: at a point in time long ago, retention
// has been there since. Gone at the end they end the partition earlier. Objects in the cluster's own folder that no row names are to be deleted.
func (p *sourcePartition) compare(ctx context.Context, store objstore.Store, prefix string, nowMs int64) error {
	slices.SortFunc(p.finished, func(a, b metastore.RemoteSegment) int { return cmp.Compare(a.Base, b.Base) })
	pending := map[protocol.UUID]bool{}
	for _, r := range p.pending {
		pending[r.ID] = true
	}
	folders := map[string][]int{p.cluster: nil} // rows by the cluster whose folder they are in
	for i := range p.finished {
		c := cmp.Or(clusterIn(p.finished[i].Location), p.cluster)
		folders[c] = append(folders[c], i)
	}
	var missing []int
	for cluster, rows := range folders {
		at := 0
		folder := partitionPrefix(prefix, cluster, p.key.topic, p.key.partition) + "/"
		err := store.List(ctx, folder, "", func(o objstore.ObjectInfo) bool {
			k, err := ParseSegmentKey(o.Key)
			if err != nil {
				return true
			}
			for at < len(rows) && p.finished[rows[at]].Base < k.Base {
				missing, at = append(missing, rows[at]), at+1
			}
			switch {
			case at < len(rows) && p.finished[rows[at]].ID == k.ID:
				p.sized(&p.finished[rows[at]], o.Size)
				at++
			case cluster == p.cluster && !pending[k.ID]:
				p.stray(k, o.Size, nowMs)
			}
			return true
		})
		if err != nil {
			return err
		}
		missing = append(missing, rows[at:]...)
	}
	gone, err := p.lookFor(ctx, store, prefix, missing)
	if err == nil {
		p.drop(gone)
	}
	return err
}

// sized holds an object's size against its row's.
func (p *sourcePartition) sized(r *metastore.RemoteSegment, size int64) {
	if size != r.ObjectBytes {
		p.found = append(p.found, fmt.Sprintf("%s-%d: the object of segment %s has %d bytes, its row says %d", p.name, p.key.partition, r.ID, size, r.ObjectBytes))
	}
}

// stray takes note of an object that no row names.
func (p *sourcePartition) stray(k SegmentKey, size, nowMs int64) {
	if p.unlisted++; p.keep {
		return
	}
	p.pending = append(p.pending, metastore.RemoteSegment{
		ID: k.ID, TopicID: p.key.topic, Partition: p.key.partition, Base: k.Base, Next: k.Next, MaxTimestamp: k.MaxTimestamp, FirstTimestamp: -1,
		LeaderEpoch: k.LeaderEpoch, Generation: k.Generation, State: metastore.SegDeleteStarted, ObjectBytes: size,
		StartTimeMs: nowMs, StateTimeMs: nowMs, DeadlineMs: nowMs,
	})
}

// maxRestoreHeads bounds the requests of one partition for objects that were not listed.
const maxRestoreHeads = 16

// lookFor asks for the objects of the rows at these places one by one, and returns those that are not there.
func (p *sourcePartition) lookFor(ctx context.Context, store objstore.Store, prefix string, rows []int) (gone map[protocol.UUID]bool, err error) {
	gone = map[protocol.UUID]bool{}
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxRestoreHeads)
	for _, i := range rows {
		g.Go(func() error {
			r := &p.finished[i]
			info, err := store.Head(gctx, segmentKeyIn(prefix, cmp.Or(clusterIn(r.Location), p.cluster), r))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, objstore.ErrNotFound):
				gone[r.ID] = true
			case err != nil:
				return err
			default:
				p.sized(r, info.Size)
			}
			return nil
		})
	}
	return gone, g.Wait()
}

// drop takes rows without an object out at both ends. In the middle they stay: reading there is an error, and an alarm.
func (p *sourcePartition) drop(gone map[protocol.UUID]bool) {
	if p.missing = len(gone); p.missing == 0 || p.dead {
		p.finished = slices.DeleteFunc(p.finished, func(r metastore.RemoteSegment) bool { return p.dead && gone[r.ID] })
		return
	}
	start, end := p.state.LogStart, p.state.End
	for len(p.finished) > 0 && gone[p.finished[0].ID] {
		p.advance(p.finished[0].Next)
		p.finished = p.finished[1:]
	}
	for n := len(p.finished); n > 0 && gone[p.finished[n-1].ID]; n-- {
		p.state.End = max(p.finished[n-1].Base, p.state.LogStart)
		p.finished = p.finished[:n-1]
	}
	if p.state.LogStart > start || p.state.End < end {
		p.found = append(p.found, fmt.Sprintf("%s-%d: %d objects are not in the bucket: offsets [%d, %d) are left of [%d, %d)",
			p.name, p.key.partition, p.missing, p.state.LogStart, max(p.state.End, p.state.LogStart), start, end))
	}
	for _, r := range p.finished {
		if gone[r.ID] {
			p.found = append(p.found, fmt.Sprintf("%s-%d: the object of segment %s [%d, %d) is missing: these offsets cannot be read",
				p.name, p.key.partition, r.ID, r.Base, r.Next))
		}
	}
}

// commands are the rows as the new cluster takes them in. url and prefix are where its store is.
func (p *sourcePartition) commands(url, prefix string) (out []*metapb.RestoreRows) {
	all := append(slices.Clip(p.finished), p.pending...)
	id := p.key.topic
	for some := range slices.Chunk(all, maxRowsInCommand) {
		c := &metapb.RestoreRows{TopicId: id[:], Partition: p.key.partition}
		places := map[string]uint32{}
		for i := range some {
			r := &some[i]
			r.Location = locationOf(url, prefix, cmp.Or(clusterIn(r.Location), p.cluster))
			c.Rows = metastore.PackSegments(c.Rows, r, func(location string) uint32 {
				n, ok := places[location]
				if !ok {
					n = uint32(len(c.Locations))
					places[location] = n
					c.Locations = append(c.Locations, location)
				}
				return n
			})
		}
		out = append(out, c)
	}
	if !p.dead {
		if len(out) == 0 {
			out = append(out, &metapb.RestoreRows{TopicId: id[:], Partition: p.key.partition})
		}
		out[len(out)-1].Tier = p.state.Row()
	}
	return out
}

// maxRowsInCommand keeps a command well below Raft's bound.
const maxRowsInCommand = 4000
