package record

import (
	"encoding/binary"
	"errors"
)

// ControlType is the kind of a control record (ControlRecordType.java). Types
// not named here are to be skipped by readers.
type ControlType int16

// Control record types that a partition's log holds.
const (
	Abort  ControlType = 0
	Commit ControlType = 1
)

// Control is what a control record says.
type Control struct {
	Type             ControlType
	CoordinatorEpoch int32 // of Abort and Commit
}

// EndTxnMarker is the control batch that ends a transaction of one producer
// (EndTransactionMarker.java).
type EndTxnMarker struct {
	BaseOffset       int64
	LeaderEpoch      int32
	TimestampMs      int64
	ProducerID       int64
	ProducerEpoch    int16
	CoordinatorEpoch int32
	Commit           bool
}

// Batch builds the marker: one record, key version 0 and type, value version 0
// and coordinator epoch.
func (m EndTxnMarker) Batch() Batch {
	kind := Abort
	if m.Commit {
		kind = Commit
	}
	var key [4]byte
	binary.BigEndian.PutUint16(key[2:], uint16(kind))
	var value [6]byte
	binary.BigEndian.PutUint32(value[2:], uint32(m.CoordinatorEpoch))
	bl := NewBuilder(Options{
		BaseOffset: m.BaseOffset, LeaderEpoch: m.LeaderEpoch, Transactional: true, Control: true,
		Producer: &Producer{ID: m.ProducerID, Epoch: m.ProducerEpoch, BaseSequence: NoSequence},
	})
	// Neither can fail: one small record without compression.
	_ = bl.Add(m.TimestampMs, key[:], value[:])
	b, _ := bl.Batch()
	return b
}

// ParseControl reads a record of a control batch. Higher versions than ours
// may have more fields and are read as far as we know them, as Kafka does.
// Errors are InvalidRecord.
func ParseControl(r *Record) (Control, error) {
	if len(r.Key) < 4 || int16(binary.BigEndian.Uint16(r.Key)) < 0 {
		return Control{}, invalid("control record has a key of %d bytes or a bad version", len(r.Key))
	}
	c := Control{Type: ControlType(binary.BigEndian.Uint16(r.Key[2:]))}
	if c.Type != Abort && c.Type != Commit {
		return c, nil
	}
	if len(r.Value) < 6 || int16(binary.BigEndian.Uint16(r.Value)) < 0 {
		return c, invalid("end of transaction marker has a value of %d bytes or a bad version", len(r.Value))
	}
	c.CoordinatorEpoch = int32(binary.BigEndian.Uint32(r.Value[2:]))
	return c, nil
}

// ControlRecord reads the first record of a control batch.
func (b Batch) ControlRecord() (c Control, err error) {
	if !b.Control() {
		return c, invalid("not a control batch")
	}
	it := b.Records()
	defer it.Close()
	if !it.Next() {
		return c, errors.Join(invalid("control batch without a record"), it.Err())
	}
	return ParseControl(it.Record())
}
