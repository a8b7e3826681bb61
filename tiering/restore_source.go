package tiering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"varve/metastore/metapb"
	"varve/protocol"
	"varve/tiering/objstore"
)

const (
	// restoreEpochMargin and restoreProducerMargin are added to what the bucket knows: elections and ids of the last moments are in
	// no snapshot and no journal.
	restoreEpochMargin    = 100
	restoreProducerMargin = 1_000_000

	maxJournalGets = 16 // at once
)

// internalTopics have no records in the tier: what of them can come back is in the snapshot.
var internalTopics = []string{"__consumer_offsets", "__transaction_state", "__share_group_state"}

// restoreSink takes what a source finds: all topics, then partitions (from several goroutines), then group offsets.
type restoreSink interface {
	topic(ctx context.Context, id protocol.UUID, row *metapb.RestoringTopicRow) error
	partition(ctx context.Context, p *sourcePartition) error
	offsets(ctx context.Context, asOfMs int64, offsets []*metapb.GroupOffset) error
}

// sourceTopic is a topic as of the point in time that is restored.
type sourceTopic struct {
	name        string
	configs     map[string]string
	epochs      []int32 // the highest leader epoch found, by partition
	replication int32
	deleted     bool
}

func (t *sourceTopic) row() *metapb.RestoringTopicRow {
	r := &metapb.RestoringTopicRow{Name: t.name, Configs: t.configs, Replication: t.replication}
	for _, e := range t.epochs {
		r.LeaderEpochs = append(r.LeaderEpochs, e+restoreEpochMargin)
	}
	return r
}

// sawEpoch notes a leader epoch of a partition, and that there is one.
func (t *sourceTopic) sawEpoch(partition, epoch int32) {
	for int(partition) >= len(t.epochs) {
		t.epochs = append(t.epochs, 0)
	}
	t.epochs[partition] = max(t.epochs[partition], epoch)
}

// restoreSource is the state of a cluster as the bucket has it: a snapshot and the journal after it, up to a point in time.
type restoreSource struct {
	store           objstore.Store
	prefix, cluster string
	toMs            int64             // 0 = the newest
	pattern         string            // of topic names; "" = all
	skip            map[uint64]string // snapshots that cannot be used, and why

	base    uint64 // index of the snapshot, 0 without one
	cl      *metapb.SnapshotCluster
	places  []string
	configs map[string]*metapb.SnapshotBrokerConfigs
	topics  map[protocol.UUID]*sourceTopic
	nextPID int64

	dir    string                  // where what does not fit into memory goes; "" = the system's own for temporary files
	tail   *journalSpill           // the journal after the snapshot, by partition
	epochs map[partKey]int32       // the highest leader epoch in it
	shared []*metapb.JournalRecord // of it, what is about more than one partition
	rep    *RestoreReport

	rowsInMemory int // of each partition that is worked on, or gathered

	oldestMs int64 // when the oldest snapshot was taken that can be read; 0 = there is none
}

// NoSourceError says that a folder in the bucket holds nothing that can be restored, and what to do.
type NoSourceError struct{ What, Fix string }

// Error implements error.
func (e *NoSourceError) Error() string { return e.What + ": " + e.Fix }

// matches reports whether a topic is to be restored.
func matches(pattern, name string) bool {
	if slices.Contains(internalTopics, name) {
		return false
	}
	ok, err := path.Match(pattern, name)
	return pattern == "" || err == nil && ok
}

// open finds the snapshot to begin with and reads the journal after it. Errors: *NoSourceError, *protocol.CorruptionError, *FormatError,
// those of the store.
func (s *restoreSource) open(ctx context.Context) error {
	s.cl, s.topics, s.configs = &metapb.SnapshotCluster{}, map[protocol.UUID]*sourceTopic{}, map[string]*metapb.SnapshotBrokerConfigs{}
	s.tail, s.epochs, s.shared = newJournalSpill(s.dir), map[partKey]int32{}, nil
	if err := s.choose(ctx); err != nil {
		return err
	}
	return s.readJournal(ctx)
}

