package tiering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"varve/metastore"
	"varve/protocol"
	"varve/tiering/objstore"
)

// VerifyLevel says how closely Verify looks at each object. A level holds those below it.
type VerifyLevel int

// The levels of Verify.
const (
	VerifyList  VerifyLevel = iota // presence and size: LIST requests only
	VerifyIndex                    // footer and indexes: one GET an object
	VerifyData                     // every chunk and every batch
)

// VerifyOptions say what Verify looks at and what it may do.
type VerifyOptions struct {
	Level       VerifyLevel
	Topic       func(protocol.UUID) bool // nil = all; with it, objects of unknown topics are passed over
	Repair      bool                     // remove orphans that are old enough, store anew what a local copy has
	BytesPerSec int64                    // of objects read; 0 = no bound
	FirstFolder int                      // of the 256 spread folders, where to begin; any number is legal
	Found       func(Finding)            // told of each finding as it is made, one at a time; may be nil
}

// FindingKind is what is wrong.
type FindingKind string

// The kinds of findings.
const (
	FoundOrphan   FindingKind = "orphan"   // an object that no row names
	FoundMissing  FindingKind = "missing"  // a readable segment without its object
	FoundSize     FindingKind = "size"     // an object of another size than its row says
	FoundCorrupt  FindingKind = "corrupt"  // bytes that are not what was written
	FoundGap      FindingKind = "gap"      // offsets above log start that no segment claims
	FoundStranger FindingKind = "stranger" // an object whose key varve does not write
)

// Finding is one thing that is not as it should be.
type Finding struct {
	Kind      FindingKind
	TopicID   protocol.UUID
	Topic     string // "" when the topic is not known (any more)
	Partition int32
	Base      int64 // offsets [Base, Next)
	Next      int64
	Key       string // of the object
	Bytes     int64  // of the object, where it is known
	What      string // in words
	Repair    string // what was done about it, or why nothing was; "" when nothing was asked for
	Repaired  bool
}

// VerifyReport is what Verify looked at. Numbers of findings include repaired ones.
type VerifyReport struct {
	Objects, ObjectBytes int64 // that LIST named
	Segments             int64 // rows of readable segments looked at
	Partitions           int64
	BytesRead            int64 // of objects
	Findings, Repaired   int64
	Unchecked            int64 // objects, or folders of them, that the store would not show
	FirstError           string
}

const (
	spreadFolders     = 256
	maxVerifyFolders  = 8    // listed at a time
	maxVerifyPageRows = 1000 // rows held at a time
	// maxVerifyFailures one after the other, of requests that would be sent again another day, end the asking: with hundreds of
	// folders, and deadlines of minutes, a run during an outage would otherwise take hours to say that there is one.
	maxVerifyFailures = 8
	// orphanGrace is added to the delete delay: an object without a row is left alone until it is so old.
	orphanGraceMs = 3_600_000
)

// Verify compares the bucket with the metastore: each object under this cluster's prefix has a row, each readable segment
// has its object, and the object is what was written, as closely as the level says. Every suspicion is looked at a
// second time, from the other side, since uploads, deletes and merges go on meanwhile. Only the controller may repair.
//
// The error is that of ctx; what a store did not show is counted in the report, and no more is asked of one that does not answer.
// In the folders of clusters that a restore took
// over the objects that rows name are looked at, and nothing else: what else is there was never this cluster's.
func (m *Manager) Verify(ctx context.Context, o VerifyOptions) (VerifyReport, error) {
	v := &verifier{m: m, o: o}
	for _, c := range m.o.Meta.Image().Claims() {
		v.claims = append(v.claims, c.ClusterId)
	}
	if o.BytesPerSec > 0 {
		v.limit = rate.NewLimiter(rate.Limit(o.BytesPerSec), extentChunks*chunkBytes)
	}
	if o.Repair && !m.o.Meta.IsController() {
		return VerifyReport{}, protocol.Errorf(protocol.NotController, "only the controller repairs; ask broker %d", m.o.Meta.Image().Controller())
	}
	parts := v.partitions()
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxVerifyFolders)
	for i := range spreadFolders {
		hh := fmt.Sprintf("%02x", (i+o.FirstFolder)&(spreadFolders-1))
		g.Go(func() error { return v.folder(gctx, hh, parts[hh]) })
	}
	err := g.Wait()
	v.removeOrphans(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.rep.BytesRead = v.read.Load()
	return v.rep, err
}

// verifier is one run of Verify.
type verifier struct {
	m      *Manager
	o      VerifyOptions
	claims []string // clusters whose folders a restore took over
	limit  *rate.Limiter
	read   atomic.Int64
	fails  atomic.Int32 // requests in a row that the store did not serve; see maxVerifyFailures

	mu      sync.Mutex
	rep     VerifyReport
	orphans []Finding // that may go, once all is compared
}

