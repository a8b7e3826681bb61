package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
	"strings"

	"varve/protocol"
	"varve/protocol/record"
)

// Kafka's index formats, big endian (OffsetIndex.java, TimeIndex.java, AbortedTxn.java, ProducerStateManager.java).
const (
	offsetEntryBytes    = 8
	timeEntryBytes      = 12
	txnEntryBytes       = 34
	snapshotHeaderBytes = 10
	snapshotEntryBytes  = 46
	maxIndexBytes       = 1 << 30
)

// extents are the batches of a log by their position.
type extents map[int64][2]int64 // first and last offset

// logBeside reads the .log file that an index belongs to; nil when it is not there.
func (d *dumper) logBeside(src source) (extents, error) {
	name, _, _ := strings.Cut(src.name, ".index")
	log, closeLog, err := openFile(name + ".log")
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer closeLog()
	found := extents{}
	before := d.damaged
	quiet := &dumper{c: d.c}
	_, err = quiet.batches(log, 0, func(b record.Batch, pos int64) error {
		found[pos] = [2]int64{b.BaseOffset(), b.LastOffset()}
		return nil
	})
	d.damaged = before + quiet.damaged
	return found, err
}

// entries hands on the entries of an index file. Zeros at its end are space that was set aside for a segment that is still
// open.
func (d *dumper) entries(src source, size int, fn func(i int, e []byte)) error {
	data, err := readAll(src, maxIndexBytes)
	if err != nil {
		return err
	}
	whole := len(data) / size * size
	if whole != len(data) {
		d.damage(src.name, fmt.Sprintf("byte %d", whole), "%d bytes are no whole entry of %d", len(data)-whole, size)
	}
	used := whole
	zero := make([]byte, size)
	for used > 0 && bytes.Equal(data[used-size:used], zero) {
		used -= size
	}
	if whole-used < 2*size && used < whole { // one entry of zeros can be true: offset and position 0
		used = whole
	}
	for i := 0; i < used; i += size {
		fn(i/size, data[i:i+size])
	}
	d.print("%d entries", used/size)
	if used < whole {
		d.print(", %d bytes set aside", whole-used)
	}
	d.print("\n")
	return nil
}

func (d *dumper) offsetIndex(src source) error {
	base := max(baseOf(src.name), 0)
	log, err := d.logBeside(src)
	if err != nil {
		return err
	}
	lastOffset, lastPos := int64(-1), int64(-1)
	return d.entries(src, offsetEntryBytes, func(i int, e []byte) {
		offset, pos := base+int64(int32(binary.BigEndian.Uint32(e))), int64(int32(binary.BigEndian.Uint32(e[4:])))
		d.print("offset %d position %d\n", offset, pos)
		place := fmt.Sprintf("entry %d", i)
		if offset <= lastOffset || pos <= lastPos {
			d.damage(src.name, place, "offset %d position %d does not lie after offset %d position %d", offset, pos, lastOffset, lastPos)
		}
		if b, ok := log[pos]; log != nil && (!ok || offset < b[0] || offset > b[1]) {
			d.damage(src.name, place, "offset %d is not in a batch at position %d of the log", offset, pos)
		}
		lastOffset, lastPos = offset, pos
	})
}

func (d *dumper) timeIndex(src source) error {
	base := max(baseOf(src.name), 0)
	lastTime, lastOffset := int64(-1<<63), int64(-1)
	return d.entries(src, timeEntryBytes, func(i int, e []byte) {
		ts, offset := int64(binary.BigEndian.Uint64(e)), base+int64(int32(binary.BigEndian.Uint32(e[8:])))
		d.print("timestamp %s offset %d\n", timestamp(ts), offset)
		if i > 0 && (ts <= lastTime || offset < lastOffset) {
			d.damage(src.name, fmt.Sprintf("entry %d", i), "timestamp %d offset %d does not lie after timestamp %d offset %d", ts, offset, lastTime, lastOffset)
		}
		lastTime, lastOffset = ts, offset
	})
}

