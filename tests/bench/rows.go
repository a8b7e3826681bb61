package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"varve/protocol/record"
)

// row is one workload that every side of it is put to.
type row struct {
	name, title string
	bound       string   // what bounds it, for the document
	sides       []string // in the order of the alternation; the first is the one that is judged
	figures     []string // of its samples, in the order of the table
	targets     []target
	alone       bool // runs only when -rows names it: too long for the whole table
	rounds      int  // at most; 0 is -rounds
	start       func(ctx context.Context, b *bench, side string) (*lane, error)
}

// lane is a row's life on one side.
type lane struct {
	round func(ctx context.Context) (sample, error)
	close func()
	until func(done *atomic.Bool, moved *atomic.Int64) error // does what a round does, beside another lane; may be nil
	cold  bool                                               // the first round counts: a side that starts afresh in each round is not warmed up
}

// sample is what one round gave, by figure.
type sample map[string]float64

// target is a line of what the harness is asked to show: the ratio to a side, or the value itself where side is "".
type target struct {
	figure, side string
	limit        float64
	least        bool // at least the limit; otherwise at most
}

func (r row) hasBare() bool { return slices.Contains(r.sides, bare) }

// shape is what one produce request carries: one batch for one partition.
type shape struct {
	records int
	bytes   int // of a record's value
	codec   record.Codec
	share   int64 // a round moves this part of -bytes: small requests cost more of everything else
}

var (
	shape1K    = shape{records: 64, bytes: 1024, share: 1}
	shapeLZ4   = shape{records: 64, bytes: 1024, codec: record.LZ4, share: 2}
	shape10K   = shape{records: 6, bytes: 10240, share: 1}
	shape100B  = shape{records: 600, bytes: 100, share: 2}
	shapeSmall = shape{records: 10, bytes: 100, share: 16}
	shape1M    = shape{records: 960, bytes: 1024, share: 1}
	shape16K   = shape{records: 16, bytes: 1000, share: 2}
)

func (s shape) String() string {
	unit := fmt.Sprintf("%d B", s.bytes)
	if s.bytes%1024 == 0 {
		unit = fmt.Sprintf("%d KiB", s.bytes>>10)
	}
	if s.codec != record.None {
		unit += ", " + s.codec.String()
	}
	return fmt.Sprintf("batches of %d x %s", s.records, unit)
}

const (
	boundProduce = "Page cache, block allocation and the copy out of the socket; above the bare loop: decoding, validating each record, stamping, indexes."
	boundHot     = "The kernel inside sendfile, which the bare loop pays alike: TCP over loopback (half of the samples), finding pages and passing them on (a quarter), switches and wake-ups (a fifth)."
	boundIdle    = "Timers that run though nothing happens."
	boundPaced   = "Wake-ups: two of the broker per request, and the client's own."
)

