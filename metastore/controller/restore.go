package controller

import (
	"context"
	"math/rand/v2"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
)

// PublishRestored makes a topic that a restore has filled visible, with replicas placed as those of a new one. A deleted topic, of which only
// objects to be deleted are left, is let go of. A repetition changes nothing.
//
// Errors: InvalidReplicationFactor while no broker lives; NotController.
func (c *Controller) PublishRestored(ctx context.Context, t *metastore.RestoringTopic) error {
	seed := rand.Uint32()
	err := c.do(ctx, func(img *metastore.Image) (plan, error) { return stepPublish(img, t, seed) })
	if err == nil && t.Name != "" {
		c.opts.Events.Emit(TopicCreated{Topic: t.Name, ID: t.ID, Partitions: int32(len(t.LeaderEpochs))})
	}
	return err
}

// stepPublish places a restored topic. Each partition begins at a leader epoch above all that were found.
func stepPublish(img *metastore.Image, t *metastore.RestoringTopic, seed uint32) (p plan, err error) {
	r := img.Restore()
	if r == nil {
		return p, protocol.Errorf(protocol.InvalidRequest, "no restore is under way")
	}
	cmd := &metapb.RestorePublish{TopicId: t.ID[:]}
	if t.Name != "" {
		rf := min(max(int(t.Replication), 1), max(len(img.Brokers()), 1))
		replicas, err := place(img, len(t.LeaderEpochs), rf, seed)
		if err != nil {
			return p, protocol.Errorf(protocol.InvalidReplicationFactor, "restored topic %s: %s", t.Name, err)
		}
		if cmd.Partitions, err = newPartitions(img, replicas, 0); err != nil {
			return p, err
		}
		for i, part := range cmd.Partitions {
			part.LeaderEpoch = t.LeaderEpochs[i] + 1
		}
	}
	p.cmds = []*metapb.Command{{Body: &metapb.Command_Restore{Restore: &metapb.RestoreCommand{
		RestoreId: r.ID[:], Body: &metapb.RestoreCommand_Publish{Publish: cmd},
	}}}}
	return p, nil
}
