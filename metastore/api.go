package metastore

import (
	"context"

	"varve/metastore/metapb"
	"varve/protocol"
)

// ProducerIDBlock is the number of producer ids given out at a time (ProducerIdsBlock.java).
const ProducerIDBlock = 1000

// SegmentStart records that the broker is about to upload seg, with the whole location of the object. The writer must lead the
// partition at seg.LeaderEpoch. Repeating it is harmless.
//
// Errors: FencedLeaderEpoch, UnknownTopicID, InvalidRequest (malformed, or the id was used before).
func (s *Store) SegmentStart(ctx context.Context, seg RemoteSegment, broker int32) error {
	seg.Broker = broker
	_, err := s.Propose(ctx, &metapb.Command{Body: &metapb.Command_SegmentStart{SegmentStart: &metapb.SegmentStart{Segment: seg.toProto()}}})
	return err
}

// SegmentFinish makes an uploaded segment readable (invariant 7). The state it returns is the row's state afterwards: SegFinished, or
// SegDeleteStarted when it was refused now or had been before; the row is then left to whoever deletes. A retry changes nothing.
//
// Errors: ResourceNotFound when there is no such row; InvalidRequest when seg differs from what was started or has no Epochs;
// ThrottlingQuotaExceeded when the journal outbox is full: the row stays in SegStarted, try again later.
func (s *Store) SegmentFinish(ctx context.Context, seg RemoteSegment) (SegmentState, error) {
	r, err := s.Propose(ctx, &metapb.Command{Body: &metapb.Command_SegmentFinish{SegmentFinish: &metapb.SegmentFinish{Segment: seg.toProto()}}})
	return r.State, err
}

// SegmentReplace finishes seg and in the same step moves the FINISHED segments old, which together cover exactly the same
// offsets, to DELETE_STARTED. States and errors are those of SegmentFinish; a cover that is not equal is a refusal.
func (s *Store) SegmentReplace(ctx context.Context, old []protocol.UUID, seg RemoteSegment) (SegmentState, error) {
	r, err := s.Propose(ctx, &metapb.Command{Body: &metapb.Command_SegmentReplace{
		SegmentReplace: &metapb.SegmentReplace{Old: idBytes(old), Segment: seg.toProto()},
	}})
	return r.State, err
}

// SegmentsDelete moves segments of one partition to DELETE_STARTED: all of them or, with an error, none. FINISHED ones must lie wholly
// below log start. Ids that are in DELETE_STARTED already are passed over. The epoch is not looked at when the topic is gone.
//
// Errors: FencedLeaderEpoch; InvalidRequest when a FINISHED segment holds readable offsets, for ids without a row, or when there are
// more than MaxSegmentIDs;
// ThrottlingQuotaExceeded when the journal outbox is full.
func (s *Store) SegmentsDelete(ctx context.Context, topic protocol.UUID, partition, leaderEpoch int32, ids []protocol.UUID) error {
	_, err := s.Propose(ctx, &metapb.Command{Body: &metapb.Command_SegmentsDelete{SegmentsDelete: &metapb.SegmentsDelete{
		TopicId: topic[:], Partition: partition, LeaderEpoch: leaderEpoch, Ids: idBytes(ids),
	}}})
	return err
}

// SegmentsGone removes rows in DELETE_STARTED whose objects were deleted. A row that never was FINISHED outlives its DeadlineMs: it is the
// tombstone that catches a late PUT.
//
// Errors: InvalidRequest when rows were left because it is too early for them or they are not in DELETE_STARTED (the others are removed).
func (s *Store) SegmentsGone(ctx context.Context, ids ...protocol.UUID) error {
	r, err := s.Propose(ctx, &metapb.Command{Body: &metapb.Command_SegmentsGone{SegmentsGone: &metapb.SegmentsGone{Ids: idBytes(ids)}}})
	if err == nil && r.Kept > 0 {
		return protocol.Errorf(protocol.InvalidRequest, "%d of %d segments are not deleted yet or inside their upload deadline", r.Kept, len(ids))
	}
	return err
}

// AdvanceLogStart moves the partition's log start up; an offset at or below it changes nothing.
//
// Errors: FencedLeaderEpoch, UnknownTopicID, InvalidRequest for a negative offset.
func (s *Store) AdvanceLogStart(ctx context.Context, topic protocol.UUID, partition, leaderEpoch int32, off int64) error {
	_, err := s.Propose(ctx, &metapb.Command{Body: &metapb.Command_AdvanceLogStart{AdvanceLogStart: &metapb.AdvanceLogStart{
		TopicId: topic[:], Partition: partition, LeaderEpoch: leaderEpoch, Offset: off,
	}}})
	return err
}

// JournalClear tells that all journal entries up to the Raft index through are in the bucket.
//
// Errors: InvalidRequest when through lies in the future.
func (s *Store) JournalClear(ctx context.Context, through uint64) error {
	_, err := s.Propose(ctx, &metapb.Command{Body: &metapb.Command_JournalClear{JournalClear: &metapb.JournalClear{Through: through}}})
	return err
}

// ProducerIDs gives out a block of producer ids to this node's registration.
//
// Errors: StaleBrokerEpoch, BrokerIDNotRegistered.
func (s *Store) ProducerIDs(ctx context.Context, brokerEpoch int64) (first, count int64, err error) {
	const maxAttempts = 16
	for range maxAttempts {
		var r Result
		r, err = s.Propose(ctx, &metapb.Command{Body: &metapb.Command_AllocateProducerIds{AllocateProducerIds: &metapb.AllocateProducerIds{
			Broker: s.opts.NodeID, BrokerEpoch: brokerEpoch, ExpectNext: s.Image().NextProducerID(), Count: ProducerIDBlock,
		}}})
		if protocol.CodeOf(err) != protocol.InvalidUpdateVersion {
			return r.First, r.Count, err
		}
	}
	return 0, 0, err
}

func idBytes(ids []protocol.UUID) [][]byte {
	out := make([][]byte, len(ids))
	for i := range ids {
		out[i] = ids[i][:]
	}
	return out
}
