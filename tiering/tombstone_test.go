package tiering

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"varve/metastore"
	"varve/protocol"
	"varve/tiering/objstore"
)

// TestDeadlineByOneClock: how long the tombstone of a failed attempt stays counts from STARTED by the metastore's clock,
// whatever the writer's clock says and however long it took to read the segment before.
func TestDeadlineByOneClock(t *testing.T) {
	for name, skew := range map[string]time.Duration{"behind": -3 * time.Hour, "ahead": 3 * time.Hour, "equal": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w *world
			w = newWorld(t, keepAll(), func(o *Options) {
				o.Failpoint = func(at string) error {
					if at == fpUploadStart {
						w.clock.advance(5 * time.Minute) // the disk was slow
					}
					return nil
				}
			})
			w.opts.Now = func() time.Time { return w.clock.Now().Add(skew) }
			w.start()
			defer w.stop()
			w.append(40, 0)
			w.store.Add(objstore.Fault{Verb: objstore.VerbPut, Key: ".seg", Kind: objstore.FaultLostReply})
			if err := w.round(); !objstore.IsRetryable(err) {
				t.Fatalf("the upload ended with %v", err)
			}
			rows, _, err := w.meta.PendingSegments(metastore.Cursor{}, 10)
			if err != nil || len(rows) != 1 || !rows[0].NeverFinished {
				t.Fatalf("%+v: %v", rows, err)
			}
			if d := rows[0].DeadlineMs - rows[0].StateTimeMs; d != 2*testDeadlineMs {
				t.Errorf("the tombstone stays for %d ms after the attempt's start, not %d", d, 2*testDeadlineMs)
			}
		})
	}
}

// TestFreedMergeLeavesNoRow: what a merge that was given up had STARTED is retired when it ends at last.
func TestFreedMergeLeavesNoRow(t *testing.T) {
	var w *world
	var merge *task
	w = newMergeWorld(t, 40_000, func(o *Options) {
		o.Failpoint = func(at string) error {
			switch at {
			case fpMergeStart:
				w.m.mu.Lock()
				w.m.freeLocked(merge)
				w.m.mu.Unlock()
				if err := w.round(); err != nil { // looks for what was left
					t.Error(err)
				}
			case fpMergePut:
				return errors.New("given up")
			}
			return nil
		}
	})
	w.start()
	defer w.stop()
	w.trickle(20)
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	merge = &task{part: w.pt(), cancel: cancel, merge: true}
	w.m.mu.Lock()
	w.m.merging, merge.part.merge.task = merge, merge
	w.m.tasks[merge] = struct{}{}
	w.m.mu.Unlock()
	did, err := w.m.mergeOne(ctx, merge.part)
	w.m.finish(merge, did, err)
	if err == nil {
		t.Fatal("the merge went through")
	}
	if err := w.round(); err != nil {
		t.Fatal(err)
	}
	rows, err := w.meta.PendingOf(w.part.id, 0)
	if err != nil || len(rows) != 1 || rows[0].State == metastore.SegStarted {
		t.Errorf("%+v: %v", rows, err)
	}
	if w.pt().merge.id != (protocol.UUID{}) {
		t.Error("the merge's id is kept")
	}
}

// givingUp gives a merge up when it reads the last of so many sources.
type givingUp struct {
	objstore.Store
	sources int
	giveUp  func()
}

func (s *givingUp) Get(ctx context.Context, key string, off, length int64, cause string) (io.ReadCloser, error) {
	if cause == objstore.CauseMerge {
		if s.sources--; s.sources == 0 {
			s.giveUp()
		}
	}
	return s.Store.Get(context.WithoutCancel(ctx), key, off, length, cause)
}

// TestMergeFreedWhileReading: a merge that was given up while a store held it STARTs nothing when it goes on, and leaves no id
// behind that would be taken for one under way.
func TestMergeFreedWhileReading(t *testing.T) {
	w := newMergeWorld(t, 40_000, nil)
	w.start()
	w.trickle(20)
	w.stop()
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	var merge *task
	slow := &givingUp{Store: w.store, giveUp: func() {
		w.m.mu.Lock()
		defer w.m.mu.Unlock()
		cancel()
		w.m.freeLocked(merge)
	}}
	w.opts.Store = slow
	w.start()
	defer w.stop()
	merge = &task{part: w.pt(), cancel: cancel, merge: true}
	w.m.mu.Lock()
	w.m.merging, merge.part.merge.task = merge, merge
	w.m.tasks[merge] = struct{}{}
	w.m.mu.Unlock()
	f, err := w.m.findMerge(w.pt(), w.m.mergePolicy(w.part.cfg), 0)
	if slow.sources = len(f.old); err != nil || slow.sources < 8 {
		t.Fatalf("%d sources: %v", slow.sources, err)
	}
	did, err := w.m.mergeOne(ctx, merge.part)
	w.m.finish(merge, did, err)
	rows, perr := w.meta.PendingOf(w.part.id, 0)
	if !merge.freed || !errors.Is(err, context.Canceled) || perr != nil || len(rows) != 0 {
		t.Fatalf("freed %v: %v; %+v, %v", merge.freed, err, rows, perr)
	}
	if id := w.pt().merge.id; id != (protocol.UUID{}) {
		t.Errorf("the id of a merge that was given up is kept: %s", id)
	}
}
