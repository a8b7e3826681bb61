package tiering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"varve/metastore"
	"varve/protocol"
	"varve/tiering/objstore"
)

// maxDeletePage bounds the rows looked at, and the objects deleted, at a time.
const maxDeletePage = metastore.MaxSegmentIDs

// collect deletes the objects whose rows have been in DELETE_STARTED for long
// enough, then the rows. The controller does it for all partitions, those of
// deleted topics included. An object goes only while the owner object names this
// cluster and after the journal entry that announces it is in the bucket.
func (m *Manager) collect(ctx context.Context) error {
	if !m.o.Meta.IsController() {
		return nil
	}
	if err := m.mayDelete(); err != nil {
		return err
	}
	var at metastore.Cursor
	var left error // what some rows have to wait for; the others go
	others := elsewhere{}
	for {
		rows, next, err := m.o.Meta.PendingSegments(at, maxDeletePage)
		if err != nil {
			return err
		}
		now := m.o.Now()
		if err := m.readClock(); err != nil { // after what is compared with: a jump in between shows
			return err
		}
		due, late := m.due(ctx, rows, now.UnixMilli(), others)
		if late != nil {
			left = late
		}
		if len(due) > 0 {
			var some objstore.KeyError
			if err := m.deleteBatch(ctx, due); errors.As(err, &some) {
				left = err
			} else if err != nil {
				return err
			}
		}
		if len(rows) < maxDeletePage || ctx.Err() != nil {
			return errors.Join(left, ctx.Err())
		}
		at = next
	}
}

// maxElsewhereHeads bounds the requests of one round about one location that is not the one configured now.
const maxElsewhereHeads = 8

// elsewhere is what one round has learnt of locations that are not the one configured now: whether they are this store
// under another name, as one object found shows, or how many requests have not shown it.
type elsewhere map[string]*otherPlace

type otherPlace struct {
	same  bool
	heads int
}

// isHere says whether a row's object can be deleted here. Rows of another location wait until one of its objects is
// found here, which is looked for a few times each round, at other rows each time.
func (m *Manager) isHere(ctx context.Context, r metastore.RemoteSegment, page int, others elsewhere) error {
	if m.here(r.Location) {
		return nil
	}
	o := others[r.Location]
	if o == nil {
		o = &otherPlace{}
		others[r.Location] = o
	}
	err := objstore.ErrNotFound
	if !o.same && !r.NeverFinished && o.heads < maxElsewhereHeads && rand.IntN(page) < 2*maxElsewhereHeads {
		o.heads++
		_, err = m.o.Store.Head(ctx, m.rowKey(r))
		o.same = err == nil
	}
	if o.same {
		return nil
	}
	return fmt.Errorf("tiering: delete segment %s%s: %w", r.ID, m.elsewhere(r), err)
}

// due picks the rows whose objects may go now. The error names a row that cannot
// go: it was written to another store than the one configured now and nothing of
// that is in this one, so that deleting it here would only forget it there.
func (m *Manager) due(ctx context.Context, rows []metastore.RemoteSegment, now int64, others elsewhere) (due []metastore.RemoteSegment, err error) {
	journaled := m.o.Meta.JournaledThrough()
	held := slices.ContainsFunc(rows, inOtherFolder) && m.o.Meta.Image().AnyHeld()
	for _, r := range rows {
		if r.State != metastore.SegDeleteStarted || r.DeleteIndex > journaled || held && inOtherFolder(r) {
			continue
		}
		wait := r.StateTimeMs + m.o.DeleteDelayMs
		if r.NeverFinished {
			// No reader ever saw it; but its PUT may still arrive until then.
			wait = r.DeadlineMs + 1
		}
		if now < wait {
			continue
		}
		if e := m.isHere(ctx, r, len(rows), others); e != nil {
			err = e
			continue
		}
		due = append(due, r)
	}
	return due, err
}

// deleteBatch deletes objects, then the rows of those that went.
func (m *Manager) deleteBatch(ctx context.Context, rows []metastore.RemoteSegment) error {
	ctx, cancel := context.WithTimeout(ctx, m.deleteWithin())
	defer cancel()
	if err := m.checkOwner(ctx); err != nil {
		return err
	}
	rows, lost := m.underClaim(ctx, rows)
	rows, open := m.endUploads(ctx, rows)
	if lost = cmp.Or(lost, open); len(rows) == 0 {
		return lost
	}
	if err := m.fail(fpGCDelete); err != nil {
		return err
	}
	keys := make([]string, len(rows))
	for i, r := range rows {
		keys[i] = m.rowKey(r)
	}
	left, err := m.o.Store.Delete(ctx, keys)
	if err != nil {
		return err
	}
	failed := make(map[string]bool, len(left))
	for _, e := range left {
		failed[e.Key] = true
	}
	var ids []protocol.UUID
	e := ObjectsDeleted{Failed: len(left)}
	for i, r := range rows {
		if !failed[keys[i]] {
			ids = append(ids, r.ID)
			e.Count, e.Bytes = e.Count+1, e.Bytes+r.ObjectBytes
		}
	}
	if err := m.fail(fpGCGone); err != nil {
		return err
	}
	if len(ids) > 0 {
		if err := m.o.Meta.SegmentsGone(ctx, ids...); err != nil {
			return err
		}
	}
	m.o.Events.Emit(e)
	if err := m.fail(fpGCDone); err != nil {
		return err
	}
	return cmp.Or(firstKeyError(left), lost)
}

// underClaim picks the rows whose objects lie in folders that are this cluster's. What lies in one that was taken over and is no longer,
// or cannot be known to be, waits and holds nothing else up: the error, an objstore.KeyError, is about such a row.
func (m *Manager) underClaim(ctx context.Context, rows []metastore.RemoteSegment) (ours []metastore.RemoteSegment, lost error) {
	claim := m.claims(ctx)
	for _, r := range rows {
		err := claim(clusterIn(r.Location))
		if err != nil {
			lost = objstore.KeyError{Key: m.rowKey(r), Err: err}
			continue
		}
		ours = append(ours, r)
	}
	return ours, lost
}

// claims tells of a cluster's folder whether it is this one's. It asks the store once for each; "" is the own one.
func (m *Manager) claims(ctx context.Context) func(cluster string) error {
	asked := map[string]error{"": nil, m.o.ClusterID: nil}
	return func(cluster string) error {
		err, known := asked[cluster]
		if !known {
			err = m.checkClaim(ctx, cluster, m.o.Meta.Image().ClaimEpoch(cluster))
			asked[cluster] = err
		}
		return err
	}
}

func firstKeyError(left []objstore.KeyError) error {
	if len(left) == 0 {
		return nil
	}
	return left[0]
}
