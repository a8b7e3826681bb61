package replica

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"varve/protocol"
)

// startGrace bounds how long a request waits for a replica that the Image says this broker leads and that is not served
// yet: the topic was created, or the broker unfenced, a moment ago. Clients that are told NotLeaderOrFollower here find
// the same leader in the metadata and back off, some of them for seconds.
const startGrace = time.Second

// turns tells those who wait that some replica has changed its role.
type turns struct {
	waiting atomic.Int32
	mu      sync.Mutex
	next    chan struct{} // closed at the next change
}

// wait returns a channel that the next change closes. Each call is followed by one of done.
func (t *turns) wait() <-chan struct{} {
	t.waiting.Add(1)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next == nil {
		t.next = make(chan struct{})
	}
	return t.next
}

func (t *turns) done() { t.waiting.Add(-1) }

func (t *turns) changed() {
	if t.waiting.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next != nil {
		close(t.next)
		t.next = nil
	}
}

// awaitLead waits until the replica leads, and says whether it does. It returns at once when the Image names another
// leader or the replica cannot come to lead by itself.
func (m *Manager) awaitLead(ctx context.Context, until time.Time, topic string, id protocol.UUID, index int32) bool {
	for {
		changed := m.turns.wait()
		lead, may := m.comingToLead(topic, id, index)
		if lead || !may {
			m.turns.done()
			return lead
		}
		left := until.Sub(m.now())
		timer := time.NewTimer(left)
		select {
		case <-changed:
		case <-timer.C:
			left = 0
		case <-ctx.Done():
			left = 0
		case <-m.stopping:
			left = 0
		}
		timer.Stop()
		m.turns.done()
		if left <= 0 {
			return false
		}
	}
}

// comingToLead says whether the replica leads, and if not, whether it is on its way to.
func (m *Manager) comingToLead(topic string, id protocol.UUID, index int32) (lead, may bool) {
	p, err := m.find(topic, id, index)
	if err != nil {
		named, _ := m.leaderOf(topic, id, index)
		return false, protocol.CodeOf(err) == protocol.NotLeaderOrFollower && named == m.nodeID
	}
	r := p.role.Load()
	if r.leads() {
		return true, true
	}
	named, _ := m.leaderOf(p.topic, p.id, index)
	return false, named == m.nodeID && (r.state == StateElecting || r.state == StateFollower) && !r.gone
}
