package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"

	"varve/protocol/record"
)

const (
	producePartitions = 16
	// produceDepth is how many requests one connection keeps in flight, as Kafka's own producer does.
	produceDepth = 5
	// produceVersion 9 names topics; the records are what costs.
	produceVersion = 9
	// produceBytesMax bounds a round: what is produced stays in the page cache until the round is over.
	produceBytesMax = 1 << 30
	// goneWait bounds how long the folders of a deleted topic may stay.
	goneWait = 30 * time.Second
)

// shape is what one produce request carries: one batch for one partition.
type shape struct {
	name    string
	records int
	bytes   int   // of a record
	share   int64 // a round moves this part of -bytes: small requests cost more of everything else
}

var (
	largeBatch = shape{name: "large", records: 64, bytes: 1024, share: 1}
	smallBatch = shape{name: "small", records: 10, bytes: 100, share: 32}
)

// benchProduce appends to files that are new in each round on both sides, and whose predecessors are gone: growing a
// file costs pages and blocks that writing over one does not.
func benchProduce(ctx context.Context, o options, s shape) error {
	o.bytes = min(o.bytes, produceBytesMax) / s.share
	batch, err := newBatch(s)
	if err != nil {
		return err
	}
	v, a, err := startProduce(ctx, o, o.varve, s.name, batch)
	if err != nil {
		return err
	}
	defer v.stop()
	var b func() (sample, error)
	if o.against != "" {
		var w *side
		w, b, err = startProduce(ctx, o, o.against, s.name+"-against", batch)
		if err != nil {
			return err
		}
		defer w.stop()
	} else {
		w, err := startBare(ctx, "append", filepath.Join(o.data, s.name+"-bare"))
		if err != nil {
			return err
		}
		defer w.stop()
		frames := produceFrames("produce-bare", batch)
		b = func() (sample, error) {
			if err := settleDisk(o.data); err != nil {
				return sample{}, err
			}
			return produceTo(w, o, frames, nil)
		}
	}
	return alternate(o, fmt.Sprintf("produce, acks=all, %d x %d B a request, %d partitions, %d in flight", s.records, s.bytes,
		producePartitions, produceDepth), a, b, []figure{
		{"MB/s", func(s sample) float64 { return s.gbPerS() * 1000 }},
		{"CPU s/GB", sample.cpuPerGB},
		{"CPU us/request", func(s sample) float64 { return s.used.cpu.Seconds() * 1e6 / float64(s.requests) }},
		{"switches/request", sample.switchesPerRequest},
		{"p50 ms", func(s sample) float64 { return s.p50.Seconds() * 1000 }},
		{"p99 ms", func(s sample) float64 { return s.p99.Seconds() * 1000 }}})
}

// startProduce starts a node and returns what makes one round of it: on a topic of its own, after the topic of the
// round before is gone and the disk is quiet.
func startProduce(ctx context.Context, o options, binary, name string, batch []byte) (*side, func() (sample, error), error) {
	data := filepath.Join(o.data, name)
	v, err := startVarve(ctx, binary, data, "log.segment.delete.delay.ms=0")
	if err != nil {
		return nil, nil, err
	}
	topic, rounds := "", 0
	return v, func() (sample, error) {
		if err := dropTopic(ctx, v, data, topic); err != nil {
			return sample{}, err
		}
		topic = fmt.Sprintf("produce-%04d", rounds)
		rounds++
		if err := errors.Join(createTopic(ctx, v, topic, producePartitions), settleDisk(o.data)); err != nil {
			return sample{}, err
		}
		return produceTo(v, o, produceFrames(topic, batch), produceCheck(topic))
	}, nil
}

// produceFrames encodes one request per partition.
func produceFrames(topic string, batch []byte) (frames [][]byte) {
	for p := range int32(producePartitions) {
		frames = append(frames, produceFrame(topic, p, batch))
	}
	return frames
}

func createTopic(ctx context.Context, v *side, topic string, partitions int32) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(v.addr))
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = kadm.NewClient(c).CreateTopic(ctx, partitions, 1, nil, topic)
	return err
}

// dropTopic deletes a topic and waits until its files are gone; "" is no topic.
func dropTopic(ctx context.Context, v *side, data, topic string) error {
	if topic == "" {
		return nil
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(v.addr))
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := kadm.NewClient(c).DeleteTopic(ctx, topic); err != nil {
		return err
	}
	for until := time.Now().Add(goneWait); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		left, err := filepath.Glob(filepath.Join(data, "log", topic+"-*"))
		if err != nil || len(left) == 0 {
			return err
		}
	}
	return fmt.Errorf("the folders of %s are still there after %v", topic, goneWait)
}

// settleDisk writes out what the round before left dirty, so that no round pays for another's.
func settleDisk(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

// newBatch encodes the one batch that is produced again and again.
func newBatch(s shape) ([]byte, error) {
	b := record.NewBuilder(record.Options{})
	value := make([]byte, s.bytes)
	now := time.Now().UnixMilli()
	for range s.records {
		if err := b.Add(now, nil, value); err != nil {
			return nil, err
		}
	}
	return b.Batch()
}

// produceFrame encodes a request with one batch for one partition.
func produceFrame(topic string, partition int32, batch []byte) []byte {
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, batch
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.Partitions = topic, []kmsg.ProduceRequestTopicPartition{p}
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis = produceVersion, -1, 30_000
	r.Topics = append(r.Topics, t)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, r, partition)
}

// produceCheck reads the error code of a v9 reply with one partition.
func produceCheck(topic string) func(head []byte) error {
	return func(head []byte) error {
		i := 4 + 1 + 1 + 1 + len(topic) + 1 + 4
		if code := int16(binary.BigEndian.Uint16(head[i:])); code != 0 {
			return fmt.Errorf("produce error %d", code)
		}
		return nil
	}
}

func produceTo(s *side, o options, frames [][]byte, check func([]byte) error) (sample, error) {
	c, err := dial(s.addr)
	if err != nil {
		return sample{}, err
	}
	defer c.Close()
	var lat []time.Duration
	frameBytes := int64(len(frames[0]))
	total := max(o.bytes/frameBytes, 1)
	out, err := measure(s, total, total*frameBytes, func() (err error) {
		lat, err = replay(c, frames, int(total), check)
		return err
	})
	if err != nil {
		return out, err
	}
	slices.Sort(lat)
	out.p50, out.p99 = lat[len(lat)/2], lat[len(lat)*99/100]
	return out, nil
}

// replay sends the frames in turn, total of them, and keeps produceDepth in flight; a latency is from a request's write
// to its reply. check may be nil.
func replay(c *conn, frames [][]byte, total int, check func([]byte) error) ([]time.Duration, error) {
	lat := make([]time.Duration, 0, total)
	var sentAt [produceDepth]time.Time
	for sent := 0; len(lat) < total; {
		if sent < total && sent-len(lat) < produceDepth {
			sentAt[sent%produceDepth] = time.Now()
			if _, err := c.Write(frames[sent%len(frames)]); err != nil {
				return nil, err
			}
			sent++
			continue
		}
		head, _, err := c.reply(256)
		if err == nil && check != nil {
			err = check(head)
		}
		if err != nil {
			return nil, err
		}
		lat = append(lat, time.Since(sentAt[len(lat)%produceDepth]))
	}
	return lat, nil
}
