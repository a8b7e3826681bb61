package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol/record"
)

const (
	produceTopic      = "produce"
	producePartitions = 16
	// produceDepth is how many requests one connection keeps in flight, as Kafka's own producer does.
	produceDepth = 5
	// produceVersion 9 names topics; the records are what costs.
	produceVersion = 9
	recordsPerReq  = 64
	recordBytes    = 1024
)

func benchProduce(ctx context.Context, o options) error {
	o.bytes = min(o.bytes, 1<<30) // what is produced stays on disk until the run ends
	v, err := startVarve(ctx, o, filepath.Join(o.data, "produce"), "varve.topic.remote.storage.enable=false",
		"log.retention.bytes=67108864", "log.segment.bytes=33554432", "log.retention.check.interval.ms=1000")
	if err != nil {
		return err
	}
	defer v.stop()
	cl, err := kgo.NewClient(kgo.SeedBrokers(v.addr))
	if err != nil {
		return err
	}
	_, err = kadm.NewClient(cl).CreateTopic(ctx, producePartitions, 1, nil, produceTopic)
	cl.Close()
	if err != nil {
		return err
	}
	frames, err := produceFrames()
	if err != nil {
		return err
	}
	b, err := startBare(ctx, "append", filepath.Join(o.data, "appended"))
	if err != nil {
		return err
	}
	defer b.stop()
	as, bs, err := alternate(o.rounds,
		func() (sample, error) { return produceTo(v, o, frames, checkProduced) },
		func() (sample, error) { return produceTo(b, o, frames, nil) })
	if err != nil {
		return err
	}
	report(fmt.Sprintf("produce, acks=all, %d x %d B a request, %d partitions, %d in flight", recordsPerReq, recordBytes,
		producePartitions, produceDepth), as, bs, []figure{
		{"MB/s", func(s sample) float64 { return s.gbPerS() * 1000 }}, {"CPU s/GB", sample.cpuPerGB},
		{"p50 ms", func(s sample) float64 { return s.p50.Seconds() * 1000 }},
		{"p99 ms", func(s sample) float64 { return s.p99.Seconds() * 1000 }}})
	return nil
}

// produceFrames encodes one request per partition, once: the client replays them.
func produceFrames() ([][]byte, error) {
	b := record.NewBuilder(record.Options{})
	value := make([]byte, recordBytes)
	for range recordsPerReq {
		if err := b.Add(time.Now().UnixMilli(), nil, value); err != nil {
			return nil, err
		}
	}
	batch, err := b.Batch()
	if err != nil {
		return nil, err
	}
	frames := make([][]byte, producePartitions)
	for i := range frames {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = int32(i), batch
		t := kmsg.NewProduceRequestTopic()
		t.Topic, t.Partitions = produceTopic, []kmsg.ProduceRequestTopicPartition{p}
		r := kmsg.NewPtrProduceRequest()
		r.Version, r.Acks, r.TimeoutMillis = produceVersion, -1, 30_000
		r.Topics = append(r.Topics, t)
		frames[i] = kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, r, int32(i))
	}
	return frames, nil
}

// checkProduced reads the error code of a v9 reply with one partition.
func checkProduced(head []byte) error {
	i := 4 + 1 + 1 + 1 + len(produceTopic) + 1 + 4
	if code := int16(binary.BigEndian.Uint16(head[i:])); code != 0 {
		return fmt.Errorf("produce error %d", code)
	}
	return nil
}

// produceTo keeps produceDepth requests in flight; latency is from a request's write to its reply.
func produceTo(s *side, o options, frames [][]byte, check func([]byte) error) (sample, error) {
	c, err := dial(s.addr)
	if err != nil {
		return sample{}, err
	}
	defer c.Close()
	var lat []time.Duration
	out, err := measure(s, func() (done int64, err error) {
		var sentAt [produceDepth]time.Time
		total := int(o.bytes / int64(len(frames[0])))
		for sent, acked := 0, 0; acked < total; {
			if sent < total && sent-acked < produceDepth {
				f := frames[sent%len(frames)]
				sentAt[sent%produceDepth] = time.Now()
				if _, err := c.Write(f); err != nil {
					return 0, err
				}
				sent++
				done += int64(len(f))
				continue
			}
			head, _, err := c.reply(256)
			if err == nil && check != nil {
				err = check(head)
			}
			if err != nil {
				return 0, err
			}
			lat = append(lat, time.Since(sentAt[acked%produceDepth]))
			acked++
		}
		return done, nil
	})
	if err != nil {
		return out, err
	}
	slices.Sort(lat)
	out.p50, out.p99 = lat[len(lat)/2], lat[len(lat)*99/100]
	return out, nil
}
