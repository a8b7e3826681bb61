package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
)

func saramaConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Producer.Return.Successes = true
	c.Producer.Partitioner, c.Producer.Retry.Max = sarama.NewManualPartitioner, 20 // a topic is made while the first write waits
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Group.Session.Timeout = 6 * time.Second
	c.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	c.Consumer.Group.Rebalance.Strategy = sarama.NewBalanceStrategyRange()
	return c
}

func runSarama(kind, what string) error {
	c := saramaConfig()
	switch kind {
	case "codec":
		codecs := map[string]sarama.CompressionCodec{"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
			"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD}
		c.Producer.Compression = codecs[what]
		return saramaRoundTrip(c, samples())
	case "acks":
		c.Producer.RequiredAcks = map[string]sarama.RequiredAcks{"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll}[what]
		return saramaRoundTrip(c, samples())
	case "idempotent":
		c.Producer.Idempotent, c.Producer.RequiredAcks, c.Net.MaxOpenRequests = true, sarama.WaitForAll, 1
		return saramaRoundTrip(c, samples())
	case "big":
		return saramaRoundTrip(c, big())
	case "by":
		return saramaByTime(c)
	case "group":
		return saramaGroup(c, what)
	case "admin":
		return saramaAdmin(c, what)
	case "transaction":
		return saramaTransaction(c)
	}
	return fmt.Errorf("no case %s-%s", kind, what)
}

func saramaProduce(c *sarama.Config, records []sample) error {
	p, err := sarama.NewSyncProducer([]string{bootstrap}, c)
	if err != nil {
		return err
	}
	defer p.Close()
	var all []*sarama.ProducerMessage
	for _, r := range records {
		m := &sarama.ProducerMessage{Topic: name, Timestamp: r.at}
		if r.key != nil {
			m.Key = sarama.ByteEncoder(r.key)
		}
		if r.value != nil {
			m.Value = sarama.ByteEncoder(r.value)
		}
		for _, h := range r.headers {
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.key), Value: h.value})
		}
		all = append(all, m)
	}
	return p.SendMessages(all)
}

func saramaRead(c *sarama.Config, from int64, count int) (got []*sarama.ConsumerMessage, err error) {
	consumer, err := sarama.NewConsumer([]string{bootstrap}, c)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	p, err := consumer.ConsumePartition(name, 0, from)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	late := time.After(waitMax)
	for len(got) < count {
		select {
		case m := <-p.Messages():
			got = append(got, m)
		case <-late:
			return nil, fmt.Errorf("read %d records, want %d", len(got), count)
		}
	}
	return got, nil
}

func saramaRoundTrip(c *sarama.Config, want []sample) error {
	if err := saramaProduce(c, want); err != nil {
		return err
	}
	got, err := saramaRead(c, sarama.OffsetOldest, len(want))
	if err != nil {
		return err
	}
	for i, m := range got {
		s := sample{key: m.Key, value: m.Value, at: m.Timestamp}
		for _, h := range m.Headers {
			s.headers = append(s.headers, header{string(h.Key), h.Value})
		}
		if err := same(i, m.Offset, s, want[i]); err != nil {
			return err
		}
	}
	middle, err := saramaRead(c, int64(len(want)/2), 1)
	if err == nil && middle[0].Offset != int64(len(want)/2) {
		err = fmt.Errorf("middle: offset %d", middle[0].Offset)
	}
	return err
}

func saramaByTime(c *sarama.Config) error {
	want := samples()
	if err := saramaProduce(c, want); err != nil {
		return err
	}
	client, err := sarama.NewClient([]string{bootstrap}, c)
	if err != nil {
		return err
	}
	defer client.Close()
	for _, i := range []int{0, 1, 4, 1234, len(want) - 1} {
		at, err := client.GetOffset(name, 0, want[i].at.UnixMilli())
		if err != nil || at != int64(i) {
			return fmt.Errorf("by time of %d: %d, %v", i, at, err)
		}
	}
	return nil
}

func saramaFill() error {
	p, err := sarama.NewSyncProducer([]string{bootstrap}, saramaConfig())
	if err != nil {
		return err
	}
	defer p.Close()
	var all []*sarama.ProducerMessage
	for i := range groupRecords {
		all = append(all, &sarama.ProducerMessage{Topic: name, Partition: int32(i % 4), Value: sarama.StringEncoder(fmt.Sprint(i))})
	}
	return p.SendMessages(all)
}

// saramaMember is a member of the group that marks what it read; several share one set of what was seen.
type saramaMember struct {
	seen     *sync.Map
	count    *atomic.Int64
	assigned atomic.Int64
	group    sarama.ConsumerGroup
	cancel   context.CancelFunc
	ended    sync.WaitGroup
	failed   error
}

func (m *saramaMember) Setup(s sarama.ConsumerGroupSession) error {
	m.assigned.Store(int64(len(s.Claims()[name])))
	return nil
}

func (m *saramaMember) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *saramaMember) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-s.Context().Done():
			return nil
		case r, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			if _, again := m.seen.LoadOrStore(string(r.Value), true); !again {
				m.count.Add(1)
			}
			s.MarkMessage(r, "")
		}
	}
}

