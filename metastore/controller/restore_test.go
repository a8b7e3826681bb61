package controller

import (
	"slices"
	"testing"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
)

// TestPublishRestored: a restored topic gets as many replicas as it had and there are brokers for, led above the epochs that were found.
func TestPublishRestored(t *testing.T) {
	c, s, ctx := startController(t, Options{TopicPolicy: testPolicy})
	serve(t, c, ctx, 1)
	serve(t, c, ctx, 2)
	id, topic, dead := protocol.NewUUID(), protocol.NewUUID(), protocol.NewUUID()
	if err := c.PublishRestored(ctx, &metastore.RestoringTopic{ID: topic, Name: "t"}); protocol.CodeOf(err) != protocol.InvalidRequest {
		t.Fatalf("without a restore: %v", err)
	}
	for _, step := range []*metapb.RestoreCommand{
		{Body: &metapb.RestoreCommand_Begin{Begin: &metapb.RestoreBegin{Row: &metapb.RestoreRow{Id: id[:], Source: "old"}}}},
		{Body: &metapb.RestoreCommand_Advance{Advance: &metapb.RestoreAdvance{Next: metapb.RestorePhase_RESTORE_IMPORT}}},
		{Body: &metapb.RestoreCommand_Topic{Topic: &metapb.RestoreTopic{TopicId: topic[:], Row: &metapb.RestoringTopicRow{Name: "t", LeaderEpochs: []int32{7, 0, 3}, Replication: 3}}}},
		{Body: &metapb.RestoreCommand_Topic{Topic: &metapb.RestoreTopic{TopicId: dead[:], Row: &metapb.RestoringTopicRow{}}}},
		{Body: &metapb.RestoreCommand_Advance{Advance: &metapb.RestoreAdvance{Next: metapb.RestorePhase_RESTORE_GROUPS}}},
		{Body: &metapb.RestoreCommand_Advance{Advance: &metapb.RestoreAdvance{Next: metapb.RestorePhase_RESTORE_PUBLISH}}},
	} {
		step.RestoreId = id[:]
		if _, err := s.ProposeRestore(ctx, step); err != nil {
			t.Fatal(err)
		}
	}
	hidden := slices.Collect(s.Image().RestoringTopics())
	for range 2 { // again changes nothing
		for _, h := range hidden {
			if err := c.PublishRestored(ctx, h); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, ok := s.Image().Topic("t")
	if !ok || got.ID != topic || len(got.Partitions) != 3 || s.Image().TopicCount() != 1 {
		t.Fatalf("%+v", got)
	}
	for i, least := range []int32{7, 0, 3} {
		if p := got.Partitions[i]; p.LeaderEpoch != least+1 || len(p.Replicas) != 2 || p.Leader < 1 {
			t.Errorf("partition %d is %+v", i, p)
		}
	}
	if left := slices.Collect(s.Image().RestoringTopics()); len(left) != 0 {
		t.Errorf("%d topics are still hidden", len(left))
	}
}
