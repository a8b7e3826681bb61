package commitlog

import (
	"sync"
)

// flusher runs flushes of all logs of a directory on a fixed number of
// goroutines. A log stands in the queue at most once, so the queue is bounded by
// the number of logs; what is appended while a log waits or is being synced is
// covered by one flush: group commit.
type flusher struct {
	wg     sync.WaitGroup
	mu     sync.Mutex
	wake   sync.Cond
	queue  []*Log
	closed bool
}

func startFlusher(flushThreads int) *flusher {
	f := &flusher{}
	f.wake.L = &f.mu
	for range flushThreads {
		f.wg.Go(f.run)
	}
	return f
}

// ask wants all of l flushed from the state it is in now or later.
func (f *flusher) ask(l *Log) {
	l.flushWhole.Store(true)
	f.askSealed(l)
}

// askSealed wants l's closed segments flushed, but not the one that grows: while its last pages are written out, appends
// to them wait for the disk.
func (f *flusher) askSealed(l *Log) {
	if l.flushQueued.Swap(true) {
		l.flushAgain.Store(true)
		return
	}
	f.push(l)
}

func (f *flusher) push(l *Log) {
	f.mu.Lock()
	if !f.closed {
		f.queue = append(f.queue, l)
		f.wake.Signal()
	}
	f.mu.Unlock()
}

func (f *flusher) run() {
	for {
		f.mu.Lock()
		for len(f.queue) == 0 && !f.closed {
			f.wake.Wait()
		}
		if f.closed {
			f.mu.Unlock()
			return
		}
		l := f.queue[0]
		f.queue = append(f.queue[:0], f.queue[1:]...)
		f.mu.Unlock()
		f.serve(l)
	}
}

// serve flushes l. Its error has taken the directory offline already, which is
// how everybody hears of it. Whoever asked after the flush had begun finds
// flushQueued set and leaves flushAgain, or finds it clear and queues the log
// anew.
func (f *flusher) serve(l *Log) {
	l.flushAgain.Store(false)
	_ = l.flushAndTell(l.flushWhole.Swap(false))
	l.flushQueued.Store(false)
	if l.flushAgain.Load() && !l.flushQueued.Swap(true) {
		f.push(l)
	}
}

// stop lets running flushes finish and drops the queue.
func (f *flusher) stop() {
	f.mu.Lock()
	f.closed = true
	f.wake.Broadcast()
	f.mu.Unlock()
	f.wg.Wait()
}
