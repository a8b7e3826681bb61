package netio

import "sync"

// budget bounds the bytes of request frames that the broker holds.
//
// One charge at a time may go beyond the limit (the overdraft), and keeps that
// right until it is freed. So the most that is held is the limit plus one
// frame, and of several half-read frames that exhaust the budget one can always
// be finished: no deadlock. Small requests other than Produce are counted but do
// not wait: a waiting Produce may need them (a follower's Fetch is what moves
// the high watermark), and a connection has at most one of them in flight.
type budget struct {
	limitBytes int64

	mu        sync.Mutex
	usedBytes int64
	overdraft *charge
	freed     chan struct{} // closed and cleared by free; nil when nobody waits
}

// charge is what one frame holds.
type charge struct{ bytes int64 }

// grow adds n bytes to ch, waiting for room. It reports false when stop was
// closed first.
func (b *budget) grow(ch *charge, n int64, stop <-chan struct{}) bool {
	for {
		freed, ok := b.take(ch, n)
		if ok {
			return true
		}
		select {
		case <-freed:
		case <-stop:
			return false
		}
	}
}

func (b *budget) take(ch *charge, n int64) (freed <-chan struct{}, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.usedBytes+n > b.limitBytes && b.overdraft != ch {
		if b.overdraft != nil {
			if b.freed == nil {
				b.freed = make(chan struct{})
			}
			return b.freed, false
		}
		b.overdraft = ch
	}
	b.usedBytes += n
	ch.bytes += n
	return nil, true
}

// force adds n bytes to ch without waiting.
func (b *budget) force(ch *charge, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.usedBytes += n
	ch.bytes += n
}

// free gives back all that ch holds.
func (b *budget) free(ch *charge) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.usedBytes -= ch.bytes
	ch.bytes = 0
	if b.overdraft == ch {
		b.overdraft = nil
	}
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.usedBytes
}
