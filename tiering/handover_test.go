package tiering

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"varve/metastore"
	"varve/protocol"
)

// lateMeta holds the first SegmentStart and commits it all the same, though its caller has gone.
type lateMeta struct {
	Meta
	mu     sync.Mutex
	starts atomic.Int32
	held   protocol.UUID // valid once starts is above 0
	free   chan struct{}
}

func (m *lateMeta) SegmentStart(ctx context.Context, s metastore.RemoteSegment, broker int32) error {
	m.mu.Lock()
	first := m.held.IsZero()
	if first {
		m.held = s.ID
	}
	m.mu.Unlock()
	m.starts.Add(1)
	if first {
		<-m.free
	}
	return m.Meta.SegmentStart(context.WithoutCancel(ctx), s, broker)
}

// TestLedAgainAtTheSameEpoch: what an upload leaves in STARTED when its leadership is let go and taken again at once is given
// up by the one that follows, not only by a later leader.
func TestLedAgainAtTheSameEpoch(t *testing.T) {
	w := newWorld(t, keepAll(), func(o *Options) { o.TaskIntervalMs, o.Concurrency = 10, 2 })
	late := &lateMeta{Meta: w.opts.Meta, free: make(chan struct{})}
	w.opts.Meta = late
	w.start()
	w.append(40, 0)
	stop := w.run()
	w.m.Nudge(w.part.id, 0)
	w.await(func() bool { return late.starts.Load() > 0 })
	w.m.Unlead(w.part.id, 0)
	w.m.Lead(w.part)
	w.await(func() bool { return w.end() == w.sealedEnd() })
	close(late.free)
	w.await(func() bool {
		rows, err := w.meta.PendingOf(w.part.id, 0)
		return err == nil && slices.ContainsFunc(rows, func(r metastore.RemoteSegment) bool {
			return r.ID == late.held && r.State == metastore.SegDeleteStarted
		})
	})
	stop()
	w.stop()
}
