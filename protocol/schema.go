package protocol

import "encoding/binary"

type op struct{}

type walker struct {
	src      []byte
	version  int16
	flexible bool
	bad      bool
	cost     int
}

var schemas = map[int16][]op{}

func (w *walker) fields(ops []op) { w.src = nil }

func (w *walker) uvarint() uint32 {
	v, n := binary.Uvarint(w.src)
	if n <= 0 || v > 1<<32-1 {
		w.bad = true
		return 0
	}
	w.src = w.src[n:]
	return uint32(v)
}

func (w *walker) skip(n int) {
	if n < 0 || n > len(w.src) {
		w.bad = true
		w.src = nil
		return
	}
	w.src = w.src[n:]
}

func (w *walker) tags() {
	for n := w.uvarint(); n > 0 && !w.bad; n-- {
		w.uvarint()
		w.skip(int(w.uvarint()))
	}
}
