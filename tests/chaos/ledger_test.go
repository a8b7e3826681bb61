package chaos

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
)

const (
	headerBytes = 24
	minBody     = 100
	maxBody     = 6000
)

// ledger is what the only producer of a partition knows: the record that was acknowledged at each offset.
type ledger struct {
	topic     string
	partition int32
	life      uint32 // of the topic: raised when it is made again under the same name

	mu   sync.Mutex
	sent int64   // next sequence number
	at   []int64 // sequence number by offset
}

// value makes record seq: a header that says which it is, and bytes that follow from the header.
func (l *ledger) value(seq int64) []byte {
	return fill(l.partition, l.life, seq)
}

func fill(partition int32, life uint32, seq int64) []byte {
	x := uint64(seq)*0x9E3779B97F4A7C15 ^ uint64(partition)<<40 ^ uint64(life)<<50
	next := func() uint64 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		x += 0x632BE59BD9B4E019
		return x
	}
	b := make([]byte, headerBytes+minBody+int(next()%(maxBody-minBody)))
	binary.BigEndian.PutUint64(b, uint64(seq))
	binary.BigEndian.PutUint32(b[8:], uint32(partition))
	binary.BigEndian.PutUint32(b[12:], life)
	for i := headerBytes; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], next())
	}
	return b
}

// parse checks a record's bytes against its own header.
func parse(partition int32, value []byte) (seq int64, life uint32, err error) {
	if len(value) < headerBytes {
		return 0, 0, fmt.Errorf("a value of %d bytes", len(value))
	}
	seq, life = int64(binary.BigEndian.Uint64(value)), binary.BigEndian.Uint32(value[12:])
	if !bytes.Equal(value, fill(partition, life, seq)) {
		return seq, life, fmt.Errorf("the bytes of record %d are not what was sent", seq)
	}
	return seq, life, nil
}

// acked takes an acknowledgement. Nobody else writes to the partition, so that offsets follow each other.
func (l *ledger) acked(seq, offset int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if offset != int64(len(l.at)) {
		return fmt.Errorf("%s-%d: record %d was acknowledged at offset %d after %d", l.topic, l.partition, seq, offset, len(l.at)-1)
	}
	l.at = append(l.at, seq)
	return nil
}

// check holds a record that was read against the ledger; one that is not acknowledged yet only against itself.
func (l *ledger) check(offset int64, value []byte) error {
	seq, life, err := parse(l.partition, value)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
	case life != l.life:
		err = fmt.Errorf("record %d of life %d, this is %d", seq, life, l.life)
	case offset < int64(len(l.at)) && l.at[offset] != seq:
		err = fmt.Errorf("record %d, acknowledged was %d", seq, l.at[offset])
	}
	if err != nil {
		return fmt.Errorf("%s-%d at offset %d: %w", l.topic, l.partition, offset, err)
	}
	return nil
}

func (l *ledger) end() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.at))
}

// cut forgets what was lost with a folder.
func (l *ledger) cut(end int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = slices.Clone(l.at[:end])
}
