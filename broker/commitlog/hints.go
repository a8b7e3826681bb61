package commitlog

import "sync/atomic"

// hintSlots is how many places one segment remembers: about as many readers go on where they stopped without searching.
const hintSlots = 16

// hints remember where in a segment batches begin that readers will ask for next: where their last answer ended. An entry
// is one word, the offset less the segment's base in the upper half and the position in the lower; it is true for as long
// as the segment is, which a truncation replaces. The zero word says that the first batch begins at the start.
type hints struct {
	slots atomic.Pointer[[hintSlots]atomic.Uint64] // nil until somebody reads
}

func hintSlot(rel int64) int { return int(uint64(rel) * 0x9e3779b97f4a7c15 >> 60) }

// find returns the position of the batch that begins with the offset rel, or that will begin there.
func (h *hints) find(rel int64) (pos int64, ok bool) {
	slots := h.slots.Load()
	if slots == nil {
		return 0, false
	}
	w := slots[hintSlot(rel)].Load()
	return int64(uint32(w)), int64(w>>32) == rel
}

// put notes that the batch that begins with the offset rel, now or once it is written, begins at pos.
func (h *hints) put(rel, pos int64) {
	slots := h.slots.Load()
	if slots == nil {
		h.slots.CompareAndSwap(nil, new([hintSlots]atomic.Uint64))
		slots = h.slots.Load()
	}
	slots[hintSlot(rel)].Store(uint64(rel)<<32 | uint64(pos))
}
