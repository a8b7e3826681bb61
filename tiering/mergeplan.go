package tiering

import (
	"math"
	"time"

	"varve/metastore"
	"varve/protocol"
)

// mergePolicy says which neighbours become one segment. A run of them is merged when
// it has at least min segments and at least mergeGrowth times the bytes of its largest
// one, and the result is at most max bytes: so each merge makes the segment of every
// record in it mergeGrowth times larger, and no record is rewritten more often than
// log4(max / its first segment's bytes) times. What is larger than max/min stays as it
// is. So a partition that is written to has one object for each max/min to max bytes, and
// beside the newest of them fewer than min for each size class.
//
// What is left over has rest: neighbours of which none was written within mergeQuietMs become one
// segment, be they two. That time doubles with each merge behind one of them, so that a record is
// rewritten for this reason at most once more each time that its age doubles. In the end there are
// two objects for each max bytes, and one for each row that is larger than max/min.
type mergePolicy struct {
	min    int   // segments; below 2 = no merging
	max    int64 // bytes of log in the result
	spanMs int64 // between the newest records of the first and the last; 0 = any
}

const (
	mergeGrowth = 4
	// maxMergeSources bounds one merge, maxMergeRun the rows in memory while looking for one.
	maxMergeSources = 256
	maxMergeRun     = 4096
	// leastMergeClass is the smallest size class, in bytes.
	leastMergeClass = 1 << 10
	// A merged segment goes as late as its newest record and holds its oldest back: by at
	// most this part of the total retention, in time and in bytes. What retention takes
	// within the same time is left alone.
	mergeRetentionShare = 10
	// mergeQuietMs is how long after its last upload a run too short for a merge is taken for all that comes: a day.
	mergeQuietMs = 24 * 60 * 60 * 1000
	// maxMergeQuietDoublings keeps the sum in range: 2^20 days.
	maxMergeQuietDoublings = 20
)

func (m *Manager) mergePolicy(cfg TierConfig) mergePolicy {
	p := mergePolicy{min: m.o.MergeMinSegments, max: cfg.SegmentBytes}
	if m.o.MergeMaxBytes > 0 {
		p.max = m.o.MergeMaxBytes
	}
	p.max = min(p.max, math.MaxInt32)
	if cfg.RetentionBytes >= 0 {
		p.max = min(p.max, cfg.RetentionBytes/mergeRetentionShare)
	}
	if cfg.RetentionMs >= 0 {
		p.spanMs = max(1, cfg.RetentionMs/mergeRetentionShare)
	}
	if cfg.CopyDisable || cfg.Left || p.max <= 0 {
		p.min = 0
	}
	return p
}

func (p mergePolicy) small(r metastore.RemoteSegment) bool { return r.LogBytes <= p.max/int64(p.min) }

// newestOf is the time of a segment's newest record, or of its upload when no record
// has one.
func newestOf(r metastore.RemoteSegment) int64 {
	if r.MaxTimestamp < 0 {
		return r.StartTimeMs
	}
	return r.MaxTimestamp
}

// pick finds segments to merge in a run of small neighbours, small ones first; nil when
// there are none.
func (p mergePolicy) pick(run []metastore.RemoteSegment) []metastore.RemoteSegment {
	for class := int64(leastMergeClass); ; class *= mergeGrowth {
		for from := 0; from+p.min <= len(run); from++ {
			if n := p.window(run[from:], class); n >= p.min && p.worth(run[from:from+n]) {
				return run[from : from+n]
			}
		}
		if class >= p.max/int64(p.min) {
			return nil
		}
	}
}

// window counts the segments from the first one on that fit into one and are not above
// the size class.
func (p mergePolicy) window(run []metastore.RemoteSegment, class int64) (n int) {
	var bytes int64
	for _, r := range run {
		bytes += r.LogBytes
		if r.LogBytes > class || bytes > p.max || n == maxMergeSources || r.Next-run[0].Base > math.MaxInt32 {
			break
		}
		if span := newestOf(r) - newestOf(run[0]); p.spanMs > 0 && (span > p.spanMs || span < -p.spanMs) {
			break
		}
		n++
	}
	return n
}

