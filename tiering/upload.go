package tiering

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"varve/broker/commitlog"
	"varve/metastore"
	"varve/protocol"
	"varve/tiering/objstore"
	"varve/tiering/tierpb"
)

// Retries of FINISHED, whose reply may be lost: the command may be repeated.
const (
	maxFinishTries   = 10
	finishBackoff    = 100 * time.Millisecond
	maxFinishBackoff = 5 * time.Second
)

// uploadSome uploads what is due of one partition, oldest first. more: there may
// be further segments, it is others' turn.
func (m *Manager) uploadSome(ctx context.Context, t *task) (more bool, err error) {
	pt := t.part
	if t.trial {
		if err := m.tryStore(ctx); err != nil {
			return false, err
		}
	}
	if err := m.retire(ctx, pt); err != nil {
		return false, m.uploadFailed(pt, protocol.UUID{}, err)
	}
	if pt.TierConfig().CopyDisable {
		return false, nil
	}
	l := &line{m: m, t: t, pt: pt, left: maxUploadsInTask}
	defer l.stop()
	l.ctx, l.cancel = context.WithCancel(ctx)
	for range maxUploadsInTask {
		m.step(t, m.uploadDeadline()+metaDeadline)
		u, err := l.next()
		if err != nil {
			m.doubt(pt)
			id := protocol.UUID{}
			if u != nil {
				id = u.row.ID
			}
			return false, m.uploadFailed(pt, id, err)
		}
		if u == nil {
			return false, nil
		}
		if err := m.retainLocal(pt); err != nil {
			return true, err
		}
	}
	return true, nil
}

func (m *Manager) uploadDeadline() time.Duration {
	return time.Duration(m.o.UploadDeadlineMs) * time.Millisecond
}

// maxInLine is how many segments of one partition may be on their way at a time.
const maxInLine = 4

// line is what of one partition is on its way. Where there is a backlog and nobody
// waits for the slots, several segments are stored side by side; FINISHED comes in the
// order of their offsets. When one fails, what follows it fails too: the metastore
// would refuse it.
type line struct {
	m      *Manager
	t      *task
	pt     *part
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	under  []*upload // under way, the oldest first
	from   int64     // where the next one begins, -1: at the tier's end
	left   int       // how many may still begin
}

// next takes the oldest segment through to FINISHED and returns it; nil when there is
// none. With an error it is the one that failed, if it had come into being.
func (l *line) next() (*upload, error) {
	if err := l.fill(); err != nil || len(l.under) == 0 {
		return nil, err
	}
	u := l.under[0]
	<-u.done
	l.under = l.under[1:]
	if len(l.under) > 0 {
		l.m.returnSlot(l.t)
	}
	err := u.err
	if err == nil {
		err = u.conclude(l.ctx)
	}
	return u, err
}

// fill starts what may be under way at once.
func (l *line) fill() error {
	for len(l.under) < maxInLine && l.left > 0 {
		extra := len(l.under) > 0
		if !extra {
			l.from = -1
		} else if !l.m.takeSlot(l.t) {
			return nil
		}
		u, exp, err := l.export()
		if extra && (err != nil || u == nil) {
			l.m.returnSlot(l.t)
			return nil // an error will come again when it is first in line
		}
		if err != nil || u == nil {
			return err
		}
		l.under, l.from, l.left = append(l.under, u), exp.Next, l.left-1
		l.wg.Go(func() {
			defer close(u.done)
			defer exp.Close()
			u.err = u.store(l.ctx, exp)
		})
	}
	return nil
}

// export begins the next upload, if there is something to upload.
func (l *line) export() (*upload, *commitlog.Export, error) {
	u := &upload{m: l.m, pt: l.pt, epoch: l.pt.LeaderEpoch(), began: l.m.o.Now(), done: make(chan struct{})}
	exp, err := u.export(l.ctx, l.from)
	if err != nil || exp == nil {
		return nil, nil, err
	}
	return u, exp, nil
}

// stop ends what is under way and waits for it.
func (l *line) stop() {
	l.cancel()
	l.wg.Wait()
	if len(l.under) > 0 {
		l.m.doubt(l.pt)
	}
	for range len(l.under) - 1 {
		l.m.returnSlot(l.t)
	}
}

