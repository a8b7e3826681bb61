package replica

import (
	"context"
	"sync"
	"time"

	"varve/protocol"
)

// Bounds of telling the controller.
const (
	maxAssignBatch    = 2000 // assignments in one call
	controlDeadline   = 30 * time.Second
	minControlBackoff = 100 * time.Millisecond
	maxControlBackoff = 5 * time.Second
)

// teller tells the controller what the applier finds, in the background, until it was taken. It holds at most one entry
// per replica of this broker.
type teller struct {
	m    *Manager
	wake chan struct{} // capacity 1

	attempts sync.Mutex // one at a time; before mu

	mu     sync.Mutex
	dirs   map[replicaKey]DirAssignment
	erased map[replicaKey]struct{}
}

type replicaKey struct {
	topic protocol.UUID
	index int32
}

func newTeller(m *Manager) *teller {
	return &teller{m: m, wake: make(chan struct{}, 1), dirs: map[replicaKey]DirAssignment{}, erased: map[replicaKey]struct{}{}}
}

// assign also takes back what is still to be told of the folder before: that there is none in the Image shows that it was
// taken, though the reply was lost, and telling it again would take the new folder for lost.
func (t *teller) assign(a DirAssignment) {
	t.mu.Lock()
	k := replicaKey{a.TopicID, a.Partition}
	t.dirs[k] = a
	delete(t.erased, k)
	t.mu.Unlock()
	t.kick()
}

func (t *teller) lost(topic protocol.UUID, index int32) {
	t.mu.Lock()
	t.erased[replicaKey{topic, index}] = struct{}{}
	t.mu.Unlock()
	t.kick()
}

func (t *teller) kick() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// run tells until ctx ends.
func (t *teller) run(ctx context.Context) {
	backoff := minControlBackoff
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		var retry <-chan time.Time
		if t.pending() {
			timer.Reset(backoff)
			retry = timer.C
		}
		select {
		case <-t.wake:
		case <-retry:
		case <-ctx.Done():
			return
		}
		if t.attempt(ctx) {
			backoff = minControlBackoff
		} else {
			backoff = min(2*backoff, maxControlBackoff)
		}
	}
}

func (t *teller) pending() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.dirs)+len(t.erased) > 0
}

// attempt tells all there is once. true: all of it was taken.
func (t *teller) attempt(ctx context.Context) bool {
	t.attempts.Lock()
	defer t.attempts.Unlock()
	b, ok := t.m.meta.Image().Broker(t.m.nodeID)
	if !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, controlDeadline)
	defer cancel()
	good := true
	for _, k := range t.erasedNow() {
		err := t.m.control.ReplicaLost(ctx, k.topic, k.index, t.m.nodeID, b.Epoch)
		if err != nil && !t.moot(k) {
			t.m.events.Emit(ControllerRefused{What: "lost replica", Err: err})
			good = false
			continue
		}
		t.mu.Lock()
		delete(t.erased, k)
		t.mu.Unlock()
	}
	for dirs := t.dirsNow(); len(dirs) > 0; dirs = t.dirsNow() {
		if err := t.m.control.AssignDirs(ctx, t.m.nodeID, b.Epoch, dirs); err != nil {
			t.m.events.Emit(ControllerRefused{What: "folder assignment", Err: err})
			return false
		}
		t.mu.Lock()
		for _, a := range dirs {
			delete(t.dirs, replicaKey{a.TopicID, a.Partition})
		}
		t.mu.Unlock()
	}
	return good
}

// moot says whether the Image no longer has the replica.
func (t *teller) moot(k replicaKey) bool {
	part, ok := t.m.meta.Image().Partition(k.topic, k.index)
	return !ok || !part.HasReplica(t.m.nodeID)
}

func (t *teller) erasedNow() []replicaKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []replicaKey
	for k := range t.erased {
		out = append(out, k)
	}
	return out
}

func (t *teller) dirsNow() []DirAssignment {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []DirAssignment
	for k, a := range t.dirs {
		if t.moot(k) {
			delete(t.dirs, k)
			continue
		}
		if out = append(out, a); len(out) == maxAssignBatch {
			break
		}
	}
	return out
}