func (p mergePolicy) worth(rows []metastore.RemoteSegment) bool {
	var bytes, largest int64
	for _, r := range rows {
		bytes += r.LogBytes
		largest = max(largest, r.LogBytes)
	}
	return bytes >= mergeGrowth*largest
}

// rest finds neighbours in a run that pick leaves alone and that are not likely to get better ones; dueMs is the first time
// at which there are more of them, never = none at any time.
func (p mergePolicy) rest(run []metastore.RemoteSegment, nowMs int64) (rows []metastore.RemoteSegment, dueMs int64) {
	for dueMs = never; len(run) > 1; {
		n := max(1, p.window(run, math.MaxInt64))
		if at := quietAt(run[:n]); n > 1 && at <= nowMs {
			return run[:n], at
		} else if n > 1 {
			dueMs = min(dueMs, at)
		}
		run = run[n:]
	}
	return nil, dueMs
}

// never is later than any time.
const never = math.MaxInt64

// quietAt is when neighbours are to be merged, however few, if nothing is written there until then.
func quietAt(rows []metastore.RemoteSegment) (ms int64) {
	var merges uint32
	for _, r := range rows {
		ms, merges = max(ms, r.StartTimeMs), max(merges, r.Generation)
	}
	return ms + mergeQuietMs<<min(merges, maxMergeQuietDoublings)
}

// mergeFind is what one look over the rows of a partition found.
type mergeFind struct {
	old     []metastore.RemoteSegment // what to merge now
	settled int64                     // where to look from the next time: below it nothing can become worth a merge
	dueMs   int64                     // when there is something although nothing is uploaded until then; never
}

// take judges a run that is at its end.
func (f *mergeFind) take(p mergePolicy, run []metastore.RemoteSegment, nowMs int64) (found bool) {
	if f.old = p.pick(run); f.old == nil {
		var due int64
		f.old, due = p.rest(run, nowMs)
		f.dueMs = min(f.dueMs, due)
	}
	return f.old != nil
}

// findMerge looks for segments to merge from an offset on.
func (m *Manager) findMerge(pt *part, p mergePolicy, from int64) (f mergeFind, err error) {
	st, err := m.o.Meta.Tier(pt.key.topic, pt.key.partition)
	if err != nil {
		return f, err
	}
	now, expires := m.o.Now().UnixMilli(), int64(math.MinInt64)
	if cfg := pt.TierConfig(); cfg.RetentionMs >= 0 {
		expires = now - cfg.RetentionMs + p.spanMs
	}
	var run []metastore.RemoteSegment
	f.settled, f.dueMs = max(from, st.LogStart), never
	err = m.o.Meta.SegmentsFrom(pt.key.topic, pt.key.partition, f.settled, func(r metastore.RemoteSegment) bool {
		fits := p.small(r) && r.Base >= st.LogStart && newestOf(r) >= expires && m.here(r.Location)
		if n := len(run); n > 0 && (!fits || n == maxMergeRun || r.Base != run[n-1].Next) {
			if f.take(p, run, now) {
				return false
			}
			run = run[:0]
		}
		if fits {
			run = append(run, r)
		}
		if len(run) <= 1 && f.dueMs == never {
			f.settled = r.Base
		}
		return true
	})
	if err == nil && f.old == nil {
		f.take(p, run, now)
	}
	return f, err
}

// mergeState is what a partition remembers of its merges. Guarded by Manager.mu.
type mergeState struct {
	look      bool        // something may have become worth a merge
	queued    bool        // in Manager.mergeable
	dueMs     int64       // when to look although nothing has changed; 0 or never = not
	from      int64       // findMerge's settled
	policy    mergePolicy // that from is true for
	task      *task
	id        protocol.UUID // segment id that task has in STARTED
	fails     int
	notBefore time.Time
}
