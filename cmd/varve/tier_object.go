package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"varve/protocol"
	"varve/protocol/record"
	"varve/tiering"
	"varve/tiering/objstore"
)

func tierCatCommand() *command {
	return &command{
		name: "cat", args: "TOPIC [URL] [--partition N] [--cluster ID] [--from OFFSET] [--count N] [--format text|json|hex|base64|raw] [--print FIELDS]", run: tierCat,
		summary: "Print the records of a topic that are in a tier, without a cluster: from the objects alone, each byte checked. " +
			"TOPIC is a name or a topic id. Records of aborted transactions are shown too, as are those that a retention has passed whose object is still there.",
		examples: []string{
			"varve tier cat hello dir:///var/lib/varve/tier",
			"varve tier cat orders 's3://bucket/prefix?region=eu-central-1' --partition 3 --from 1000000 --count 10 --format json",
		},
	}
}

func tierInspectCommand() *command {
	return &command{
		name: "inspect", args: "KEY [URL] [--format text|json]", run: tierInspect,
		summary: "Show what one segment object says of itself: its footer and its sections, checked. `varve dump --tier URL KEY` reads its records as well.",
		examples: []string{
			"varve tier inspect KEY dir:///var/lib/varve/tier",
			"varve tier inspect KEY --format json",
		},
	}
}

// inspected is what tier inspect prints as JSON.
type inspected struct {
	Key            string            `json:"key"`
	Bytes          int64             `json:"bytes"`
	Cluster        string            `json:"cluster"`
	Topic          string            `json:"topic"`
	TopicID        string            `json:"topicId"`
	Partition      int32             `json:"partition"`
	SegmentID      string            `json:"segmentId"`
	Base           int64             `json:"base"`
	Next           int64             `json:"next"`
	LogStart       int64             `json:"logStart"`
	Records        int64             `json:"records"`
	Batches        int64             `json:"batches"`
	LogBytes       int64             `json:"logBytes"`
	FirstTimestamp string            `json:"firstTimestamp"`
	MaxTimestamp   string            `json:"maxTimestamp"`
	LeaderEpoch    int32             `json:"leaderEpoch"`
	Generation     uint32            `json:"generation"`
	Replaces       []string          `json:"replaces,omitempty"`
	MaxProducerID  int64             `json:"maxProducerId"`
	Configs        map[string]string `json:"configs"`
	Epochs         []inspectedEpoch  `json:"epochs"`
	Chunks         int               `json:"chunks"`
	Transactions   int               `json:"abortedTransactions"`
	Broker         int32             `json:"writtenBy"`
	Written        string            `json:"written"`
}

type inspectedEpoch struct {
	Epoch int32 `json:"epoch"`
	Start int64 `json:"start"`
}

func tierInspect(c *call) int {
	format := c.format()
	args, code, done := c.parse(1, 2)
	if done {
		return code
	}
	if c.badFormat(*format) {
		return c.wrong("--format is text or json")
	}
	store, _, code := c.openTier(args[1:])
	if store == nil {
		return code
	}
	seg, size, err := openStored(c.ctx, store, args[0])
	if err != nil {
		return c.storeFailed(err)
	}
	out := inspect(args[0], size, seg)
	if *format == "json" {
		return c.printJSON(out)
	}
	for _, line := range out.lines() {
		fmt.Fprintf(c.stdout, "%-16s %s\n", line[0], line[1])
	}
	return exitOK
}

func inspect(key string, size int64, seg *tiering.SegmentReader) inspected {
	f := seg.Footer
	out := inspected{
		Key: key, Bytes: size, Cluster: f.ClusterId, Topic: f.Topic, TopicID: uuidOf(f.TopicId).String(), Partition: f.Partition, SegmentID: uuidOf(f.SegmentId).String(),
		Base: f.Base, Next: f.Next, LogStart: f.LogStart, Records: f.RecordCount, Batches: f.BatchCount, LogBytes: f.LogBytes,
		FirstTimestamp: timestamp(f.FirstTimestamp), MaxTimestamp: timestamp(f.MaxTimestamp), LeaderEpoch: f.LeaderEpoch, Generation: f.Generation,
		MaxProducerID: f.MaxProducerId, Configs: map[string]string{}, Chunks: len(seg.Chunks), Transactions: len(seg.TxnIndex) / txnEntryBytes,
		Broker: f.Writer.GetBrokerId(), Written: timestamp(f.Writer.GetWrittenMs()),
	}
	for _, id := range f.Replaces {
		out.Replaces = append(out.Replaces, uuidOf(id).String())
	}
	for _, cfg := range f.Configs {
		out.Configs[cfg.Name] = cfg.Value
	}
	for _, e := range seg.Epochs {
		out.Epochs = append(out.Epochs, inspectedEpoch{e.Epoch, e.Start})
	}
	return out
}

