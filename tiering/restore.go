package tiering

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
	"varve/tiering/objstore"
)

// RestoreRequest asks for another cluster's topics.
type RestoreRequest struct {
	Source   string // cluster id; "" when the bucket leaves no choice
	ToMs     int64  // point in time; 0 = the newest
	Topics   string // pattern of names (path.Match); "" = all
	Salvage  bool   // from the segments alone: meta/ is lost
	TakeOver bool   // even from a cluster that has itself restored the source
}

// RestoreStatus is how a restore stands.
type RestoreStatus struct {
	ID         string         `json:"id,omitempty"` // "" when none is under way
	Source     string         `json:"source,omitempty"`
	Phase      string         `json:"phase,omitempty"` // claim, import, groups, publish, snapshot or abort
	StartedMs  int64          `json:"startedMs,omitempty"`
	Partitions int64          `json:"partitions"` // looked at in this phase
	Segments   int64          `json:"segments"`
	Bytes      int64          `json:"bytes"`               // of their logs
	Problem    string         `json:"problem,omitempty"`   // why it does not go on
	Permanent  bool           `json:"permanent,omitempty"` // trying again does not help: abort it
	Report     *RestoreReport `json:"report,omitempty"`    // of the restore that was asked about, when it is over
	Held       []string       `json:"held"`                // restored topics whose retention waits to be released
}

// Bounds of a restore.
const (
	restorePartitions = 8 // worked on at once
	restoreRetryMin   = time.Second
	restoreRetryMax   = time.Minute
	wipeRows          = 4000
	maxReportBytes    = 256 << 20
	putOffsetsAtOnce  = 1000
)

// restoreJob is what this process knows of the restore that the metastore has.
type restoreJob struct {
	wake       chan struct{}
	partitions atomic.Int64
	segments   atomic.Int64
	bytes      atomic.Int64

	mu      sync.Mutex
	skip    map[uint64]string // snapshots that turned out to be damaged
	skipOf  protocol.UUID     // the restore that found that
	problem error
}

// phaseName is a phase as people see it.
func phaseName(p metapb.RestorePhase) string {
	return strings.ToLower(strings.TrimPrefix(p.String(), "RESTORE_"))
}

// StartRestore makes the cluster begin to take in what the folder of another cluster in its bucket holds, and returns the restore's id.
// The work is done by the controller's Run, across restarts.
//
// Errors: *NoSourceError, *OwnerError; NotController; those of the store; InvalidRequest while another restore is under way.
func (m *Manager) StartRestore(ctx context.Context, req RestoreRequest) (id protocol.UUID, err error) {
	if m.o.State == nil || !m.o.Meta.IsController() {
		return id, protocol.Errorf(protocol.NotController, "this broker is not the controller: ask broker %d", m.o.Meta.Image().Controller())
	}
	if _, err := path.Match(req.Topics, ""); err != nil {
		return id, protocol.Errorf(protocol.InvalidRequest, "pattern %q of topic names: %v", req.Topics, err)
	}
	source, err := PickCluster(ctx, m.o.Store, m.o.Prefix, req.Source, m.o.ClusterID, req.TakeOver)
	if err != nil {
		return id, err
	}
	id = protocol.NewUUID()
	row := &metapb.RestoreRow{Id: id[:], Source: source, ToMs: req.ToMs, Topics: req.Topics, Salvage: req.Salvage}
	_, err = m.o.State.ProposeRestore(ctx, &metapb.RestoreCommand{RestoreId: id[:], Body: &metapb.RestoreCommand_Begin{Begin: &metapb.RestoreBegin{Row: row}}})
	m.wakeRestore()
	return id, err
}

// AbortRestore makes the cluster forget a restore of which nothing is visible yet.
//
// Errors: InvalidRequest when there is none, or topics are visible already; NotController.
func (m *Manager) AbortRestore(ctx context.Context) error {
	if m.o.State == nil {
		return protocol.Errorf(protocol.NotController, "this broker has no metadata")
	}
	r := m.o.Meta.Image().Restore()
	if r == nil {
		return protocol.Errorf(protocol.InvalidRequest, "no restore is under way")
	}
	err := m.restoreAdvance(ctx, r.ID, &metapb.RestoreAdvance{Next: metapb.RestorePhase_RESTORE_ABORT})
	m.wakeRestore()
	return err
}

