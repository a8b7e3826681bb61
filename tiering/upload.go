package tiering

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	for range maxUploadsInTask {
		m.step(t, m.uploadDeadline()+metaDeadline)
		done, err := m.uploadNext(ctx, pt)
		if err != nil {
			return false, err
		}
		if done {
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

// uploadNext takes one segment through its life: STARTED, PUT, FINISHED. none:
// there is nothing to upload.
func (m *Manager) uploadNext(ctx context.Context, pt *part) (none bool, err error) {
	cfg := pt.TierConfig()
	if cfg.CopyDisable {
		return true, nil
	}
	if err := m.retire(ctx, pt); err != nil {
		return false, m.uploadFailed(pt, protocol.UUID{}, err)
	}
	u := &upload{m: m, pt: pt, epoch: pt.LeaderEpoch(), began: m.o.Now()}
	exp, err := u.export(ctx)
	if err != nil {
		return false, m.uploadFailed(pt, protocol.UUID{}, err)
	}
	if exp == nil {
		return true, nil
	}
	defer exp.Close()
	if err := u.encode(exp, cfg); err != nil {
		return false, m.uploadFailed(pt, protocol.UUID{}, err)
	}
	ctx, cancel := context.WithTimeout(ctx, m.uploadDeadline())
	defer cancel()
	if err := u.run(ctx); err != nil {
		m.setUnsure(pt)
		return false, m.uploadFailed(pt, u.row.ID, err)
	}
	return false, nil
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

func (m *Manager) setUnsure(pt *part) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pt.swept = false
}

// retire moves attempts that nobody works on any more to DELETE_STARTED: those of
// an earlier leader or life, and those of ours that ended without knowing how. One
// that got through to FINISHED after all is not among them. Once per leadership
// and after each failure.
func (m *Manager) retire(ctx context.Context, pt *part) error {
	m.mu.Lock()
	swept := pt.swept
	m.mu.Unlock()
	if swept {
		return nil
	}
	rows, err := m.o.Meta.PendingOf(pt.key.topic, pt.key.partition)
	if err != nil {
		return err
	}
	var ids []protocol.UUID
	for _, r := range rows {
		if r.State == metastore.SegStarted {
			ids = append(ids, r.ID)
		}
	}
	for batch := range slices.Chunk(ids, metastore.MaxSegmentIDs) {
		if err := m.fail(fpUploadRetire); err != nil {
			return err
		}
		if err := m.segmentsDelete(ctx, pt, pt.LeaderEpoch(), batch); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	pt.swept = true
	return nil
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
}

// export gets the next local range: from the tier's end on, which may lie inside a
// local segment, or from log start where that is above it.
func (u *upload) export(ctx context.Context) (*commitlog.Export, error) {
	st, err := u.m.o.Meta.Tier(u.pt.key.topic, u.pt.key.partition)
	if err != nil {
		return nil, err
	}
	log := u.pt.Log()
	if s := log.LogStart(); s > st.LogStart {
		// The gap below the new segment must be known to lie below log start.
		if err := u.m.advance(ctx, u.pt, u.epoch, s); err != nil {
			return nil, err
		}
		st.LogStart = s
	}
	u.start = st.LogStart
	from := max(st.End, st.LogStart)
	if local := log.LocalStart(); from < local {
		return nil, &protocol.InvariantError{What: fmt.Sprintf("%s-%d: the tier ends at %d, but the local log starts at %d",
			u.pt.name, u.pt.key.partition, from, local)}
	}
	return log.Export(from, u.pt.LastStable())
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
	enc, err := EncodeSegment(SegmentSource{
		Log: spanReader(exp.Log), LogBytes: exp.Log.Len, OffsetIndex: exp.OffsetIndex, TimeIndex: exp.TimeIndex,
		TxnIndex: exp.TxnIndex, ProducerSnapshot: exp.ProducerSnapshot, Epochs: exp.Epochs, Footer: footer,
	})
	u.row = metastore.RemoteSegment{
		ID: id, TopicID: k.topic, Partition: k.partition, Base: exp.Base, Next: exp.Next,
		FirstTimestamp: exp.FirstTimestamp, MaxTimestamp: exp.MaxTimestamp, LeaderEpoch: u.epoch,
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

// run takes the steps that can be seen from outside.
func (u *upload) run(ctx context.Context) error {
	m := u.m
	if err := m.fail(fpUploadStart); err != nil {
		return err
	}
	if err := m.o.Meta.SegmentStart(ctx, u.row, m.o.BrokerID); err != nil {
		return err
	}
	if err := m.fail(fpUploadPut); err != nil {
		return err
	}
	_, err := m.o.Store.Put(ctx, m.rowKey(u.row), objstore.Body{ReaderAt: u.enc, Size: u.enc.Size},
		objstore.PutOptions{CRC32C: &u.enc.CRC32C, Cause: "upload"})
	if err != nil {
		return u.abandon(ctx, err)
	}
	if err := m.fail(fpUploadFinish); err != nil {
		return err
	}
	state, err := u.finish(ctx)
	if err != nil {
		return err
	}
	if state != metastore.SegFinished {
		return fmt.Errorf("tiering: segment [%d, %d) was refused and is now %v", u.row.Base, u.row.Next, state)
	}
	m.o.Events.Emit(SegmentUploaded{
		Topic: u.pt.name, Partition: u.pt.key.partition, ID: u.row.ID, Base: u.row.Base, Next: u.row.Next,
		Bytes: u.row.ObjectBytes, TookMs: m.o.Now().Sub(u.began).Milliseconds(),
	})
	return m.fail(fpUploadDone)
}

// abandon gives a failed attempt up. Its object may be there nevertheless, now or
// later: only DELETE_STARTED permits to delete it.
func (u *upload) abandon(ctx context.Context, cause error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return cause // the process or the leadership ends: the next leader retires it
	}
	if err := u.m.fail(fpUploadAbandon); err != nil {
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
		state, err = u.m.o.Meta.SegmentFinish(ctx, u.row)
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
