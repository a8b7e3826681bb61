package tiering

import (
	"context"
	"path"
	"time"

	"varve/tiering/objstore"
)

// sweepInterval is the time between two looks for uploads in parts that were left open.
const sweepInterval = time.Hour

// sweepUploads ends the uploads in parts that no attempt works on any more, which a
// process left that died: no List shows their parts, but they are billed. The controller
// does it for all brokers, at its start and then now and then.
func (m *Manager) sweepUploads(ctx context.Context) error {
	now := m.o.Now()
	m.mu.Lock()
	due := m.ownerEpoch != 0 && !now.Before(m.nextSweep)
	m.mu.Unlock()
	if !due || !m.o.Meta.IsController() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, metaDeadline)
	defer cancel()
	if err := m.checkOwner(ctx); err != nil {
		return err
	}
	// An attempt is cancelled after one deadline; the store's clock may differ.
	n, err := objstore.AbortUploads(ctx, m.o.Store, path.Join(m.o.Prefix, m.o.ClusterID)+"/", now.Add(-2*m.uploadDeadline()))
	if n > 0 {
		m.o.Events.Emit(UploadsAborted{Count: n})
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nextSweep = now.Add(sweepInterval)
	return nil
}
