package metastore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/raft"

	"varve/protocol"
)

// Snapshot stream, version 1, little-endian:
//
//	8  magic "VRVMETA1"
//	8  applied Raft index of the state machine (at or below the index in Raft's own metadata: no-ops never reach the state machine)
//	then rows in key order: 4 key length, 4 value length, key, value
//	4  0xffffffff
//	8  number of rows
//	4  CRC32C of all that precedes
const (
	snapshotMagic    = "VRVMETA1"
	snapshotEnd      = ^uint32(0)
	maxSnapshotKey   = 1 << 16
	maxSnapshotValue = 64 << 20
	restoreBatchSize = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fsmSnapshot is a frozen view of Pebble.
type fsmSnapshot struct {
	f    *fsm
	h    *handle
	view *pebble.Snapshot
}

// Snapshot implements raft.FSM. It only freezes a view; the work is in Persist.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if err := f.failure(); err != nil {
		return nil, err
	}
	h, err := f.acquire()
	if err != nil {
		return nil, err
	}
	return &fsmSnapshot{f: f, h: h, view: h.db.NewSnapshot()}, nil
}

// Persist implements raft.FSMSnapshot. Pebble is made durable before the snapshot is complete, because Raft cuts its log after it
// (invariant 15).
func (s *fsmSnapshot) Persist(sink raft.SnapshotSink) error {
	began := time.Now()
	if err := flush(s.h.db); err != nil {
		return err
	}
	sum, err := writeSnapshot(sink, s.view)
	if err != nil {
		return err
	}
	if err := sink.Close(); err != nil {
		return err
	}
	sum.Took = time.Since(began)
	s.f.snapped.Store(sum.Index)
	s.f.events.Emit(sum)
	return nil
}

// Release implements raft.FSMSnapshot.
func (s *fsmSnapshot) Release() {
	s.view.Close()
	s.h.release()
}

func writeSnapshot(w io.Writer, r pebble.Reader) (out StateSnapshotted, err error) {
	if out.Index, err = appliedIndex(r); err != nil {
		return out, err
	}
	sum := crc32.New(castagnoli)
	file := bufio.NewWriterSize(w, 256<<10)
	write := func(b []byte) error {
		sum.Write(b)
		out.Bytes += int64(len(b))
		_, err := file.Write(b)
		return err
	}
	le := binary.LittleEndian
	if err := write(le.AppendUint64([]byte(snapshotMagic), out.Index)); err != nil {
		return out, err
	}
	var row []byte
	err = eachRow(r, nil, func(key, value []byte) error {
		out.Rows++
		row = le.AppendUint32(le.AppendUint32(row[:0], uint32(len(key))), uint32(len(value)))
		row = append(append(row, key...), value...)
		return write(row)
	})
	if err != nil {
		return out, err
	}
	if err := write(le.AppendUint64(le.AppendUint32(nil, snapshotEnd), uint64(out.Rows))); err != nil {
		return out, err
	}
	if _, err := file.Write(le.AppendUint32(nil, sum.Sum32())); err != nil {
		return out, err
	}
	return out, file.Flush()
}

func appliedIndex(r pebble.Reader) (uint64, error) {
	v, closer, err := r.Get([]byte{nsApplied})
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer closer.Close()
	if len(v) != 8 {
		return 0, badRow(nsApplied, fmt.Errorf("%d bytes", len(v)))
	}
	return binary.BigEndian.Uint64(v), nil
}

// snapshotReader reads a snapshot stream and checks it.
type snapshotReader struct {
	r    *bufio.Reader
	sum  hash.Hash32
	rows uint64
	buf  []byte
}

func badSnapshot(what string) error {
	return &protocol.CorruptionError{Where: "metastore snapshot", What: what}
}

// newSnapshotReader reads the head.
func newSnapshotReader(r io.Reader) (*snapshotReader, uint64, error) {
	s := &snapshotReader{r: bufio.NewReaderSize(r, 256<<10), sum: crc32.New(castagnoli)}
	head, err := s.take(16)
	if err != nil {
		return nil, 0, err
	}
	if string(head[:8]) != snapshotMagic {
		return nil, 0, badSnapshot("wrong magic")
	}
	return s, binary.LittleEndian.Uint64(head[8:]), nil
}

