package tiering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

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
	pending  []metastore.RemoteSegment // STARTED and DELETE_STARTED
	keep     bool                      // objects that no row names are left alone: there are no rows to go by

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

// apply does to the partition what the commands behind a journal entry did.
func (p *sourcePartition) apply(e *partEntry) {
	replaces := slices.ContainsFunc(e.records, func(r *metapb.JournalRecord) bool { return r.GetReplaced() != nil })
	for _, r := range e.records {
		switch b := r.Body.(type) {
		case *metapb.JournalRecord_Finished:
			p.finish(b.Finished, e.timeMs, true)
		case *metapb.JournalRecord_Replaced:
			p.finish(b.Replaced.Segment, e.timeMs, false)
		case *metapb.JournalRecord_LogStart:
			p.advance(b.LogStart.LogStart)
		case *metapb.JournalRecord_DeleteStarted:
			p.advance(b.DeleteStarted.LogStart)
			for _, s := range b.DeleteStarted.Segments {
				p.startDelete(s, e.timeMs, !replaces)
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
	p.pending = slices.DeleteFunc(p.pending, func(r metastore.RemoteSegment) bool { return r.ID == s.ID })
	if atEnd {
		p.state.Extend(&s)
	}
	s.State, s.StateTimeMs, s.Epochs = metastore.SegFinished, timeMs, nil
	p.finished = append(p.finished, s)
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
	same := func(r metastore.RemoteSegment) bool { return r.ID == s.ID }
	s.NeverFinished = !slices.ContainsFunc(p.finished, same)
	if fromEnd && !s.NeverFinished && s.Next > p.state.LogStart {
		p.state.End = min(p.state.End, max(s.Base, p.state.LogStart))
	}
	p.finished = slices.DeleteFunc(p.finished, same)
	p.pending = slices.DeleteFunc(p.pending, same)
	s.State, s.StateTimeMs, s.Epochs = metastore.SegDeleteStarted, timeMs, nil
	p.pending = append(p.pending, s)
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

// compare lists the partition's folder. A row whose object is not listed is looked at by itself: a LIST may be stale.
// Readable segments that are gone at the beginning raise the log start: at a point in time long ago, retention has been there
// since. Gone at the end they end the partition earlier. Objects that no row names are to be deleted.
func (p *sourcePartition) compare(ctx context.Context, store objstore.Store, prefix string, nowMs int64) error {
	there := map[protocol.UUID]SegmentKey{}
	sizes := map[protocol.UUID]int64{}
	folder := partitionPrefix(prefix, p.cluster, p.key.topic, p.key.partition) + "/"
	err := store.List(ctx, folder, "", func(o objstore.ObjectInfo) bool {
		if k, err := ParseSegmentKey(o.Key); err == nil {
			there[k.ID], sizes[k.ID] = k, o.Size
		}
		return true
	})
	if err != nil {
		return err
	}
	gone := map[protocol.UUID]bool{}
	for i := range p.finished {
		r := &p.finished[i]
		_, listed := there[r.ID]
		delete(there, r.ID)
		size := sizes[r.ID]
		if !listed {
			info, err := store.Head(ctx, segmentKeyIn(prefix, cmp.Or(clusterIn(r.Location), p.cluster), r))
			if errors.Is(err, objstore.ErrNotFound) {
				gone[r.ID] = true
				continue
			}
			if err != nil {
				return err
			}
			size = info.Size
		}
		if size != r.ObjectBytes {
			p.found = append(p.found, fmt.Sprintf("%s-%d: the object of segment %s has %d bytes, its row says %d", p.name, p.key.partition, r.ID, size, r.ObjectBytes))
		}
	}
	for _, r := range p.pending {
		delete(there, r.ID)
	}
	for id, k := range there {
		if p.unlisted++; p.keep {
			continue
		}
		p.pending = append(p.pending, metastore.RemoteSegment{
			ID: id, TopicID: p.key.topic, Partition: p.key.partition, Base: k.Base, Next: k.Next, MaxTimestamp: k.MaxTimestamp, FirstTimestamp: -1,
			LeaderEpoch: k.LeaderEpoch, Generation: k.Generation, State: metastore.SegDeleteStarted, ObjectBytes: sizes[id],
			StartTimeMs: nowMs, StateTimeMs: nowMs, DeadlineMs: nowMs,
		})
	}
	p.drop(gone)
	return nil
}

// drop takes rows without an object out at both ends. In the middle they stay: reading there is an error, and an alarm.
func (p *sourcePartition) drop(gone map[protocol.UUID]bool) {
	if p.missing = len(gone); p.missing == 0 || p.dead {
		p.finished = slices.DeleteFunc(p.finished, func(r metastore.RemoteSegment) bool { return p.dead && gone[r.ID] })
		return
	}
	slices.SortFunc(p.finished, func(a, b metastore.RemoteSegment) int { return cmp.Compare(a.Base, b.Base) })
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
