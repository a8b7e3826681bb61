package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
	"varve/protocol/record"
	"varve/tiering"
	"varve/tiering/objstore"
)

// A dir tier keeps an object in a file of its own with a trailer of this size, which begins with this text
// (tiering/objstore/dirformat.go).
const (
	fileTrailerBytes = 36
	fileTrailerMagic = "varveobj"
	journalMagic     = "VARVEJNL"
	snapshotMagic    = "VARVESNP"
	maxJournalBytes  = 64 << 20
)

// storeReader reads an object at any place, one ranged GET a call.
type storeReader struct {
	ctx   context.Context
	store objstore.Store
	key   string
}

// ReadAt implements io.ReaderAt.
func (r storeReader) ReadAt(p []byte, off int64) (int, error) {
	body, err := r.store.Get(r.ctx, r.key, off, int64(len(p)), "dump")
	if err != nil {
		return 0, err
	}
	n, err := io.ReadFull(body, p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, errors.Join(err, body.Close())
}

func openObject(ctx context.Context, store objstore.Store, key string) (source, func() error, error) {
	info, err := store.Head(ctx, key)
	if err != nil {
		return source{}, nil, err
	}
	return source{key, storeReader{ctx, store, key}, info.Size}, func() error { return nil }, nil
}

// objectFile dumps an object as a dir tier keeps it on disk.
func (d *dumper) objectFile(src source) error {
	end := src.size - fileTrailerBytes
	magic := make([]byte, len(fileTrailerMagic))
	if end < 0 {
		d.damage(src.name, "byte 0", "it is too short to hold an object")
		return nil
	}
	if _, err := src.r.ReadAt(magic, end); err != nil {
		return err
	}
	if string(magic) != fileTrailerMagic {
		d.damage(src.name, fmt.Sprintf("byte %d", end), "there is no trailer at its end")
		return nil
	}
	return d.object(source{src.name, src.r, end})
}

// object dumps a segment object: what its footer says, its sections, and its batches.
func (d *dumper) object(src source) error {
	seg, err := tiering.OpenSegment(src.r, src.size)
	if err != nil {
		return d.corrupted(err)
	}
	f := seg.Footer
	id := func(b []byte) protocol.UUID {
		var u protocol.UUID
		copy(u[:], b)
		return u
	}
	d.print("topic %s id %s partition %d, offsets %d to %d, log start %d\n", f.Topic, id(f.TopicId), f.Partition, f.Base, f.Next-1, f.LogStart)
	d.print("segment %s, cluster %s, leader epoch %d, generation %d\n", id(f.SegmentId), f.ClusterId, f.LeaderEpoch, f.Generation)
	d.print("%d records in %d batches, %d log bytes, timestamps %s to %s\n", f.RecordCount, f.BatchCount, f.LogBytes, timestamp(f.FirstTimestamp), timestamp(f.MaxTimestamp))
	for _, cfg := range f.Configs {
		d.print("config %s=%s\n", cfg.Name, cfg.Value)
	}
	d.print("offset index %d entries, time index %d, transaction index %d, producer snapshot %d bytes, %d chunks\n",
		len(seg.OffsetIndex)/offsetEntryBytes, len(seg.TimeIndex)/timeEntryBytes, len(seg.TxnIndex)/txnEntryBytes, len(seg.ProducerSnapshot), len(seg.Chunks))
	for _, e := range seg.Epochs {
		d.print("epoch %d from offset %d\n", e.Epoch, e.Start)
	}
	return d.objectLog(src.name, seg)
}

// objectLog checks the chunks and walks the batches that they hold.
func (d *dumper) objectLog(name string, seg *tiering.SegmentReader) error {
	batches, records := int64(0), int64(0)
	log := source{name, chunked{seg}, seg.Footer.LogBytes}
	next, err := d.batches(log, seg.Footer.Base, func(b record.Batch, pos int64) error {
		batches++
		records += int64(b.Count())
		if d.deep {
			d.batch(b, pos)
		}
		return nil
	})
	if err != nil {
		return d.corrupted(err)
	}
	if next > seg.Footer.Next || batches != seg.Footer.BatchCount || records != seg.Footer.RecordCount {
		d.damage(name, "its footer", "it tells of %d batches and %d records up to offset %d; there are %d and %d up to %d",
			seg.Footer.BatchCount, seg.Footer.RecordCount, seg.Footer.Next-1, batches, records, next-1)
	}
	return nil
}

// corrupted counts damage that tiering found; other errors are returned.
func (d *dumper) corrupted(err error) error {
	var bad *protocol.CorruptionError
	if !errors.As(err, &bad) {
		return err
	}
	d.damaged++
	fmt.Fprintf(d.c.stderr, "%s: %v\n", d.c.path, bad)
	return nil
}

// chunked is the log of an object, read and checked chunk by chunk.
type chunked struct{ seg *tiering.SegmentReader }

// ReadAt implements io.ReaderAt.
func (c chunked) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	for i, chunk := range c.seg.Chunks {
		if n == len(p) {
			return n, nil
		}
		if off >= chunk.Logical+int64(chunk.Length) {
			continue
		}
		data, err := c.seg.ReadChunk(i)
		if err != nil {
			return n, err
		}
		got := copy(p[n:], data[off-chunk.Logical:])
		n, off = n+got, off+int64(got)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// begins reports whether a source begins so; what cannot be read does not.
func begins(src source, with string) bool {
	magic := make([]byte, len(with))
	n, _ := src.r.ReadAt(magic, 0)
	return n == len(magic) && string(magic) == with
}

// journal prints a journal object, one line an entry.
func (d *dumper) journal(src source) error {
	data, err := whole(src)
	if err != nil {
		return err
	}
	object, err := tiering.DecodeJournal(data)
	if err != nil {
		return d.corrupted(err)
	}
	for _, e := range object.Entries {
		var kinds []string
		for _, r := range e.Records {
			if field := r.ProtoReflect().WhichOneof(r.ProtoReflect().Descriptor().Oneofs().Get(0)); field != nil {
				kinds = append(kinds, string(field.Name()))
			}
		}
		d.print("index %d %s %s\n", e.Index, timestamp(e.TimeMs), strings.Join(kinds, " "))
	}
	d.print("%d entries\n", len(object.Entries))
	return nil
}

// whole reads an object of the metadata, without what the dir store writes behind it.
func whole(src source) ([]byte, error) {
	data, err := readAll(src, maxJournalBytes)
	if i := len(data) - fileTrailerBytes; err == nil && i > 0 && bytes.HasPrefix(data[i:], []byte(fileTrailerMagic)) {
		data = data[:i]
	}
	return data, err
}

// bucketSnapshot prints one object of a snapshot of the metadata: its head, and a line for each record; with --deep each segment's row.
func (d *dumper) bucketSnapshot(src source) error {
	data, err := whole(src)
	if err != nil {
		return err
	}
	rows := int64(0)
	head, err := tiering.DecodeSnapshot(data, func(r *metapb.SnapshotRecord) error {
		switch b := r.Body.(type) {
		case *metapb.SnapshotRecord_Cluster:
			d.print("cluster %s index %d next_producer_id %d\n", b.Cluster.ClusterId, b.Cluster.Index, b.Cluster.NextProducerId)
			for _, c := range b.Cluster.Claims {
				d.print("claim %s epoch %d\n", c.ClusterId, c.Epoch)
			}
		case *metapb.SnapshotRecord_Locations:
			for i, l := range b.Locations.Locations {
				d.print("location %d %s\n", i, l)
			}
		case *metapb.SnapshotRecord_BrokerConfigs:
			d.print("broker configs %q %d\n", b.BrokerConfigs.Broker, len(b.BrokerConfigs.Configs))
		case *metapb.SnapshotRecord_Topic:
			d.print("topic %s id %s partitions %d configs %d\n", b.Topic.Name, idText(b.Topic.TopicId), len(b.Topic.LeaderEpochs), len(b.Topic.Configs))
		case *metapb.SnapshotRecord_Partition:
			p := b.Partition
			d.print("partition %s-%d log_start %d end %d segments %d bytes %d\n", idText(p.TopicId), p.Partition, p.Tier.GetLogStart(), p.Tier.GetEnd(), p.Tier.GetCount(), p.Tier.GetBytes())
		case *metapb.SnapshotRecord_Segments:
			n, err := d.rows(b.Segments)
			rows += n
			return err
		case *metapb.SnapshotRecord_GroupOffsets:
			g := b.GroupOffsets
			d.print("group offsets of partition %d as of %s: %d\n", g.Partition, timestamp(g.AsOfMs), len(g.Offsets))
			for _, o := range g.Offsets {
				if d.deep {
					d.print("  group %s %s-%d offset %d\n", o.Group, o.Topic, o.Partition, o.Offset)
				}
			}
		}
		return nil
	})
	if err != nil {
		return d.corrupted(err)
	}
	what := "last object"
	if head.Part {
		what = fmt.Sprintf("part %d", head.Number)
	}
	d.print("snapshot at index %d taken %s, %s: %d records, %d rows of segments; %d parts before it\n",
		head.Index, timestamp(head.TakenMs), what, head.Records, rows, head.Parts())
	return nil
}

// rows prints packed rows of one partition. Their locations are numbers: the list of them may be in another object.
func (d *dumper) rows(s *metapb.SnapshotSegments) (n int64, err error) {
	if len(s.TopicId) != 16 {
		return 0, &protocol.CorruptionError{Where: "snapshot", What: "segment rows without a topic"}
	}
	err = metastore.EachPacked(s.Rows, protocol.UUID(s.TopicId), s.Partition, func(r metastore.RemoteSegment, location uint32) error {
		if n++; d.deep {
			d.print("  %s offsets [%d, %d) %s %d bytes location %d\n", r.State, r.Base, r.Next, r.ID, r.ObjectBytes, location)
		}
		return nil
	})
	if !d.deep {
		d.print("  %d rows of segments\n", n)
	}
	return n, err
}

func idText(b []byte) string {
	if len(b) != 16 {
		return fmt.Sprintf("%x", b)
	}
	return protocol.UUID(b).String()
}