// take reads n bytes, valid until the next call.
func (s *snapshotReader) take(n int) ([]byte, error) {
	if cap(s.buf) < n {
		s.buf = make([]byte, n)
	}
	b := s.buf[:n]
	if _, err := io.ReadFull(s.r, b); err != nil {
		return nil, badSnapshot("cut short: " + err.Error())
	}
	s.sum.Write(b)
	return b, nil
}

// next returns a row, valid until the next call; nil at the end, which is checked.
func (s *snapshotReader) next() (key, value []byte, err error) {
	b, err := s.take(4)
	if err != nil {
		return nil, nil, err
	}
	klen := binary.LittleEndian.Uint32(b)
	if klen == snapshotEnd {
		return nil, nil, s.end()
	}
	if b, err = s.take(4); err != nil {
		return nil, nil, err
	}
	vlen := binary.LittleEndian.Uint32(b)
	if klen == 0 || klen > maxSnapshotKey || vlen > maxSnapshotValue {
		return nil, nil, badSnapshot("row of unlikely size")
	}
	if b, err = s.take(int(klen) + int(vlen)); err != nil {
		return nil, nil, err
	}
	s.rows++
	return b[:klen:klen], b[klen:], nil
}

func (s *snapshotReader) end() error {
	b, err := s.take(8)
	if err != nil {
		return err
	}
	rows, want := binary.LittleEndian.Uint64(b), s.sum.Sum32()
	if b, err = s.take(4); err != nil {
		return err
	}
	if rows != s.rows || binary.LittleEndian.Uint32(b) != want {
		return badSnapshot("checksum or row count differs")
	}
	if _, err := s.r.ReadByte(); !errors.Is(err, io.EOF) {
		return badSnapshot("bytes after the end")
	}
	return nil
}

// Restore implements raft.FSM: the snapshot goes into a new folder, which then takes the place of the old one. After a crash one of the two
// counts, whole.
func (f *fsm) Restore(r io.ReadCloser) error {
	defer r.Close()
	return f.restore(r, false)
}

// restore replaces the state by a snapshot's; at start only if that is ahead.
func (f *fsm) restore(r io.Reader, atStart bool) error {
	snap, index, err := newSnapshotReader(r)
	if err != nil || atStart && index <= f.applied {
		return err
	}
	name := stateName(stateNumber(f.handle.name) + 1)
	h, err := f.build(name, snap)
	if err != nil {
		return errors.Join(err, f.folder.fs.RemoveAll(f.folder.path(name)))
	}
	l, err := load(h.db)
	if err == nil && l.img.index != index {
		err = badSnapshot(fmt.Sprintf("index %d in the head, %d in the rows", index, l.img.index))
	}
	if err == nil {
		err = f.folder.switchState(name)
	}
	if err != nil {
		return errors.Join(err, h.db.Close())
	}
	old := f.swap(h)
	f.install(l)
	f.failed.Store(nil)
	f.events.Emit(StateRestored{Index: index, AtStart: atStart})
	return errors.Join(old.close(), f.folder.fs.RemoveAll(f.folder.path(old.name)))
}

// install makes what was loaded the state that readers see.
func (f *fsm) install(l loaded) {
	f.applied = l.img.index
	f.locations.Store(&l.locations)
	f.hub.publish(l.img, everything(f.hub.img.Load(), l.img))
}

// build fills a new Pebble from a snapshot and makes it durable.
func (f *fsm) build(name string, snap *snapshotReader) (*handle, error) {
	if err := f.folder.fs.RemoveAll(f.folder.path(name)); err != nil {
		return nil, err
	}
	h, err := openPebble(f.folder, name, f.log)
	if err != nil {
		return nil, err
	}
	if err := fill(h.db, snap); err != nil {
		return nil, errors.Join(err, h.db.Close())
	}
	return h, nil
}

func fill(db *pebble.DB, snap *snapshotReader) error {
	b := db.NewBatch()
	defer func() { b.Close() }()
	for {
		key, value, err := snap.next()
		if err != nil {
			return err
		}
		if key != nil {
			if err := b.Set(key, value, nil); err != nil {
				return err
			}
		}
		if key == nil || b.Len() > restoreBatchSize {
			if err := b.Commit(pebble.NoSync); err != nil {
				return err
			}
			b.Close()
			b = db.NewBatch()
		}
		if key == nil {
			return flush(db)
		}
	}
}
