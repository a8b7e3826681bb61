package tiering

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"

	"google.golang.org/protobuf/proto"

	"varve/metastore/metapb"
)

// spillMemoryBytes is what a journalSpill holds in memory; what is more goes into a file.
const spillMemoryBytes = 16 << 20

// journalSpill holds the entries of a journal by partition until somebody asks for those of one. In memory it has one place for each
// partition and a bounded part of the entries; the rest is in a file that has no name, so that no crash leaves it.
//
// Each entry stands behind 8 bytes with the place of the one before it of the same partition, -1 for none, and 4 with its length,
// big-endian.
type journalSpill struct {
	dir  string // of the file; "" = the system's own for temporary files
	max  int    // bytes in memory
	file *os.File
	kept []byte // the newest entries
	size int64  // of all
	last map[partKey]int64
}

const spillHeadBytes = 12

func newJournalSpill(dir string) *journalSpill {
	return &journalSpill{dir: dir, max: spillMemoryBytes, last: map[partKey]int64{}}
}

// add appends what an entry of the journal says of one partition.
func (s *journalSpill) add(key partKey, e *metapb.JournalEntry) error {
	before, ok := s.last[key]
	if !ok {
		before = -1
	}
	s.last[key] = s.size
	head := binary.BigEndian.AppendUint64(nil, uint64(before))
	b, err := proto.MarshalOptions{}.MarshalAppend(append(s.kept, binary.BigEndian.AppendUint32(head, uint32(proto.Size(e)))...), e)
	if err != nil {
		return fmt.Errorf("tiering: journal entry: %w", err)
	}
	s.size += int64(len(b) - len(s.kept))
	if s.kept = b; len(b) >= s.max {
		return s.spill()
	}
	return nil
}

func (s *journalSpill) spill() error {
	if s.file == nil {
		f, err := unnamedFile(s.dir)
		if err != nil {
			return fmt.Errorf("journal of a restore: %w", err)
		}
		s.file = f
	}
	_, err := s.file.WriteAt(s.kept, s.size-int64(len(s.kept)))
	s.kept = s.kept[:0]
	return err
}

// each calls fn with the entries of one partition in their order: one of them is in memory at a time, and 8 bytes for each. It may be
// called by several goroutines, once all entries are there. Errors: *protocol.CorruptionError, fn's, those of the file.
func (s *journalSpill) each(key partKey, fn func(*metapb.JournalEntry) error) error {
	var places []int64
	for at, ok := s.last[key]; ok && at >= 0; {
		places = append(places, at)
		head, err := s.read(at, spillHeadBytes)
		if err != nil {
			return err
		}
		at = int64(binary.BigEndian.Uint64(head))
	}
	for _, at := range slices.Backward(places) {
		head, err := s.read(at, spillHeadBytes)
		if err != nil {
			return err
		}
		b, err := s.read(at+spillHeadBytes, int(binary.BigEndian.Uint32(head[8:])))
		if err != nil {
			return err
		}
		e := &metapb.JournalEntry{}
		if err := proto.Unmarshal(b, e); err != nil {
			return corrupt("journal set aside by a restore", "entry at %d: %v", at, err)
		}
		if err := fn(e); err != nil {
			return err
		}
	}
	return nil
}

// read returns n bytes at a place, which lie in memory or in the file whole.
func (s *journalSpill) read(at int64, n int) ([]byte, error) {
	if in := at - (s.size - int64(len(s.kept))); in >= 0 {
		return s.kept[in : in+int64(n)], nil
	}
	b := make([]byte, n)
	_, err := s.file.ReadAt(b, at)
	return b, err
}

// partitions names those that have entries.
func (s *journalSpill) partitions() (out []partKey) {
	for key := range s.last {
		out = append(out, key)
	}
	return out
}

// close gives the file back; entries are gone then. It may be called again, and on nil.
func (s *journalSpill) close() {
	if s != nil && s.file != nil {
		_ = s.file.Close() // it has no name, and nothing of it is wanted
		s.file = nil
	}
}
