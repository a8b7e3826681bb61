package main

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

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

	boundCold = "The kernel's loopback TCP, twice: out of the store's socket and into the client's, on two cores that the S3 server and the " +
		"client share. The relay, which checks nothing and knows no offsets, is the floor of that, and above 1.5x bare by itself; sendfile " +
		"out of a memfd is no cheaper than writing the same memory, and where its pages are used again it could send others than were checked."

	getsPerGB   = "GETs/GB"
	memoryMB    = "memory MB"       // the most chunks in memory that the broker's gauge showed; the bound is 128 MiB
	storeCPU    = "store CPU s/GB"  // the S3 server's
	clientCPU   = "client CPU s/GB" // the harness's own, which reads what comes; and the proxy's
	watchEvery  = 250 * time.Millisecond
	shapedRate  = 100_000_000 // bytes a second
	shapedDelay = 20 * time.Millisecond
	farRate     = 60_000_000 // bytes a second, of each answer
	farDelay    = 30 * time.Millisecond
)

// tiered is a log in an S3 server, and the broker that serves it.
type tiered struct {
	b      *bench
	s3     *s3server.Server
	proxy  *s3server.Proxy
	binary string
	data   string
	node   *node.Node
	coldLog
}

// coldRows read what is in the tier only. Each round starts the broker afresh: nothing is cached.
func coldRows() []row {
	figures := []string{"MB/s", cpuPerGB, storeCPU, clientCPU, peakRSS, getsPerGB}
	return []row{
		{name: "cold/loopback", title: "one reader, one partition, from an S3 server as fast as loopback goes; bare: the same SDK, parallel ranged GETs of 8 MiB, dropped; relay: sent on in order",
			bound: boundCold, sides: []string{varve, bare, relay}, figures: figures, alone: true, start: coldLane(s3server.Weather{}, 1),
			targets: []target{{figure: "MB/s", side: bare, limit: 0.9, least: true}, {figure: cpuPerGB, side: bare, limit: 1.5}}},
		{name: "cold/shaped", title: "one reader, one partition, from an S3 server at 100 MB/s and 20 ms to the first byte; bare: the same SDK, parallel ranged GETs of 8 MiB, dropped; relay: sent on in order",
			bound: "The rate.", sides: []string{varve, bare, relay}, figures: figures, alone: true,
			targets: []target{{figure: "MB/s", limit: 0.95 * shapedRate / 1e6, least: true}},
			start:   coldLane(s3server.Weather{Latency: shapedDelay, BytesPerSec: shapedRate}, 1)},
		{name: "cold/far", title: "one reader, one partition, from an S3 server that takes 30 ms to the first byte and sends each answer at 60 MB/s, as many as are asked for at once; bare: the same SDK, 8 parallel ranged GETs of 8 MiB, dropped; relay: sent on in order",
			bound: "How many GETs are under way: the window ahead of a reader.", sides: []string{varve, bare, relay}, figures: figures, alone: true,
			targets: []target{{figure: "MB/s", side: bare, limit: 0.9, least: true}},
			start:   coldLane(s3server.Weather{Latency: farDelay, EachPerSec: farRate}, 1)},
		{name: "cold/50-readers", title: "50 readers, each of another place in one partition, from an S3 server as fast as loopback goes",
			bound: boundCold, sides: []string{varve}, figures: append(figures, memoryMB), alone: true, start: coldLane(s3server.Weather{}, 50),
			targets: []target{{figure: memoryMB, limit: 134.22}}}, // 128 MiB, in the five digits that results are kept with
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
			if t.binary = b.varve; side == against {
				t.binary = b.against
			}
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
	t = &tiered{b: b, binary: b.varve, data: filepath.Join(b.data, "cold")}
	b.cold = t // to be closed, whatever comes
	if t.s3, err = s3server.StartProcess(ctx, s3server.Options{Dir: filepath.Join(b.data, "s3")}); err != nil {
		return nil, err
	}
	if t.proxy, err = s3server.NewProxy(t.s3.Endpoint); err != nil {
		return nil, err
	}
	if t.coldLog, err = newColdLog(b.coldBytes); err != nil {
		return nil, err
	}
	if err := t.start(ctx, t.s3.URL); err != nil {
		return nil, err
	}
	defer t.stop()
	return t, t.fill(ctx, &server{side: varve, addr: t.node.Kafka}, b.small)
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
	t.node, err = node.Start(ctx, node.Options{Binary: t.binary, Data: t.data, Args: args, Env: t.s3.Env()})
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
	var most float64
	out, err := t.withStore(t.bytes(readers), func() (out sample, err error) {
		most, err = t.whileWatching("varve_tier_read_memory_bytes", func() error {
			out, err = t.readAll(t.node.Kafka, t.node.PID(), readers, coldFetchBytes)
			return err
		})
		return out, err
	})
	if err != nil {
		return nil, err
	}
	after, err := t.gets()
	if err != nil {
		return nil, err
	}
	out[getsPerGB] = (after - gets) / (float64(t.bytes(readers)) / 1e9)
	out[memoryMB] = most / 1e6
	return out, nil
}

// whileWatching returns the highest value that a metric showed while something was done.
func (t *tiered) whileWatching(series string, do func() error) (most float64, err error) {
	done := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { done <- do() })
	defer wg.Wait()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		v, merr := t.metrics(series, "")
		most = max(most, v)
		select {
		case err := <-done:
			return most, errors.Join(err, merr)
		case <-tick.C:
		}
	}
}

func (t *tiered) gets() (float64, error) {
	return t.metrics("varve_store_requests_total", `cause="read",verb="get"`)
}