func (i inspected) lines() (out [][2]string) {
	add := func(name, format string, args ...any) {
		out = append(out, [2]string{name, fmt.Sprintf(format, args...)})
	}
	add("topic", "%s, id %s, partition %d", i.Topic, i.TopicID, i.Partition)
	add("offsets", "%d to %d; the log started at %d", i.Base, i.Next-1, i.LogStart)
	add("records", "%s in %s batches, %s", count(i.Records), count(i.Batches), size(i.LogBytes))
	add("timestamps", "%s to %s", i.FirstTimestamp, i.MaxTimestamp)
	add("segment", "%s, generation %d", i.SegmentID, i.Generation)
	for _, id := range i.Replaces {
		add("replaces", "%s", id)
	}
	add("written", "%s by broker %d of cluster %s at leader epoch %d", i.Written, i.Broker, i.Cluster, i.LeaderEpoch)
	for _, e := range i.Epochs {
		add("leader epoch", "%d from offset %d", e.Epoch, e.Start)
	}
	add("object", "%s in %d chunks and indexes; %d aborted transactions; producer ids up to %d", size(i.Bytes), i.Chunks, i.Transactions, i.MaxProducerID)
	for _, k := range sortedKeys(i.Configs) {
		add("config", "%s=%s", k, i.Configs[k])
	}
	return out
}

func uuidOf(b []byte) (id protocol.UUID) {
	copy(id[:], b)
	return id
}

// blockBytes is what one GET of a tool reads.
const blockBytes = 1 << 20

// blocks reads an object in blocks and keeps the last one, so that small reads in a row cost one GET.
type blocks struct {
	r     storeReader
	size  int64
	at    int64
	block []byte
}

// ReadAt implements io.ReaderAt, for one reader at a time.
func (b *blocks) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) {
		if off >= b.size {
			return n, io.EOF
		}
		if off < b.at || off >= b.at+int64(len(b.block)) {
			start := off - off%blockBytes
			buf := make([]byte, min(blockBytes, b.size-start))
			if got, err := b.r.ReadAt(buf, start); got < len(buf) {
				return n, cmp.Or(err, io.ErrUnexpectedEOF)
			}
			b.at, b.block = start, buf
		}
		got := copy(p[n:], b.block[off-b.at:])
		n, off = n+got, off+int64(got)
	}
	return n, nil
}

func openStored(ctx context.Context, store objstore.Store, key string) (*tiering.SegmentReader, int64, error) {
	info, err := store.Head(ctx, key)
	if err != nil {
		return nil, 0, err
	}
	seg, err := tiering.OpenSegment(&blocks{r: storeReader{ctx, store, key}, size: info.Size}, info.Size)
	return seg, info.Size, err
}

func tierCat(c *call) int {
	t := &catter{c: c}
	partition := c.flags.Int("partition", 0, "the partition `N`")
	c.flags.StringVar(&t.cluster, "cluster", "", "the cluster `ID`, where a tier holds several")
	c.flags.Int64Var(&t.from, "from", 0, "begin at `OFFSET`")
	c.flags.Int64Var(&t.count, "count", 0, "end after `N` records; 0 is no bound")
	format := c.flags.String("format", formatText, "`FORMAT` of the output: text, json, hex, base64 or raw")
	fields := c.flags.String("print", "value", "`FIELDS` of a line, in this order: "+strings.Join(recordFields, ","))
	args, code, done := c.parse(1, 2)
	if done {
		return code
	}
	t.codec = recordCodec{format: *format, separator: "\t", fields: strings.Split(*fields, ","), nullMarker: "null"}
	switch {
	case !slices.Contains(recordFormats, *format):
		return c.wrong("--format is one of %s", strings.Join(recordFormats, ", "))
	case slices.ContainsFunc(t.codec.fields, func(f string) bool { return !slices.Contains(recordFields, f) }):
		return c.wrong("--print %q: the fields are %s", *fields, strings.Join(recordFields, ", "))
	case *partition < 0 || t.from < 0 || t.count < 0:
		return c.wrong("--partition, --from and --count are not negative")
	}
	store, prefix, code := c.openTier(args[1:])
	if store == nil {
		return code
	}
	t.store, t.out = store, bufio.NewWriterSize(c.stdout, 64<<10)
	keys, err := t.find(prefix, args[0], int32(*partition))
	if err == nil {
		err = errors.Join(t.print(keys), t.out.Flush())
	}
	if err != nil {
		return c.storeFailed(err)
	}
	return exitOK
}

// catter prints the records of one partition.
type catter struct {
	c       *call
	store   objstore.Store
	cluster string
	from    int64
	count   int64
	codec   recordCodec
	out     *bufio.Writer
	topic   string
	printed int64
	line    []byte
}

var errEnough = errors.New("enough records")