func newSaramaMember(c *sarama.Config, seen *sync.Map, count *atomic.Int64) (*saramaMember, error) {
	group, err := sarama.NewConsumerGroup([]string{bootstrap}, name, c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &saramaMember{seen: seen, count: count, group: group, cancel: cancel}
	m.ended.Go(func() {
		for ctx.Err() == nil {
			if m.failed = group.Consume(ctx, []string{name}, m); m.failed != nil {
				return
			}
		}
	})
	return m, nil
}

func (m *saramaMember) end() error {
	m.cancel()
	m.ended.Wait()
	if errors.Is(m.failed, context.Canceled) {
		m.failed = nil
	}
	return errors.Join(m.failed, m.group.Close())
}

func saramaGroup(c *sarama.Config, what string) error {
	if err := saramaFill(); err != nil {
		return err
	}
	var seen sync.Map
	var count atomic.Int64
	a, err := newSaramaMember(c, &seen, &count)
	if err != nil {
		return err
	}
	has := func(m *saramaMember, n int64) func() (bool, error) {
		return func() (bool, error) { return m.assigned.Load() == n, m.failed }
	}
	if err := wait("the first member has all", has(a, 4)); err != nil {
		return err
	}
	if what == "resume" {
		if err := errors.Join(wait("all is read", func() (bool, error) { return count.Load() == groupRecords, nil }), a.end()); err != nil {
			return err
		}
		return saramaCommitted(c)
	}
	b, err := newSaramaMember(c, &seen, &count)
	if err != nil {
		return err
	}
	err = errors.Join(
		wait("they share", func() (bool, error) { return a.assigned.Load() == 2 && b.assigned.Load() == 2, b.failed }),
		wait("all is read", func() (bool, error) { return count.Load() == groupRecords, nil }),
		a.end(), wait("the second member has all", has(b, 4)), b.end())
	return errors.Join(err, saramaCommitted(c))
}

func saramaCommitted(c *sarama.Config) error {
	a, err := sarama.NewClusterAdmin([]string{bootstrap}, c)
	if err != nil {
		return err
	}
	defer a.Close()
	r, err := a.ListConsumerGroupOffsets(name, map[string][]int32{name: {0, 1, 2, 3}})
	if err != nil {
		return err
	}
	var sum int64
	for p := range int32(4) {
		sum += r.GetBlock(name, p).Offset
	}
	if sum != groupRecords {
		return fmt.Errorf("committed %d, want %d", sum, groupRecords)
	}
	return nil
}

func saramaAdmin(c *sarama.Config, what string) error {
	a, err := sarama.NewClusterAdmin([]string{bootstrap}, c)
	if err != nil {
		return err
	}
	defer a.Close()
	if what == "records" {
		if err := saramaProduce(c, samples()); err != nil {
			return err
		}
		return a.DeleteRecords(name, map[int32]int64{0: 100})
	}
	retention, changed := "3600000", "1234567"
	if err := a.CreateTopic(name, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &retention}}, false); err != nil {
		return err
	}
	if err := a.CreateTopic(name, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}, false); !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return fmt.Errorf("created twice: %v", err)
	}
	partitions := func(n int) error {
		return wait(fmt.Sprintf("%d partitions", n), func() (bool, error) {
			d, err := a.DescribeTopics([]string{name})
			return err == nil && len(d) == 1 && len(d[0].Partitions) == n, err
		})
	}
	err = errors.Join(partitions(3), a.CreatePartitions(name, 5, nil, false), partitions(5),
		a.IncrementalAlterConfig(sarama.TopicResource, name, map[string]sarama.IncrementalAlterConfigsEntry{
			"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &changed}}, false))
	if err != nil {
		return err
	}
	err = wait("retention.ms", func() (bool, error) {
		entries, err := a.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: name, ConfigNames: []string{"retention.ms"}})
		return err == nil && len(entries) == 1 && entries[0].Value == changed, err
	})
	return errors.Join(err, a.DeleteTopic(name))
}

func saramaTransaction(c *sarama.Config) error {
	c.Producer.Idempotent, c.Producer.RequiredAcks, c.Net.MaxOpenRequests = true, sarama.WaitForAll, 1
	c.Producer.Transaction.ID = name
	p, err := sarama.NewSyncProducer([]string{bootstrap}, c)
	if err != nil {
		return err
	}
	defer p.Close()
	for _, value := range []string{"aborted", "committed"} {
		if err := p.BeginTxn(); err != nil {
			return err
		}
		if _, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: name, Value: sarama.StringEncoder(value)}); err != nil {
			return err
		}
		end := p.CommitTxn
		if value == "aborted" {
			end = p.AbortTxn
		}
		if err := end(); err != nil {
			return err
		}
	}
	reader := saramaConfig()
	reader.Consumer.IsolationLevel = sarama.ReadCommitted
	got, err := saramaRead(reader, sarama.OffsetOldest, 1)
	if err == nil && string(got[0].Value) != "committed" {
		err = fmt.Errorf("read %q", got[0].Value)
	}
	return err
}