// rows is the one table of workloads: what the speed issue names, and each axis on its own.
func rows() []row {
	all := []row{
		produceRow("produce/64KiB-batches", load{shape: shape1K, partitions: 16, producers: 1, acks: -1}, varve, kafkaSide, bare).
			want("MB/s", kafkaSide, 2, true).want(cpuPerGB, kafkaSide, 0.5, false).want(cpuPerGB, bare, 2, false).want(peakRSS, kafkaSide, 0.2, false),
		produceRow("produce/16KiB-batches", load{shape: shape16K, partitions: 16, producers: 1, acks: -1, together: true}, varve, kafkaSide, bare).
			want("MB/s", kafkaSide, 2, true).want(cpuPerGB, kafkaSide, 0.5, false).want(cpuPerGB, bare, 2, false),
		produceRow("produce/1MB-batches", load{shape: shape1M, partitions: 16, producers: 1, acks: -1}, varve, kafkaSide, bare).
			want("MB/s", kafkaSide, 2, true).want(cpuPerGB, kafkaSide, 0.5, false).want(cpuPerGB, bare, 2, false),
		produceRow("produce/acks=1", load{shape: shape1K, partitions: 16, producers: 1, acks: 1}, varve, kafkaSide),
		produceRow("produce/small", load{shape: shapeSmall, partitions: 16, producers: 1, acks: -1}, varve, kafkaSide, bare).
			want(cpuPerM, kafkaSide, 0.6, false),
		produceRow("produce/100B", load{shape: shape100B, partitions: 16, producers: 1, acks: -1}, varve, kafkaSide),
		produceRow("produce/10KiB", load{shape: shape10K, partitions: 16, producers: 1, acks: -1}, varve, kafkaSide),
		produceRow("produce/lz4", load{shape: shapeLZ4, partitions: 16, producers: 1, acks: -1}, varve, kafkaSide),
		produceRow("produce/1-partition", load{shape: shape1K, partitions: 1, producers: 1, acks: -1}, varve, kafkaSide),
		produceRow("produce/128-partitions", load{shape: shape1K, partitions: 128, producers: 1, acks: -1}, varve, kafkaSide),
		produceRow("produce/8-producers", load{shape: shape1K, partitions: 16, producers: 8, acks: -1}, varve, kafkaSide, bare).
			want("MB/s", kafkaSide, 2, true).want(cpuPerGB, kafkaSide, 0.5, false),
		produceRow("produce/Xmx512m", load{shape: shape1K, partitions: 16, producers: 1, acks: -1}, varve, kafkaLean).
			want(peakRSS, kafkaLean, 0.2, false),
		hotRow("consume/1-reader", reading{partitions: 16, fetchBytes: 1 << 20, readers: 1}, varve, kafkaSide, bare).
			want(cpuPerGB, kafkaSide, 0.5, false).want(cpuPerGB, bare, 1.2, false).want("MB/s", bare, 0.9, true),
		hotRow("consume/8-readers", reading{partitions: 16, fetchBytes: 1 << 20, readers: 8}, varve, kafkaSide, bare).
			want(cpuPerGB, kafkaSide, 0.5, false).want(cpuPerGB, bare, 1.2, false).want("MB/s", bare, 0.9, true),
		hotRow("consume/64KiB", reading{partitions: 1, fetchBytes: 67000, readers: 1}, varve, kafkaSide, bare),
		hotRow("consume/Xmx512m", reading{partitions: 16, fetchBytes: 1 << 20, readers: 1}, varve, kafkaLean),
		mixedRow(),
		pacedRow("latency/half-of-max", "half of Apache Kafka's maximum", load{shape: shape16K, partitions: 16, producers: 4, acks: -1}, halfOfMax).
			want("produce p99 ms", kafkaSide, 0.5, false).want("end-to-end p99 ms", kafkaSide, 0.5, false),
		pacedRow("latency/small-half", "half of Apache Kafka's maximum", load{shape: shapeSmall, partitions: 16, producers: 4, acks: -1}, halfOfMax).
			want("produce p99 ms", kafkaSide, 0.5, false).want("end-to-end p99 ms", kafkaSide, 0.5, false),
		pacedRow("latency/500-per-s", "500 requests a second", load{shape: shape16K, partitions: 16, producers: 4, acks: -1}, fixed(500)),
	}
	all = append(all, standingRows()...)
	all = append(append(append(all, coldRows()...), coldPeerRows()...), upRow(), besideRow())
	all = append(all, scaleRows()...)
	return append(all,
		clientRow("clients/producer-perf", "Kafka's producer-perf, 1 KiB records, acks=all, its defaults", []string{"MB/s", cpuPerGB, "p50 ms", "p99 ms", peakRSS}, true, producerPerf),
		clientRow("clients/consumer-perf", "Kafka's consumer-perf, 1 KiB records, its defaults", []string{"MB/s", cpuPerGB, peakRSS}, false, consumerPerf),
		clientRow("clients/kgo-produce", "franz-go, 1 KiB records, its defaults but no compression", []string{"MB/s", cpuPerGB, peakRSS}, true, kgoProduce),
		clientRow("clients/kgo-consume", "franz-go, 1 KiB records, its defaults", []string{"MB/s", cpuPerGB, peakRSS}, false, kgoConsume),
		stallRow().want("longest gap ms", "", 50, false),
	)
}

