package tiering

import (
	"context"
	"slices"
	"sync"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
)

// fakeMeta answers reads from a list of FINISHED rows and keeps an outbox, for tests
// of reading and of the journal. The life of segments is tested on the metastore
// itself.
type fakeMeta struct {
	mu         sync.Mutex
	rows       []metastore.RemoteSegment
	state      metastore.TierState
	outbox     []*metapb.JournalEntry
	journaled  uint64
	controller bool
	onAt       func(off int64) // called before SegmentAt; read-ahead calls it, too
}

func newFakeMeta() *fakeMeta { return &fakeMeta{controller: true} }

func (f *fakeMeta) IsController() bool      { return f.controller }
func (f *fakeMeta) Image() *metastore.Image { return nil }
func (f *fakeMeta) SegmentStart(context.Context, metastore.RemoteSegment, int32) error {
	return protocol.UnknownServerError
}
func (f *fakeMeta) SegmentFinish(context.Context, metastore.RemoteSegment) (metastore.SegmentState, error) {
	return 0, protocol.UnknownServerError
}
func (f *fakeMeta) SegmentReplace(context.Context, []protocol.UUID, metastore.RemoteSegment) (metastore.SegmentState, error) {
	return 0, protocol.UnknownServerError
}
func (f *fakeMeta) SegmentsDelete(context.Context, protocol.UUID, int32, int32, []protocol.UUID) error {
	return protocol.UnknownServerError
}
func (f *fakeMeta) SegmentsGone(context.Context, ...protocol.UUID) error {
	return protocol.UnknownServerError
}
func (f *fakeMeta) AdvanceLogStart(context.Context, protocol.UUID, int32, int32, int64) error {
	return protocol.UnknownServerError
}
func (f *fakeMeta) Tier(protocol.UUID, int32) (metastore.TierState, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state, nil
}
func (f *fakeMeta) setOnAt(fn func(off int64)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onAt = fn
}
func (f *fakeMeta) SegmentAt(t protocol.UUID, p int32, off int64) (row metastore.RemoteSegment, ok bool, err error) {
	f.mu.Lock()
	on := f.onAt
	f.mu.Unlock()
	if on != nil {
		on(off)
	}
	err = f.SegmentsFrom(t, p, off, func(r metastore.RemoteSegment) bool {
		row, ok = r, r.Base <= off
		return false
	})
	return row, ok, err
}
func (f *fakeMeta) SegmentsFrom(_ protocol.UUID, _ int32, off int64, fn func(metastore.RemoteSegment) bool) error {
	f.mu.Lock()
	rows := slices.Clone(f.rows)
	f.mu.Unlock()
	for _, r := range rows {
		if r.Next > off && !fn(r) {
			break
		}
	}
	return nil
}
func (f *fakeMeta) first(t protocol.UUID, p int32, from int64, is func(metastore.RemoteSegment) bool) (row metastore.RemoteSegment, ok bool, err error) {
	err = f.SegmentsFrom(t, p, from, func(r metastore.RemoteSegment) bool {
		row, ok = r, is(r)
		return !ok
	})
	return row, ok, err
}
func (f *fakeMeta) SegmentByTime(t protocol.UUID, p int32, from, ts int64) (metastore.RemoteSegment, bool, error) {
	return f.first(t, p, from, func(r metastore.RemoteSegment) bool { return r.MaxTimestamp >= ts })
}
func (f *fakeMeta) SegmentWithTxns(t protocol.UUID, p int32, from int64) (metastore.RemoteSegment, bool, error) {
	return f.first(t, p, from, func(r metastore.RemoteSegment) bool { return r.HasTxns })
}
func (f *fakeMeta) MaxTimestamp(t protocol.UUID, p int32, from int64) (best int64, some bool, err error) {
	err = f.SegmentsFrom(t, p, from, func(r metastore.RemoteSegment) bool {
		if r.Base >= from && (!some || r.MaxTimestamp > best) {
			best, some = r.MaxTimestamp, true
		}
		return true
	})
	return best, some, err
}
func (f *fakeMeta) PendingSegments(metastore.Cursor, int) ([]metastore.RemoteSegment, metastore.Cursor, error) {
	return nil, metastore.Cursor{}, nil
}
func (f *fakeMeta) IsPending(protocol.UUID, int32, protocol.UUID) (bool, error) { return false, nil }
func (f *fakeMeta) PendingOf(protocol.UUID, int32) ([]metastore.RemoteSegment, error) {
	return nil, nil
}
func (f *fakeMeta) JournalPending(n int) ([]*metapb.JournalEntry, uint64, uint64, error) {
	if len(f.outbox) == 0 {
		return nil, 0, 0, nil
	}
	e := f.outbox[:min(n, len(f.outbox))]
	return e, e[0].Index, e[len(e)-1].Index, nil
}
func (f *fakeMeta) JournalClear(_ context.Context, through uint64) error {
	f.outbox = slices.DeleteFunc(f.outbox, func(e *metapb.JournalEntry) bool { return e.Index <= through })
	f.journaled = through
	return nil
}
func (f *fakeMeta) JournaledThrough() uint64 { return f.journaled }
