package tiering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"golang.org/x/sync/errgroup"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
	"varve/tiering/objstore"
)

const (
	// maxRowsInCommand keeps a command well below Raft's bound.
	maxRowsInCommand = 4000
	// maxRestoreHeads bounds the requests of one partition for objects that were not listed.
	maxRestoreHeads = 16
)

// settling compares the rows of one partition with the objects that are there, a window of offsets after the other, and makes of both what
// the new cluster takes in. Readable segments that are gone at the beginning raise the log start: at a point in time long ago, retention
// has been there since. Gone at the end they end the partition earlier. In the middle they stay: reading there is an error, and an
// alarm. Objects in the cluster's own folder that no row names are to be deleted.
type settling struct {
	p      *sourcePartition
	store  objstore.Store
	prefix string
	nowMs  int64
	// emit takes the rows in their order, maxRowsInCommand at most; last: there are no more, and the state is final.
	emit func(rows []metastore.RemoteSegment, last bool) error

	out  []metastore.RemoteSegment
	held []metastore.RemoteSegment // readable ones without an object, behind the last that has one; as many as rows may be in memory
	last protocol.UUID             // the readable segment that was kept last
	next int64                     // and where it ends
}

// settle compares the partition's rows with the bucket and hands on what is to be taken in. Errors: *protocol.CorruptionError, those of
// the store and of emit.
func (p *sourcePartition) settle(ctx context.Context, store objstore.Store, prefix string, nowMs int64, emit func([]metastore.RemoteSegment, bool) error) error {
	s := &settling{p: p, store: store, prefix: prefix, nowMs: nowMs, emit: emit}
	start, end := p.state.LogStart, p.state.End
	p.state.Bytes, p.state.Count = 0, 0
	err := p.rows.windows(func(rows []metastore.RemoteSegment, from, to int64) error { return s.window(ctx, rows, from, to) })
	if err != nil {
		return err
	}
	switch {
	case p.dead:
		p.state = metastore.TierState{}
	case len(s.held) > 0:
		p.state.End = max(s.held[0].Base, p.state.LogStart)
	}
	if !p.dead && (p.state.LogStart > start || p.state.End < end) {
		p.find("%s-%d: %d objects are not in the bucket: offsets [%d, %d) are left of [%d, %d)",
			p.name, p.key.partition, p.missing, p.state.LogStart, max(p.state.End, p.state.LogStart), start, end)
	}
	p.state.Trim()
	return emit(s.out, true)
}

// window settles the rows with bases in [from, to), which are all that there are.
func (s *settling) window(ctx context.Context, rows []metastore.RemoteSegment, from, to int64) error {
	var finished []*metastore.RemoteSegment
	pending := map[protocol.UUID]bool{}
	for i := range rows {
		if r := &rows[i]; r.State == metastore.SegFinished {
			finished = append(finished, r)
		} else {
			pending[r.ID] = true
		}
	}
	gone, strays, err := s.compare(ctx, finished, pending, from, to)
	if err != nil {
		return err
	}
	s.p.missing += len(gone)
	for i := range rows {
		r := &rows[i]
		switch {
		case r.State != metastore.SegFinished:
			err = s.dying(r)
		case s.p.dead && gone[r.ID]:
		case s.p.dead:
			r.State, r.StateTimeMs = metastore.SegDeleteStarted, s.nowMs
			err = s.dying(r)
		case gone[r.ID]:
			err = s.gone(r)
		default:
			err = s.keep(r)
		}
		if err != nil {
			return err
		}
	}
	for i := range strays {
		if err := s.hand(&strays[i]); err != nil {
			return err
		}
	}
	return nil
}

// dying hands on a row whose object is to be deleted.
func (s *settling) dying(r *metastore.RemoteSegment) error {
	if r.State == metastore.SegStarted {
		r.State, r.StateTimeMs, r.NeverFinished = metastore.SegDeleteStarted, s.nowMs, true
	}
	r.DeleteIndex = 0
	s.p.dying++
	return s.hand(r)
}

// gone takes a readable row without an object: before all others it raises the log start, else what comes behind it tells.
func (s *settling) gone(r *metastore.RemoteSegment) error {
	if s.p.state.Count == 0 {
		s.p.advance(r.Next)
		return nil
	}
	if len(s.held) >= s.p.rows.max {
		// So many in a row stay, be they the last: their offsets are told of as unreadable, and given to no other records.
		if err := s.keepHeld(); err != nil {
			return err
		}
	}
	s.held = append(s.held, *r)
	return nil
}

func (s *settling) keepHeld() error {
	for i := range s.held {
		r := &s.held[i]
		s.p.find("%s-%d: the object of segment %s [%d, %d) is missing: these offsets cannot be read", s.p.name, s.p.key.partition, r.ID, r.Base, r.Next)
		if err := s.readable(r); err != nil {
			return err
		}
	}
	s.held = s.held[:0]
	return nil
}