// ReleaseRestored lets retention act again on restored topics whose names match the pattern ("" = all), and returns their names.
func (m *Manager) ReleaseRestored(ctx context.Context, pattern string) (names []string, err error) {
	names = []string{}
	if _, err := path.Match(pattern, ""); err != nil {
		return names, protocol.Errorf(protocol.InvalidRequest, "pattern %q of topic names: %v", pattern, err)
	}
	var ids [][]byte
	for t := range m.o.Meta.Image().Topics() {
		if t.Held && matches(pattern, t.Name) {
			names, ids = append(names, t.Name), append(ids, t.ID[:])
		}
	}
	for some := range slices.Chunk(ids, maxReleaseAtOnce) {
		c := &metapb.RestoreCommand{Body: &metapb.RestoreCommand_Release{Release: &metapb.ReleaseTopics{TopicIds: some}}}
		if _, err := m.o.State.ProposeRestore(ctx, c); err != nil {
			return names, err
		}
	}
	return names, nil
}

const maxReleaseAtOnce = 1000

// RestoreStatus tells how the restore with this id stands, or the one under way when id is "".
func (m *Manager) RestoreStatus(ctx context.Context, id string) (st RestoreStatus, err error) {
	img := m.o.Meta.Image()
	st.Held = []string{}
	for t := range img.Topics() {
		if t.Held {
			st.Held = append(st.Held, t.Name)
		}
	}
	if r := img.Restore(); r != nil && (id == "" || r.ID.String() == id) {
		st.ID, st.Source, st.Phase, st.StartedMs = r.ID.String(), r.Source, phaseName(r.Phase), r.StartedMs
		st.Partitions, st.Segments, st.Bytes = m.job.partitions.Load(), m.job.segments.Load(), m.job.bytes.Load()
		m.job.mu.Lock()
		defer m.job.mu.Unlock()
		if p := m.job.problem; p != nil {
			st.Problem, st.Permanent = p.Error(), permanent(p)
		}
		return st, nil
	}
	if id == "" {
		return st, nil
	}
	b, err := getWhole(ctx, m.o.Store, m.reportKey(id), maxReportBytes, "restore")
	if errors.Is(err, objstore.ErrNotFound) {
		return st, nil // it was aborted
	}
	if err != nil {
		return st, err
	}
	st.Report = &RestoreReport{}
	return st, json.Unmarshal(b, st.Report)
}

func (m *Manager) reportKey(id string) string {
	return path.Join(m.o.Prefix, m.o.ClusterID, "meta", "restore", id+".json")
}

// permanent tells errors that trying again does not cure.
func permanent(err error) bool {
	var none *NoSourceError
	var owner *OwnerError
	return errors.As(err, &none) || errors.As(err, &owner) || isCorrupt(err) ||
		protocol.CodeOf(err) == protocol.TopicAlreadyExists || errors.Is(err, objstore.ErrForbidden)
}

func (m *Manager) wakeRestore() {
	select {
	case m.job.wake <- struct{}{}:
	default:
	}
}

