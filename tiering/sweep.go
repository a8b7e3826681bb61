package tiering

import (
	"context"
	"path"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"varve/metastore"
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

const (
	// endUploadsWait is how long after its deadline the row of an attempt waits for a store that does not tell what it left open.
	endUploadsWait = time.Hour
	// maxEndUploads is how many keys are asked about at once.
	maxEndUploads = 16
)

// anyTime is after all others: of a key whose attempt is over every upload goes, whatever the store's clock says of when it began.
var anyTime = time.Unix(1<<40, 0)

// endUploads ends the uploads in parts that attempts which never were FINISHED left open, and returns the rows that may go. sweepUploads
// finds them too, but not on MinIO, whose server lists the uploads of one exact key only: here the keys are known, and none of an attempt
// past its deadline is under way. A store that refuses to tell holds nothing up; the error, an objstore.KeyError, is about one that fails.
func (m *Manager) endUploads(ctx context.Context, rows []metastore.RemoteSegment) (ready []metastore.RemoteSegment, failed error) {
	now := m.o.Now()
	keep := make([]bool, len(rows))
	var mu sync.Mutex
	ended := 0
	var g errgroup.Group
	g.SetLimit(maxEndUploads)
	for i, r := range rows {
		if !r.NeverFinished {
			continue
		}
		g.Go(func() error {
			key := m.rowKey(r)
			n, err := objstore.AbortUploads(ctx, m.o.Store, key, anyTime)
			mu.Lock()
			defer mu.Unlock()
			ended += n
			if objstore.IsRetryable(err) && now.Before(time.UnixMilli(r.DeadlineMs).Add(endUploadsWait)) {
				keep[i], failed = true, objstore.KeyError{Key: key, Err: err}
			}
			return nil
		})
	}
	_ = g.Wait() // none has an error
	if ended > 0 {
		m.o.Events.Emit(UploadsAborted{Count: ended})
	}
	for i, r := range rows {
		if !keep[i] {
			ready = append(ready, r)
		}
	}
	return ready, failed
}
