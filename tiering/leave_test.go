package tiering

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"varve/broker/commitlog"
	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
	"varve/tiering/objstore"
)

// setTiered says in the topic's configs, and to the partition, whether it is tiered, as an altered config does.
func (w *world) setTiered(on bool) {
	w.t.Helper()
	topic, _ := w.meta.Image().TopicByID(w.part.id)
	value := fmt.Sprint(on)
	_, err := w.meta.Propose(w.ctx, &metapb.Command{Body: &metapb.Command_AlterTopicConfigs{AlterTopicConfigs: &metapb.AlterTopicConfigs{
		TopicId: w.part.id[:], ExpectVersion: topic.ConfigVersion, Changes: []*metapb.ConfigChange{{Key: "remote.storage.enable", Value: &value}},
	}}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.part.mu.Lock()
	w.part.cfg.Left, w.part.cfg.CopyDisable = !on, !on
	w.part.mu.Unlock()
	w.m.Lead(w.part)
}

// leave runs rounds until the partition has left the tier and its objects are gone. restart may be nil.
func (w *world) leave(restart func(error)) {
	w.t.Helper()
	for range 20 {
		w.clock.advance(5 * time.Minute)
		err := w.m.ClaimOwner(w.ctx)
		if w.pt() != nil {
			err = w.m.retainPart(w.ctx, w.pt())
		}
		if !crashed(err) {
			err = errors.Join(err, w.m.journalAll(w.ctx))
		}
		if !crashed(err) {
			err = errors.Join(err, w.m.collect(w.ctx))
		}
		if crashed(err) && restart != nil {
			restart(err)
			continue
		}
		if err != nil {
			w.t.Logf("leaving: %v", err)
		}
		rows, _, perr := w.meta.PendingSegments(metastore.Cursor{}, 10)
		if perr != nil {
			w.t.Fatal(perr)
		}
		if w.pt() == nil && len(rows) == 0 {
			return
		}
	}
	w.t.Fatal("does not leave")
}

// objects counts the segments in the bucket.
func (w *world) objects() (n int) {
	w.t.Helper()
	err := w.store.List(w.ctx, "", "", func(o objstore.ObjectInfo) bool {
		if _, err := ParseSegmentKey(o.Key); err == nil {
			n++
		}
		return true
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func localConfig() TierConfig {
	cfg := keepAll()
	cfg.LocalRetentionBytes = 4000
	return cfg
}

// hasLeft checks what must hold once the partition is out of the tier: its log starts with its first local offset, nothing is in
// the bucket, what is local reads.
func (w *world) hasLeft(settled int64) {
	w.t.Helper()
	st, err := w.meta.Tier(w.part.id, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	if st.Count != 0 || st.Bytes != 0 || st.End > st.LogStart || st.Settled != settled || w.part.log.LogStart() != w.part.log.LocalStart() {
		w.t.Fatalf("%+v, %d had settled, the log starts at %d, locally at %d", st, settled, w.part.log.LogStart(), w.part.log.LocalStart())
	}
	if n := w.objects(); n != 0 {
		w.t.Fatalf("%d objects are left", n)
	}
	w.check()
}

// TestOffAndOn: a topic leaves the tier with all that is there, and comes again with what is local from log start on.
func TestOffAndOn(t *testing.T) {
	w := newWorld(t, localConfig(), nil)
	w.start()
	defer w.stop()
	for range 2 {
		w.append(60, 0)
		w.settle()
		local, settled := w.part.log.LocalStart(), w.end()
		if local == w.part.log.LogStart() || settled <= local || w.objects() < 5 {
			t.Fatalf("%d objects, local start %d, tier's end %d: the test shows nothing", w.objects(), local, settled)
		}
		w.setTiered(false)
		w.append(10, 0)
		if err := w.m.retainPart(w.ctx, w.pt()); err != nil {
			t.Fatal(err)
		}
		if at := w.part.log.LogStart(); at != local || w.objects() == 0 {
			t.Fatalf("log start is %d, not %d; %d objects before the delay", at, local, w.objects())
		}
		w.leave(nil)
		w.hasLeft(settled)
		w.append(10, 0)
		w.setTiered(true)
		w.settle()
		if w.end() != w.sealedEnd() || w.end() <= settled {
			t.Fatalf("the tier ends at %d, %d is sealed", w.end(), w.sealedEnd())
		}
		w.check()
	}
}

// TestOnForOldTopic: a topic that was local for long goes up from log start on, which lies inside a segment.
func TestOnForOldTopic(t *testing.T) {
	w := newWorld(t, localConfig(), nil)
	w.append(60, 0)
	if err := w.part.log.SetLogStart(32); err != nil {
		t.Fatal(err)
	}
	w.start()
	defer w.stop()
	w.settle()
	if w.end() != w.sealedEnd() || w.part.log.LocalStart() == 0 {
		t.Fatalf("the tier ends at %d, %d is sealed, local start %d", w.end(), w.sealedEnd(), w.part.log.LocalStart())
	}
	w.check()
}

// TestBackBeforeGone: the topic comes back while it is still leaving, at any step. What was there and is not readable goes, what
// is readable comes.
func TestBackBeforeGone(t *testing.T) {
	for _, name := range []string{fpStartAdvance, fpStartApply, fpUploadRetire, fpSegsDelete, fpSegsDone, fpGCDelete, fpGCGone} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			armed := false
			w := newWorld(t, localConfig(), func(o *Options) {
				o.Failpoint = func(at string) error {
					if armed && at == name {
						armed = false
						return errors.New("crash")
					}
					return nil
				}
			})
			w.start()
			w.append(60, 0)
			w.settle()
			if name == fpUploadRetire {
				w.append(20, 0)
				w.hooks.finish = func() error { return protocol.Errorf(protocol.InvalidRequest, "for the test") }
				_ = w.round()
				w.hooks.finish = nil
			}
			w.setTiered(false)
			armed = true
			for range 5 {
				w.clock.advance(5 * time.Minute)
				if pt := w.pt(); pt == nil || !crashed(w.m.retainPart(w.ctx, pt)) {
					if !crashed(errors.Join(w.m.journalAll(w.ctx), w.m.collect(w.ctx))) {
						continue
					}
				}
				break
			}
			if armed {
				t.Fatalf("%s was not met", name)
			}
			w.stop()
			w.start()
			defer w.stop()
			w.setTiered(true)
			w.append(20, 0)
			w.settle()
			if w.end() != w.sealedEnd() {
				t.Fatalf("the tier ends at %d, %d is sealed", w.end(), w.sealedEnd())
			}
			w.check()
		})
	}
}

// TestCrashWhileLeaving ends the Manager at each step; the next one goes on with what is left.
func TestCrashWhileLeaving(t *testing.T) {
	for _, name := range []string{fpStartAdvance, fpStartApply, fpSegsDelete, fpSegsDone, fpGCDelete, fpGCGone, fpGCDone, fpJournalPut} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			armed := false
			w := newWorld(t, localConfig(), func(o *Options) {
				o.Failpoint = func(at string) error {
					if armed && at == name {
						armed = false
						return errors.New("crash")
					}
					return nil
				}
			})
			w.start()
			w.append(60, 0)
			w.settle()
			settled := w.end()
			w.setTiered(false)
			armed = true
			w.leave(func(error) {
				w.stop()
				w.newEpoch()
				w.start()
			})
			defer w.stop()
			if armed {
				t.Fatalf("%s was not met", name)
			}
			w.hasLeft(settled)
		})
	}
}

