package group

import (
	"container/heap"
	"time"
)

// timerKind says what a timer ends.
type timerKind uint8

const (
	timerSession timerKind = iota // a member, or a pending member, was not heard of
	timerJoin                     // the wait for members to join
	timerSync                     // the wait for members to sync
	timerExpire                   // look for offsets past their retention
)

// timerKey names a timer; member is set for sessions only, group for all but timerExpire.
type timerKey struct {
	kind          timerKind
	group, member string
}

type timer struct {
	key   timerKey
	at    time.Time
	seq   uint64 // orders timers of one moment
	place int
}

// timers are deadlines in order. Setting one that is set moves it.
type timers struct {
	byKey map[timerKey]*timer
	queue timerQueue
	seq   uint64
}

func newTimers() timers { return timers{byKey: map[timerKey]*timer{}} }

func (t *timers) set(key timerKey, at time.Time) {
	t.seq++
	if old := t.byKey[key]; old != nil {
		old.at, old.seq = at, t.seq
		heap.Fix(&t.queue, old.place)
		return
	}
	added := &timer{key: key, at: at, seq: t.seq}
	t.byKey[key] = added
	heap.Push(&t.queue, added)
}

func (t *timers) cancel(key timerKey) {
	if old := t.byKey[key]; old != nil {
		delete(t.byKey, key)
		heap.Remove(&t.queue, old.place)
	}
}

// next returns the earliest deadline.
func (t *timers) next() (time.Time, bool) {
	if len(t.queue) == 0 {
		return time.Time{}, false
	}
	return t.queue[0].at, true
}

// pop takes out the first timer whose time has come.
func (t *timers) pop(now time.Time) (timerKey, bool) {
	if len(t.queue) == 0 || t.queue[0].at.After(now) {
		return timerKey{}, false
	}
	first := t.queue[0]
	delete(t.byKey, first.key)
	heap.Remove(&t.queue, first.place)
	return first.key, true
}

type timerQueue []*timer

func (q timerQueue) Len() int { return len(q) }
func (q timerQueue) Less(i, j int) bool {
	if !q[i].at.Equal(q[j].at) {
		return q[i].at.Before(q[j].at)
	}
	return q[i].seq < q[j].seq
}
func (q timerQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}
func (q *timerQueue) Push(x any) {
	t := x.(*timer)
	t.place = len(*q)
	*q = append(*q, t)
}
func (q *timerQueue) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return last
}
