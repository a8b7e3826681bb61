package tiering

import (
	"context"
	"errors"
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
