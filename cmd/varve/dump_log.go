package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"varve/protocol/record"
)

// baseOf reads the base offset that a segment file is named after; -1 for another name.
func baseOf(name string) int64 {
	digits, _, _ := strings.Cut(filepath.Base(name), ".")
	if len(digits) != 20 {
		return -1
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// log prints the batches of a segment.
func (d *dumper) log(src source) error {
	var batches, records int64
	next, err := d.batches(src, max(baseOf(src.name), 0), func(b record.Batch, pos int64) error {
		batches++
		records += int64(b.Count())
		d.batch(b, pos)
		return nil
	})
	if err != nil {
		return err
	}
	d.print("%d batches, %d records, next offset %d\n", batches, records, next)
	return nil
}

// batches walks over the batches of a log, checks each completely, and hands on those that can be read. It returns the
// offset after the last one. What is damaged is reported; behind a batch whose length cannot be true nothing can be read.
func (d *dumper) batches(src source, base int64, fn func(b record.Batch, pos int64) error) (next int64, err error) {
	next = base
	r := bufio.NewReaderSize(io.NewSectionReader(src.r, 0, src.size), 1<<20)
	for pos := int64(0); pos < src.size; {
		place := fmt.Sprintf("byte %d", pos)
		head, err := r.Peek(record.PeekLen)
		if err != nil && !errors.Is(err, io.EOF) {
			return next, err
		}
		size, err := record.PeekSize(head)
		if err != nil {
			d.damage(src.name, place, "no record batch begins here (%v); the %d bytes from here on cannot be read", err, src.size-pos)
			return next, nil
		}
		if int64(size) > src.size-pos {
			d.damage(src.name, place, "a batch of %d bytes is cut off after %d", size, src.size-pos)
			return next, nil
		}
		buf := make([]byte, size)
		if _, err := io.ReadFull(r, buf); err != nil {
			return next, err
		}
		b, _, err := record.Next(buf)
		if err != nil {
			d.damage(src.name, place, "%v", err)
			return next, nil
		}
		if _, err := b.Validate(record.Limits{}); err != nil {
			d.damage(src.name, place, "batch of offsets %d to %d: %v", b.BaseOffset(), b.LastOffset(), err)
		} else if b.BaseOffset() < next {
			d.damage(src.name, place, "batch begins at offset %d, behind %d", b.BaseOffset(), next)
		}
		if err := fn(b, pos); err != nil {
			return next, err
		}
		next = max(next, b.NextOffset())
		pos += int64(size)
	}
	return next, nil
}

func (d *dumper) batch(b record.Batch, pos int64) {
	kind := "CreateTime"
	if b.LogAppendTime() {
		kind = "LogAppendTime"
	}
	d.print("batch at %d: offsets %d to %d, %d records, %d bytes, epoch %d, %s %s, codec %s, crc %08x", pos, b.BaseOffset(), b.LastOffset(), b.Count(), b.Size(), b.LeaderEpoch(), kind, timestamp(b.MaxTimestamp()), b.Codec(), b.CRC())
	if b.ProducerID() >= 0 {
		d.print(", producer %d epoch %d sequences %d to %d", b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.LastSequence())
	}
	if b.Transactional() {
		d.print(", transactional")
	}
	if b.Control() {
		d.print(", control")
	}
	d.print("\n")
	if b.CheckCRC() != nil || !d.deep && !b.Control() {
		return // damage was reported
	}
	control := b.Control()
	_ = b.Each(func(r *record.Record) error { // as above
		d.record(r, control)
		return nil
	})
}

func (d *dumper) record(r *record.Record, control bool) {
	if control {
		if c, err := record.ParseControl(r); err == nil {
			name := map[record.ControlType]string{record.Abort: "abort", record.Commit: "commit"}[c.Type]
			d.print("  %d %s marker, coordinator epoch %d\n", r.Offset, name, c.CoordinatorEpoch)
			return
		}
	}
	d.print("  %d %s key %s value %s", r.Offset, timestamp(r.Timestamp), quoted(r.Key), quoted(r.Value))
	for _, h := range r.Headers {
		d.print(" %q=%s", h.Key, quoted(h.Value))
	}
	d.print("\n")
}

func quoted(b []byte) string {
	if b == nil {
		return "null"
	}
	return strconv.Quote(string(b))
}

func timestamp(ms int64) string {
	if ms < 0 {
		return strconv.FormatInt(ms, 10)
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}
