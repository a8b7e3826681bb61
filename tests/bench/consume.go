package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"varve/protocol"
)

// reading is who reads how.
type reading struct {
	partitions int // all of them in one fetch
	fetchBytes int // at most, per partition and fetch
	readers    int // connections; each reads everything
}

func (r reading) String() string {
	return fmt.Sprintf("consume hot, %d x 1 KiB batches, fetches of up to %d KiB from each of %d partitions, readers %d", shape1K.records,
		r.fetchBytes>>10, r.partitions, r.readers)
}

// hotLog is a topic of batches that are all of one size, so that each range that a fetch answers is known beforehand.
type hotLog struct {
	topic      string
	partitions int
	batchBytes int
	batches    int // in each partition
}

func hotRow(name string, r reading, sides ...string) row {
	return row{name: name, title: r.String(), bound: boundHot, sides: sides,
		figures: []string{"MB/s", cpuPerGB, perReq, peakRSS},
		start: func(ctx context.Context, b *bench, side string) (*lane, error) {
			if side == bare {
				return b.consumeBare(ctx, r)
			}
			s, l, err := b.hot(ctx, side, r.partitions)
			if err != nil {
				return nil, err
			}
			return &lane{round: func(context.Context) (sample, error) {
				return b.readRound(s, r, l, func(c *conn, at int) error { return fetchHot(c, r, l, at) })
			}}, nil
		}}
}

// hot is the side's topic of that many partitions, filled by whoever asks for it first. Together it fits the page cache of
// a small machine, and it is on disk before anyone reads.
func (b *bench) hot(ctx context.Context, side string, partitions int) (*server, *hotLog, error) {
	s, err := b.broker(ctx, side)
	if err != nil {
		return nil, nil, err
	}
	l := &hotLog{topic: fmt.Sprintf("hot-%d", partitions), partitions: partitions}
	if have := b.loaded[side+"/"+l.topic]; have != nil {
		return s, have, nil
	}
	batch, err := newBatch(shape1K)
	if err != nil {
		return nil, nil, err
	}
	l.batchBytes, l.batches = len(batch), int(b.bytes)/len(batch)/partitions
	if err := createTopic(ctx, s, l.topic, partitions, nil); err != nil {
		return nil, nil, err
	}
	c, err := dial(s.addr)
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	frames := produceFrames(l.topic, load{partitions: partitions, acks: -1}, batch)
	if _, err := replay(c, frames, l.batches*partitions, checkProduced); err != nil {
		return nil, nil, err
	}
	b.loaded[side+"/"+l.topic] = l
	return s, l, settleDisk(b.data)
}

// perFetch is how many batches of a partition a fetch answers.
func (l *hotLog) perFetch(r reading) int { return r.fetchBytes / l.batchBytes }

// readRound moves the round's bytes to each reader: fetch is given the number of the batch to begin at, the same in all
// partitions.
func (b *bench) readRound(s *server, r reading, l *hotLog, fetch func(c *conn, at int) error) (sample, error) {
	per := l.perFetch(r)
	whole := l.batches / per // fetches that read a partition to its end, whole answers only
	if per == 0 || whole == 0 {
		return nil, fmt.Errorf("a fetch of %d bytes cannot hold a batch of %d, or the log of %d batches a fetch", r.fetchBytes, l.batchBytes, l.batches)
	}
	fetchBytes := int64(per * l.batchBytes * r.partitions)
	total := max(b.bytes*2/int64(r.readers)/fetchBytes, 1)
	conns := make([]*conn, r.readers)
	for i := range conns {
		c, err := dial(s.addr)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		conns[i] = c
	}
	used, err := measure(s.pid, func() error {
		var g errgroup.Group
		for k, c := range conns {
			g.Go(func() error {
				for i := range int(total) {
					if err := fetch(c, (i+k)%whole*per); err != nil {
						return fmt.Errorf("fetch %d: %w", i, err)
					}
				}
				return nil
			})
		}
		return g.Wait()
	})
	if err != nil {
		return nil, err
	}
	requests := total * int64(r.readers)
	return used.moved(requests, requests*int64(per*r.partitions*shape1K.records), requests*fetchBytes), nil
}

// fetchRequest asks every partition for what begins at its offset.
func fetchRequest(topic string, offsets []int64, partitionBytes, waitMs int) []byte {
	r := kmsg.NewPtrFetchRequest()
	r.Version = fetchVersion
	r.ReplicaID, r.MaxWaitMillis, r.MinBytes, r.MaxBytes, r.SessionEpoch = -1, int32(waitMs), 1, 1<<30, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	for i, off := range offsets {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = int32(i), off, int32(partitionBytes), -1
		t.Partitions = append(t.Partitions, p)
	}
	r.Topics = append(r.Topics, t)
	return appendRequest(nil, r, 1)
}