// keep hands on a row that has its object, after those before it that have none.
func (s *settling) keep(r *metastore.RemoteSegment) error {
	if err := s.keepHeld(); err != nil {
		return err
	}
	return s.readable(r)
}

func (s *settling) readable(r *metastore.RemoteSegment) error {
	p := s.p
	switch first := p.state.Count == 0; {
	case !first && r.Base < s.next:
		return corrupt("restored partition", "segments %s and %s of %s-%d overlap", s.last, r.ID, p.name, p.key.partition)
	case !first && r.Base > max(s.next, p.state.LogStart):
		p.find("%s-%d: no segment claims offsets [%d, %d)", p.name, p.key.partition, s.next, r.Base)
	}
	s.last, s.next = r.ID, r.Next
	p.state.Bytes += r.LogBytes
	p.state.Count++
	return s.hand(r)
}

func (s *settling) hand(r *metastore.RemoteSegment) error {
	if len(s.out) >= maxRowsInCommand {
		if err := s.emit(s.out, false); err != nil {
			return err
		}
		s.out = s.out[:0]
	}
	s.out = append(s.out, *r)
	return nil
}

// compare lists the folders that the rows name, in the order of both. A row whose object is not listed is looked at by itself: a LIST may
// be stale.
func (s *settling) compare(ctx context.Context, finished []*metastore.RemoteSegment, pending map[protocol.UUID]bool, from, to int64) (gone map[protocol.UUID]bool, strays []metastore.RemoteSegment, err error) {
	p := s.p
	folders := map[string][]*metastore.RemoteSegment{p.cluster: nil} // rows by the cluster whose folder they are in
	for _, r := range finished {
		c := cmp.Or(clusterIn(r.Location), p.cluster)
		folders[c] = append(folders[c], r)
	}
	var missing []*metastore.RemoteSegment
	for cluster, rows := range folders {
		folder := partitionPrefix(s.prefix, cluster, p.key.topic, p.key.partition) + "/"
		after := ""
		if from > math.MinInt64 {
			after = fmt.Sprintf("%s%020d", folder, from) // the keys of this base are longer
		}
		err := s.store.List(ctx, folder, after, func(o objstore.ObjectInfo) bool {
			k, err := ParseSegmentKey(o.Key)
			if err != nil {
				return true
			}
			if k.Base >= to {
				return false
			}
			for len(rows) > 0 && rows[0].Base < k.Base {
				missing, rows = append(missing, rows[0]), rows[1:]
			}
			switch {
			case len(rows) > 0 && rows[0].ID == k.ID:
				p.sized(rows[0], o.Size)
				rows = rows[1:]
			case cluster == p.cluster && !pending[k.ID]:
				if p.unlisted++; !p.keep {
					strays = append(strays, p.stray(k, o.Size, s.nowMs))
				}
			}
			return true
		})
		if err != nil {
			return nil, nil, err
		}
		missing = append(missing, rows...)
	}
	gone, err = s.lookFor(ctx, missing)
	return gone, strays, err
}

// sized holds an object's size against its row's.
func (p *sourcePartition) sized(r *metastore.RemoteSegment, size int64) {
	if size != r.ObjectBytes {
		p.find("%s-%d: the object of segment %s has %d bytes, its row says %d", p.name, p.key.partition, r.ID, size, r.ObjectBytes)
	}
}

// stray is the row of an object that none names: it is to be deleted.
func (p *sourcePartition) stray(k SegmentKey, size, nowMs int64) metastore.RemoteSegment {
	return metastore.RemoteSegment{
		ID: k.ID, TopicID: p.key.topic, Partition: p.key.partition, Base: k.Base, Next: k.Next, MaxTimestamp: k.MaxTimestamp, FirstTimestamp: -1,
		LeaderEpoch: k.LeaderEpoch, Generation: k.Generation, State: metastore.SegDeleteStarted, ObjectBytes: size,
		StartTimeMs: nowMs, StateTimeMs: nowMs, DeadlineMs: nowMs,
	}
}

// lookFor asks for the objects of rows one by one, and returns those that are not there.
func (s *settling) lookFor(ctx context.Context, rows []*metastore.RemoteSegment) (gone map[protocol.UUID]bool, err error) {
	gone = map[protocol.UUID]bool{}
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxRestoreHeads)
	for _, r := range rows {
		g.Go(func() error {
			info, err := s.store.Head(gctx, segmentKeyIn(s.prefix, cmp.Or(clusterIn(r.Location), s.p.cluster), r))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, objstore.ErrNotFound):
				gone[r.ID] = true
			case err != nil:
				return err
			default:
				s.p.sized(r, info.Size)
			}
			return nil
		})
	}
	return gone, g.Wait()
}

// command is what takes rows in. url and prefix are where the new cluster's store is.
func (p *sourcePartition) command(rows []metastore.RemoteSegment, url, prefix string) *metapb.RestoreRows {
	id := p.key.topic
	c := &metapb.RestoreRows{TopicId: id[:], Partition: p.key.partition}
	places := map[string]uint32{}
	for i := range rows {
		r := &rows[i]
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
	return c
}
