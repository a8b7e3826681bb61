package replica

import (
	"sync"
	"sync/atomic"
)

// maxFetchWatchers bounds the fetches that one partition wakes. One more than that is not woken by it and answers at its
// maximum wait.
const maxFetchWatchers = 1 << 16

// fetchWait is one fetch request, or session, that waits. Partitions mark what changed; only that is read again.
type fetchWait struct {
	wake chan struct{} // capacity 1

	mu     sync.Mutex
	dirty  []int  // places; each at most once between two takes
	marked []bool // by place: it is in dirty
}

func newFetchWait() *fetchWait { return &fetchWait{wake: make(chan struct{}, 1)} }

func (w *fetchWait) mark(place int) {
	w.mu.Lock()
	for place >= len(w.marked) {
		w.marked = append(w.marked, false)
	}
	if !w.marked[place] {
		w.marked[place] = true
		w.dirty = append(w.dirty, place)
	}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *fetchWait) take() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.dirty
	w.dirty = nil
	for _, place := range out {
		w.marked[place] = false
	}
	return out
}

// watchers are the fetches that wait at one partition. Each is told once and then forgotten: whoever still waits asks
// again before it reads, and a session that nobody asks of any more costs nothing. The count is there so that appends
// need no lock when nobody waits: it is raised before the waiter reads.
type watchers struct {
	count atomic.Int32

	mu  sync.Mutex
	all map[watchKey]bool // value: wants to know of the log's end too (followers), not only of the high watermark
}

type watchKey struct {
	w     *fetchWait
	place int
}

// add asks for one call of w.mark; false when there are too many already.
func (ws *watchers) add(w *fetchWait, place int, logEnd bool) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.all) >= maxFetchWatchers {
		return false
	}
	if ws.all == nil {
		ws.all = make(map[watchKey]bool)
	}
	ws.all[watchKey{w, place}] = logEnd
	ws.count.Store(int32(len(ws.all)))
	return true
}

func (ws *watchers) remove(w *fetchWait, place int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.all, watchKey{w, place})
	ws.count.Store(int32(len(ws.all)))
}

// wake marks those who wait for the log's end, for the high watermark, or for both.
func (ws *watchers) wake(logEnd, watermark bool) {
	if ws.count.Load() == 0 || !logEnd && !watermark {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for k, wantsEnd := range ws.all {
		if watermark || wantsEnd {
			delete(ws.all, k)
			k.w.mark(k.place)
		}
	}
	ws.count.Store(int32(len(ws.all)))
}
