package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

// produceDepth is how many requests a connection keeps in flight, as Kafka's own producer does.
const produceDepth = 5

// replyHeadBytes is how much of a produce reply is looked at: a reply for 16 partitions is shorter.
const replyHeadBytes = 1024

// load is what is produced and by whom.
type load struct {
	shape      shape
	partitions int
	producers  int // connections; each goes round all partitions
	acks       int16
	together   bool // a request has a batch for every partition, not for one
}

func (l load) String() string {
	acks := "all"
	if l.acks >= 0 {
		acks = fmt.Sprint(l.acks)
	}
	each := "for one of them"
	if l.together {
		each = "for each of them"
	}
	return fmt.Sprintf("produce, acks=%s, %v, %s, partitions %d, producers %d, %d in flight each", acks, l.shape, each, l.partitions, l.producers, produceDepth)
}

func produceRow(name string, l load, sides ...string) row {
	return row{name: name, title: l.String(), bound: boundProduce, sides: sides,
		figures: []string{"MB/s", cpuPerGB, cpuPerM, "p50 ms", "p99 ms", "p99.9 ms", perReq, peakRSS},
		start: func(ctx context.Context, b *bench, side string) (*lane, error) {
			if side == bare {
				return b.produceBare(ctx, l)
			}
			s, err := b.broker(ctx, side)
			if err != nil {
				return nil, err
			}
			round, err := b.produceTo(s, l)
			return &lane{round: round}, err
		}}
}

// produceTo returns what makes one round of a load. It appends to files that are new in each round on all sides, and whose
// predecessors are gone: growing a file costs pages and blocks that writing over one does not.
func (b *bench) produceTo(s *server, l load) (func(ctx context.Context) (sample, error), error) {
	batch, err := newBatch(l.shape)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (out sample, err error) {
		topic, err := b.newTopic(ctx, s, l.partitions, nil)
		if err != nil {
			return nil, err
		}
		if err := settleDisk(b.data); err != nil {
			return nil, err
		}
		if out, err = b.replayRound(s, l, produceFrames(topic, l, batch), len(batch), checkProduced); err != nil {
			return nil, err
		}
		return out, dropTopic(ctx, s, topic)
	}, nil
}

// produceFrames encodes one request per partition, or one for all.
func produceFrames(topic string, l load, batch []byte) (frames [][]byte) {
	var all []int32
	for p := range int32(l.partitions) {
		all = append(all, p)
		frames = append(frames, produceFrame(topic, l.acks, batch, p))
	}
	if l.together {
		return [][]byte{produceFrame(topic, l.acks, batch, all...)}
	}
	return frames
}

// produceBare puts the same frames to a loop of receive, CRC32C and pwrite, one file for each producer.
func (b *bench) produceBare(ctx context.Context, l load) (*lane, error) {
	batch, err := newBatch(l.shape)
	if err != nil {
		return nil, err
	}
	s, err := b.startBare(ctx, "append", filepath.Join(b.data, "bare-append"))
	if err != nil {
		return nil, err
	}
	frames := produceFrames("t00000", l, batch)
	return &lane{close: s.kill, round: func(context.Context) (sample, error) {
		if err := settleDisk(b.data); err != nil {
			return nil, err
		}
		return b.replayRound(s, l, frames, len(batch), nil)
	}}, nil
}

// replayRound sends the round's share of bytes, counted in batches.
func (b *bench) replayRound(s *server, l load, frames [][]byte, batchBytes int, check func([]byte) error) (sample, error) {
	batches := int64(l.partitions / len(frames)) // in a request
	perProducer := max(b.bytes/l.shape.share/int64(batchBytes)/batches/int64(l.producers), 1)
	latencies := make([][]time.Duration, l.producers)
	conns := make([]*conn, l.producers)
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
		for i, c := range conns {
			g.Go(func() (err error) {
				turned := append(append([][]byte{}, frames[i%len(frames):]...), frames[:i%len(frames)]...)
				latencies[i], err = replay(c, turned, int(perProducer), check)
				return err
			})
		}
		return g.Wait()
	})
	if err != nil {
		return nil, err
	}
	var all []time.Duration
	for _, l := range latencies {
		all = append(all, l...)
	}
	requests := perProducer * int64(l.producers)
	out := used.moved(requests, requests*batches*int64(l.shape.records), requests*batches*int64(batchBytes))
	out.latencies("", all)
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
		head, err := c.reply(replyHeadBytes)
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