// find lists the segments of a partition. A topic that is not an id is looked for by the name in the footers, one of each
// topic.
func (t *catter) find(prefix, topic string, partition int32) ([]tiering.SegmentKey, error) {
	type owner struct {
		cluster string
		id      protocol.UUID
	}
	first := map[owner]tiering.SegmentKey{}
	found := map[owner][]tiering.SegmentKey{}
	if prefix != "" {
		prefix += "/"
	}
	if t.cluster != "" {
		prefix += t.cluster + "/"
	}
	err := t.store.List(t.c.ctx, prefix, "", func(o objstore.ObjectInfo) bool {
		if k, err := tiering.ParseSegmentKey(o.Key); err == nil {
			at := owner{k.ClusterID, k.TopicID}
			if _, ok := first[at]; !ok {
				first[at] = k
			}
			if k.Partition == partition {
				found[at] = append(found[at], k)
			}
		}
		return t.c.ctx.Err() == nil
	})
	if err != nil {
		return nil, err
	}
	id, _ := protocol.ParseUUID(topic) // a name is no id
	var matches []owner
	var names []string
	for at, k := range first {
		seg, _, err := openStored(t.c.ctx, t.store, k.String())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k, err)
		}
		names = append(names, fmt.Sprintf("%s (id %s, cluster %s)", seg.Footer.Topic, at.id, at.cluster))
		if seg.Footer.Topic == topic || at.id == id {
			matches, t.topic = append(matches, at), seg.Footer.Topic
		}
	}
	slices.Sort(names)
	switch {
	case len(matches) == 0:
		return nil, fmt.Errorf("there is no topic %q in %s; it holds %s", topic, t.store, cmp.Or(strings.Join(names, ", "), "no segments"))
	case len(matches) > 1:
		return nil, fmt.Errorf("there are %d topics %q: name one by its id, or the cluster with --cluster: %s", len(matches), topic, strings.Join(names, ", "))
	case len(found[matches[0]]) == 0:
		return nil, fmt.Errorf("nothing of partition %d of %s is in %s", partition, t.topic, t.store)
	}
	return found[matches[0]], nil
}

// print prints record after record. Where objects overlap (one was merged and not deleted yet, or an attempt was given up) the
// highest generation, then the highest leader epoch, has the say.
func (t *catter) print(keys []tiering.SegmentKey) error {
	slices.SortFunc(keys, func(a, b tiering.SegmentKey) int {
		return cmp.Or(cmp.Compare(b.Generation, a.Generation), cmp.Compare(b.LeaderEpoch, a.LeaderEpoch), cmp.Compare(a.Base, b.Base))
	})
	at := t.from
	for {
		i := slices.IndexFunc(keys, func(k tiering.SegmentKey) bool { return k.Base <= at && at < k.Next })
		if i < 0 {
			next := int64(-1)
			for _, k := range keys {
				if k.Base > at && (next < 0 || k.Base < next) {
					next = k.Base
				}
			}
			if next < 0 {
				return nil
			}
			if at > t.from {
				fmt.Fprintf(t.c.stderr, "%s: no object has offsets %d to %d\n", t.c.path, at, next-1)
			}
			at = next
			continue
		}
		if err := t.segment(keys[i], at); errors.Is(err, errEnough) {
			return nil
		} else if err != nil {
			return err
		}
		at = keys[i].Next
	}
}

// segment prints the records of one object from an offset on.
func (t *catter) segment(k tiering.SegmentKey, from int64) error {
	seg, _, err := openStored(t.c.ctx, t.store, k.String())
	if err != nil {
		return fmt.Errorf("%s: %w", k, err)
	}
	var buf []byte
	for i := range seg.Chunks {
		chunk, err := seg.ReadChunk(i)
		if err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
		buf = append(buf, chunk...)
		rest := buf
		for len(rest) > 0 {
			b, tail, err := record.Next(rest)
			if errors.Is(err, io.ErrUnexpectedEOF) {
				break
			}
			if err == nil {
				err = t.batch(b, k, from)
			}
			if err != nil {
				return err
			}
			rest = tail
		}
		buf = append(buf[:0], rest...)
	}
	if len(buf) > 0 {
		return &protocol.CorruptionError{Where: k.String(), What: "its last batch is cut short"}
	}
	return nil
}

func (t *catter) batch(b record.Batch, k tiering.SegmentKey, from int64) error {
	if b.Control() || b.LastOffset() < from {
		return nil
	}
	if err := b.CheckCRC(); err != nil {
		return fmt.Errorf("%s: %w", k, err)
	}
	return b.Each(func(r *record.Record) error {
		if r.Offset < from {
			return nil
		}
		out := kgo.Record{Topic: t.topic, Partition: k.Partition, Offset: r.Offset, Timestamp: time.UnixMilli(r.Timestamp), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			out.Headers = append(out.Headers, kgo.RecordHeader(h))
		}
		t.line = t.codec.encode(t.line[:0], &out)
		if _, err := t.out.Write(t.line); err != nil {
			return err
		}
		if t.printed++; t.printed == t.count {
			return errEnough
		}
		return nil
	})
}
