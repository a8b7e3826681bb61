package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"varve/protocol"
)

// coldLog is the one partition of the cold rows: batches that are all alike, in the tier only.
type coldLog struct {
	batch   []byte
	records int // in a batch
	batches int // that are read: all of them in the tier only
}

func newColdLog(bytes int64) (l coldLog, err error) {
	l.records = shape1K.records
	if l.batch, err = newBatch(shape1K); err == nil {
		l.batches = int(bytes) / len(l.batch)
	}
	return l, err
}

// fill produces the log to a broker with a tier, and returns when all that is to be read is there only.
func (l *coldLog) fill(ctx context.Context, s *server, small bool) error {
	size := coldSegmentBytes
	if small {
		size = 4 << 20
	}
	segment, local, tier := strconv.Itoa(size), "1", "true"
	err := createTopic(ctx, s, coldTopic, 1, map[string]*string{"remote.storage.enable": &tier, "segment.bytes": &segment,
		"local.retention.bytes": &local, "local.retention.ms": &local})
	if err != nil {
		return err
	}
	c, err := dial(s.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	frames := produceFrames(coldTopic, load{partitions: 1, acks: -1}, l.batch)
	if _, err := replay(c, frames, l.batches+size/len(l.batch)+1, checkProduced); err != nil {
		return err
	}
	return l.settled(ctx, s.addr)
}

// settled returns when all that is to be read is in the tier and nowhere else.
func (l *coldLog) settled(ctx context.Context, addr string) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	for until := time.Now().Add(settleWait); ; {
		r := kmsg.NewPtrListOffsetsRequest()
		r.Version, r.ReplicaID = 8, -1
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp, p.CurrentLeaderEpoch = -4, -1 // earliest local
		r.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: coldTopic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
		resp, err := c.call(r)
		if err != nil {
			return err
		}
		got := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		if got.ErrorCode == 0 && got.Offset >= int64(l.batches*l.records) {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("after %v the local log starts at %d, not at %d: %w", settleWait, got.Offset, l.batches*l.records, protocol.ErrorCode(got.ErrorCode))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// bytes that so many readers read, of equal shares.
func (l *coldLog) bytes(readers int) int64 {
	return int64(l.batches/readers*readers) * int64(len(l.batch))
}

// readAll has each reader read its share of the log, in order, and accounts for it to the process.
func (l *coldLog) readAll(addr string, pid, readers, fetchBytes int) (sample, error) {
	return l.spread(pid, readers, func(from, to int) (int64, error) { return l.readRange(addr, from, to, fetchBytes) })
}

// spread has each reader read its share of the batches.
func (l *coldLog) spread(pid, readers int, read func(from, to int) (requests int64, err error)) (sample, error) {
	share := l.batches / readers
	fetches := make([]int64, readers)
	used, err := measure(pid, func() error {
		var g errgroup.Group
		for i := range readers {
			g.Go(func() (err error) {
				fetches[i], err = read(i*share, (i+1)*share)
				return err
			})
		}
		return g.Wait()
	})
	if err != nil {
		return nil, err
	}
	var requests int64
	for _, n := range fetches {
		requests += n
	}
	return used.moved(requests, int64(share*readers*l.records), l.bytes(readers)), nil
}

// readRange reads the batches [from, to) in order on one connection, whole ones of up to so many bytes a fetch, and says how
// many fetches that took.
func (l *coldLog) readRange(addr string, from, to, fetchBytes int) (fetches int64, err error) {
	c, err := dial(addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	each := fetchBytes / len(l.batch)
	for empty := 0; from < to; fetches++ {
		want := min(each, to-from) * len(l.batch)
		if _, err := c.Write(fetchRequest(coldTopic, []int64{int64(from * l.records)}, want, 500)); err != nil {
			return fetches, err
		}
		got := 0
		err := c.fetched(func(_ int32, size int) error { got = size; return nil })
		if err != nil {
			return fetches, err
		}
		if got%len(l.batch) != 0 {
			return fetches, fmt.Errorf("%d bytes of batches of %d", got, len(l.batch))
		}
		if got > 0 {
			empty = 0
		} else if empty++; empty > 100 {
			return fetches, errors.New("a hundred empty answers in a row")
		}
		from += got / len(l.batch)
	}
	return fetches, nil
}

// readBare asks the loop of sendfile for as many bytes, over and over from the first half of one file.
func (l *coldLog) readBare(addr string, fileBytes int64, from, to, fetchBytes int) (requests int64, err error) {
	c, err := dial(addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	inFile := int(fileBytes) / 2 / len(l.batch)
	each := min(fetchBytes/len(l.batch), inFile)
	for ; from < to; requests++ {
		n := min(each, to-from)
		if err := c.askBare(int64(from%(inFile-n+1)*len(l.batch)), n*len(l.batch), 1); err != nil {
			return requests, err
		}
		from += n
	}
	return requests, nil
}
