package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
)

func runKafkaGo(kind, what string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*waitMax)
	defer cancel()
	w := &kafka.Writer{Addr: kafka.TCP(bootstrap), Topic: name, RequiredAcks: kafka.RequireAll, AllowAutoTopicCreation: true,
		BatchTimeout: 10 * time.Millisecond, BatchSize: 500, BatchBytes: 5 << 20, Balancer: kafka.BalancerFunc(func(kafka.Message, ...int) int { return 0 })}
	defer w.Close()
	switch kind {
	case "codec":
		w.Compression = map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}[what]
		return kafkaGoRoundTrip(ctx, w, samples())
	case "acks":
		w.RequiredAcks = map[string]kafka.RequiredAcks{"0": kafka.RequireNone, "1": kafka.RequireOne, "all": kafka.RequireAll}[what]
		return kafkaGoRoundTrip(ctx, w, samples())
	case "big":
		return kafkaGoRoundTrip(ctx, w, big())
	case "by":
		return kafkaGoByTime(ctx, w)
	case "group":
		return kafkaGoGroup(ctx, w, what)
	case "admin":
		return kafkaGoAdmin(ctx)
	}
	return fmt.Errorf("no case %s-%s", kind, what)
}

// kafkaGoWrite retries while the first write's topic is being made.
func kafkaGoWrite(ctx context.Context, w *kafka.Writer, records []sample) error {
	var all []kafka.Message
	for _, r := range records {
		m := kafka.Message{Key: r.key, Value: r.value, Time: r.at}
		for _, h := range r.headers {
			m.Headers = append(m.Headers, kafka.Header{Key: h.key, Value: h.value})
		}
		all = append(all, m)
	}
	if w.RequiredAcks == kafka.RequireNone { // nobody would say that the topic is not there yet
		c := &kafka.Client{Addr: w.Addr}
		if _, err := c.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: name, NumPartitions: 4, ReplicationFactor: 1}}}); err != nil {
			return err
		}
		time.Sleep(time.Second)
	}
	return wait("written", func() (bool, error) {
		err := w.WriteMessages(ctx, all...)
		if err != nil && !errors.Is(err, kafka.UnknownTopicOrPartition) {
			return true, err
		}
		return err == nil, err
	})
}

func kafkaGoReader(from int64) (*kafka.Reader, error) {
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{bootstrap}, Topic: name, Partition: 0, MaxWait: 200 * time.Millisecond, MaxBytes: 10 << 20})
	return r, r.SetOffset(from)
}

func kafkaGoRoundTrip(ctx context.Context, w *kafka.Writer, want []sample) error {
	if err := kafkaGoWrite(ctx, w, want); err != nil {
		return err
	}
	for _, from := range []int{0, len(want) / 2} {
		r, err := kafkaGoReader(int64(from))
		if err != nil {
			return err
		}
		defer r.Close()
		for i := from; i < len(want); i++ {
			m, err := r.ReadMessage(ctx)
			if err != nil {
				return fmt.Errorf("record %d: %w", i, err)
			}
			s := sample{key: m.Key, value: m.Value, at: m.Time}
			for _, h := range m.Headers {
				s.headers = append(s.headers, header{h.Key, h.Value})
			}
			if err := same(i, m.Offset, s, want[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func kafkaGoByTime(ctx context.Context, w *kafka.Writer) error {
	want := samples()
	if err := kafkaGoWrite(ctx, w, want); err != nil {
		return err
	}
	r, err := kafkaGoReader(0)
	if err != nil {
		return err
	}
	defer r.Close()
	for _, i := range []int{0, 1, 4, 1234, len(want) - 1} {
		if err := r.SetOffsetAt(ctx, want[i].at); err != nil {
			return err
		}
		if r.Offset() != int64(i) {
			return fmt.Errorf("by time of %d: %d", i, r.Offset())
		}
	}
	return nil
}

func kafkaGoGroup(ctx context.Context, w *kafka.Writer, what string) error {
	records := make([]sample, groupRecords)
	for i := range records {
		records[i] = sample{value: fmt.Append(nil, i), at: time.Now()}
	}
	w.Balancer = &kafka.RoundRobin{}
	if err := kafkaGoWrite(ctx, w, records); err != nil {
		return err
	}
	member := func() *kafka.Reader {
		return kafka.NewReader(kafka.ReaderConfig{Brokers: []string{bootstrap}, GroupID: name, GroupTopics: []string{name}, StartOffset: kafka.FirstOffset,
			MaxWait: 200 * time.Millisecond, HeartbeatInterval: 300 * time.Millisecond, SessionTimeout: 6 * time.Second, RebalanceTimeout: 10 * time.Second})
	}
	seen := map[string]bool{}
	read := func(r *kafka.Reader, count int) error {
		for range count {
			m, err := r.ReadMessage(ctx)
			if err != nil {
				return fmt.Errorf("after %d records: %w", len(seen), err)
			}
			if seen[string(m.Value)] {
				return fmt.Errorf("%s was read twice", m.Value)
			}
			seen[string(m.Value)] = true
		}
		return nil
	}
	a := member()
	if err := errors.Join(read(a, 1500), a.Close()); err != nil {
		return err
	}
	b := member()
	return errors.Join(read(b, groupRecords-1500), b.Close())
}

func kafkaGoAdmin(ctx context.Context) error {
	c := &kafka.Client{Addr: kafka.TCP(bootstrap)}
	made, err := c.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: name, NumPartitions: 3, ReplicationFactor: 1,
		ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "3600000"}}}}})
	if err := errors.Join(err, made.Errors[name]); err != nil {
		return err
	}
	grown, err := c.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: name, Count: 5}}})
	if err := errors.Join(err, grown.Errors[name]); err != nil {
		return err
	}
	err = wait("5 partitions", func() (bool, error) {
		md, err := c.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{name}})
		return err == nil && len(md.Topics[0].Partitions) == 5, err
	})
	if err != nil {
		return err
	}
	altered, err := c.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: name, Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: "retention.ms", Value: "1234567"}}}}})
	if err := errors.Join(err, altered.Resources[0].Error); err != nil {
		return err
	}
	gone, err := c.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{name}})
	return errors.Join(err, gone.Errors[name])
}
