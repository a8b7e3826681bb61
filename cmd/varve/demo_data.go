package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"bytes"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"varve/broker/admin"
)

const (
	maxDemoFileBytes = 64 << 20
	maxDemoLineBytes = 512 << 10 // longer lines become several records
	maxDemoBuffered  = 50_000    // records in the producer
	demoPollMs       = 200
)

// demoFile is one file: what it was when it was loaded, and what came back of it.
type demoFile struct {
	sum  [sha256.Size]byte
	back hash.Hash
}

// load writes every line of every file as a record with the file's path as its key, so that a file's lines stay in order in
// one partition.
func (d *demo) load(ctx context.Context) error {
	paths, err := d.list()
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(d.broker.KafkaAddr()), kgo.DefaultProduceTopic(demoTopic), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(maxDemoBuffered), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err != nil {
		return err
	}
	defer client.Close()
	segment, local, forever := fmt.Sprint(demoSegmentBytes), fmt.Sprint(demoLocalBytes), "-1"
	configs := map[string]*string{"segment.bytes": &segment, "local.retention.bytes": &local, "retention.ms": &forever}
	if res, err := kadm.NewClient(client).CreateTopic(ctx, demoPartitions, 1, configs, demoTopic); err != nil {
		return errors.New(explain(err, res.ErrMessage))
	}
	var once sync.Once
	var failed error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, path := range paths {
		if err := d.loadFile(ctx, client, path, func(err error) { once.Do(func() { failed = err; cancel() }) }); err != nil {
			return err
		}
		if ctx.Err() != nil {
			break
		}
		d.progress.show("loading   %s of %s files, %s records, %s", count(i+1), count(len(paths)), count(d.loaded.records), size(d.loaded.bytes))
	}
	flushed := client.Flush(ctx)
	d.progress.end()
	once.Do(func() {}) // failed is written before
	if failed != nil {
		return failed
	}
	return flushed
}

// list returns the paths of all regular files below the source, sorted.
func (d *demo) list() (paths []string, err error) {
	err = filepath.WalkDir(d.source, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			paths = append(paths, path)
		}
		return err
	})
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("there is no file below %s", d.source)
	}
	return paths, err
}

func (d *demo) loadFile(ctx context.Context, client *kgo.Client, path string, fail func(error)) error {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxDemoFileBytes {
		err = fmt.Errorf("%s is larger than %s", path, size(maxDemoFileBytes))
	}
	if err != nil {
		return err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	name, err := filepath.Rel(d.source, path)
	if err != nil {
		return err
	}
	d.files[name] = &demoFile{sum: sha256.Sum256(data), back: sha256.New()}
	key := []byte(name)
	for len(data) > 0 && ctx.Err() == nil {
		line := data[:min(len(data), maxDemoLineBytes)]
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			line = line[:i+1]
		}
		data = data[len(line):]
		d.loaded.records++
		d.loaded.bytes += int64(len(line))
		client.Produce(ctx, &kgo.Record{Key: key, Value: line}, func(_ *kgo.Record, err error) {
			if err != nil {
				fail(err)
			}
		})
	}
	return nil
}

// status asks the broker's HTTP API about the demo's topic.
func (d *demo) status(ctx context.Context) (admin.TierStatus, error) {
	var st admin.TierStatus
	err := getJSON(ctx, d.broker.HTTPAddr(), "/api/v1/tier/status", &st)
	return only(st, demoTopic), err
}

// settle waits until every closed segment is in the tier and the local copies are freed down to local retention and one
// segment.
func (d *demo) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, demoSettleMs*time.Millisecond)
	defer cancel()
	defer d.progress.end()
	tick := time.NewTicker(demoPollMs * time.Millisecond)
	defer tick.Stop()
	for {
		st, err := d.status(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil && settled(st) {
			d.local = map[int32]int64{}
			for _, p := range st.Partitions {
				d.local[p.Partition] = p.LocalStart
			}
			return nil
		}
		t := st.Total
		d.progress.show("settling  %s in %s objects in the tier, %s on local disk, %s waiting", size(t.TierBytes), count(t.Segments), size(t.LocalBytes), size(t.LagBytes))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("after %s there are still %s on local disk and %s waiting for the tier: %v", demoSettleMs*time.Millisecond, size(t.LocalBytes), size(t.LagBytes), st.Problems)
		}
	}
}

func settled(st admin.TierStatus) bool {
	for _, p := range st.Partitions {
		// The open segment waits until it is closed.
		if p.LagBytes > demoSegmentBytes || p.TierEnd < p.LocalStart || p.LocalBytes > demoLocalBytes+demoSegmentBytes {
			return false
		}
	}
	return len(st.Partitions) == demoPartitions
}

// readBack reads all partitions from offset 0 to their ends, checks that no offset is missing or comes twice, and feeds each
// line to its file's hash.
func (d *demo) readBack(ctx context.Context) error {
	start := map[int32]kgo.Offset{}
	for p := range int32(demoPartitions) {
		start[p] = kgo.NewOffset().At(0)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(d.broker.KafkaAddr()), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{demoTopic: start}))
	if err != nil {
		return err
	}
	defer client.Close()
	defer d.progress.end()
	next := map[int32]int64{}
	for d.read.records < d.loaded.records {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for it := fetches.RecordIter(); !it.Done(); {
			if err := d.record(it.Next(), next); err != nil {
				return err
			}
		}
		d.progress.show("reading   %s of %s records, %s", count(d.read.records), count(d.loaded.records), size(d.read.bytes))
	}
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, demoTopic)
	if err != nil {
		return err
	}
	for p := range int32(demoPartitions) {
		if end, ok := ends.Lookup(demoTopic, p); !ok || end.Err != nil || end.Offset != next[p] {
			return fmt.Errorf("partition %d ends at offset %d, but %d were read", p, end.Offset, next[p])
		}
	}
	return nil
}

func (d *demo) record(r *kgo.Record, next map[int32]int64) error {
	if r.Offset != next[r.Partition] {
		return fmt.Errorf("partition %d: offset %d came instead of %d", r.Partition, r.Offset, next[r.Partition])
	}
	next[r.Partition]++
	file := d.files[string(r.Key)]
	if file == nil {
		return fmt.Errorf("partition %d offset %d: there is no file %q", r.Partition, r.Offset, r.Key)
	}
	file.back.Write(r.Value)
	d.read.records++
	d.read.bytes += int64(len(r.Value))
	if r.Offset < d.local[r.Partition] {
		d.fromTier.records++
		d.fromTier.bytes += int64(len(r.Value))
	}
	return nil
}
