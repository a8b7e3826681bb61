package main

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
)

// mixedReadShare is how many bytes are read for each that is produced: as by four groups of consumers.
const mixedReadShare = 4

// mixedRow produces and reads at the same time, each as fast as it goes. The work is fixed, so that no side is measured by
// a mixture of its own: producing a byte costs several times what reading one does.
func mixedRow() row {
	l := load{shape: shape1K, partitions: 16, producers: 1, acks: -1}
	rd := reading{partitions: 16, fetchBytes: 1 << 20, readers: 1}
	return row{name: "mixed", title: "the producer of produce/64KiB-batches and the reader of consume/1-reader at the same time, each until it has moved a fifth, and four fifths, of the bytes",
		bound: boundProduce, sides: []string{varve, kafkaSide}, figures: []string{"MB/s", "produce MB/s", "consume MB/s", cpuPerGB, "p50 ms", "p99 ms", peakRSS},
		start: func(ctx context.Context, b *bench, side string) (*lane, error) {
			s, hot, err := b.hot(ctx, side, rd.partitions)
			if err != nil {
				return nil, err
			}
			batch, err := newBatch(l.shape)
			return &lane{round: func(ctx context.Context) (sample, error) {
				topic, err := b.newTopic(ctx, s, l.partitions, nil)
				if err != nil {
					return nil, err
				}
				if err := settleDisk(b.data); err != nil {
					return nil, err
				}
				out, err := b.mixed(s, topic, l, batch, rd, hot)
				return out, errors.Join(err, dropTopic(ctx, s, topic))
			}}, err
		}}
}

// mixed produces a round's bytes and reads mixedReadShare times as many.
func (b *bench) mixed(s *server, topic string, l load, batch []byte, rd reading, hot *hotLog) (sample, error) {
	in, err := dial(s.addr)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out, err := dial(s.addr)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	per := hot.perFetch(rd)
	fetchBytes := per * hot.batchBytes * rd.partitions
	requests, fetches := max(int(b.bytes)/len(batch), 1), max(mixedReadShare*int(b.bytes)/fetchBytes, 1)
	lat := sample{}
	var producing, reading time.Duration
	used, err := measure(s.pid, func() error {
		var g errgroup.Group
		began := time.Now()
		g.Go(func() error {
			d, err := replay(in, produceFrames(topic, l, batch), requests, checkProduced)
			producing = time.Since(began)
			lat.latencies("", d)
			return err
		})
		g.Go(func() error {
			for i := range fetches {
				if err := fetchHot(out, rd, hot, i%max(hot.batches/per, 1)*per); err != nil {
					return err
				}
			}
			reading = time.Since(began)
			return nil
		})
		return g.Wait()
	})
	if err != nil {
		return nil, err
	}
	produced, read := int64(requests*len(batch)), int64(fetches*fetchBytes)
	sum := used.moved(int64(requests+fetches), int64(requests*l.shape.records), produced+read)
	sum["produce MB/s"], sum["consume MB/s"] = float64(produced)/1e6/producing.Seconds(), float64(read)/1e6/reading.Seconds()
	sum["p50 ms"], sum["p99 ms"] = lat["p50 ms"], lat["p99 ms"]
	return sum, nil
}