// partitions are those that have something in the tier, by spread folder.
func (v *verifier) partitions() map[string][]partKey {
	out := map[string][]partKey{}
	for t := range v.m.o.Meta.Image().Topics() {
		if v.o.Topic != nil && !v.o.Topic(t.ID) {
			continue
		}
		for p := range t.Partitions {
			hh := spread(t.ID, int32(p))
			out[hh] = append(out[hh], partKey{t.ID, int32(p)})
		}
	}
	return out
}

// folder compares what lies in one spread folder, of this cluster's and of each that a restore took over, with the rows. The error is
// ctx's.
func (v *verifier) folder(ctx context.Context, hh string, known []partKey) error {
	for _, cluster := range append([]string{""}, v.claims...) {
		j := &join{v: v, cluster: cluster, seen: map[partKey]bool{}}
		root := path.Join(v.m.o.Prefix, cmp.Or(cluster, v.m.o.ClusterID), hh) + "/"
		if v.away() {
			v.unchecked(errAway)
			continue
		}
		err := v.m.o.Store.List(ctx, root, "", func(o objstore.ObjectInfo) bool {
			j.object(ctx, o)
			return ctx.Err() == nil
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil: // nothing follows from what it did not name
			v.unchecked(fmt.Errorf("list %s: %w", root, err))
			continue
		}
		v.fails.Store(0)
		j.close(ctx)
		for _, key := range known {
			if !j.seen[key] {
				j.open(key)
				j.close(ctx)
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// gap tells of offsets that no segment claims, unless retention has just passed them.
func (v *verifier) gap(key partKey, from, to int64) {
	st, err := v.m.o.Meta.Tier(key.topic, key.partition)
	if err != nil || to <= st.LogStart {
		return
	}
	if row, ok, err := v.m.o.Meta.SegmentAt(key.topic, key.partition, max(from, st.LogStart)); err != nil || ok && row.Base <= from {
		return
	}
	v.found(Finding{Kind: FoundGap, TopicID: key.topic, Partition: key.partition, Base: from, Next: to,
		What: fmt.Sprintf("no segment claims offsets [%d, %d), the log starts at %d", from, to, st.LogStart)})
}

// segment looks at one readable segment; info is its object as LIST named it, nil when it did not.
func (v *verifier) segment(ctx context.Context, r metastore.RemoteSegment, listed *objstore.ObjectInfo) {
	v.count(func(rep *VerifyReport) { rep.Segments++ })
	if v.away() {
		v.unchecked(errAway)
		return
	}
	f := v.finding(r)
	var info objstore.ObjectInfo
	if listed != nil {
		info = *listed
	} else {
		var err error
		switch info, err = v.m.o.Store.Head(ctx, f.Key); {
		case isMissing(err):
			f.Kind, f.What = FoundMissing, "the object is not there"+v.m.elsewhere(r)
		case err != nil:
			v.unchecked(err)
			return
		}
	}
	if f.Kind == "" && info.Size != r.ObjectBytes {
		f.Kind, f.What = FoundSize, fmt.Sprintf("the object has %d bytes, its row says %d", info.Size, r.ObjectBytes)
	}
	if f.Kind == "" && v.o.Level >= VerifyIndex {
		err := v.content(ctx, r)
		switch {
		case isCorrupt(err):
			f.Kind, f.What = FoundCorrupt, err.Error()
		case isMissing(err):
			f.Kind, f.What = FoundMissing, "the object is not there"+v.m.elsewhere(r)
		case err != nil:
			v.unchecked(err)
			return
		}
	}
	v.fails.Store(0)
	if f.Kind == "" || !v.stillThere(r) {
		return
	}
	if v.o.Repair {
		f.Repair, f.Repaired = v.m.heal(ctx, r)
	}
	v.found(f)
}

// stillThere reports whether r is readable now: if not, what was seen of its object means nothing.
func (v *verifier) stillThere(r metastore.RemoteSegment) bool {
	row, ok, err := v.m.o.Meta.SegmentAt(r.TopicID, r.Partition, r.Base)
	return err == nil && ok && row.ID == r.ID
}

func (v *verifier) finding(r metastore.RemoteSegment) Finding {
	return Finding{TopicID: r.TopicID, Partition: r.Partition, Base: r.Base, Next: r.Next, Key: v.m.rowKey(r), Bytes: r.ObjectBytes}
}

func (v *verifier) count(fn func(*VerifyReport)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fn(&v.rep)
}

// errAway stands for what was not asked for any more.
var errAway = errors.New("the store does not answer")

// away says that the store has not served so many requests in a row that no more are sent.
func (v *verifier) away() bool { return v.fails.Load() >= maxVerifyFailures }

func (v *verifier) unchecked(err error) {
	if objstore.IsRetryable(err) {
		v.fails.Add(1)
	}
	v.count(func(r *VerifyReport) {
		r.Unchecked++
		if r.FirstError == "" {
			r.FirstError = err.Error()
		}
	})
}

func (v *verifier) found(f Finding) {
	if t, ok := v.m.o.Meta.Image().TopicByID(f.TopicID); ok {
		f.Topic = t.Name
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.rep.Findings++
	if f.Repaired {
		v.rep.Repaired++
	}
	if v.o.Found != nil {
		v.o.Found(f)
	}
}
