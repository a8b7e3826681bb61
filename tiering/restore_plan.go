package tiering

import (
	"fmt"
	"slices"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
)

// sourcePartition is one partition as of the point in time: what a metastore had of it.
type sourcePartition struct {
	key     partKey
	name    string // of its topic
	cluster string // whose folder in the bucket it is in
	dead    bool   // its topic is deleted: all that is left goes
	state   metastore.TierState
	rows    *partRows
	keep    bool // objects that no row names are left alone: there are no rows to go by

	dying             int64 // rows of objects that are on their way out
	missing, unlisted int   // objects that rows name and the bucket has not; and the other way round
	found             []string
}

// find takes note of something for the report, which does not tell more than this either.
func (p *sourcePartition) find(format string, args ...any) {
	if len(p.found) <= maxFindings {
		p.found = append(p.found, fmt.Sprintf(format, args...))
	}
}

func newSourcePartition(p *metapb.SnapshotPartition, dir string, max int) *sourcePartition {
	out := &sourcePartition{state: metastore.TierStateFromProto(p.Tier)}
	if len(p.TopicId) == 16 {
		out.key = partKey{protocol.UUID(p.TopicId), p.Partition}
	}
	out.rows = newPartRows(out.key, dir, max)
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
		if err := p.rows.add(r); err != nil {
			return err
		}
	}
	return nil
}

// apply does to the partition what the commands behind a journal entry did.
func (p *sourcePartition) apply(e *metapb.JournalEntry) error {
	replaces := slices.ContainsFunc(e.Records, func(r *metapb.JournalRecord) bool { return r.GetReplaced() != nil })
	for _, r := range e.Records {
		var err error
		switch b := r.Body.(type) {
		case *metapb.JournalRecord_Finished:
			err = p.finish(b.Finished, e.TimeMs, true)
		case *metapb.JournalRecord_Replaced:
			err = p.finish(b.Replaced.Segment, e.TimeMs, false)
		case *metapb.JournalRecord_LogStart:
			p.advance(b.LogStart.LogStart)
		case *metapb.JournalRecord_DeleteStarted:
			p.advance(b.DeleteStarted.LogStart)
			for _, s := range b.DeleteStarted.Segments {
				if err = p.startDelete(s, e.TimeMs, !replaces); err != nil {
					return err
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *sourcePartition) finish(in *metapb.Segment, timeMs int64, atEnd bool) error {
	s, ok := metastore.SegmentFromProto(in)
	if !ok {
		p.find("a journal entry names a segment without an id")
		return nil
	}
	if atEnd {
		p.state.Extend(&s)
	}
	s.State, s.StateTimeMs, s.Epochs = metastore.SegFinished, timeMs, nil
	return p.rows.put(s)
}

func (p *sourcePartition) advance(off int64) {
	if off > p.state.LogStart {
		p.state.LogStart = off
	}
}

// startDelete moves a row to DELETE_STARTED. One that was readable and not below log start goes from the end on: its topic
// has left the tier, unless another row takes its place.
func (p *sourcePartition) startDelete(in *metapb.Segment, timeMs int64, fromEnd bool) error {
	s, ok := metastore.SegmentFromProto(in)
	if !ok {
		p.find("a journal entry names a segment without an id")
		return nil
	}
	was, _, err := p.rows.get(keyOf(&s))
	if err != nil {
		return err
	}
	s.NeverFinished = was.State != metastore.SegFinished
	if fromEnd && !s.NeverFinished && s.Next > p.state.LogStart {
		p.state.End = min(p.state.End, max(s.Base, p.state.LogStart))
	}
	s.State, s.StateTimeMs, s.Epochs = metastore.SegDeleteStarted, timeMs, nil
	return p.rows.put(s)
}
