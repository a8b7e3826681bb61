package tiering

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
	"varve/tiering/objstore"
)

// bucketReader is where a restore reads from: snapshot and journal, or the segments alone.
type bucketReader interface {
	open(ctx context.Context) error
	// claims names the clusters whose folders the source had taken over.
	claims(ctx context.Context) ([]string, error)
	run(ctx context.Context, sink restoreSink, limit int) error
	close() // completes the report
	free()  // gives back what open took
	nextProducerID() int64
	brokerConfigs() []*metapb.SnapshotBrokerConfigs
}

// newBucketReader makes the reader that a request wants. dir is where it may set aside what does not fit into memory; "" = the system's
// own for temporary files.
func newBucketReader(store objstore.Store, prefix, cluster, dir string, req RestoreRequest, skip map[uint64]string, rep *RestoreReport) bucketReader {
	for index, why := range skip {
		rep.find("the snapshot at index %d is damaged: %s", index, why)
	}
	src := restoreSource{store: store, prefix: prefix, cluster: cluster, dir: dir, toMs: req.ToMs, pattern: req.Topics, skip: skip, rep: rep, rowsInMemory: restoreRowsInMemory}
	if req.Salvage {
		return &salvage{restoreSource: src}
	}
	return &src
}

// claims implements bucketReader.
func (s *restoreSource) claims(ctx context.Context) (out []string, err error) {
	if s.base == 0 {
		return nil, nil
	}
	stop := fmt.Errorf("the first record is all")
	_, err = newSnapReader(s.store, s.prefix, s.cluster).read(ctx, s.base, func(r *metapb.SnapshotRecord) error {
		for _, c := range r.GetCluster().GetClaims() {
			out = append(out, c.ClusterId)
		}
		return stop
	})
	switch {
	case err == stop || err == nil:
		return out, nil
	case isCorrupt(err) || isMissing(err):
		return nil, &snapFailed{s.base, err}
	}
	return nil, err
}

func (s *restoreSource) close() { s.rep.close(s) }

func (s *restoreSource) free() { s.tail.close() }

func (s *restoreSource) nextProducerID() int64 { return s.nextPID + restoreProducerMargin }

func (s *restoreSource) brokerConfigs() (out []*metapb.SnapshotBrokerConfigs) {
	for _, c := range s.configs {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *metapb.SnapshotBrokerConfigs) int { return len(a.Broker) - len(b.Broker) })
	return out
}

// importSink puts what a source finds into the metastore, hidden.
type importSink struct {
	m      *Manager
	id     protocol.UUID
	rep    *RestoreReport
	fill   bool // false: the topics are there already
	groups []*metapb.GroupOffset
}

func (k *importSink) propose(ctx context.Context, c *metapb.RestoreCommand) error {
	if !k.fill {
		return nil
	}
	if err := k.m.fail(fpRestoreRows); err != nil {
		return err
	}
	c.RestoreId = k.id[:]
	_, err := k.m.o.State.ProposeRestore(ctx, c)
	return err
}

func (k *importSink) topic(ctx context.Context, id protocol.UUID, row *metapb.RestoringTopicRow) error {
	k.rep.addTopic(id, row)
	return k.propose(ctx, &metapb.RestoreCommand{Body: &metapb.RestoreCommand_Topic{Topic: &metapb.RestoreTopic{TopicId: id[:], Row: row}}})
}

func (k *importSink) partition(ctx context.Context, p *sourcePartition) error {
	m, id, named := k.m, p.key.topic, !p.dead
	err := p.settle(ctx, m.o.Store, m.o.Prefix, m.o.Now().UnixMilli(), func(rows []metastore.RemoteSegment, last bool) error {
		if p.dead && len(rows) == 0 {
			return nil
		}
		if !named {
			c := &metapb.RestoreCommand{Body: &metapb.RestoreCommand_Topic{Topic: &metapb.RestoreTopic{TopicId: id[:], Row: &metapb.RestoringTopicRow{}}}}
			if err := k.propose(ctx, c); err != nil {
				return err
			}
			named = true
		}
		c := p.command(rows, m.o.Location, m.o.Prefix)
		if last && !p.dead {
			c.Tier = p.state.Row()
		}
		return k.propose(ctx, &metapb.RestoreCommand{Body: &metapb.RestoreCommand_Rows{Rows: c}})
	})
	if err != nil {
		return err
	}
	k.rep.addPartition(p)
	m.job.partitions.Add(1)
	m.job.segments.Add(p.state.Count)
	m.job.bytes.Add(p.state.Bytes)
	return nil
}