// uploadFailed tells of a failure that is one: not the end of a leadership or of the
// process.
func (m *Manager) uploadFailed(pt *part, id protocol.UUID, err error) error {
	var crash *crashError
	if errors.Is(err, context.Canceled) || errors.As(err, &crash) {
		return err
	}
	m.o.Events.Emit(UploadFailed{Topic: pt.name, Partition: pt.key.partition, ID: id, Err: err})
	return err
}

// doubt says that an attempt of unknown outcome may be in STARTED.
func (m *Manager) doubt(pt *part) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pt.doubts++
}

// retire moves attempts that nobody works on any more to DELETE_STARTED: those of
// an earlier leader or life, and those of ours that ended without knowing how. One
// that got through to FINISHED after all is not among them. Once per leadership
// and after each failure.
func (m *Manager) retire(ctx context.Context, pt *part) error {
	m.mu.Lock()
	doubts := pt.doubts
	done := pt.swept == doubts
	merging := pt.merge.id // has a task of its own
	m.mu.Unlock()
	if done {
		return nil
	}
	abandoned, err := m.retireOnce(ctx, pt, merging)
	for range maxRetires {
		// One of them was FINISHED between the reading and the writing, by a task of ours that has not ended yet.
		if protocol.CodeOf(err) != protocol.InvalidRequest {
			break
		}
		abandoned, err = m.retireOnce(ctx, pt, merging)
	}
	if err != nil {
		return err
	}
	if abandoned >= maxAbandoned {
		return fmt.Errorf("tiering: %d failed uploads still have to be deleted, there are no new ones until then", abandoned)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	pt.swept = doubts // a doubt that came meanwhile stays
	return nil
}

// maxRetires is how often retire looks again.
const maxRetires = 3

// retireOnce returns how many failed attempts of the partition have to be deleted.
func (m *Manager) retireOnce(ctx context.Context, pt *part, merging protocol.UUID) (abandoned int, err error) {
	rows, err := m.o.Meta.PendingOf(pt.key.topic, pt.key.partition)
	if err != nil {
		return 0, err
	}
	var ids []protocol.UUID
	for _, r := range rows {
		switch {
		case r.State == metastore.SegStarted && r.ID != merging:
			ids = append(ids, r.ID)
		case r.NeverFinished:
			abandoned++
		}
	}
	for batch := range slices.Chunk(ids, metastore.MaxSegmentIDs) {
		if err := m.fail(fpUploadRetire); err != nil {
			return 0, err
		}
		if err := m.segmentsDelete(ctx, pt, pt.LeaderEpoch(), batch); err != nil {
			return 0, err
		}
	}
	return abandoned + len(ids), nil
}

func (m *Manager) segmentsDelete(ctx context.Context, pt *part, epoch int32, ids []protocol.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, metaDeadline)
	defer cancel()
	return m.o.Meta.SegmentsDelete(ctx, pt.key.topic, pt.key.partition, epoch, ids)
}

// upload is one attempt.
type upload struct {
	m     *Manager
	pt    *part
	epoch int32
	began time.Time
	start int64 // log start in the metastore
	row   metastore.RemoteSegment
	enc   *EncodedSegment
	old   []metastore.RemoteSegment // what it is to replace; nil for an upload
	done  chan struct{}             // closed when store has ended, with err
	err   error
}

// export gets the next local range: from the tier's end on, which may lie inside a
// local segment, or from log start where that is above it. With from >= 0 it is the
// range after one that is under way.
func (u *upload) export(ctx context.Context, from int64) (*commitlog.Export, error) {
	st, err := u.m.o.Meta.Tier(u.pt.key.topic, u.pt.key.partition)
	if err != nil {
		return nil, err
	}
	log := u.pt.Log()
	if from < 0 {
		if s := log.LogStart(); s > st.LogStart {
			// The gap below the new segment must be known to lie below log start.
			if err := u.m.advance(ctx, u.pt, u.epoch, s); err != nil {
				return nil, err
			}
			st.LogStart = s
		}
		from = max(st.End, st.LogStart)
		if local := log.LocalStart(); from < local {
			return nil, &protocol.InvariantError{What: fmt.Sprintf("%s-%d: the tier ends at %d, but the local log starts at %d",
				u.pt.name, u.pt.key.partition, from, local)}
		}
	} else if log.LogStart() > from {
		return nil, nil // where it begins is known once the others are FINISHED
	}
	u.start = st.LogStart
	if cfg := u.pt.TierConfig(); cfg.CopyDisable || !u.due(cfg, log.Segments(), from) {
		return nil, nil
	}
	return log.Export(from, u.pt.LastStable())
}

