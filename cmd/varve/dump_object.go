package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

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

func (d *dumper) isJournal(src source) bool {
	magic := make([]byte, len(journalMagic))
	n, _ := src.r.ReadAt(magic, 0) // what cannot be read is no journal
	return n == len(magic) && bytes.Equal(magic, []byte(journalMagic))
}

// journal prints a journal object, one line an entry.
func (d *dumper) journal(src source) error {
	data, err := readAll(src, maxJournalBytes)
	if err != nil {
		return err
	}
	if i := len(data) - fileTrailerBytes; i > 0 && bytes.HasPrefix(data[i:], []byte(fileTrailerMagic)) {
		data = data[:i]
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
