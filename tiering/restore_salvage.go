package tiering

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
	"varve/tiering/objstore"
	"varve/tiering/tierpb"
)

// salvage restores from the segments alone: their keys say what they claim, their footers the rest. What only the metadata knew
// is lost, and the report says so. Several objects may claim the same offsets: attempts that were given up, segments that were
// merged. Of those a chain without gap and overlap is chosen (see chain).
type salvage struct {
	restoreSource

	mu     sync.Mutex
	newest map[partKey]SegmentKey // the segment whose footer tells of topic and partition
	tails  map[partKey]*SegmentIndex
	owners map[string]protocol.UUID // id by name
}

const (
	maxSalvageLists = 16
	maxFooterGets   = 16
	// footerGuessBytes is asked for at the end of an object: most footers lie in it whole.
	footerGuessBytes = 16 << 10
)

// open lists all segments once, and reads one footer for each partition.
func (s *salvage) open(ctx context.Context) error {
	s.cl, s.topics, s.configs = &metapb.SnapshotCluster{}, map[protocol.UUID]*sourceTopic{}, map[string]*metapb.SnapshotBrokerConfigs{}
	s.newest, s.tails, s.owners = map[partKey]SegmentKey{}, map[partKey]*SegmentIndex{}, map[string]protocol.UUID{}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxSalvageLists)
	for i := range spreadFolders {
		folder := path.Join(s.prefix, s.cluster, fmt.Sprintf("%02x", i)) + "/"
		g.Go(func() error {
			return s.store.List(gctx, folder, "", func(o objstore.ObjectInfo) bool {
				if k, err := ParseSegmentKey(o.Key); err == nil {
					s.saw(k)
				}
				return true
			})
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if len(s.newest) == 0 {
		return &NoSourceError{fmt.Sprintf("the folder of cluster %s has no segments", s.cluster), "check --from and --cluster"}
	}
	return s.readTails(ctx)
}

func (s *salvage) saw(k SegmentKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := partKey{k.TopicID, k.Partition}
	if old, ok := s.newest[key]; !ok || later(k, old) {
		s.newest[key] = k
	}
}

// later prefers the higher leader epoch, then the farther end, then the later rewrite: the end of a chain.
func later(a, b SegmentKey) bool {
	return cmp.Or(cmp.Compare(a.LeaderEpoch, b.LeaderEpoch), cmp.Compare(a.Next, b.Next), cmp.Compare(a.Generation, b.Generation),
		strings.Compare(string(a.ID[:]), string(b.ID[:]))) > 0
}

// olderTail reads the newest segment of a partition that is whole; nil when there is none.
func (s *salvage) olderTail(ctx context.Context, key partKey, damaged SegmentKey) (*SegmentIndex, error) {
	var all []SegmentKey
	err := s.store.List(ctx, partitionPrefix(s.prefix, s.cluster, key.topic, key.partition)+"/", "", func(o objstore.ObjectInfo) bool {
		if k, err := ParseSegmentKey(o.Key); err == nil && k.ID != damaged.ID {
			all = append(all, k)
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b SegmentKey) int {
		if later(a, b) {
			return -1
		}
		return 1
	})
	for _, k := range all {
		x, err := s.tail(ctx, k)
		if !isCorrupt(err) && !isMissing(err) {
			return x, err
		}
	}
	s.rep.find("no object of partition %d of topic %s can be read", key.partition, key.topic)
	return nil, nil
}

func (s *salvage) readTails(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxFooterGets)
	for key, k := range s.newest {
		g.Go(func() error {
			x, err := s.tail(gctx, k)
			if isCorrupt(err) || isMissing(err) {
				x, err = s.olderTail(gctx, key, k)
			}
			if err == nil && x != nil {
				s.mu.Lock()
				s.tails[key] = x
				s.mu.Unlock()
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	written := map[protocol.UUID]int64{}
	for _, key := range slices.SortedFunc(maps.Keys(s.tails), func(a, b partKey) int { return cmp.Compare(a.partition, b.partition) }) {
		f := s.tails[key].Footer
		t := s.topics[key.topic]
		if t == nil {
			t = &sourceTopic{replication: 1}
			s.topics[key.topic] = t
		}
		if at := f.GetWriter().GetWrittenMs(); t.name == "" || at > written[key.topic] {
			written[key.topic] = at
			t.name, t.configs = f.Topic, map[string]string{}
			for _, c := range f.Configs {
				t.configs[c.Name] = c.Value
			}
		}
		t.sawEpoch(key.partition, s.newest[key].LeaderEpoch)
		s.rep.pointMs = max(s.rep.pointMs, f.GetWriter().GetWrittenMs())
	}
	s.oneTopicAName(written)
	return nil
}

// oneTopicAName lets the topic that was written to last have a name that several had.
func (s *salvage) oneTopicAName(written map[protocol.UUID]int64) {
	for id, t := range s.topics {
		other, taken := s.owners[t.name]
		if taken && written[other] >= written[id] {
			other, id = id, other
		}
		if taken {
			s.topics[other].deleted = true
			s.rep.find("two topics were called %s: the segments of the older one, %s, are left alone", t.name, other)
		}
		s.owners[t.name] = id
	}
}

// claims implements bucketReader: who had been taken over was in meta/.
func (s *salvage) claims(context.Context) ([]string, error) { return nil, nil }

// run implements bucketReader.
func (s *salvage) run(ctx context.Context, sink restoreSink, limit int) error {
	w := &sourceWalk{s: &s.restoreSource, sink: sink, ctx: ctx, outer: ctx}
	if err := w.show(); err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(limit)
	for key := range s.newest {
		t := s.topics[key.topic]
		if t == nil || t.deleted || !matches(s.pattern, t.name) {
			continue
		}
		g.Go(func() error {
			p, err := s.partition(gctx, key, t.name)
			if p != nil {
				defer p.rows.close()
			}
			if err != nil {
				return err
			}
			return sink.partition(gctx, p)
		})
	}
	return g.Wait()
}

// partition chooses among the objects of one partition and reads their footers.
func (s *salvage) partition(ctx context.Context, key partKey, name string) (*sourcePartition, error) {
	p := &sourcePartition{key: key, name: name, cluster: s.cluster, keep: true, rows: newPartRows(key, s.dir, s.rowsInMemory)}
	var all []SegmentKey
	sizes := map[protocol.UUID]int64{}
	err := s.store.List(ctx, partitionPrefix(s.prefix, s.cluster, key.topic, key.partition)+"/", "", func(o objstore.ObjectInfo) bool {
		if k, err := ParseSegmentKey(o.Key); err == nil {
			all, sizes[k.ID] = append(all, k), o.Size
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	rows, starts, bad, err := s.choose(ctx, all, sizes)
	if err != nil {
		return nil, err
	}
	for _, why := range bad {
		p.find("%s-%d: %v", name, key.partition, why)
	}
	if left := len(all) - len(rows) - len(bad); left > 0 {
		p.find("%s-%d: %d of %d objects claim offsets that others hold, or lie before a gap: they are left alone", name, key.partition, left, len(all))
	}
	for _, r := range rows {
		if err := p.rows.add(r); err != nil {
			return p, err
		}
	}
	p.state = s.stateOf(key, rows, starts)
	return p, nil
}

// choose finds a chain all of whose footers can be read. bad says why some objects cannot be part of one.
func (s *salvage) choose(ctx context.Context, all []SegmentKey, sizes map[protocol.UUID]int64) (rows []metastore.RemoteSegment, starts []int64, bad []error, err error) {
	for {
		chosen := chain(all)
		rows, starts = make([]metastore.RemoteSegment, len(chosen)), make([]int64, len(chosen))
		failed := make([]error, len(chosen))
		g, gctx := errgroup.WithContext(ctx)
		g.SetLimit(maxFooterGets)
		for i, k := range chosen {
			g.Go(func() error {
				f, err := s.footer(gctx, k, sizes[k.ID])
				if isCorrupt(err) || isMissing(err) {
					failed[i] = err
					return nil
				}
				if err != nil {
					return err
				}
				rows[i], starts[i] = salvagedRow(k, f, sizes[k.ID]), f.LogStart
				s.mu.Lock()
				s.nextPID = max(s.nextPID, f.MaxProducerId+1)
				s.mu.Unlock()
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return nil, nil, nil, err
		}
		gone := map[protocol.UUID]bool{}
		for i, err := range failed {
			if err != nil {
				gone[chosen[i].ID] = true
				bad = append(bad, err)
			}
		}
		if len(gone) == 0 {
			return rows, starts, bad, nil
		}
		all = slices.DeleteFunc(slices.Clone(all), func(k SegmentKey) bool { return gone[k.ID] })
	}
}

// stateOf is the state of a partition as its segments know it.
func (s *salvage) stateOf(key partKey, rows []metastore.RemoteSegment, starts []int64) metastore.TierState {
	st := metastore.TierState{}
	if len(rows) == 0 {
		return st
	}
	st.End = rows[len(rows)-1].Next
	st.Settled = st.End
	st.LogStart = max(rows[0].Base, slices.Max(starts))
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.tails[key]; x != nil {
		for _, e := range x.Epochs {
			st.Epochs = append(st.Epochs, metastore.EpochStart{Epoch: e.Epoch, Start: e.Start})
		}
	}
	return st
}

func salvagedRow(k SegmentKey, f *tierpb.Footer, size int64) metastore.RemoteSegment {
	txns := slices.ContainsFunc(f.Sections, func(x *tierpb.Section) bool { return x.Kind == tierpb.SectionKind_SECTION_TXN_INDEX && x.Length > 0 })
	at := f.GetWriter().GetWrittenMs()
	return metastore.RemoteSegment{
		ID: k.ID, TopicID: k.TopicID, Partition: k.Partition, Base: k.Base, Next: k.Next, FirstTimestamp: f.FirstTimestamp, MaxTimestamp: k.MaxTimestamp,
		LeaderEpoch: k.LeaderEpoch, Generation: k.Generation, State: metastore.SegFinished, ObjectBytes: size, LogBytes: f.LogBytes,
		IndexOff: f.LogBytes, IndexLen: int32(size - f.LogBytes), HasTxns: txns, Broker: f.GetWriter().GetBrokerId(),
		StartTimeMs: at, StateTimeMs: at, DeadlineMs: at,
	}
}

// chain chooses segments that follow each other without gap or overlap. It ends with the farthest segment of the highest leader epoch: what a
// deposed leader wrote beyond never was FINISHED (invariant 7). From there it goes back, at each step to the segment
// whose chain reaches lowest; of those that reach as low, to the later one: a merged segment rather than its parts.
func chain(all []SegmentKey) (out []SegmentKey) {
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b SegmentKey) int { return cmp.Or(cmp.Compare(a.Base, b.Base), cmp.Compare(a.Next, b.Next)) })
	type link struct {
		key  SegmentKey
		low  int64
		prev int64 // offset at which the chain before it ends; its own base
	}
	best := map[int64]link{} // by the offset at which the chain ends
	last := all[0]
	for _, k := range all {
		l := link{k, k.Base, k.Base}
		if before, ok := best[k.Base]; ok {
			l.low = before.low
		}
		have, ok := best[k.Next]
		better := !ok || l.low < have.low || l.low == have.low && preferred(k, have.key)
		if better {
			best[k.Next] = l
		}
		if later(k, last) {
			last = k
		}
	}
	for at := last.Next; ; {
		l, ok := best[at]
		if !ok {
			break
		}
		out = append(out, l.key)
		at = l.prev
	}
	slices.Reverse(out)
	return out
}

// preferred is the order among segments that end at the same offset and reach as low.
func preferred(a, b SegmentKey) bool {
	return cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.LeaderEpoch, b.LeaderEpoch), cmp.Compare(b.Base, a.Base),
		strings.Compare(string(a.ID[:]), string(b.ID[:]))) > 0
}

// tail reads everything of an object but its log.
func (s *salvage) tail(ctx context.Context, k SegmentKey) (*SegmentIndex, error) {
	info, err := s.store.Head(ctx, k.String())
	if err != nil {
		return nil, err
	}
	f, err := s.footer(ctx, k, info.Size)
	if err != nil {
		return nil, err
	}
	if info.Size-f.LogBytes > maxIndexBytes {
		return nil, corrupt(k.String(), "indexes of %d bytes", info.Size-f.LogBytes)
	}
	var x *SegmentIndex
	return x, s.checked(ctx, k, f.LogBytes, func(b []byte) (err error) {
		x, err = parseIndex(k.String(), b, f.LogBytes)
		return err
	})
}

// footer reads an object's footer and holds it against the key.
func (s *salvage) footer(ctx context.Context, k SegmentKey, size int64) (f *tierpb.Footer, err error) {
	ask := min(size, footerGuessBytes)
	for {
		short := false
		err = s.checked(ctx, k, size-ask, func(b []byte) error {
			f, _, err = parseFooter(k.String(), b)
			short = isCorrupt(err) && int64(len(b)) == ask && ask < min(size, maxIndexBytes)
			if short {
				return nil
			}
			return err
		})
		if !short {
			break
		}
		ask = min(size, ask*16, maxIndexBytes)
	}
	if err != nil {
		return nil, err
	}
	if protocol.UUID(f.SegmentId) != k.ID || protocol.UUID(f.TopicId) != k.TopicID || f.Partition != k.Partition || f.Base != k.Base || f.Next != k.Next {
		return nil, corrupt(k.String(), "its footer is of another segment: %s-%d [%d, %d)", f.Topic, f.Partition, f.Base, f.Next)
	}
	if f.LogBytes < 0 || f.LogBytes > size {
		return nil, corrupt(k.String(), "log of %d bytes in an object of %d", f.LogBytes, size)
	}
	return f, nil
}

// checked reads an object from off to its end, again when it is not what check expects.
func (s *salvage) checked(ctx context.Context, k SegmentKey, off int64, check func([]byte) error) error {
	var err error
	for range maxCheckedGets {
		var b []byte
		if b, err = readFrom(ctx, s.store, k.String(), off); err != nil {
			if objstore.IsRetryable(err) {
				continue
			}
			return err
		}
		if err = check(b); !isCorrupt(err) {
			return err
		}
	}
	return err
}

func readFrom(ctx context.Context, store objstore.Store, key string, off int64) ([]byte, error) {
	r, err := store.Get(ctx, key, off, -1, "restore")
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, maxIndexBytes+1))
}