// due says whether the segment that holds from may be uploaded now.
func (u *upload) due(cfg TierConfig, segs []commitlog.SegmentInfo, from int64) bool {
	after := bytesFrom(segs)
	for _, s := range segs {
		if after -= s.SizeBytes; s.Next > from {
			return s.Sealed && cfg.copyDue(s, after, u.began.UnixMilli())
		}
	}
	return false
}

// encode reads and checks the segment and prepares object and row.
func (u *upload) encode(exp *commitlog.Export, cfg TierConfig) error {
	m, k := u.m, u.pt.key
	id := protocol.NewUUID()
	now := u.began.UnixMilli()
	footer := &tierpb.Footer{
		ClusterId: m.o.ClusterID, Topic: u.pt.name, TopicId: k.topic[:], Partition: k.partition, SegmentId: id[:],
		Base: exp.Base, Next: exp.Next, LogStart: u.start, FirstTimestamp: exp.FirstTimestamp, MaxTimestamp: exp.MaxTimestamp,
		LeaderEpoch: u.epoch, Configs: sortedConfigs(cfg.Configs),
		Writer: &tierpb.Writer{BrokerId: m.o.BrokerID, WrittenMs: now},
	}
	for _, r := range u.old {
		footer.Generation = max(footer.Generation, r.Generation+1)
		footer.Replaces = append(footer.Replaces, r.ID[:])
	}
	enc, err := EncodeSegment(SegmentSource{
		Log: spanReader(exp.Log), LogBytes: exp.Log.Len, OffsetIndex: exp.OffsetIndex, TimeIndex: exp.TimeIndex,
		TxnIndex: exp.TxnIndex, ProducerSnapshot: exp.ProducerSnapshot, Epochs: exp.Epochs, Footer: footer,
	})
	u.row = metastore.RemoteSegment{
		ID: id, TopicID: k.topic, Partition: k.partition, Base: exp.Base, Next: exp.Next,
		FirstTimestamp: exp.FirstTimestamp, MaxTimestamp: exp.MaxTimestamp, LeaderEpoch: u.epoch, Generation: footer.Generation,
		State: metastore.SegStarted, Location: m.location, HasTxns: len(exp.TxnIndex) > 0, Broker: m.o.BrokerID,
		StartTimeMs: now,
		// The PUT is cancelled at half of this; the other half is for a store that
		// finishes a request which its client has given up.
		DeadlineMs: now + 2*m.o.UploadDeadlineMs,
		Epochs:     lineage(exp.Epochs, exp.Base, exp.Next),
	}
	if err != nil {
		m.alarm(u.row, err)
		return err
	}
	u.enc = enc
	u.row.ObjectBytes, u.row.LogBytes = enc.Size, enc.IndexOff
	u.row.IndexOff, u.row.IndexLen = enc.IndexOff, int32(enc.IndexLen())
	return nil
}

// store makes the object: encoded, STARTED, PUT.
func (u *upload) store(ctx context.Context, exp *commitlog.Export) error {
	if err := u.encode(exp, u.pt.TierConfig()); err != nil {
		return err
	}
	return u.put(ctx)
}

// steps are the failpoints of an attempt.
type steps struct{ start, put, finish, abandon, done string }

var (
	uploadSteps = steps{fpUploadStart, fpUploadPut, fpUploadFinish, fpUploadAbandon, fpUploadDone}
	mergeSteps  = steps{fpMergeStart, fpMergePut, fpMergeReplace, fpMergeAbandon, fpMergeDone}
)

func (u *upload) steps() steps {
	if u.old != nil {
		return mergeSteps
	}
	return uploadSteps
}

// put takes the steps that can be seen from outside, up to the object.
func (u *upload) put(ctx context.Context) error {
	m := u.m
	ctx, cancel := context.WithTimeout(ctx, m.uploadDeadline())
	defer cancel()
	if err := m.fail(u.steps().start); err != nil {
		return err
	}
	if err := m.o.Meta.SegmentStart(ctx, u.row, m.o.BrokerID); err != nil {
		return err
	}
	if err := m.fail(u.steps().put); err != nil {
		return err
	}
	cause := "upload"
	if u.old != nil {
		cause = objstore.CauseMerge
	}
	_, err := m.o.Store.Put(ctx, m.rowKey(u.row), objstore.Body{ReaderAt: u.enc, Size: u.enc.Size},
		objstore.PutOptions{CRC32C: &u.enc.CRC32C, Cause: cause})
	m.putEnded(err)
	if err != nil {
		return u.abandon(ctx, err)
	}
	return nil
}

