package netio

import (
	"math/bits"
	"sync"
)

const (
	minBufferBits = 12 // 4 KiB
	maxBufferBits = 22 // 4 MiB; larger ones are left to the garbage collector
)

// buffer is a pooled run of bytes; its capacity is a power of two up to 4 MiB.
type buffer struct {
	b     []byte
	class int // -1: not pooled
}

var bufferPools [maxBufferBits - minBufferBits + 1]sync.Pool

// getBuffer returns a buffer whose slice has at least n bytes.
func getBuffer(n int) *buffer {
	class := max(bits.Len(uint(max(n, 1)-1)), minBufferBits) - minBufferBits
	if class >= len(bufferPools) {
		return &buffer{b: make([]byte, n), class: -1}
	}
	if v := bufferPools[class].Get(); v != nil {
		return v.(*buffer)
	}
	return &buffer{b: make([]byte, 1<<(class+minBufferBits)), class: class}
}

// free gives the buffer back. It must not be used any more.
func (b *buffer) free() {
	if b.class >= 0 {
		bufferPools[b.class].Put(b)
	}
}