func (k *importSink) offsets(_ context.Context, asOfMs int64, offsets []*metapb.GroupOffset) error {
	k.rep.OffsetsTime = timeText(asOfMs)
	k.groups = k.rep.clamp(offsets)
	return nil
}

// whole says that the topics are complete, and stores the group offsets: before anybody can see the topics.
func (k *importSink) whole(ctx context.Context, src bucketReader, configs bool) error {
	m := k.m
	if k.fill {
		a := &metapb.RestoreAdvance{Next: metapb.RestorePhase_RESTORE_GROUPS, NextProducerId: src.nextProducerID()}
		if configs {
			a.Configs = src.brokerConfigs()
		}
		if err := m.restoreAdvance(ctx, k.id, a); err != nil {
			return err
		}
	}
	if m.o.Groups == nil {
		return nil
	}
	for some := range slices.Chunk(k.groups, putOffsetsAtOnce) {
		if err := m.fail(fpRestoreGroups); err != nil {
			return err
		}
		if err := m.o.Groups.PutOffsets(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// countingSink only fills the report: a dry run.
type countingSink struct {
	store  objstore.Store
	prefix string
	nowMs  int64
	rep    *RestoreReport
}

func (k *countingSink) topic(_ context.Context, id protocol.UUID, row *metapb.RestoringTopicRow) error {
	k.rep.addTopic(id, row)
	return nil
}

func (k *countingSink) partition(ctx context.Context, p *sourcePartition) error {
	if err := p.settle(ctx, k.store, k.prefix, k.nowMs, func([]metastore.RemoteSegment, bool) error { return nil }); err != nil {
		return err
	}
	k.rep.addPartition(p)
	return nil
}

func (k *countingSink) offsets(_ context.Context, asOfMs int64, offsets []*metapb.GroupOffset) error {
	k.rep.OffsetsTime = timeText(asOfMs)
	k.rep.clamp(offsets)
	return nil
}

// DryRunRestore reads all that a restore would, and tells what would come of it. It changes nothing, needs no cluster, and is not
// protected against a cluster that goes on writing and deleting meanwhile.
//
// Errors: *NoSourceError, *OwnerError, *protocol.CorruptionError, *FormatError, those of the store.
func DryRunRestore(ctx context.Context, store objstore.Store, prefix string, req RestoreRequest, nowMs int64) (*RestoreReport, error) {
	source, err := PickCluster(ctx, store, prefix, req.Source, "", req.TakeOver)
	if err != nil {
		return nil, err
	}
	skip := map[uint64]string{}
	for {
		rep, err := dryRun(ctx, store, prefix, source, req, skip, nowMs)
		var bad *snapFailed
		if !errors.As(err, &bad) || len(skip) >= maxSkippedSnapshots {
			return rep, err
		}
		skip[bad.index] = bad.err.Error()
	}
}

func dryRun(ctx context.Context, store objstore.Store, prefix, source string, req RestoreRequest, skip map[uint64]string, nowMs int64) (*RestoreReport, error) {
	rep := newRestoreReport(source)
	rep.DryRun, rep.Salvage = true, req.Salvage
	src := newBucketReader(store, prefix, source, "", req, skip, rep)
	defer src.free()
	if err := src.open(ctx); err != nil {
		return nil, err
	}
	if err := src.run(ctx, &countingSink{store, prefix, nowMs, rep}, restorePartitions); err != nil {
		return nil, err
	}
	src.close()
	return rep, nil
}

const maxSkippedSnapshots = 100
