package metastore

import (
	"fmt"
	"math/rand/v2"

	"google.golang.org/protobuf/proto"

	"varve/metastore/metapb"
)

// generator makes commands most of which make sense, from a seed.
type generator struct {
	rnd  *rand.Rand
	f    *fsm
	next int // number of the next segment id
	open []*RemoteSegment
}

func newGenerator(seed uint64, f *fsm) *generator {
	return &generator{rnd: rand.New(rand.NewPCG(seed, 1)), f: f}
}

func (g *generator) topic() string { return fmt.Sprintf("t%d", g.rnd.IntN(3)) }

// command makes one, from the state as it is.
func (g *generator) command() *metapb.Command {
	img := g.f.hub.img.Load()
	name := g.topic()
	t, ok := img.Topic(name)
	if !ok {
		c := createTopicCmd(name, 1+g.rnd.IntN(3))
		id := uid(fmt.Sprintf("%s-%d", name, img.Index()))
		c.GetCreateTopic().TopicId = id[:]
		return c
	}
	p := t.Partitions[g.rnd.IntN(len(t.Partitions))]
	switch g.rnd.IntN(20) {
	case 0:
		return &metapb.Command{Body: &metapb.Command_DeleteTopic{DeleteTopic: &metapb.DeleteTopic{TopicId: t.ID[:]}}}
	case 1:
		return &metapb.Command{Body: &metapb.Command_CreatePartitions{CreatePartitions: &metapb.CreatePartitions{
			TopicId: t.ID[:], ExpectCount: int32(len(t.Partitions)), Partitions: []*metapb.Partition{onePartition(1)},
		}}}
	case 2:
		leader := int32(1 + g.rnd.IntN(2))
		return &metapb.Command{Body: &metapb.Command_ChangePartitions{ChangePartitions: &metapb.ChangePartitions{Changes: []*metapb.PartitionChange{{
			TopicId: t.ID[:], Partition: p.Index, ExpectPartitionEpoch: p.PartitionEpoch, ExpectLeaderEpoch: p.LeaderEpoch,
			State: &metapb.Partition{Replicas: p.Replicas, Dirs: idBytes(p.Dirs), Isr: []int32{leader}, Leader: leader, LeaderEpoch: p.LeaderEpoch + 1},
		}}}}}
	case 3:
		value := fmt.Sprint(g.rnd.IntN(5))
		return &metapb.Command{Body: &metapb.Command_AlterTopicConfigs{AlterTopicConfigs: &metapb.AlterTopicConfigs{
			TopicId: t.ID[:], ExpectVersion: t.ConfigVersion, Changes: []*metapb.ConfigChange{{Key: "k" + value, Value: &value}, {Key: "a"}},
		}}}
	case 4:
		inc := uid(fmt.Sprintf("inc%d", img.Index()))
		expect := int64(-1)
		if b, ok := img.Broker(1); ok {
			expect = b.Epoch
		}
		return &metapb.Command{Body: &metapb.Command_RegisterBroker{RegisterBroker: &metapb.RegisterBroker{
			Broker: &metapb.Broker{Id: 1, Incarnation: inc[:], Dirs: [][]byte{inc[:]}}, ExpectEpoch: expect,
		}}}
	case 5:
		return &metapb.Command{Body: &metapb.Command_JournalClear{JournalClear: &metapb.JournalClear{Through: uint64(g.rnd.IntN(int(img.Index()) + 1))}}}
	case 6:
		return &metapb.Command{Body: &metapb.Command_AlterBrokerConfigs{AlterBrokerConfigs: &metapb.AlterBrokerConfigs{
			ExpectVersion: img.BrokerConfig(-1).Version, Changes: []*metapb.ConfigChange{{Key: "x", Value: proto.String(fmt.Sprint(img.Index()))}},
		}}}
	}
	return g.tierCommand(t, p)
}

func (g *generator) tierCommand(t *Topic, p *Partition) *metapb.Command {
	tier, _ := readTier(g.f.handle.db, t.ID, p.Index)
	switch n := g.rnd.IntN(8); {
	case n < 3:
		base := tier.End
		if g.rnd.IntN(4) == 0 {
			base = max(0, base+int64(g.rnd.IntN(20)-10))
		}
		g.next++
		s := segment("x", fmt.Sprintf("s%d", g.next), base, base+1+int64(g.rnd.IntN(10)), p.LeaderEpoch)
		s.TopicID, s.Partition, s.Broker = t.ID, p.Index, p.Leader
		s.DeadlineMs = 1 << 30
		s.Location = fmt.Sprintf("dir:///tier%d", g.rnd.IntN(3))
		s.Epochs = append([]EpochStart(nil), tier.Epochs...)
		if k := len(s.Epochs); k == 0 || s.Epochs[k-1].Epoch < p.LeaderEpoch {
			s.Epochs = append(s.Epochs, EpochStart{Epoch: p.LeaderEpoch, Start: base})
		}
		g.open = append(g.open, s)
		return startCmd(s)
	case n < 6 && len(g.open) > 0:
		return finishCmd(g.open[max(0, len(g.open)-1-g.rnd.IntN(3))])
	case n == 6:
		return &metapb.Command{Body: &metapb.Command_AdvanceLogStart{AdvanceLogStart: &metapb.AdvanceLogStart{
			TopicId: t.ID[:], Partition: p.Index, LeaderEpoch: p.LeaderEpoch, Offset: tier.LogStart + int64(g.rnd.IntN(8)),
		}}}
	}
	c := &metapb.SegmentsDelete{TopicId: t.ID[:], Partition: p.Index, LeaderEpoch: p.LeaderEpoch}
	var gone [][]byte
	eachRow(g.f.handle.db, partKey(nsFinished, t.ID, p.Index), func(_, v []byte) error {
		if s, _, err := decodeSegment(v, t.ID, p.Index); err == nil && s.Next <= tier.LogStart {
			c.Ids = append(c.Ids, append([]byte(nil), s.ID[:]...))
		}
		return nil
	})
	eachRow(g.f.handle.db, partKey(nsDeleting, t.ID, p.Index), func(_, v []byte) error {
		gone = append(gone, append([]byte(nil), v[2:18]...))
		return nil
	})
	if len(c.Ids) == 0 || g.rnd.IntN(2) == 0 {
		return &metapb.Command{Body: &metapb.Command_SegmentsGone{SegmentsGone: &metapb.SegmentsGone{Ids: gone}}}
	}
	return &metapb.Command{Body: &metapb.Command_SegmentsDelete{SegmentsDelete: c}}
}