// choose picks the newest snapshot that is not younger than the point in time.
func (s *restoreSource) choose(ctx context.Context) error {
	heads, err := listSnapshots(ctx, s.store, s.prefix, s.cluster)
	if err != nil {
		return err
	}
	slices.Reverse(heads)
	young := 0
	for _, l := range heads {
		if s.skip[l.index] != "" {
			continue
		}
		b, err := getPart(ctx, s.store, snapKey(s.prefix, s.cluster, l.index), snapHeaderBytes)
		if err != nil {
			return err
		}
		h, err := parseSnapHead(b)
		if err != nil {
			s.rep.find("the snapshot at index %d cannot be read: %v", l.index, err)
			continue
		}
		s.oldestMs = h.TakenMs
		if s.toMs > 0 && h.TakenMs > s.toMs {
			young++
			continue
		}
		s.base, s.rep.SnapshotIndex, s.rep.SnapshotTime = l.index, l.index, timeText(h.TakenMs)
		s.rep.pointMs = h.TakenMs
		return nil
	}
	if young > 0 {
		s.rep.find("all %d snapshots are younger than the point in time: only the journal leads there", young)
	}
	return nil
}

func getPart(ctx context.Context, store objstore.Store, key string, length int64) ([]byte, error) {
	r, err := store.Get(ctx, key, 0, length, "restore")
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b := make([]byte, length)
	n := 0
	for n < len(b) {
		got, err := r.Read(b[n:])
		n += got
		if err != nil {
			break // a head that is short is told of by who reads it
		}
	}
	return b[:n], nil
}

