package replica

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
)

const self int32 = 1

// book makes Images: a real metastore that no node listens to.
type book struct {
	t testing.TB
	s *metastore.Store
}

func newBook(t testing.TB) *book {
	t.Helper()
	s, err := metastore.Open(context.Background(), metastore.Options{Dir: t.TempDir(), NodeID: self, NoJournal: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	b := &book{t, s}
	id := protocol.NewUUID()
	b.propose(&metapb.Command{Body: &metapb.Command_RegisterBroker{RegisterBroker: &metapb.RegisterBroker{
		Broker: &metapb.Broker{Id: self, Incarnation: id[:], Dirs: [][]byte{id[:]}}, ExpectEpoch: -1,
	}}})
	return b
}

func (b *book) propose(c *metapb.Command) {
	b.t.Helper()
	if _, err := b.s.Propose(context.Background(), c); err != nil {
		b.t.Fatal(err)
	}
}

// topic makes a topic whose partitions have these replicas, all in sync, the first one leading at epoch 0.
func (b *book) topic(name string, partitions int, replicas []int32, configs ...string) protocol.UUID {
	b.t.Helper()
	id := protocol.NewUUID()
	c := &metapb.CreateTopic{TopicId: id[:], Name: name, Configs: map[string]string{}, ImageIndex: b.s.Image().Index()}
	for i := 0; i+1 < len(configs); i += 2 {
		c.Configs[configs[i]] = configs[i+1]
	}
	var zero protocol.UUID
	for range partitions {
		p := &metapb.Partition{Replicas: replicas, Isr: replicas, Leader: replicas[0]}
		for range replicas {
			p.Dirs = append(p.Dirs, zero[:])
		}
		c.Partitions = append(c.Partitions, p)
	}
	b.propose(&metapb.Command{Body: &metapb.Command_CreateTopic{CreateTopic: c}})
	return id
}

func (b *book) deleteTopic(id protocol.UUID) {
	b.propose(&metapb.Command{Body: &metapb.Command_DeleteTopic{DeleteTopic: &metapb.DeleteTopic{TopicId: id[:]}}})
}

// addPartition adds one partition with the replicas of the first.
func (b *book) addPartition(id protocol.UUID) {
	t, _ := b.s.Image().TopicByID(id)
	part := metastore.PartitionState(t.Partitions[0])
	part.Dirs = [][]byte{make([]byte, 16)}
	b.propose(&metapb.Command{Body: &metapb.Command_CreatePartitions{CreatePartitions: &metapb.CreatePartitions{
		TopicId: id[:], ExpectCount: int32(len(t.Partitions)), Partitions: []*metapb.Partition{part},
	}}})
}

// change edits a partition.
func (b *book) change(id protocol.UUID, index int32, edit func(p *metastore.Partition)) {
	b.t.Helper()
	if err := b.tryChange(id, index, edit); err != nil {
		b.t.Fatal(err)
	}
}

func (b *book) tryChange(id protocol.UUID, index int32, edit func(p *metastore.Partition)) error {
	for {
		old, ok := b.s.Image().Partition(id, index)
		if !ok {
			return protocol.UnknownTopicOrPartition
		}
		p := *old
		p.Dirs = append([]protocol.UUID(nil), old.Dirs...)
		edit(&p)
		_, err := b.s.Propose(context.Background(), &metapb.Command{Body: &metapb.Command_ChangePartitions{ChangePartitions: &metapb.ChangePartitions{
			Changes: []*metapb.PartitionChange{{
				TopicId: id[:], Partition: index, ExpectPartitionEpoch: old.PartitionEpoch, ExpectLeaderEpoch: old.LeaderEpoch,
				State: metastore.PartitionState(&p),
			}},
		}}})
		if protocol.CodeOf(err) != protocol.InvalidUpdateVersion {
			return err
		}
	}
}

// lead elects a leader at the next epoch.
func (b *book) lead(id protocol.UUID, index, leader int32) {
	b.change(id, index, func(p *metastore.Partition) {
		p.Leader, p.LeaderEpoch = leader, p.LeaderEpoch+1
		if !slices.Contains(p.ISR, leader) {
			p.ISR = []int32{leader}
		}
	})
}

func (b *book) configs(id protocol.UUID, key, value string) {
	t, _ := b.s.Image().TopicByID(id)
	b.propose(&metapb.Command{Body: &metapb.Command_AlterTopicConfigs{AlterTopicConfigs: &metapb.AlterTopicConfigs{
		TopicId: id[:], ExpectVersion: t.ConfigVersion, Changes: []*metapb.ConfigChange{{Key: key, Value: &value}},
	}}})
}

// stillMeta is a Meta that stands still until it is shown another Image, so that it works inside synctest.
type stillMeta struct {
	mu    sync.Mutex
	img   *metastore.Image
	subs  []chan struct{}
	tiers map[replicaKey]metastore.TierState
	wg    sync.WaitGroup
}

func (f *stillMeta) Image() *metastore.Image {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.img
}

func (f *stillMeta) show(img *metastore.Image) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.img = img
	for _, c := range f.subs {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (f *stillMeta) Subscribe(fn func(metastore.Delta)) func() {
	wake, stop := make(chan struct{}, 1), make(chan struct{})
	f.mu.Lock()
	f.subs = append(f.subs, wake)
	f.mu.Unlock()
	f.wg.Go(func() {
		var old *metastore.Image
		for {
			img := f.Image()
			fn(deltaOf(old, img))
			old = img
			select {
			case <-wake:
			case <-stop:
				return
			}
		}
	})
	return func() { close(stop) }
}

func deltaOf(old, img *metastore.Image) metastore.Delta {
	d := metastore.Delta{Old: old, New: img}
	if old != nil {
		for t := range old.Topics() {
			if _, ok := img.TopicByID(t.ID); !ok {
				d.Topics = append(d.Topics, metastore.TopicChange{Old: t})
			}
		}
	}
	for t := range img.Topics() {
		var was *metastore.Topic
		if old != nil {
			was, _ = old.TopicByID(t.ID)
		}
		if was != t {
			d.Topics = append(d.Topics, metastore.TopicChange{Old: was, New: t})
		}
	}
	return d
}

func (f *stillMeta) Tier(id protocol.UUID, index int32) (metastore.TierState, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tiers[replicaKey{id, index}], nil
}

func (f *stillMeta) AdvanceLogStart(_ context.Context, id protocol.UUID, index, _ int32, off int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	st := f.tiers[replicaKey{id, index}]
	st.LogStart = max(st.LogStart, off)
	f.tiers[replicaKey{id, index}] = st
	return nil
}

func (f *stillMeta) setTier(id protocol.UUID, st metastore.TierState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tiers == nil {
		f.tiers = map[replicaKey]metastore.TierState{}
	}
	f.tiers[replicaKey{id, 0}] = st
}

// bookControl is a controller that does what it is told to.
type bookControl struct {
	b       *book
	meta    *stillMeta // shown each new image; nil when the node follows the book itself
	assigns atomic.Int64
	losts   atomic.Int64
	fail    atomic.Int64 // calls that fail before one is taken
}

func (c *bookControl) refuse() error {
	if c.fail.Load() > 0 {
		c.fail.Add(-1)
		return errors.New("no controller")
	}
	return nil
}

func (c *bookControl) changed() {
	if c.meta != nil {
		c.meta.show(c.b.s.Image())
	}
}

func (c *bookControl) AssignDirs(_ context.Context, broker int32, _ int64, dirs []DirAssignment) error {
	if err := c.refuse(); err != nil {
		return err
	}
	c.assigns.Add(1)
	for _, d := range dirs {
		err := c.b.tryChange(d.TopicID, d.Partition, func(p *metastore.Partition) {
			for i, r := range p.Replicas {
				if r == broker {
					p.Dirs[i] = d.Dir
				}
			}
		})
		if err != nil && protocol.CodeOf(err) != protocol.UnknownTopicOrPartition {
			return err
		}
	}
	c.changed()
	return nil
}

// ReplicaLost takes the folder and the leadership away; who leads next is the test's business.
func (c *bookControl) ReplicaLost(_ context.Context, id protocol.UUID, index, broker int32, _ int64) error {
	if err := c.refuse(); err != nil {
		return err
	}
	c.losts.Add(1)
	err := c.b.tryChange(id, index, func(p *metastore.Partition) {
		p.Dirs = make([]protocol.UUID, len(p.Replicas))
		p.Leader, p.ISR, p.LeaderEpoch = -1, nil, p.LeaderEpoch+1
	})
	c.changed()
	return err
}

// quietControl takes everything and does nothing: for synctest, where a metastore cannot be asked.
type quietControl struct{}

func (quietControl) AssignDirs(context.Context, int32, int64, []DirAssignment) error { return nil }

func (quietControl) ReplicaLost(context.Context, protocol.UUID, int32, int32, int64) error {
	return nil
}
