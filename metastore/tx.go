package metastore

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"varve/metastore/metapb"
	"varve/protocol"
)

// tx applies a run of commands to an indexed batch and a working copy of the image. A command that is refused must not have
// written anything: handlers check first and write then.
type tx struct {
	batch        *pebble.Batch
	img          *Image // its top level may be assigned to; what hangs from it is shared and immutable
	index        uint64 // of the command being applied
	timeMs       int64
	changed      *changes
	locations    []string
	journalLimit int64
	records      []*metapb.JournalRecord // of the command being applied
	broken       error                   // I/O error or broken invariant: nothing of this batch may be committed
}

// run applies one command.
func (t *tx) run(index uint64, data []byte) applied {
	t.index = index
	t.records = nil
	cmd := &metapb.Command{}
	if err := proto.Unmarshal(data, cmd); err != nil {
		return applied{result: Result{Index: index}, err: &protocol.InvariantError{What: "metadata command: " + err.Error()}}
	}
	t.timeMs = cmd.TimeMs
	before := t.batch.Count()
	r, err := t.apply(cmd)
	if err != nil && t.batch.Count() != before && t.broken == nil {
		t.broken = &protocol.InvariantError{What: fmt.Sprintf("refused command %T left a trace: %v", cmd.Body, err)}
	}
	if err == nil {
		t.flushJournal()
	}
	r.Index = index
	return applied{result: r, err: err}
}

func (t *tx) apply(cmd *metapb.Command) (Result, error) {
	if t.img.cluster.ID == "" && cmd.GetBootstrap() == nil {
		return Result{}, protocol.Errorf(protocol.NotController, "the cluster is not bootstrapped")
	}
	switch c := cmd.Body.(type) {
	case *metapb.Command_Bootstrap:
		return t.bootstrap(c.Bootstrap)
	case *metapb.Command_RegisterBroker:
		return t.registerBroker(c.RegisterBroker)
	case *metapb.Command_FenceBroker:
		return t.setFenced(c.FenceBroker.GetId(), c.FenceBroker.GetEpoch(), true, c.FenceBroker.GetChanges())
	case *metapb.Command_UnfenceBroker:
		return t.setFenced(c.UnfenceBroker.GetId(), c.UnfenceBroker.GetEpoch(), false, c.UnfenceBroker.GetChanges())
	case *metapb.Command_UnregisterBroker:
		return t.unregisterBroker(c.UnregisterBroker)
	case *metapb.Command_CreateTopic:
		return t.createTopic(c.CreateTopic)
	case *metapb.Command_DeleteTopic:
		return t.deleteTopic(c.DeleteTopic)
	case *metapb.Command_CreatePartitions:
		return t.createPartitions(c.CreatePartitions)
	case *metapb.Command_ChangePartitions:
		return t.changePartitions(c.ChangePartitions)
	case *metapb.Command_AlterTopicConfigs:
		return t.alterTopicConfigs(c.AlterTopicConfigs)
	case *metapb.Command_AlterBrokerConfigs:
		return t.alterBrokerConfigs(c.AlterBrokerConfigs)
	case *metapb.Command_AllocateProducerIds:
		return t.allocateProducerIDs(c.AllocateProducerIds)
	}
	return t.applyTier(cmd)
}

func (t *tx) applyTier(cmd *metapb.Command) (Result, error) {
	switch c := cmd.Body.(type) {
	case *metapb.Command_SegmentStart:
		return t.segmentStart(c.SegmentStart)
	case *metapb.Command_SegmentFinish:
		return t.segmentFinish(c.SegmentFinish)
	case *metapb.Command_SegmentReplace:
		return t.segmentReplace(c.SegmentReplace)
	case *metapb.Command_SegmentsDelete:
		return t.segmentsDelete(c.SegmentsDelete)
	case *metapb.Command_SegmentsGone:
		return t.segmentsGone(c.SegmentsGone)
	case *metapb.Command_AdvanceLogStart:
		return t.advanceLogStart(c.AdvanceLogStart)
	case *metapb.Command_SweepTopic:
		return t.sweepTopic(c.SweepTopic)
	case *metapb.Command_JournalClear:
		return t.journalClear(c.JournalClear)
	case *metapb.Command_JournalSwitch:
		return t.journalSwitch(c.JournalSwitch)
	case *metapb.Command_Restore:
		return t.restore(c.Restore)
	}
	return Result{}, malformed("command without a body this version knows")
}

func malformed(format string, args ...any) error {
	return &protocol.InvariantError{What: "metadata command: " + fmt.Sprintf(format, args...)}
}

func (t *tx) fail(err error) {
	if t.broken == nil && err != nil {
		t.broken = err
	}
}

// get returns a copy of a value, nil when there is none.
func (t *tx) get(key []byte) []byte {
	v, closer, err := t.batch.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil
	}
	if err != nil {
		t.fail(err)
		return nil
	}
	defer closer.Close()
	return bytes.Clone(v)
}

func (t *tx) set(key, value []byte) { t.fail(t.batch.Set(key, value, nil)) }

func (t *tx) del(key []byte) { t.fail(t.batch.Delete(key, nil)) }

func (t *tx) delPrefix(prefix []byte) { t.fail(t.batch.DeleteRange(prefix, prefixEnd(prefix), nil)) }

func (t *tx) setProto(key []byte, m proto.Message) {
	b, err := rowEncoding.Marshal(m)
	t.fail(err)
	t.set(key, b)
}

// scan calls fn with the rows that begin with prefix, from the key `from` (nil: the first), until it returns false. fn must not write to
// the batch.
func (t *tx) scan(prefix, from []byte, fn func(key, value []byte) bool) {
	it, err := t.batch.NewIter(prefixOptions(prefix))
	if err != nil {
		t.fail(err)
		return
	}
	ok := it.First()
	if from != nil {
		ok = it.SeekGE(from)
	}
	for ; ok && fn(it.Key(), it.Value()); ok = it.Next() {
	}
	t.fail(it.Error())
	t.fail(it.Close())
}
