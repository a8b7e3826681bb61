package tiering

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"
)

// dispatch starts a worker for each queued partition, within the bound.
func (m *Manager) dispatch(ctx context.Context, tasks *sync.WaitGroup) {
	for {
		for m.startNext(ctx, tasks) {
		}
		select {
		case <-m.wake:
		case <-ctx.Done():
			return
		}
	}
}

// busyLocked counts the slots that are taken.
func (m *Manager) busyLocked() (n int) {
	for t := range m.tasks {
		if !t.freed && !t.merge {
			n += 1 + t.extra
		}
	}
	return n
}

func (m *Manager) startNext(ctx context.Context, tasks *sync.WaitGroup) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.o.Now()
	open, trial := m.gate.open(now)
	if !open || m.busyLocked() >= m.o.Concurrency || m.ownerEpoch == 0 || ctx.Err() != nil {
		return false
	}
	if len(m.queue) == 0 {
		return !trial && m.startMergeLocked(ctx, tasks)
	}
	pt := heap.Pop(&m.queue).(*part)
	if m.parts[pt.key] != pt {
		return true
	}
	limit := m.uploadDeadline() * maxUploadsInTask
	tctx, cancel := context.WithTimeout(ctx, limit)
	t := &task{part: pt, started: now, deadline: now.Add(limit), cancel: cancel, trial: trial}
	pt.task, pt.again, m.gate.trying = t, false, m.gate.trying || trial
	m.tasks[t] = struct{}{}
	tasks.Go(func() {
		defer cancel()
		more, err := m.uploadSome(tctx, t)
		m.finish(t, more, err)
	})
	return true
}

// takeSlot lets a task use a slot that no other partition waits for.
func (m *Manager) takeSlot(t *task) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.freed || t.trial || m.gate.closed() || len(m.queue) > 0 || m.busyLocked() >= m.o.Concurrency {
		return false
	}
	t.extra++
	return true
}

func (m *Manager) returnSlot(t *task) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.extra > 0 {
		t.extra--
		m.wakeUp()
	}
}

// finish books the end of a task.
func (m *Manager) finish(t *task, more bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.tasks, t)
	pt := t.part
	if t.merge {
		m.mergeEndedLocked(t, more, err)
		return
	}
	if t.trial && !t.freed {
		m.trialEndedLocked(err)
	}
	if now := m.parts[pt.key]; now != nil && (now != pt || t.freed) {
		now.doubts++ // what t had STARTED may have come after the others were looked for
		m.enqueueLocked(now)
	}
	if t.freed {
		return
	}
	pt.task = nil
	again := more || pt.again
	if errors.Is(err, errStoreRefuses) {
		again = true // nobody's fault in particular
	} else {
		m.bookLocked(pt, err)
	}
	if m.parts[pt.key] == pt && again {
		m.enqueueLocked(pt)
	}
	m.wakeUp()
}

// bookLocked remembers how an attempt ended and when the next may come.
func (m *Manager) bookLocked(pt *part, err error) {
	if err == nil {
		pt.fails, pt.notBefore, pt.lastErr = 0, time.Time{}, nil
		return
	}
	now := m.o.Now()
	wait := time.Duration(m.o.TaskIntervalMs) * time.Millisecond << min(pt.fails, 10)
	pt.fails++
	pt.notBefore = now.Add(min(wait, maxBackoff))
	pt.lastErr, pt.lastErrAt = err, now
}

// step moves the watchdog's deadline: the task has until then to take its next one.
func (m *Manager) step(t *task, limit time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t.deadline = m.o.Now().Add(limit)
}

// watch gives up tasks that are past their deadline although their context has
// ended, so that one call that never returns neither stops its partition nor takes
// a slot for ever. What such a task still does is harmless: its segment id goes to
// DELETE_STARTED with the next attempt.
func (m *Manager) watch() {
	m.mu.Lock()
	var stuck []PartitionStuck
	freed := 0
	for t := range m.tasks {
		if t.freed {
			freed++
		}
	}
	now := m.o.Now()
	for t := range m.tasks {
		if t.freed || now.Before(t.deadline) {
			continue
		}
		t.cancel()
		if now.Before(t.deadline.Add(stuckGrace)) || freed >= maxStuckTasks {
			continue
		}
		freed++
		m.freeLocked(t)
		stuck = append(stuck, PartitionStuck{Topic: t.part.name, Partition: t.part.key.partition, Merge: t.merge, ForMs: now.Sub(t.started).Milliseconds()})
	}
	m.mu.Unlock()
	for _, e := range stuck {
		m.o.Events.Emit(e)
	}
	m.wakeUp()
}

func (m *Manager) freeLocked(t *task) {
	if t.merge {
		m.mergeEndedLocked(t, false, errStuck)
		t.freed = true
		return
	}
	t.freed, t.extra = true, 0
	if t.trial {
		m.trialEndedLocked(errStuck)
	}
	pt := t.part
	pt.task, pt.doubts = nil, pt.doubts+1
	m.bookLocked(pt, errStuck)
	pt.notBefore = time.Time{}
	if m.parts[pt.key] == pt {
		m.enqueueLocked(pt)
	}
}

var errStuck = errors.New("a call did not return by its deadline and was given up")