// readJournal reads the objects that may hold entries after the snapshot.
func (s *restoreSource) readJournal(ctx context.Context) error {
	var keys []string
	err := s.store.List(ctx, journalPrefix(s.prefix, s.cluster), "", func(o objstore.ObjectInfo) bool {
		if first, err := ParseJournalKey(o.Key); err == nil {
			if first <= s.base {
				keys = keys[:0] // what came before is in the snapshot, all of it
			}
			keys = append(keys, o.Key)
		}
		return true
	})
	if err != nil {
		return err
	}
	if s.base == 0 && len(keys) == 0 {
		return &NoSourceError{fmt.Sprintf("the folder of cluster %s has neither a snapshot nor a journal", s.cluster), "restore with --salvage what its segments hold"}
	}
	through := s.base
	for window := range slices.Chunk(keys, maxJournalGets) {
		objects := make([]JournalObject, len(window))
		g, gctx := errgroup.WithContext(ctx)
		for i, key := range window {
			g.Go(func() error {
				return getChecked(gctx, s.store, key, maxJournalObjectBytes, "restore", func(b []byte) (err error) {
					objects[i], err = DecodeJournal(b)
					return err
				})
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		for i := range objects {
			over, err := s.takeObject(&objects[i], &through, window[i])
			if err != nil || over {
				return err
			}
		}
	}
	return nil
}

// takeObject takes the entries of one object that are news; over: the point in time is reached.
func (s *restoreSource) takeObject(o *JournalObject, through *uint64, key string) (over bool, err error) {
	if first := o.Entries[0]; o.Chained && o.Prev > *through {
		if s.toMs > 0 && first.TimeMs > s.toMs && *through > 0 {
			return true, nil // it may be that nothing of what is missing is wanted; the snapshot after it says so or not
		}
		if *through == 0 {
			fix := "restore with --salvage what its segments hold"
			if s.oldestMs > 0 {
				fix = "restore --to " + timeText(s.oldestMs) + ", or later"
			}
			return false, &NoSourceError{fmt.Sprintf("what the bucket has of cluster %s does not reach back so far", s.cluster), fix}
		}
		return false, &NoSourceError{
			fmt.Sprintf("the journal of cluster %s misses what lies between the indexes %d and %d (before %s)", s.cluster, *through, first.Index, key),
			fmt.Sprintf("restore --to %s, the last moment before, or with --salvage", timeText(s.rep.pointMs)),
		}
	}
	s.rep.JournalObjects++
	for _, e := range o.Entries {
		if e.Index <= *through {
			continue
		}
		if s.toMs > 0 && e.TimeMs > s.toMs {
			return true, nil
		}
		*through = e.Index
		s.rep.JournalEntries++
		s.rep.LastIndex, s.rep.pointMs = e.Index, max(s.rep.pointMs, e.TimeMs)
		if err := s.takeEntry(e); err != nil {
			return false, err
		}
	}
	return false, nil
}

func (s *restoreSource) takeEntry(e *metapb.JournalEntry) error {
	of := map[partKey][]*metapb.JournalRecord{}
	for _, r := range e.Records {
		key, ok := recordPart(r)
		switch {
		case r.GetRestored() != nil:
			return &NoSourceError{
				fmt.Sprintf("cluster %s had taken in topics of cluster %s, and was lost before its own snapshot held them", s.cluster, r.GetRestored().Source),
				"restore from --cluster " + r.GetRestored().Source,
			}
		case ok:
			of[key] = append(of[key], r)
		case r.GetProducerIds() != nil:
			s.nextPID = max(s.nextPID, r.GetProducerIds().Next)
		default:
			s.shared = append(s.shared, r) // topics of the snapshot are not read yet
		}
		if f := cmp.Or(r.GetFinished(), r.GetReplaced().GetSegment()); f != nil && ok {
			s.epochs[key] = max(s.epochs[key], f.LeaderEpoch)
		}
	}
	for key, records := range of {
		if err := s.tail.add(key, &metapb.JournalEntry{Index: e.Index, TimeMs: e.TimeMs, Records: records}); err != nil {
			return err
		}
	}
	return nil
}

// recordPart is the partition that a record is about; false for all others.
func recordPart(r *metapb.JournalRecord) (partKey, bool) {
	var id []byte
	var p int32
	switch b := r.Body.(type) {
	case *metapb.JournalRecord_Finished:
		id, p = b.Finished.GetTopicId(), b.Finished.GetPartition()
	case *metapb.JournalRecord_Replaced:
		id, p = b.Replaced.GetSegment().GetTopicId(), b.Replaced.GetSegment().GetPartition()
	case *metapb.JournalRecord_LogStart:
		id, p = b.LogStart.GetTopicId(), b.LogStart.GetPartition()
	case *metapb.JournalRecord_DeleteStarted:
		if segs := b.DeleteStarted.GetSegments(); len(segs) > 0 && onePart(segs) {
			id, p = segs[0].TopicId, segs[0].Partition
		}
	}
	if len(id) != 16 {
		return partKey{}, false
	}
	return partKey{protocol.UUID(id), p}, true
}

func onePart(segs []*metapb.Segment) bool {
	for _, s := range segs {
		if s.Partition != segs[0].Partition || string(s.TopicId) != string(segs[0].TopicId) {
			return false
		}
	}
	return true
}

// run reads the snapshot and hands everything, as of the point in time, to the sink. Errors are those of open and of the sink.
func (s *restoreSource) run(ctx context.Context, sink restoreSink, limit int) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(limit)
	w := &sourceWalk{s: s, sink: sink, g: g, ctx: gctx, outer: ctx}
	err := w.read()
	if w.part != nil {
		w.part.rows.close()
	}
	if werr := g.Wait(); err == nil || errors.Is(err, context.Canceled) {
		err = cmp.Or(werr, err)
	}
	return err
}

// snapFailed says which snapshot turned out to be damaged.
type snapFailed struct {
	index uint64
	err   error
}

func (e *snapFailed) Error() string { return fmt.Sprintf("snapshot at index %d: %v", e.index, e.err) }
func (e *snapFailed) Unwrap() error { return e.err }

// sourceWalk is one pass over a source.
type sourceWalk struct {
	s      *restoreSource
	sink   restoreSink
	g      *errgroup.Group
	ctx    context.Context // ends with the first error, and with the partitions
	outer  context.Context
	part   *sourcePartition // being gathered
	shown  bool             // the topics were handed on
	done   map[partKey]bool // partitions of the snapshot that the journal speaks of too
	asOf   int64
	groups []*metapb.GroupOffset
}

func (w *sourceWalk) read() error {
	w.done = map[partKey]bool{}
	if w.s.base > 0 {
		_, err := newSnapReader(w.s.store, w.s.prefix, w.s.cluster).read(w.ctx, w.s.base, w.record)
		if isCorrupt(err) || isMissing(err) {
			return &snapFailed{w.s.base, err}
		}
		if err != nil {
			return err
		}
	}
	if err := w.rest(); err != nil {
		return err
	}
	if err := w.g.Wait(); err != nil { // offsets are clamped to what the partitions turned out to hold
		return err
	}
	if len(w.groups) > 0 {
		return w.sink.offsets(w.outer, w.asOf, lastOffsets(w.groups))
	}
	return nil
}

// rest hands on what the snapshot ended with, and partitions that only the journal knows.
func (w *sourceWalk) rest() error {
	if err := w.show(); err != nil {
		return err
	}
	if err := w.flush(); err != nil {
		return err
	}
	left := w.s.tail.partitions()
	slices.SortFunc(left, func(a, b partKey) int {
		return cmp.Or(strings.Compare(string(a.topic[:]), string(b.topic[:])), cmp.Compare(a.partition, b.partition))
	})
	for _, key := range left {
		if !w.done[key] {
			w.part = &sourcePartition{key: key, rows: newPartRows(key, w.s.dir, w.s.rowsInMemory)}
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *sourceWalk) record(r *metapb.SnapshotRecord) error {
	s := w.s
	switch b := r.Body.(type) {
	case *metapb.SnapshotRecord_Cluster:
		s.cl, s.nextPID = b.Cluster, max(s.nextPID, b.Cluster.NextProducerId)
	case *metapb.SnapshotRecord_Locations:
		s.places = b.Locations.Locations
	case *metapb.SnapshotRecord_BrokerConfigs:
		s.configs[b.BrokerConfigs.Broker] = b.BrokerConfigs
	case *metapb.SnapshotRecord_Topic:
		if len(b.Topic.TopicId) == 16 {
			s.topics[protocol.UUID(b.Topic.TopicId)] = &sourceTopic{
				name: b.Topic.Name, configs: b.Topic.Configs, epochs: b.Topic.LeaderEpochs, replication: b.Topic.Replication,
			}
		}
	case *metapb.SnapshotRecord_Partition:
		if err := w.show(); err != nil {
			return err
		}
		if err := w.flush(); err != nil {
			return err
		}
		w.part = newSourcePartition(b.Partition, s.dir, s.rowsInMemory)
	case *metapb.SnapshotRecord_Segments:
		return w.part.addRows(b.Segments, s.places)
	case *metapb.SnapshotRecord_GroupOffsets:
		w.asOf = b.GroupOffsets.AsOfMs
		w.groups = append(w.groups, b.GroupOffsets.Offsets...)
	}
	return w.ctx.Err()
}

// show hands the topics on, once all of them are known.
func (w *sourceWalk) show() error {
	if w.shown {
		return nil
	}
	w.shown = true
	for _, r := range w.s.shared {
		w.s.apply(r)
		if g := r.GetGroupOffsets(); g != nil {
			w.asOf, w.groups = g.AsOfMs, append(w.groups, g.Offsets...)
		}
	}
	for key, epoch := range w.s.epochs {
		if t := w.s.topics[key.topic]; t != nil && t.name != "" {
			t.sawEpoch(key.partition, epoch)
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(w.s.topics), func(a, b protocol.UUID) int { return strings.Compare(string(a[:]), string(b[:])) }) {
		t := w.s.topics[id]
		if t.deleted || !matches(w.s.pattern, t.name) {
			continue
		}
		if err := w.sink.topic(w.ctx, id, t.row()); err != nil {
			return err
		}
	}
	return nil
}

// apply applies a record that is about more than one partition.
func (s *restoreSource) apply(r *metapb.JournalRecord) {
	switch b := r.Body.(type) {
	case *metapb.JournalRecord_Restated:
		for _, t := range s.topics {
			t.deleted = true // those that are still there are named next
		}
	case *metapb.JournalRecord_TopicCreated:
		t := s.topicOf(b.TopicCreated.TopicId)
		t.name, t.configs, t.deleted = b.TopicCreated.Name, b.TopicCreated.Configs, false
		t.sawEpoch(b.TopicCreated.Partitions-1, 0)
	case *metapb.JournalRecord_TopicDeleted:
		s.topicOf(b.TopicDeleted.TopicId).deleted = true
	case *metapb.JournalRecord_PartitionsCreated:
		s.topicOf(b.PartitionsCreated.TopicId).sawEpoch(b.PartitionsCreated.Partitions-1, 0)
	case *metapb.JournalRecord_TopicConfigs:
		s.topicOf(b.TopicConfigs.TopicId).configs = b.TopicConfigs.Configs
	case *metapb.JournalRecord_BrokerConfigs:
		s.configs[b.BrokerConfigs.Broker] = &metapb.SnapshotBrokerConfigs{Broker: b.BrokerConfigs.Broker, Configs: b.BrokerConfigs.Configs}
	}
}

func (s *restoreSource) topicOf(id []byte) *sourceTopic {
	if len(id) != 16 {
		return &sourceTopic{deleted: true}
	}
	t := s.topics[protocol.UUID(id)]
	if t == nil {
		t = &sourceTopic{deleted: true}
		s.topics[protocol.UUID(id)] = t
	}
	return t
}

// flush hands the gathered partition on, once few enough are being worked on.
func (w *sourceWalk) flush() error {
	p := w.part
	w.part = nil
	if p == nil {
		return nil
	}
	w.done[p.key] = true
	t := w.s.topics[p.key.topic]
	p.dead = t == nil || t.deleted
	if p.dead && w.s.pattern != "" || !p.dead && !matches(w.s.pattern, t.name) {
		p.rows.close()
		return nil
	}
	if p.cluster = w.s.cluster; !p.dead {
		p.name = t.name
	}
	w.g.Go(func() error {
		defer p.rows.close()
		if err := w.s.tail.each(p.key, p.apply); err != nil {
			return err
		}
		return w.sink.partition(w.ctx, p)
	})
	return nil
}

func timeText(ms int64) string {
	if ms <= 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano)
}
