package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"varve/protocol"
	"varve/tests/node"
	"varve/tests/s3server"
)

const (
	coldTopic        = "cold"
	coldSegmentBytes = 256 << 20
	coldFetchBytes   = 1 << 20 // Kafka's default of max.partition.fetch.bytes
	// settleWait bounds how long the data may take into the tier.
	settleWait = 20 * time.Minute

	relay = "relay" // the bare program that also sends the bytes on

	boundCold = "The copies of each byte: out of the store's socket and into the client's; beside them the S3 server's own."

	getsPerGB   = "GETs/GB"
	shapedRate  = 100_000_000 // bytes a second
	shapedDelay = 20 * time.Millisecond
)

// tiered is a log in an S3 server, and the broker that serves it.
type tiered struct {
	b       *bench
	s3      *s3server.Server
	proxy   *s3server.Proxy
	data    string
	batch   []byte
	records int // in a batch
	batches int // that are read: all of them in the tier only
	node    *node.Node
}

// coldRows read what is in the tier only. Each round starts the broker afresh: nothing is cached.
func coldRows() []row {
	figures := []string{"MB/s", cpuPerGB, peakRSS, getsPerGB}
	return []row{
		{name: "cold/loopback", title: "one reader, one partition, from an S3 server as fast as loopback goes; bare: the same SDK, parallel ranged GETs of 8 MiB, dropped; relay: sent on in order",
			bound: boundCold, sides: []string{varve, bare, relay}, figures: figures, alone: true, start: coldLane(s3server.Weather{}, 1)},
		{name: "cold/shaped", title: "one reader, one partition, from an S3 server at 100 MB/s and 20 ms to the first byte; bare: the same SDK, parallel ranged GETs of 8 MiB, dropped; relay: sent on in order",
			bound: "The rate.", sides: []string{varve, bare, relay}, figures: figures, alone: true,
			start: coldLane(s3server.Weather{Latency: shapedDelay, BytesPerSec: shapedRate}, 1)},
		{name: "cold/50-readers", title: "50 readers, each of another place in one partition, from an S3 server as fast as loopback goes",
			bound: boundCold, sides: []string{varve}, figures: append(figures, "memory MB"), alone: true, start: coldLane(s3server.Weather{}, 50)},
	}
}

func coldLane(w s3server.Weather, readers int) func(context.Context, *bench, string) (*lane, error) {
	return func(ctx context.Context, b *bench, side string) (*lane, error) {
		t, err := b.tiered(ctx)
		if err != nil {
			return nil, err
		}
		if bareKinds[side] != "" {
			return t.bareLane(ctx, side, w)
		}
		return &lane{cold: true, close: t.stop, round: func(ctx context.Context) (sample, error) {
			defer t.stop()
			if err := t.start(ctx, t.weather(w)); err != nil {
				return nil, err
			}
			return t.read(readers)
		}}, nil
	}
}

