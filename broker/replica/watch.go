package replica

import (
	"sync"
	"sync/atomic"
)

// maxFetchWatchers bounds the fetches that one partition wakes. One more than that is not woken by it and answers at its
// maximum wait.
const maxFetchWatchers = 1 << 16

// fetchWait is one fetch request that waits. Partitions mark what changed; the fetch reads only that again.
type fetchWait struct {
	wake chan struct{} // capacity 1

	mu    sync.Mutex
	dirty []int // places in the request; each at most once between two takes
}

func newFetchWait() *fetchWait { return &fetchWait{wake: make(chan struct{}, 1)} }

func (w *fetchWait) mark(place int) {
	w.mu.Lock()
	known := false
	for _, d := range w.dirty {
		known = known || d == place
	}
	if !known {
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
	return out
}

// watchers are the fetches that wait at one partition. The count is there so that appends need no lock when nobody
// waits: it is raised before the waiter looks at the high watermark a last time.
type watchers struct {
	count atomic.Int32

	mu  sync.Mutex
	all map[watchKey]bool // value: wants to know of the log's end (followers), not of the high watermark
}

type watchKey struct {
	w     *fetchWait
	place int
}

func (ws *watchers) add(w *fetchWait, place int, logEnd bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.all) >= maxFetchWatchers {
		return
	}
	if ws.all == nil {
		ws.all = make(map[watchKey]bool)
	}
	ws.all[watchKey{w, place}] = logEnd
	ws.count.Store(int32(len(ws.all)))
}

func (ws *watchers) remove(w *fetchWait, place int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.all, watchKey{w, place})
	ws.count.Store(int32(len(ws.all)))
	if len(ws.all) == 0 {
		ws.all = nil
	}
}

// wake marks the watchers of the log's end, of the high watermark, or of both.
func (ws *watchers) wake(logEnd, watermark bool) {
	if ws.count.Load() == 0 {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for k, wantsEnd := range ws.all {
		if wantsEnd && logEnd || !wantsEnd && watermark {
			k.w.mark(k.place)
		}
	}
}