// fetchHot reads whole batches from batch number at of each partition and holds the lengths against what must come.
func fetchHot(c *conn, r reading, l *hotLog, at int) error {
	offsets := make([]int64, l.partitions)
	for i := range offsets {
		offsets[i] = int64(at) * int64(shape1K.records)
	}
	want := l.perFetch(r) * l.batchBytes
	if _, err := c.Write(fetchRequest(l.topic, offsets, want, 500)); err != nil {
		return err
	}
	seen := 0
	err := c.fetched(func(p int32, size int) error {
		seen++
		if size != want {
			return fmt.Errorf("partition %d: %d bytes of records, not %d", p, size, want)
		}
		return nil
	})
	if err == nil && seen != l.partitions {
		err = fmt.Errorf("an answer for %d partitions of %d", seen, l.partitions)
	}
	return err
}

// fetched reads a v12 reply for one topic, or for none, and tells the size of each partition's records without looking at
// them.
func (c *conn) fetched(each func(partition int32, size int) error) error {
	if err := c.begin(); err != nil {
		return err
	}
	head, err := c.take(4 + 1 + 4 + 2 + 4) // correlation, tags, throttle, error, session
	if err != nil {
		return err
	}
	if code := int16(binary.BigEndian.Uint16(head[9:])); code != 0 {
		return protocol.ErrorCode(code)
	}
	topics, err := c.uvarint()
	if err != nil || topics <= 1 {
		return firstError(err, c.discard(c.left))
	}
	name, err := c.uvarint()
	if err != nil {
		return err
	}
	if err := c.discard(int(name) - 1); err != nil {
		return err
	}
	partitions, err := c.uvarint()
	if err != nil {
		return err
	}
	for range int(partitions) - 1 {
		if err := c.fetchedPartition(each); err != nil {
			return err
		}
	}
	return c.discard(c.left)
}

func (c *conn) fetchedPartition(each func(partition int32, size int) error) error {
	head, err := c.take(4 + 2 + 8 + 8 + 8) // index, error, high watermark, last stable, log start
	if err != nil {
		return err
	}
	p := int32(binary.BigEndian.Uint32(head))
	if code := int16(binary.BigEndian.Uint16(head[4:])); code != 0 {
		return fmt.Errorf("partition %d: %w", p, protocol.ErrorCode(code))
	}
	aborted, err := c.uvarint()
	if err != nil {
		return err
	}
	if aborted > 1 {
		return fmt.Errorf("partition %d: %d aborted transactions", p, aborted-1)
	}
	if _, err := c.take(4); err != nil { // preferred replica
		return err
	}
	n, err := c.uvarint()
	if err != nil {
		return err
	}
	size := max(int(n)-1, 0)
	if err := c.discard(size); err != nil {
		return err
	}
	if err := c.skipTags(); err != nil {
		return err
	}
	return each(p, size)
}

func (c *conn) skipTags() error {
	tags, err := c.uvarint()
	for range int(tags) {
		if err != nil {
			return err
		}
		var size uint64
		if _, err = c.uvarint(); err == nil {
			if size, err = c.uvarint(); err == nil {
				err = c.discard(int(size))
			}
		}
	}
	return err
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// consumeBare sends the same ranges of the same files that varve's topic has.
func (b *bench) consumeBare(ctx context.Context, r reading) (*lane, error) {
	v, l, err := b.hot(ctx, varve, r.partitions)
	if err != nil {
		return nil, err
	}
	s, err := b.startBare(ctx, "sendfile", filepath.Join(v.logs, l.topic+"-*", "00000000000000000000.log"))
	if err != nil {
		return nil, err
	}
	n := l.perFetch(r) * l.batchBytes
	return &lane{close: s.kill, round: func(context.Context) (sample, error) {
		return b.readRound(s, r, l, func(c *conn, at int) error {
			return c.askBare(int64(at*l.batchBytes), n, r.partitions)
		})
	}}, nil
}

// askBare has the loop of sendfile send a range of each of so many files.
func (c *conn) askBare(off int64, n, files int) error {
	var req [bareRequestBytes]byte
	binary.BigEndian.PutUint64(req[4:], uint64(off))
	binary.BigEndian.PutUint64(req[12:], uint64(n))
	if _, err := c.Write(req[:]); err != nil {
		return err
	}
	if err := c.begin(); err != nil {
		return err
	}
	if want := files * (n + bareHeadBytes); c.left != want {
		return fmt.Errorf("a reply of %d bytes, not %d", c.left, want)
	}
	return c.discard(c.left)
}