// tiered is the log of the cold rows, produced and settled by whoever asks first.
func (b *bench) tiered(ctx context.Context) (t *tiered, err error) {
	if b.cold != nil {
		return b.cold, nil
	}
	t = &tiered{b: b, data: filepath.Join(b.data, "cold"), records: shape1K.records}
	b.cold = t // to be closed, whatever comes
	if t.s3, err = s3server.StartProcess(ctx, s3server.Options{Dir: filepath.Join(b.data, "s3")}); err != nil {
		return nil, err
	}
	if t.proxy, err = s3server.NewProxy(t.s3.Endpoint); err != nil {
		return nil, err
	}
	if t.batch, err = newBatch(shape1K); err != nil {
		return nil, err
	}
	t.batches = int(b.coldBytes) / len(t.batch)
	if err := t.start(ctx, t.s3.URL); err != nil {
		return nil, err
	}
	defer t.stop()
	s := &server{side: varve, addr: t.node.Kafka}
	segment, local, tier := strconv.Itoa(coldSegmentBytes), "1", "true"
	if b.small {
		segment = strconv.Itoa(4 << 20)
	}
	err = createTopic(ctx, s, coldTopic, 1, map[string]*string{"remote.storage.enable": &tier, "segment.bytes": &segment,
		"local.retention.bytes": &local, "local.retention.ms": &local})
	if err != nil {
		return nil, err
	}
	c, err := dial(s.addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	size, _ := strconv.Atoi(segment)
	frames := produceFrames(coldTopic, load{partitions: 1, acks: -1}, t.batch)
	if _, err := replay(c, frames, t.batches+size/len(t.batch)+1, checkProduced); err != nil {
		return nil, err
	}
	return t, t.settled(ctx)
}

// settled returns when all that is to be read is in the tier and nowhere else.
func (t *tiered) settled(ctx context.Context) error {
	c, err := dial(t.node.Kafka)
	if err != nil {
		return err
	}
	defer c.Close()
	for until := time.Now().Add(settleWait); ; {
		l := kmsg.NewPtrListOffsetsRequest()
		l.Version, l.ReplicaID = 8, -1
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp, p.CurrentLeaderEpoch = -4, -1 // earliest local
		l.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: coldTopic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
		resp, err := c.call(l)
		if err != nil {
			return err
		}
		got := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		if got.ErrorCode == 0 && got.Offset >= int64(t.batches*t.records) {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("after %v the local log starts at %d, not at %d: %w", settleWait, got.Offset, t.batches*t.records, protocol.ErrorCode(got.ErrorCode))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// weather sets the proxy's and returns the tier's URL: through the proxy only when there is something to shape.
func (t *tiered) weather(w s3server.Weather) string {
	t.proxy.Set(w)
	if w.Latency == 0 && w.BytesPerSec == 0 {
		return t.s3.URL
	}
	return t.proxy.Via(t.s3, t.s3.URL)
}

func (t *tiered) start(ctx context.Context, url string, sets ...string) (err error) {
	args := []string{"--config", propertiesFile()}
	for _, s := range append([]string{"listeners=PLAINTEXT://127.0.0.1:0", "varve.http.listen=127.0.0.1:0", "varve.tier.url=" + url,
		"remote.log.manager.task.interval.ms=500", "varve.tier.scrub.interval.ms=-1"}, sets...) {
		args = append(args, "--set", s)
	}
	t.node, err = node.Start(ctx, node.Options{Binary: t.b.varve, Data: t.data, Args: args, Env: t.s3.Env()})
	if err != nil {
		return err
	}
	return awaitServing(ctx, t.node.Kafka, nil)
}

func (t *tiered) stop() {
	if t.node != nil {
		ctx, cancel := context.WithTimeout(context.Background(), terminateWait)
		defer cancel()
		_, _ = t.node.Terminate(ctx)
		t.node.Kill()
		t.node = nil
	}
}

func (t *tiered) close() {
	t.stop()
	if t.proxy != nil {
		t.proxy.Close()
	}
	if t.s3 != nil {
		t.s3.Stop()
	}
}

// read has each reader read its share of the log, in order; one reader all of it.
func (t *tiered) read(readers int) (sample, error) {
	if err := awaitServing(context.Background(), t.node.Kafka, map[string]int{coldTopic: 1}); err != nil {
		return nil, err
	}
	gets, err := t.gets()
	if err != nil {
		return nil, err
	}
	share := t.batches / readers
	fetches := make([]int64, readers)
	used, err := measure(t.node.PID(), func() error {
		var g errgroup.Group
		for i := range readers {
			g.Go(func() (err error) {
				fetches[i], err = t.readRange(i*share, (i+1)*share)
				return err
			})
		}
		return g.Wait()
	})
	if err != nil {
		return nil, err
	}
	after, err := t.gets()
	if err != nil {
		return nil, err
	}
	var requests int64
	for _, n := range fetches {
		requests += n
	}
	bytes := int64(share*readers) * int64(len(t.batch))
	out := used.moved(requests, bytes/int64(len(t.batch))*int64(t.records), bytes)
	out[getsPerGB] = (after - gets) / (float64(bytes) / 1e9)
	memory, err := t.metric("varve_tier_read_memory_bytes")
	out["memory MB"] = memory / 1e6
	return out, err
}

// readRange reads the batches [from, to) in order on one connection and says how many fetches that took.
func (t *tiered) readRange(from, to int) (fetches int64, err error) {
	c, err := dial(t.node.Kafka)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for empty := 0; from < to; fetches++ {
		want := min(coldFetchBytes, (to-from)*len(t.batch))
		if _, err := c.Write(fetchRequest(coldTopic, []int64{int64(from * t.records)}, want, 500)); err != nil {
			return fetches, err
		}
		got := 0
		err := c.fetched(func(_ int32, size int) error { got = size; return nil })
		if err != nil {
			return fetches, err
		}
		if got%len(t.batch) != 0 {
			return fetches, fmt.Errorf("%d bytes of batches of %d", got, len(t.batch))
		}
		if got > 0 {
			empty = 0
		} else if empty++; empty > 100 {
			return fetches, errors.New("a hundred empty answers in a row")
		}
		from += got / len(t.batch)
	}
	return fetches, nil
}

func (t *tiered) gets() (float64, error) {
	return t.metric(`varve_store_requests_total{cause="read",verb="get"}`)
}