// restores works off the restore that the metastore has, for as long as ctx lives.
func (m *Manager) restores(ctx context.Context) {
	if m.o.State == nil {
		return
	}
	again := restoreRetryMin
	for {
		wait := m.taskInterval()
		if m.o.Meta.IsController() && m.o.Meta.Image().Restore() != nil && ctx.Err() == nil {
			err := m.restoreAll(ctx)
			m.restoreFailed(err)
			if wait = again; err == nil {
				again, wait = restoreRetryMin, 0
			} else {
				again = min(2*again, restoreRetryMax)
			}
		}
		select {
		case <-m.job.wake:
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

func (m *Manager) restoreFailed(err error) {
	m.job.mu.Lock()
	changed := err != nil && (m.job.problem == nil || m.job.problem.Error() != err.Error())
	m.job.problem = err
	m.job.mu.Unlock()
	m.note(&m.restoreErr, err)
	r := m.o.Meta.Image().Restore()
	var crash *crashError
	if changed && r != nil && !errors.Is(err, context.Canceled) && !errors.As(err, &crash) {
		m.o.Events.Emit(RestoreFailed{Source: r.Source, Err: err, Again: !permanent(err)})
	}
}

// restoreAll takes the restore from the phase that it is in to its end.
func (m *Manager) restoreAll(ctx context.Context) error {
	for ctx.Err() == nil {
		r := m.o.Meta.Image().Restore()
		if r == nil {
			return nil
		}
		if err := m.fail(fpRestorePhase + phaseName(r.Phase)); err != nil {
			return err
		}
		var err error
		switch r.Phase {
		case metapb.RestorePhase_RESTORE_CLAIM:
			err = m.restoreClaim(ctx)
		case metapb.RestorePhase_RESTORE_IMPORT, metapb.RestorePhase_RESTORE_GROUPS:
			err = m.restoreImport(ctx)
		case metapb.RestorePhase_RESTORE_PUBLISH:
			err = m.restorePublish(ctx)
		case metapb.RestorePhase_RESTORE_SNAPSHOT:
			err = m.restoreEnd(ctx)
		default:
			err = m.restoreDrop(ctx)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (m *Manager) restoreAdvance(ctx context.Context, id protocol.UUID, a *metapb.RestoreAdvance) error {
	_, err := m.o.State.ProposeRestore(ctx, &metapb.RestoreCommand{RestoreId: id[:], Body: &metapb.RestoreCommand_Advance{Advance: a}})
	if r := m.o.Meta.Image().Restore(); err == nil && r != nil {
		m.o.Events.Emit(RestoreMoved{Source: r.Source, Phase: a.Next})
	}
	return err
}

// source is where the restore under way reads from.
func (m *Manager) source() (bucketReader, *RestoreReport) {
	r := m.o.Meta.Image().Restore()
	rep := newRestoreReport(r.Source)
	rep.ID, rep.Cluster, rep.Salvage = r.ID.String(), m.o.ClusterID, r.Salvage
	m.job.mu.Lock()
	defer m.job.mu.Unlock()
	if m.job.skipOf != r.ID {
		m.job.skip, m.job.skipOf = nil, r.ID
	}
	return newBucketReader(m.o.Store, m.o.Prefix, r.Source, m.o.CacheDir, RestoreRequest{ToMs: r.ToMs, Topics: r.Topics, Salvage: r.Salvage}, maps.Clone(m.job.skip), rep), rep
}

// restoreClaim takes the source's folder over, and those that it had taken over, and waits until no delete of an owner before can be
// on its way.
func (m *Manager) restoreClaim(ctx context.Context) error {
	r := m.o.Meta.Image().Restore()
	src, _ := m.source()
	defer src.free()
	if err := src.open(ctx); err != nil {
		return m.skipDamaged(err)
	}
	chain, err := src.claims(ctx)
	if err != nil {
		return m.skipDamaged(err)
	}
	var claims []*metapb.OwnerClaim
	var wait time.Duration
	for _, cluster := range append([]string{r.Source}, chain...) {
		if cluster == m.o.ClusterID {
			continue
		}
		if err := m.fail(fpRestoreClaim); err != nil {
			return err
		}
		epoch, w, err := takeOver(ctx, m.o.Store, m.o.Prefix, cluster, m.o.ClusterID)
		if err != nil {
			return err
		}
		claims, wait = append(claims, &metapb.OwnerClaim{ClusterId: cluster, Epoch: epoch}), max(wait, w)
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return ctx.Err()
	}
	return m.restoreAdvance(ctx, r.ID, &metapb.RestoreAdvance{Next: metapb.RestorePhase_RESTORE_IMPORT, Claims: claims})
}

// skipDamaged notes a snapshot that cannot be used, so that the next try begins with the one before it. Where none is left they are all
// looked at again: bytes can also turn on their way.
func (m *Manager) skipDamaged(err error) error {
	m.job.mu.Lock()
	defer m.job.mu.Unlock()
	var none *NoSourceError
	if errors.As(err, &none) {
		m.job.skip = nil
	}
	var bad *snapFailed
	if !errors.As(err, &bad) {
		return err
	}
	if m.job.skip == nil {
		m.job.skip = map[uint64]string{}
	}
	m.job.skip[bad.index] = bad.err.Error()
	return &objstore.RetryableError{Err: fmt.Errorf("%w: going on with an older one", err)}
}

// restoreImport fills the hidden topics, beginning again from nothing, and then stores the group offsets. In phase GROUPS the topics are
// whole, and only looked at.
func (m *Manager) restoreImport(ctx context.Context) error {
	r := m.o.Meta.Image().Restore()
	fill := r.Phase == metapb.RestorePhase_RESTORE_IMPORT
	if fill {
		if err := m.wipe(ctx, r.ID); err != nil {
			return err
		}
	}
	m.job.partitions.Store(0)
	m.job.segments.Store(0)
	m.job.bytes.Store(0)
	src, rep := m.source()
	defer src.free()
	if err := src.open(ctx); err != nil {
		return m.skipDamaged(err)
	}
	sink := &importSink{m: m, id: r.ID, rep: rep, fill: fill}
	if err := src.run(ctx, sink, restorePartitions); err != nil {
		return m.skipDamaged(err)
	}
	src.close()
	if err := sink.whole(ctx, src, r.Topics == ""); err != nil {
		return err
	}
	if err := m.putReport(ctx, rep); err != nil {
		return err
	}
	return m.restoreAdvance(ctx, r.ID, &metapb.RestoreAdvance{Next: metapb.RestorePhase_RESTORE_PUBLISH})
}

func (m *Manager) putReport(ctx context.Context, rep *RestoreReport) error {
	if err := m.fail(fpRestoreReport); err != nil {
		return err
	}
	b, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		return err
	}
	_, err = m.o.Store.Put(ctx, m.reportKey(rep.ID), objstore.BytesBody(b), objstore.PutOptions{Cause: "restore"})
	return err
}

func (m *Manager) wipe(ctx context.Context, id protocol.UUID) error {
	for {
		if err := m.fail(fpRestoreWipe); err != nil {
			return err
		}
		res, err := m.o.State.ProposeRestore(ctx, &metapb.RestoreCommand{RestoreId: id[:], Body: &metapb.RestoreCommand_Wipe{Wipe: &metapb.RestoreWipe{MaxRows: wipeRows}}})
		if err != nil || !res.More {
			return err
		}
	}
}

// restorePublish makes the topics visible, one by one.
func (m *Manager) restorePublish(ctx context.Context) error {
	img := m.o.Meta.Image()
	r := img.Restore()
	for t := range img.RestoringTopics() {
		if err := m.fail(fpRestorePublish); err != nil {
			return err
		}
		if err := m.o.Publish(ctx, t); err != nil {
			return err
		}
	}
	return m.restoreAdvance(ctx, r.ID, &metapb.RestoreAdvance{Next: metapb.RestorePhase_RESTORE_SNAPSHOT})
}

// restoreEnd writes this cluster's own snapshot. Until it is there nothing is deleted, and the restore is not over.
func (m *Manager) restoreEnd(ctx context.Context) error {
	img := m.o.Meta.Image()
	r := img.Restore()
	if img.SnapshotIndex() < img.RestoredIndex() {
		done, err := m.snapshotOnce(ctx)
		if err != nil {
			return err
		}
		if !done {
			return &objstore.RetryableError{Err: errors.New("tiering: the own folder in the bucket is not claimed yet")}
		}
	}
	if err := m.fail(fpRestoreEnd); err != nil {
		return err
	}
	_, err := m.o.State.ProposeRestore(ctx, &metapb.RestoreCommand{RestoreId: r.ID[:], Body: &metapb.RestoreCommand_End{End: &metapb.RestoreEnd{}}})
	if err == nil {
		m.o.Events.Emit(m.restoreEnded(ctx, r))
	}
	return err
}

// restoreEnded tells what came back, by the report: the phases before may have been another process's.
func (m *Manager) restoreEnded(ctx context.Context, r *metastore.RestoreState) *RestoreEnded {
	e := &RestoreEnded{Source: r.Source}
	b, err := getWhole(ctx, m.o.Store, m.reportKey(r.ID.String()), maxReportBytes, "restore")
	if err == nil {
		err = json.Unmarshal(b, &e.Report)
	}
	e.Err = err
	return e
}

func (m *Manager) restoreDrop(ctx context.Context) error {
	r := m.o.Meta.Image().Restore()
	if err := m.wipe(ctx, r.ID); err != nil {
		return err
	}
	_, err := m.o.State.ProposeRestore(ctx, &metapb.RestoreCommand{RestoreId: r.ID[:], Body: &metapb.RestoreCommand_End{End: &metapb.RestoreEnd{}}})
	if err == nil {
		m.o.Events.Emit(&RestoreEnded{Source: r.Source, Aborted: true})
	}
	return err
}
