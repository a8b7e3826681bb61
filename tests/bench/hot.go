package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	hotTopic = "hot"
	// hotLogBytes fits the page cache of a small machine: reads are hot.
	hotLogBytes = 512 << 20
	// fetchVersion 12 names topics, so no id is needed; the reply's shape is the one of today's consumers.
	fetchVersion = 12
)

func benchHot(ctx context.Context, o options) error {
	dir := filepath.Join(o.data, "hot")
	v, err := startVarve(ctx, o, dir, "varve.topic.remote.storage.enable=false", "log.segment.bytes=268435456")
	if err != nil {
		return err
	}
	defer v.stop()
	req, records, err := loadHot(ctx, v.addr)
	if err != nil {
		return err
	}
	plain := filepath.Join(o.data, "plain")
	if err := os.WriteFile(plain, make([]byte, hotLogBytes), 0o644); err != nil {
		return err
	}
	b, err := startBare(ctx, "sendfile", plain)
	if err != nil {
		return err
	}
	defer b.stop()
	as, bs, err := alternate(o.rounds,
		func() (sample, error) { return hotVarve(v, o, req, records) },
		func() (sample, error) { return hotBare(b, o) })
	if err != nil {
		return err
	}
	report(fmt.Sprintf("hot reads, %d KiB fetches, one connection", o.fetchBytes>>10), as, bs, []figure{
		{"GB/s", sample.gbPerS}, {"CPU s/GB", sample.cpuPerGB}})
	return nil
}

// loadHot fills one partition and returns a Fetch request whose offset can be patched in place, and the record count.
func loadHot(ctx context.Context, addr string) (*fetchTemplate, int64, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(64<<10), kgo.DefaultProduceTopic(hotTopic), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return nil, 0, err
	}
	defer c.Close()
	if _, err := kadm.NewClient(c).CreateTopic(ctx, 1, 1, nil, hotTopic); err != nil {
		return nil, 0, err
	}
	var failed error
	value := make([]byte, 1024)
	count := int64(0)
	for sent := 0; sent < hotLogBytes; sent += len(value) {
		c.Produce(ctx, kgo.SliceRecord(value), func(_ *kgo.Record, err error) {
			if err != nil {
				failed = err
			}
		})
		count++
	}
	if err := c.Flush(ctx); err != nil {
		return nil, 0, err
	}
	return newFetchTemplate(), count, failed
}

// fetchTemplate is an encoded Fetch request with the place of its fetch offset.
type fetchTemplate struct {
	bytes  []byte
	offset int
}

func newFetchTemplate() *fetchTemplate {
	build := func(off int64) []byte {
		r := kmsg.NewPtrFetchRequest()
		r.Version = fetchVersion
		r.ReplicaID, r.MaxWaitMillis, r.MinBytes, r.MaxBytes, r.SessionEpoch = -1, 100, 1, 1<<30, -1
		p := kmsg.NewFetchRequestTopicPartition()
		p.FetchOffset, p.PartitionMaxBytes = off, 1<<20
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.Partitions = hotTopic, []kmsg.FetchRequestTopicPartition{p}
		r.Topics = append(r.Topics, t)
		return kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, r, 1)
	}
	a, b := build(0), build(-1)
	for i := range a {
		if a[i] != b[i] {
			return &fetchTemplate{bytes: a, offset: i}
		}
	}
	panic("the fetch offset left no trace in the request")
}

func measure(s *side, do func() (int64, error)) (sample, error) {
	before, err := cpuOf(s.pid)
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	n, err := do()
	if err != nil {
		return sample{}, err
	}
	wall := time.Since(began)
	after, err := cpuOf(s.pid)
	return sample{bytes: n, wall: wall, cpu: after - before}, err
}

// hotVarve walks the log from the start again and again. The reply's last batch is not looked for: records are of one
// size, so the next offset follows from the bytes received, rounded down to whole batches by asking at the batch found.
func hotVarve(s *side, o options, req *fetchTemplate, records int64) (sample, error) {
	c, err := dial(s.addr)
	if err != nil {
		return sample{}, err
	}
	defer c.Close()
	return measure(s, func() (got int64, err error) {
		perRecord := int64(0)
		for off := int64(0); got < o.bytes; {
			binary.BigEndian.PutUint64(req.bytes[req.offset:], uint64(off))
			if _, err := c.Write(req.bytes); err != nil {
				return 0, err
			}
			head, size, err := c.reply(256)
			if err != nil {
				return 0, err
			}
			base, batch, count, err := firstBatch(head)
			if err != nil {
				return 0, fmt.Errorf("at offset %d: %w", off, err)
			}
			perRecord = int64(batch) / int64(count)
			got += int64(size)
			// One batch less than what came: the answer to the next fetch starts at a batch this one surely held.
			off = base + max(int64(size)/perRecord-int64(count), int64(count))
			if off >= records-2*int64(count) {
				off = 0
			}
		}
		return got, nil
	})
}

// firstBatch reads the reply's first batch header: base offset, bytes and record count.
func firstBatch(head []byte) (base int64, batch, count int32, err error) {
	// v12: correlation 4, tags 1, throttle 4, error 2, session 4, topics 1, name, partitions 1, index 4, error 2, ...
	i := 4 + 1 + 4 + 2 + 4 + 1 + 1 + len(hotTopic) + 1 + 4
	if code := int16(binary.BigEndian.Uint16(head[i:])); code != 0 {
		return 0, 0, 0, fmt.Errorf("fetch error %d", code)
	}
	i += 2 + 8 + 8 + 8 + 1 + 4 // error, high watermark, last stable, log start, aborted (null), preferred replica
	_, n := binary.Uvarint(head[i:])
	i += n
	if n <= 0 || len(head) < i+61 {
		return 0, 0, 0, fmt.Errorf("a reply of %d bytes holds no batch", len(head))
	}
	b := head[i:]
	return int64(binary.BigEndian.Uint64(b)), int32(binary.BigEndian.Uint32(b[8:])) + 12, int32(binary.BigEndian.Uint32(b[57:])), nil
}

func hotBare(s *side, o options) (sample, error) {
	c, err := dial(s.addr)
	if err != nil {
		return sample{}, err
	}
	defer c.Close()
	return measure(s, func() (got int64, err error) {
		var req [20]byte
		for off := int64(0); got < o.bytes; off = (off + int64(o.fetchBytes)) % hotLogBytes {
			binary.BigEndian.PutUint64(req[4:], uint64(off))
			binary.BigEndian.PutUint64(req[12:], uint64(o.fetchBytes))
			if _, err := c.Write(req[:]); err != nil {
				return 0, err
			}
			_, size, err := c.reply(256)
			if err != nil {
				return 0, err
			}
			got += int64(size)
		}
		return got, nil
	})
}