// TestOffWhileUploading: what is on its way when the topic leaves is refused, and its object goes.
func TestOffWhileUploading(t *testing.T) {
	w := newWorld(t, localConfig(), nil)
	off := false
	w.opts.Failpoint = func(name string) error {
		if name == fpUploadFinish && w.end() > 60 && !off {
			off = true
			w.setTiered(false)
		}
		return nil
	}
	w.start()
	defer w.stop()
	w.append(60, 0)
	pt := w.pt()
	var err error
	for range 5 {
		if _, err = w.m.uploadSome(w.ctx, &task{part: pt, cancel: func() {}}); err != nil {
			break
		}
	}
	if err == nil || !off {
		t.Fatalf("the upload was not refused: %v", err)
	}
	settled := w.end()
	w.leave(nil)
	w.hasLeft(settled)
}

// TestOffWhileFreeing: local segments that are about to be freed when the topic leaves stay: the tier's copies go.
func TestOffWhileFreeing(t *testing.T) {
	w := newWorld(t, localConfig(), nil)
	off := false
	w.opts.Failpoint = func(name string) error {
		if name == fpLocalFree && !off {
			off = true
			w.setTiered(false)
			return w.m.retainPart(w.ctx, w.pt())
		}
		return nil
	}
	w.start()
	defer w.stop()
	w.append(60, 0)
	for range 3 {
		if _, err := w.m.uploadSome(w.ctx, &task{part: w.pt(), cancel: func() {}}); err != nil || off {
			break
		}
	}
	if !off {
		t.Fatal("nothing was freed: the test shows nothing")
	}
	settled := w.end()
	if st := w.state(); settled < st.Settled {
		settled = st.Settled
	}
	w.leave(nil)
	w.hasLeft(settled)
}

