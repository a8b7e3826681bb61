package netio

import (
	"testing"
	"time"
)

func (l *largeBuffers) keeping() (n, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.kept), l.keptBytes
}

// Large buffers come back, fit what is asked for, stay within the bound, and go when nobody wants them.
func TestLargeBuffersAreKept(t *testing.T) {
	const step = largeStepBytes
	l := largeBuffers{maxKeptBytes: 8 * step, keepFor: time.Hour}
	five, two := l.get(4*step+1), l.get(step+1)
	if len(five.b) != 5*step || len(two.b) != 2*step {
		t.Fatalf("buffers of %d and %d bytes", len(five.b), len(two.b))
	}
	l.put(five)
	l.put(two)
	if got := l.get(2 * step); got != two {
		t.Fatal("a buffer that fits was not taken")
	}
	if got := l.get(2 * step); got == five || len(got.b) != 2*step {
		t.Fatalf("a buffer of %d bytes for a frame of two steps", len(got.b))
	}
	if got := l.get(3 * step); got != five {
		t.Fatal("a buffer somewhat too large was not taken")
	}
	l.put(five)
	l.put(two)
	l.put(l.get(4 * step)) // five steps again, the newest now
	l.put(&buffer{b: make([]byte, 3*step), class: largeClass})
	if n, bytes := l.keeping(); n != 2 || bytes != 8*step || l.kept[0] != five {
		t.Fatalf("%d buffers of %d bytes in all", n, bytes)
	}
	l.put(&buffer{b: make([]byte, 9*step), class: largeClass})
	if n, bytes := l.keeping(); n != 2 || bytes != 8*step {
		t.Fatalf("%d buffers of %d bytes in all after one that is too large to keep", n, bytes)
	}
}

func TestLargeBuffersGoWhenIdle(t *testing.T) {
	l := largeBuffers{maxKeptBytes: 64 << 20, keepFor: 20 * time.Millisecond}
	for range 2 {
		l.put(l.get(9 << 20))
		eventually(t, "all dropped", func() bool { n, bytes := l.keeping(); return n == 0 && bytes == 0 })
	}
}
