package main

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// mixedRow produces and reads at the same time, each as fast as it goes.
func mixedRow() row {
	l := load{shape: shape1K, partitions: 16, producers: 1, acks: -1}
	rd := reading{partitions: 16, fetchBytes: 1 << 20, readers: 1}
	return row{name: "mixed", title: "the producer of produce/64KiB-batches and the reader of consume/1-reader at the same time; bytes of both",
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

// mixed reads for as long as the producer needs for a round's bytes.
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
	requests := max(int(b.bytes)/len(batch), 1)
	lat := sample{}
	fetches := 0
	used, err := measure(s.pid, func() error {
		var g errgroup.Group
		done := make(chan struct{})
		g.Go(func() error {
			defer close(done)
			d, err := replay(in, produceFrames(topic, l, batch), requests, checkProduced)
			lat.latencies("", d)
			return err
		})
		g.Go(func() error {
			for {
				select {
				case <-done:
					return nil
				default:
				}
				if err := fetchHot(out, rd, hot, fetches%max(hot.batches/per, 1)*per); err != nil {
					return err
				}
				fetches++
			}
		})
		return g.Wait()
	})
	if err != nil {
		return nil, err
	}
	produced, read := int64(requests*len(batch)), int64(fetches*per*hot.batchBytes*rd.partitions)
	sum := used.moved(int64(requests+fetches), int64(requests*l.shape.records), produced+read)
	sum["produce MB/s"], sum["consume MB/s"] = float64(produced)/1e6/used.wall.Seconds(), float64(read)/1e6/used.wall.Seconds()
	sum["p50 ms"], sum["p99 ms"] = lat["p50 ms"], lat["p99 ms"]
	return sum, nil
}
