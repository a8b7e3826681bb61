package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	hotTopic = "hot"
	// hotLogBytes fits the page cache of a small machine: reads are hot.
	hotLogBytes = 512 << 20
	// fetchVersion 12 names topics, so no id is needed; the reply's shape is the one of today's consumers.
	fetchVersion = 12
)

// benchHot reads one partition from the page cache. The bare side sends the same ranges of the same file: how the
// kernel happened to lay out its pages is the same for both.
func benchHot(ctx context.Context, o options) error {
	v, l, err := startHot(ctx, o, o.varve, "hot")
	if err != nil {
		return err
	}
	defer v.stop()
	a := func() (sample, error) { return hotVarve(v, o, l) }
	var b func() (sample, error)
	if o.against != "" {
		w, m, err := startHot(ctx, o, o.against, "hot-against")
		if err != nil {
			return err
		}
		defer w.stop()
		b = func() (sample, error) { return hotVarve(w, o, m) }
	} else {
		w, err := startBare(ctx, "sendfile", filepath.Join(o.data, "hot", "log", hotTopic+"-0", "00000000000000000000.log"))
		if err != nil {
			return err
		}
		defer w.stop()
		b = func() (sample, error) { return hotBare(w, o, l) }
	}
	return alternate(o, fmt.Sprintf("hot reads, fetches of up to %d KiB, one connection", o.fetchBytes>>10), a, b, []figure{
		{"GB/s", sample.gbPerS}, {"CPU s/GB", sample.cpuPerGB}, {"switches/request", sample.switchesPerRequest}})
}

func startHot(ctx context.Context, o options, binary, data string) (*side, *hotLog, error) {
	v, err := startVarve(ctx, binary, filepath.Join(o.data, data), "log.segment.bytes=1073741824")
	if err != nil {
		return nil, nil, err
	}
	l, err := loadHot(ctx, v, o)
	if err != nil {
		v.stop()
	}
	return v, l, err
}

// hotLog is a partition of batches that are all of one size, so that each range a fetch answers is known beforehand.
type hotLog struct {
	batchBytes int64 // one batch
	perFetch   int64 // batches in the answer to a fetch
	fetches    int64 // that read the whole log, whole answers only
	req        *fetchTemplate
}

// loadHot fills one partition.
func loadHot(ctx context.Context, v *side, o options) (*hotLog, error) {
	if err := createTopic(ctx, v, hotTopic, 1); err != nil {
		return nil, err
	}
	batch, err := newBatch(largeBatch)
	if err != nil {
		return nil, err
	}
	l := &hotLog{batchBytes: int64(len(batch)), perFetch: int64(o.fetchBytes / len(batch)), req: newFetchTemplate(o.fetchBytes)}
	if l.perFetch == 0 {
		return nil, fmt.Errorf("-fetch-bytes %d is less than a batch of %d", o.fetchBytes, len(batch))
	}
	l.fetches = hotLogBytes / (l.perFetch * l.batchBytes)
	c, err := dial(v.addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_, err = replay(c, [][]byte{produceFrame(hotTopic, 0, batch)}, int(l.fetches*l.perFetch), produceCheck(hotTopic))
	return l, err
}

// fetchTemplate is an encoded Fetch request with the place of its fetch offset.
type fetchTemplate struct {
	bytes  []byte
	offset int
}

func newFetchTemplate(maxBytes int) *fetchTemplate {
	build := func(off int64) []byte {
		r := kmsg.NewPtrFetchRequest()
		r.Version = fetchVersion
		r.ReplicaID, r.MaxWaitMillis, r.MinBytes, r.MaxBytes, r.SessionEpoch = -1, 100, 1, 1<<30, -1
		p := kmsg.NewFetchRequestTopicPartition()
		p.FetchOffset, p.PartitionMaxBytes = off, int32(maxBytes)
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

// hotVarve walks the log from the start again and again.
func hotVarve(s *side, o options, l *hotLog) (sample, error) {
	return hotRead(s, o, l, func(c *conn, i int64) error {
		off := i * l.perFetch * int64(largeBatch.records)
		binary.BigEndian.PutUint64(l.req.bytes[l.req.offset:], uint64(off))
		if _, err := c.Write(l.req.bytes); err != nil {
			return err
		}
		head, size, err := c.reply(256)
		if err != nil {
			return err
		}
		return checkFetched(head, off, int64(size), l.perFetch*l.batchBytes)
	})
}

func hotBare(s *side, o options, l *hotLog) (sample, error) {
	var req [20]byte
	n := l.perFetch * l.batchBytes
	return hotRead(s, o, l, func(c *conn, i int64) error {
		binary.BigEndian.PutUint64(req[4:], uint64(i*n))
		binary.BigEndian.PutUint64(req[12:], uint64(n))
		if _, err := c.Write(req[:]); err != nil {
			return err
		}
		_, _, err := c.reply(256)
		return err
	})
}

// hotRead counts record bytes, the same for both sides.
func hotRead(s *side, o options, l *hotLog, fetch func(c *conn, i int64) error) (sample, error) {
	c, err := dial(s.addr)
	if err != nil {
		return sample{}, err
	}
	defer c.Close()
	perFetch := l.perFetch * l.batchBytes
	total := (o.bytes + perFetch - 1) / perFetch
	return measure(s, total, total*perFetch, func() error {
		for i := range total {
			if err := fetch(c, i%l.fetches); err != nil {
				return fmt.Errorf("fetch %d: %w", i, err)
			}
		}
		return nil
	})
}

// checkFetched holds a reply's error code, its length and the offset of its first batch against what was asked.
func checkFetched(head []byte, off, size, records int64) error {
	// v12: correlation 4, tags 1, throttle 4, error 2, session 4, topics 1, name, partitions 1, index 4, error 2, ...
	i := 4 + 1 + 4 + 2 + 4 + 1 + 1 + len(hotTopic) + 1 + 4
	if code := int16(binary.BigEndian.Uint16(head[i:])); code != 0 {
		return fmt.Errorf("error code %d", code)
	}
	i += 2 + 8 + 8 + 8 + 1 + 4 // error, high watermark, last stable, log start, aborted (null), preferred replica
	n, width := binary.Uvarint(head[i:])
	i += width
	if width <= 0 || int64(n)-1 != records || size < records || len(head) < i+8 {
		return fmt.Errorf("%d bytes of records in a reply of %d, not %d", int64(n)-1, size, records)
	}
	if base := int64(binary.BigEndian.Uint64(head[i:])); base != off {
		return fmt.Errorf("records from offset %d, not %d", base, off)
	}
	return nil
}
