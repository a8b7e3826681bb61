package tiering

import (
	"context"
	"errors"
	"fmt"
	"time"

	"varve/tiering/objstore"
)

// storeGate closes when the store takes no uploads, so that an outage does not leave
// an abandoned attempt for each try of each partition: the row of one that failed stays
// as a tombstone. While it is closed one task at a time tries, first with a conditional
// put that stores nothing. Where nothing waits to be uploaded that put alone opens it,
// though only by a crack: the next segment that fails closes it. Guarded by Manager.mu.
type storeGate struct {
	fails  int // PUTs of segments in a row that the store did not take
	err    error
	since  time.Time // of the first of them
	trying bool
	trials int       // in vain since it closed
	next   time.Time // of the next trial
}

const (
	// gateFails is how many PUTs in a row must fail for the gate to close.
	gateFails = 3
	// maxAbandoned is how many failed attempts of one partition may still have to be
	// collected. There are no new ones until some are.
	maxAbandoned = 16
)

func (g *storeGate) closed() bool { return g.fails >= gateFails }

// problem is what Status says of it.
func (g *storeGate) problem() error {
	if !g.closed() {
		return nil
	}
	return fmt.Errorf("the store takes no uploads since %s: %w", g.since.UTC().Format(time.RFC3339), g.err)
}

// open says whether a task may start now; trial: only to find out.
func (g *storeGate) open(now time.Time) (ok, trial bool) {
	if !g.closed() {
		return true, false
	}
	return !g.trying && !now.Before(g.next), true
}

// storeTrouble says whether an upload failed for a reason that is the store's, and
// likely the same for all.
func storeTrouble(err error) bool {
	return objstore.IsRetryable(err) || errors.Is(err, objstore.ErrForbidden) || errors.Is(err, objstore.ErrBucketMissing) ||
		errors.Is(err, context.DeadlineExceeded)
}

// putEnded notes how the PUT of a segment went.
func (m *Manager) putEnded(err error) {
	m.mu.Lock()
	g := &m.gate
	was := g.closed()
	switch {
	case err == nil:
		*g = storeGate{trying: g.trying}
	case storeTrouble(err):
		if g.fails == 0 {
			g.since = m.o.Now()
		}
		g.fails, g.err = g.fails+1, err
	}
	is := g.closed()
	m.mu.Unlock()
	if was != is {
		m.o.Events.Emit(StoreJudged{Err: err})
	}
}

// trialEnded lets the next trial come: soon after one in which the store did not even
// answer, which costs nothing, and ever later after one that failed in earnest.
func (m *Manager) trialEndedLocked(err error) {
	m.gate.trying = false
	if !m.gate.closed() {
		return
	}
	wait := time.Duration(m.o.TaskIntervalMs) * time.Millisecond
	if !errors.Is(err, errStoreRefuses) {
		wait = min(wait<<min(m.gate.trials, 10), maxBackoff)
		m.gate.trials++
	}
	m.gate.next = m.o.Now().Add(wait)
}

// probeStore opens the gate again when nothing waits that would find out: merges only
// come through an open one, and whoever watches the status wants to know.
func (m *Manager) probeStore(ctx context.Context) {
	if !m.startProbe() {
		return
	}
	err := m.tryStore(ctx)
	m.mu.Lock()
	m.trialEndedLocked(err) // while it is closed: should it close again, the next trial waits longer
	if err == nil {
		m.gate.fails = gateFails - 1
	}
	opened := !m.gate.closed()
	m.mu.Unlock()
	if opened {
		m.o.Events.Emit(StoreJudged{})
		m.wakeUp()
	}
}

// startProbe says whether the gate is closed, a trial is due, and no task will be it.
func (m *Manager) startProbe() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	open, trial := m.gate.open(m.o.Now())
	if !open || !trial || m.ownerEpoch == 0 || len(m.queue) > 0 {
		return false
	}
	for _, pt := range m.parts {
		if pt.task != nil || pt.waits.Segments > 0 {
			return false
		}
	}
	m.gate.trying = true
	return true
}

// errStoreRefuses ends the task of a trial that got no further than tryStore.
var errStoreRefuses = errors.New("the store takes no uploads")

// tryStore finds out whether the store is there and lets us write, without storing
// anything: the owner object exists.
func (m *Manager) tryStore(ctx context.Context) error {
	m.mu.Lock()
	epoch := m.ownerEpoch
	m.mu.Unlock()
	b, err := ownerObject{Version: ownerVersion, ClusterID: m.o.ClusterID, Epoch: epoch, DeleteDeadlineMs: m.o.DeleteDeadlineMs}.encode()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, metaDeadline)
	defer cancel()
	_, err = m.o.Store.Put(ctx, m.ownerKey, objstore.BytesBody(b), objstore.PutOptions{IfNoneMatch: true, Cause: "owner"})
	if err == nil || errors.Is(err, objstore.ErrPrecondition) {
		return nil
	}
	m.mu.Lock()
	m.gate.err = err
	m.mu.Unlock()
	return errors.Join(errStoreRefuses, err)
}
