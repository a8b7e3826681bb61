package netio

import (
	"math/bits"
	"slices"
	"sync"
	"time"
)

const (
	minBufferBits = 12 // 4 KiB
	maxBufferBits = 22 // 4 MiB; larger ones are large
)

// buffer is a pooled run of bytes; its capacity is a power of two up to 4 MiB, or a multiple of 4 MiB.
type buffer struct {
	b     []byte
	class int // largeClass, or the place in bufferPools
}

var bufferPools [maxBufferBits - minBufferBits + 1]sync.Pool

// largeClass is that of the buffers that largeBuffers keeps.
const largeClass = len(bufferPools)

// getBuffer returns a buffer whose slice has at least n bytes.
func getBuffer(n int) *buffer {
	class := max(bits.Len(uint(max(n, 1)-1)), minBufferBits) - minBufferBits
	if class >= largeClass {
		return large.get(n)
	}
	if v := bufferPools[class].Get(); v != nil {
		return v.(*buffer)
	}
	return &buffer{b: make([]byte, 1<<(class+minBufferBits)), class: class}
}

// free gives the buffer back. It must not be used any more.
func (b *buffer) free() {
	if b.class == largeClass {
		large.put(b)
		return
	}
	bufferPools[b.class].Put(b)
}

var large = largeBuffers{maxKeptBytes: maxKeptLargeBytes, keepFor: keepLargeSeconds * time.Second}

// largeBuffers keeps the buffers of frames of some megabytes, which producers of many partitions send one after another:
// making and clearing one for each frame costs more than receiving it. What is kept is bounded in bytes, the oldest goes
// first, and all goes once none has come back for a while.
type largeBuffers struct {
	maxKeptBytes int
	keepFor      time.Duration

	mu        sync.Mutex
	kept      []*buffer // the oldest first
	keptBytes int
	idle      *time.Timer
}

// get returns a buffer of n bytes or somewhat more: what is kept for larger frames is left to them.
func (l *largeBuffers) get(n int) *buffer {
	size := (n + largeStepBytes - 1) / largeStepBytes * largeStepBytes
	l.mu.Lock()
	defer l.mu.Unlock()
	best := -1
	for i, b := range l.kept {
		if len(b.b) >= size && len(b.b) <= 2*size && (best < 0 || len(b.b) <= len(l.kept[best].b)) {
			best = i
		}
	}
	if best < 0 {
		return &buffer{b: make([]byte, size), class: largeClass}
	}
	b := l.kept[best]
	l.kept = slices.Delete(l.kept, best, best+1)
	l.keptBytes -= len(b.b)
	return b
}

func (l *largeBuffers) put(b *buffer) {
	if len(b.b) > l.maxKeptBytes {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.keptBytes += len(b.b); l.keptBytes > l.maxKeptBytes; {
		l.keptBytes -= len(l.kept[0].b)
		l.kept = slices.Delete(l.kept, 0, 1)
	}
	l.kept = append(l.kept, b)
	if l.idle == nil {
		l.idle = time.AfterFunc(l.keepFor, l.drop)
		return
	}
	l.idle.Reset(l.keepFor)
}

// drop leaves all that is kept to the garbage collector.
func (l *largeBuffers) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept, l.keptBytes = nil, 0
}
