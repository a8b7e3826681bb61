package replica

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	"varve/protocol"
)

// maxDelayedAppends bounds the append requests that wait at one time; more are answered as timed out at once. The bytes
// they hold are bounded by netio.
const maxDelayedAppends = 1 << 18

// delayedAppend is an append request that waits for other replicas or for the disk. Whoever closes its last open entry
// calls done, without holding any lock.
type delayedAppend struct {
	queue    *deadlines
	done     func([]AppendResult)
	deadline time.Time
	place    int // in queue's heap, under queue.mu; -1 when not in it

	mu      sync.Mutex
	results []AppendResult
	entries []*waitEntry
	open    int // unresolved entries, plus one while the request is being put together
}

// waitEntry is one partition of a delayedAppend, in one of the partition's queues.
type waitEntry struct {
	req    *delayedAppend
	index  int        // of the result
	p      *partition // whose queue holds it
	offset int64      // what the high watermark, or the durable end, has to reach
	disk   bool       // waits for the durable end only
	open   bool       // under req.mu
}

// resolve closes an entry with its code and calls done if it was the last one.
func (e *waitEntry) resolve(code protocol.ErrorCode) {
	d := e.req
	d.mu.Lock()
	if !e.open {
		d.mu.Unlock()
		return
	}
	e.open = false
	d.setCode(e.index, code)
	d.closeOne()
}

// resolution is an entry that has what it waited for, or never will.
type resolution struct {
	e    *waitEntry
	code protocol.ErrorCode
}

// resolveAll answers entries, the newest first: replies leave a connection in the order of its requests, so that the
// oldest one, coming last, takes those behind it along in one write.
func resolveAll(all []resolution) {
	for _, r := range slices.Backward(all) {
		r.e.resolve(r.code)
	}
}

// closeOne takes one from open; the caller holds mu, which is released.
func (d *delayedAppend) closeOne() {
	d.open--
	last := d.open == 0
	d.mu.Unlock()
	if last {
		d.queue.remove(d)
		d.done(d.results)
	}
}

func (d *delayedAppend) setCode(index int, code protocol.ErrorCode) {
	if code != protocol.None {
		d.results[index].Err = code
		d.results[index].Message = code.Text()
	}
}

// expire answers what is still open with code.
func (d *delayedAppend) expire(code protocol.ErrorCode) {
	d.mu.Lock()
	if d.open == 0 {
		d.mu.Unlock()
		return
	}
	var late []*waitEntry
	for _, e := range d.entries {
		if e.open {
			e.open = false
			d.setCode(e.index, code)
			late = append(late, e)
		}
	}
	d.open -= len(late)
	last := d.open == 0
	d.mu.Unlock()
	for _, e := range late {
		e.p.forget(e)
	}
	if last && len(late) > 0 {
		d.done(d.results)
	}
}

// appendQueue holds the entries of one partition, ascending by offset. Requests come nearly in order, so that putting
// one in looks at the last few only.
type appendQueue struct {
	entries []*waitEntry
}

func (q *appendQueue) push(e *waitEntry) {
	n := len(q.entries)
	for n > 0 && q.entries[n-1].offset > e.offset {
		n--
	}
	q.entries = slices.Insert(q.entries, n, e)
}

// popThrough removes and returns the entries with offset <= reached.
func (q *appendQueue) popThrough(reached int64) []*waitEntry {
	n := 0
	for n < len(q.entries) && q.entries[n].offset <= reached {
		n++
	}
	if n == 0 {
		return nil
	}
	out := slices.Clone(q.entries[:n])
	q.entries = slices.Delete(q.entries, 0, n)
	return out
}

func (q *appendQueue) popAll() []*waitEntry {
	out := q.entries
	q.entries = nil
	return out
}

func (q *appendQueue) remove(e *waitEntry) bool {
	n, _ := slices.BinarySearchFunc(q.entries, e.offset, func(x *waitEntry, off int64) int {
		return int(min(max(x.offset-off, -1), 1))
	})
	for ; n < len(q.entries) && q.entries[n].offset == e.offset; n++ {
		if q.entries[n] == e {
			q.entries = slices.Delete(q.entries, n, n+1)
			return true
		}
	}
	return false
}

// deadlines expires delayed appends: one heap and one timer for all of a Manager.
type deadlines struct {
	now func() time.Time

	mu     sync.Mutex
	heap   deadlineHeap
	closed bool
	kick   chan struct{} // the earliest deadline changed; capacity 1
}

func newDeadlines(now func() time.Time) *deadlines {
	return &deadlines{now: now, kick: make(chan struct{}, 1)}
}

// add takes d; false when there are too many or the manager is ending.
func (q *deadlines) add(d *delayedAppend) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.heap) >= maxDelayedAppends {
		return false
	}
	heap.Push(&q.heap, d)
	if d.place == 0 {
		select {
		case q.kick <- struct{}{}:
		default:
		}
	}
	return true
}

func (q *deadlines) remove(d *delayedAppend) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if d.place >= 0 {
		heap.Remove(&q.heap, d.place)
	}
}

func (q *deadlines) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.heap)
}

// run expires requests until ctx ends, then all that are left, with NotLeaderOrFollower: the clients go and look for
// another leader.
func (q *deadlines) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait, some := q.expireDue()
		var tick <-chan time.Time
		if some {
			timer.Reset(wait)
			tick = timer.C
		}
		select {
		case <-tick:
		case <-q.kick:
		case <-ctx.Done():
			q.mu.Lock()
			q.closed = true
			rest := q.heap
			q.heap = nil
			for _, d := range rest {
				d.place = -1
			}
			q.mu.Unlock()
			for _, d := range rest {
				d.expire(protocol.NotLeaderOrFollower)
			}
			return
		}
	}
}

// expireDue expires what is due and returns the time to the next deadline; false when there is none.
func (q *deadlines) expireDue() (time.Duration, bool) {
	for {
		q.mu.Lock()
		if len(q.heap) == 0 {
			q.mu.Unlock()
			return 0, false
		}
		d := q.heap[0]
		if left := d.deadline.Sub(q.now()); left > 0 {
			q.mu.Unlock()
			return left, true
		}
		heap.Pop(&q.heap)
		q.mu.Unlock()
		d.expire(protocol.RequestTimedOut)
	}
}

// deadlineHeap is a heap.Interface by deadline.
type deadlineHeap []*delayedAppend

func (h deadlineHeap) Len() int           { return len(h) }
func (h deadlineHeap) Less(i, j int) bool { return h[i].deadline.Before(h[j].deadline) }
func (h deadlineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *deadlineHeap) Push(x any) {
	d := x.(*delayedAppend)
	d.place = len(*h)
	*h = append(*h, d)
}

// Pop implements heap.Interface.
func (h *deadlineHeap) Pop() any {
	old := *h
	d := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	d.place = -1
	return d
}