// standingRows are about what a broker costs when it does little, and how it starts.
func standingRows() []row {
	perPartition := []string{"idle CPU %", "idle switches/s", "trickle CPU %", "descriptors/partition", "descriptors, trickling", "RSS MB", "create s"}
	return []row{
		coldRow("idle/node", "an empty broker", boundIdle, 1, []string{"idle CPU %", "idle switches/s", "RSS MB"}, idleNode, varve, kafkaSide),
		coldRow("idle/connections", "-connections that have asked for the metadata and stay", boundIdle, 1,
			[]string{"RSS MB", "added MB", "KB a connection", "idle CPU %"}, idleConnections, varve, kafkaSide).want("RSS MB", "", 100, false),
		coldRow("idle/1000-partitions", "1,000 partitions: idle, then 500 small records a second over all of them", boundIdle, 1, perPartition,
			idlePartitions(1000), varve, kafkaSide).want("idle CPU %", "", 2, false).want("descriptors/partition", "", 1, false),
		coldRow("idle/10000-partitions", "10,000 partitions: idle, then 500 small records a second over all of them", boundIdle, 1, perPartition,
			idlePartitions(10000), varve, kafkaSide).want("idle CPU %", "", 2, false).want("descriptors/partition", "", 1, false),
		coldRow("start/empty", "start to serving on an empty folder", "The metastore's files and its election.", 0, []string{"start ms", "CPU ms", "RSS MB"}, startEmpty,
			varve, kafkaSide).want("start ms", kafkaSide, 0.1, false),
		startDataRow().want("start ms", kafkaSide, 0.1, false),
		recoverRow().want("recovery s", kafkaSide, 0.5, false),
	}
}

func (r row) want(figure, side string, limit float64, least bool) row {
	r.targets = append(slices.Clip(r.targets), target{figure: figure, side: side, limit: limit, least: least})
	return r
}

// bench is one run of the harness.
type bench struct {
	options
	brokers map[string]*server // shared by the rows, by side
	loaded  map[string]*hotLog // by side and reading
	rates   map[string]float64 // of paced rows: requests a second
	topics  int
	notes   map[string][]string  // on the row that runs, by side
	cold    *tiered              // shared by the cold rows
	peers   map[string]*peerTier // by side, shared by the rows of a tier in a folder
}

// sidesOf is who takes part in a row.
func (b *bench) sidesOf(r row) (out []string) {
	all := r.sides
	if b.against != "" {
		all = []string{varve, against}
	}
	for _, s := range all {
		if b.sides.MatchString(s) && (b.peer || !strings.HasPrefix(s, kafkaSide)) {
			out = append(out, s)
		}
	}
	return out
}

// run alternates the sides, one round each to warm up and then the counted ones.
func (b *bench) run(ctx context.Context, r row) (*result, error) {
	sides := b.sidesOf(r)
	lanes := make([]*lane, len(sides))
	defer func() {
		for _, l := range lanes {
			if l != nil && l.close != nil {
				l.close()
			}
		}
	}()
	res := &result{row: r, Name: r.name, Title: r.title, Bound: r.bound, Sides: sides, Figures: r.figures, Samples: map[string][]sample{}, At: time.Now().UTC()}
	b.notes = map[string][]string{}
	rounds := b.rounds
	if r.rounds > 0 {
		rounds = min(rounds, r.rounds)
	}
	for i := range rounds + 1 {
		for k, side := range sides {
			if lanes[k] == nil {
				var err error
				if lanes[k], err = r.start(ctx, b, side); err != nil {
					return nil, fmt.Errorf("%s: %w", side, err)
				}
			}
			if i == 0 && lanes[k].cold {
				continue
			}
			s, err := lanes[k].round(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", side, err)
			}
			if i > 0 {
				res.Samples[side] = append(res.Samples[side], s)
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
		}
	}
	res.Notes = b.notes
	return res, nil
}