// conclude makes the segment readable, in place of the old ones if there are any.
func (u *upload) conclude(ctx context.Context) error {
	m := u.m
	ctx, cancel := context.WithTimeout(ctx, metaDeadline)
	defer cancel()
	if err := m.fail(u.steps().finish); err != nil {
		return err
	}
	state, err := u.finish(ctx)
	if err != nil {
		return err
	}
	if state != metastore.SegFinished {
		return fmt.Errorf("tiering: segment [%d, %d) was refused and is now %v", u.row.Base, u.row.Next, state)
	}
	took := m.o.Now().Sub(u.began).Milliseconds()
	if u.old != nil {
		m.o.Events.Emit(SegmentsMerged{
			Topic: u.pt.name, Partition: u.pt.key.partition, ID: u.row.ID, Base: u.row.Base, Next: u.row.Next,
			Sources: len(u.old), Generation: u.row.Generation, Bytes: u.row.ObjectBytes, TookMs: took,
		})
	} else {
		m.o.Events.Emit(SegmentUploaded{
			Topic: u.pt.name, Partition: u.pt.key.partition, ID: u.row.ID, Base: u.row.Base, Next: u.row.Next,
			Bytes: u.row.ObjectBytes, TookMs: took,
		})
	}
	m.mu.Lock()
	u.pt.merge.look = true
	m.mu.Unlock()
	return m.fail(u.steps().done)
}

// abandon gives a failed attempt up. Its object may be there nevertheless, now or
// later: only DELETE_STARTED permits to delete it.
func (u *upload) abandon(ctx context.Context, cause error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return cause // the process or the leadership ends: the next leader retires it
	}
	if err := u.m.fail(u.steps().abandon); err != nil {
		return err
	}
	// The attempt's own deadline may be what ended it.
	if err := u.m.segmentsDelete(context.WithoutCancel(ctx), u.pt, u.epoch, []protocol.UUID{u.row.ID}); err != nil {
		return errors.Join(cause, err)
	}
	return cause
}

// finish makes the segment readable. An unknown outcome is asked for again; what
// remains unknown is left to retire.
func (u *upload) finish(ctx context.Context) (state metastore.SegmentState, err error) {
	wait := finishBackoff
	for range maxFinishTries {
		state, err = u.commit(ctx)
		if err == nil || !mayPass(err) {
			return state, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return state, errors.Join(err, ctx.Err())
		}
		wait = min(2*wait, maxFinishBackoff)
	}
	return state, err
}

func (u *upload) commit(ctx context.Context) (metastore.SegmentState, error) {
	if u.old != nil {
		return u.m.o.Meta.SegmentReplace(ctx, idsOf(u.old), u.row)
	}
	return u.m.o.Meta.SegmentFinish(ctx, u.row)
}

func idsOf(rows []metastore.RemoteSegment) []protocol.UUID {
	ids := make([]protocol.UUID, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	return ids
}

// mayPass tells errors of the metastore that a repetition may cure from refusals.
func mayPass(err error) bool {
	switch c := protocol.CodeOf(err); c {
	case protocol.UnknownServerError, protocol.ThrottlingQuotaExceeded:
		return true
	default:
		return c.Retriable()
	}
}

// lineage cuts the epochs that cover [base, next) out of a log's.
func lineage(epochs []commitlog.EpochStart, base, next int64) []metastore.EpochStart {
	var out []metastore.EpochStart
	for _, e := range epochs {
		if e.Start >= next {
			break
		}
		if e.Start <= base {
			out = out[:0]
		}
		out = append(out, metastore.EpochStart{Epoch: e.Epoch, Start: e.Start})
	}
	return out
}

func sortedConfigs(configs map[string]string) []*tierpb.Config {
	out := make([]*tierpb.Config, 0, len(configs))
	for k, v := range configs {
		out = append(out, &tierpb.Config{Name: k, Value: v})
	}
	slices.SortFunc(out, func(a, b *tierpb.Config) int { return strings.Compare(a.Name, b.Name) })
	return out
}
