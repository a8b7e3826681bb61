package tiering

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"varve/protocol"
	"varve/protocol/record"
)

// Where a batch's CRC starts to cover (DefaultRecordBatch.java).
const batchCRCFrom = 21

// batchScan follows record batches through a log that arrives in pieces of any
// size. It holds one header, never a batch.
type batchScan struct {
	next     int64 // lowest legal base offset of the next batch
	end      int64 // no batch reaches it
	pos      int64 // bytes consumed by whole batches
	header   [record.HeaderLen]byte
	have     int    // bytes of the header seen
	left     int64  // bytes of the current batch still to come after its header
	crc      uint32 // running CRC of the current batch
	size     int64
	firstTip bool // the first batch may begin below base: it only has to reach it

	records, batches int64
	maxProducerID    int64

	each func(h record.Batch, pos, size int64) // called with each whole batch's header; may be nil
}

func newBatchScan(base, end int64) *batchScan {
	return &batchScan{next: base, end: end, firstTip: true, maxProducerID: -1}
}

func (s *batchScan) corrupt(format string, args ...any) error {
	return &protocol.CorruptionError{
		Where: fmt.Sprintf("log of segment %d-%d, batch at position %d", s.next, s.end, s.pos),
		What:  fmt.Sprintf(format, args...),
	}
}

func (s *batchScan) feed(b []byte) error {
	for len(b) > 0 {
		if s.have < len(s.header) {
			n := copy(s.header[s.have:], b)
			s.have, b = s.have+n, b[n:]
			if s.have < len(s.header) {
				return nil
			}
			if err := s.begin(); err != nil {
				return err
			}
		} else {
			n := min(s.left, int64(len(b)))
			s.crc = crc32.Update(s.crc, castagnoli, b[:n])
			s.left, b = s.left-n, b[n:]
		}
		if s.left == 0 {
			if err := s.end1(); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin reads the header that is now complete.
func (s *batchScan) begin() error {
	h := record.Batch(s.header[:])
	if h.Magic() != 2 {
		return s.corrupt("magic %d", h.Magic())
	}
	s.size = int64(int32(binary.BigEndian.Uint32(s.header[8:]))) + 12
	if s.size < record.HeaderLen {
		return s.corrupt("%d bytes long", s.size)
	}
	if low := h.BaseOffset(); h.LastOffsetDelta() < 0 || low < 0 || (low < s.next && !s.firstTip) || h.LastOffset() < s.next || h.LastOffset() >= s.end {
		return s.corrupt("offsets %d..%d outside of [%d, %d)", low, h.LastOffset(), s.next, s.end)
	}
	s.left = s.size - record.HeaderLen
	s.crc = crc32.Checksum(s.header[batchCRCFrom:], castagnoli)
	return nil
}

// end1 checks the batch whose last byte has been seen.
func (s *batchScan) end1() error {
	h := record.Batch(s.header[:])
	if s.crc != h.CRC() {
		return s.corrupt("CRC %08x, stored %08x", s.crc, h.CRC())
	}
	s.batches++
	s.records += int64(h.Count())
	s.maxProducerID = max(s.maxProducerID, h.ProducerID())
	s.next, s.firstTip = h.LastOffset()+1, false
	if s.each != nil {
		s.each(h, s.pos, s.size)
	}
	s.pos += s.size
	s.have = 0
	return nil
}

func (s *batchScan) finish() error {
	if s.have != 0 {
		return s.corrupt("cut short")
	}
	return nil
}