func (d *dumper) txnIndex(src source) error {
	return d.entries(src, txnEntryBytes, func(i int, e []byte) {
		version := binary.BigEndian.Uint16(e)
		if version != 0 {
			d.damage(src.name, fmt.Sprintf("entry %d", i), "version %d", version)
			return
		}
		u := func(at int) int64 { return int64(binary.BigEndian.Uint64(e[at:])) }
		d.print("producer %d aborted offsets %d to %d, last stable offset %d\n", u(2), u(10), u(18), u(26))
		if u(10) > u(18) {
			d.damage(src.name, fmt.Sprintf("entry %d", i), "it ends before it begins")
		}
	})
}

func (d *dumper) snapshot(src source) error {
	data, err := readAll(src, maxIndexBytes)
	if err != nil {
		return err
	}
	if len(data) < snapshotHeaderBytes {
		d.damage(src.name, "byte 0", "%d bytes are too few for a header", len(data))
		return nil
	}
	if v := binary.BigEndian.Uint16(data); v != 1 {
		d.damage(src.name, "byte 0", "version %d", v)
		return nil
	}
	stored, sum := binary.BigEndian.Uint32(data[2:]), crc32.Checksum(data[6:], crc32.MakeTable(crc32.Castagnoli))
	if stored != sum {
		d.damage(src.name, "byte 2", "CRC32C is %08x, stored %08x", sum, stored)
	}
	n, rest := binary.BigEndian.Uint32(data[6:]), data[snapshotHeaderBytes:]
	if uint64(n)*snapshotEntryBytes != uint64(len(rest)) {
		d.damage(src.name, "byte 6", "%d producers do not fit %d bytes", n, len(rest))
	}
	for ; len(rest) >= snapshotEntryBytes; rest = rest[snapshotEntryBytes:] {
		u := func(at int) int64 { return int64(binary.BigEndian.Uint64(rest[at:])) }
		i := func(at int) int32 { return int32(binary.BigEndian.Uint32(rest[at:])) }
		d.print("producer %d epoch %d last sequence %d last offset %d offset delta %d timestamp %s coordinator epoch %d open transaction from %d\n",
			u(0), int16(binary.BigEndian.Uint16(rest[8:])), i(10), u(14), i(22), timestamp(u(26)), i(34), u(38))
	}
	d.print("%d producers\n", n)
	return nil
}

// epochs prints a leader-epoch-checkpoint: version 0, number of lines, one "epoch offset" a line
// (LeaderEpochCheckpointFile.java).
func (d *dumper) epochs(src source) error {
	data, err := readAll(src, maxIndexBytes)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if len(lines) < 2 || lines[0] != "0" {
		d.damage(src.name, "line 1", "it is not of version 0")
		return nil
	}
	n, err := strconv.Atoi(lines[1])
	if err != nil || n != len(lines)-2 {
		d.damage(src.name, "line 2", "%q is not the number of the lines that follow, %d", lines[1], len(lines)-2)
	}
	lastEpoch, lastStart := int64(-1), int64(-1)
	for i, line := range lines[2:] {
		place := fmt.Sprintf("line %d", i+3)
		e, s, _ := strings.Cut(line, " ")
		epoch, err1 := strconv.ParseInt(e, 10, 32)
		start, err2 := strconv.ParseInt(s, 10, 64)
		if err1 != nil || err2 != nil {
			d.damage(src.name, place, "%q is not an epoch and an offset", line)
			continue
		}
		d.print("epoch %d from offset %d\n", epoch, start)
		if epoch <= lastEpoch || start < lastStart {
			d.damage(src.name, place, "epoch %d from %d does not lie after epoch %d from %d", epoch, start, lastEpoch, lastStart)
		}
		lastEpoch, lastStart = epoch, start
	}
	return nil
}

// partitionMetadata prints the file that ties a folder to a topic id (PartitionMetadataFile.java).
func (d *dumper) partitionMetadata(src source) error {
	data, err := readAll(src, maxIndexBytes)
	if err != nil {
		return err
	}
	version, id := "", ""
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "version":
			version = value
		case "topic_id":
			id = value
		}
	}
	if version != "0" {
		d.damage(src.name, "version", "%q is not 0", version)
	}
	if _, err := protocol.ParseUUID(id); err != nil {
		d.damage(src.name, "topic_id", "%v", err)
	}
	d.print("topic id %s\n", id)
	return nil
}