// TestLeaveManySegments: more than one command may take, below log start and above it.
func TestLeaveManySegments(t *testing.T) {
	w := newWorld(t, keepAll(), nil)
	w.start()
	defer w.stop()
	const rows = 2*metastore.MaxSegmentIDs + 300
	for i := range int64(rows) {
		s := metastore.RemoteSegment{ID: protocol.NewUUID(), TopicID: w.part.id, Base: i, Next: i + 1, LogBytes: 1, ObjectBytes: 1,
			Location: "mem:#p", Broker: 1, Epochs: []metastore.EpochStart{{}}}
		err := w.meta.SegmentStart(w.ctx, s, 1)
		if err == nil {
			_, err = w.meta.SegmentFinish(w.ctx, s)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.part.log.StartFromTier(rows-metastore.MaxSegmentIDs-150, 0, []commitlog.EpochStart{{}}, nil); err != nil {
		t.Fatal(err)
	}
	w.setTiered(false)
	if err := w.m.retainPart(w.ctx, w.pt()); err != nil {
		t.Fatal(err)
	}
	st, err := w.meta.Tier(w.part.id, 0)
	if err != nil || st.Count != 0 || st.LogStart != rows-metastore.MaxSegmentIDs-150 || st.End != st.LogStart || st.Settled != rows {
		t.Fatalf("%+v %v", st, err)
	}
}

// TestNothingToLeave: a topic that never was tiered costs one look.
func TestNothingToLeave(t *testing.T) {
	w := newWorld(t, keepAll(), nil)
	w.start()
	defer w.stop()
	w.append(10, 0)
	w.setTiered(false)
	if err := w.m.retainPart(w.ctx, w.pt()); err != nil || w.pt() != nil {
		t.Fatalf("%+v: %v", w.pt(), err)
	}
	if calls := w.store.Calls(objstore.VerbPut) + w.store.Calls(objstore.VerbDelete); calls != 0 {
		t.Fatalf("%d requests", calls)
	}
}

// flipPart comes back to the tier right after its local start was looked at, and so does its config.
type flipPart struct {
	*testPart
	looks int
}

func (p *flipPart) TierConfig() TierConfig {
	cfg := p.testPart.TierConfig()
	p.looks++
	cfg.Left = p.looks < 3
	return cfg
}

// TestBackWhileLeavingBegins: a local start that rose because the topic is tiered again does not become the log start.
func TestBackWhileLeavingBegins(t *testing.T) {
	w := newWorld(t, localConfig(), nil)
	w.start()
	defer w.stop()
	w.append(60, 0)
	w.settle()
	if w.part.log.LocalStart() == 0 {
		t.Fatal("nothing was freed: the test shows nothing")
	}
	w.m.Lead(&flipPart{testPart: w.part}) // one look here, one at the begin of its retention
	if err := w.m.retainPart(w.ctx, w.pt()); err != nil {
		t.Fatal(err)
	}
	if st := w.state(); st.LogStart != 0 || w.part.log.LogStart() != 0 {
		t.Fatalf("log start %d, %d", st.LogStart, w.part.log.LogStart())
	}
}
