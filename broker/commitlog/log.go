package commitlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"varve/protocol"
)

// Log is one partition's log. Its methods may be called from any goroutine.
//
// Locks, in the order they are taken: structure (removal and truncation of
// segments), flushing (one flush at a time), mu (the writer's state), finishing
// (what a roll left to be done). Appends take mu only, and nobody else who holds
// it waits for the disk; doc.go names the exceptions. Readers
// take none of them: they load the segment list, pin a file, and look again
// when reading says that a truncation was in between.
type Log struct {
	m     *Manager
	dir   string
	tp    topicPartition
	topic protocol.UUID
	cfg   atomic.Pointer[Config]

	structure sync.Mutex
	flushing  sync.Mutex
	finishing sync.Mutex

	mu         sync.Mutex
	producers  *producers
	closed     error    // why nothing may be written any more
	leftover   *segment // made, not taken, and not yet durably removed; see giveUp
	onDurable  []func()
	spare      *spareFile // the next segment's log file, nil for none
	spareAsked bool       // for the active segment; a roll begins anew
	spareBytes int64      // to be reserved for the spare that is asked for, until somebody makes it

	unfinished atomic.Pointer[unfinishedRoll] // set under mu, cleared under finishing; nil for none
	snapshots  unsyncedSnapshots

	segs          atomic.Pointer[[]*segment] // ordered by base; never empty; the last is active
	epochs        *epochCache
	end           atomic.Int64
	logStart      atomic.Int64
	recoveryPoint atomic.Int64 // everything below is durable
	highWatermark atomic.Int64 // as the replica told, -1 unknown

	// reading is odd while a truncation changes what readers may be looking
	// at, and moves on with each.
	reading atomic.Uint64

	dirDirty      atomic.Bool  // names in the folder changed since its last sync
	flushQueued   atomic.Bool  // waits for, or is in, the flusher
	flushWhole    atomic.Bool  // of the active segment too: the flusher's next of this log
	flushAgain    atomic.Bool  // was asked for while it was in the flusher
	flushOwed     atomic.Bool  // could not be done for want of a descriptor: housekeeping asks again
	unflushedFrom atomic.Int64 // clock (ms) of the oldest append not yet flushed, 0 none
	tendAsked     atomic.Bool  // stands in the queue of those to be tended
	spareSince    atomic.Int64 // clock (ms) when the spare was made, 0 none
	settled       atomic.Int64 // one above the offset up to which the log is in the tier; 0: it does not go there
}

// errClosed is what a log says that was deleted or shut down under its user.
var errClosed = protocol.Errorf(protocol.NotLeaderOrFollower, "the log is closed")

// Topic returns the topic's name.
func (l *Log) Topic() string { return l.tp.topic }

// TopicID returns the topic's id.
func (l *Log) TopicID() protocol.UUID { return l.topic }

// Partition returns the partition's index.
func (l *Log) Partition() int32 { return l.tp.partition }

// Config returns the configuration in force.
func (l *Log) Config() Config { return *l.cfg.Load() }

// SetConfig changes the configuration; it holds from the next append on.
func (l *Log) SetConfig(c Config) {
	l.cfg.Store(&c)
	if c.FlushMessages == 1 && l.recoveryPoint.Load() < l.end.Load() {
		l.m.flusher.ask(l) // DurableEnd now waits for it
	}
}

// LogStart is the first offset that exists for readers, in the tier or here.
func (l *Log) LogStart() int64 { return l.logStart.Load() }

// LocalStart is the first offset that can be read here.
func (l *Log) LocalStart() int64 { return max(l.logStart.Load(), l.segments()[0].base) }

// End is the offset the next record gets.
func (l *Log) End() int64 { return l.end.Load() }

// DurableEnd is End, but with flush.messages=1 the end of what was fsynced.
func (l *Log) DurableEnd() int64 {
	if l.cfg.Load().FlushMessages == 1 {
		return l.recoveryPoint.Load()
	}
	return l.end.Load()
}

// OnDurable registers fn to be called after DurableEnd rose through a flush, or
// never will because the directory is offline, under none of the log's locks.
func (l *Log) OnDurable(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onDurable = append(l.onDurable, fn)
}

// SetHighWatermark tells the log the partition's high watermark, to be
// checkpointed and to know which ended transactions are replicated.
func (l *Log) SetHighWatermark(off int64) { l.highWatermark.Store(off) }

func (l *Log) segments() []*segment { return *l.segs.Load() }

func (l *Log) active() *segment {
	s := l.segments()
	return s[len(s)-1]
}

func (l *Log) setSegments(s []*segment) { l.segs.Store(&s) }

// floorSegment returns the index of the last segment with base <= off, -1 if
// there is none.
func floorSegment(segs []*segment, off int64) int {
	return sort.Search(len(segs), func(i int) bool { return segs[i].base > off }) - 1
}

// Segments describes the local segments, oldest first.
func (l *Log) Segments() []SegmentInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	segs := l.segments()
	out := make([]SegmentInfo, len(segs))
	for i, s := range segs {
		out[i] = SegmentInfo{Base: s.base, Next: s.next(), SizeBytes: s.size(),
			MaxTimestamp: s.maxTimestamp.Load(), CreatedMs: s.createdMs, Sealed: i < len(segs)-1}
	}
	return out
}

// SizeBytes is the size of all local log files.
func (l *Log) SizeBytes() int64 {
	var n int64
	for _, s := range l.segments() {
		n += s.size()
	}
	return n
}

// LatestEpoch is the newest leader epoch known, -1 if none.
func (l *Log) LatestEpoch() int32 { return l.epochs.latest() }

// Epochs returns all known leader epochs and where they begin. It is not to be
// changed.
func (l *Log) Epochs() []EpochStart { return l.epochs.entries() }

// EpochAt is the leader epoch that off was written in, -1 if unknown.
func (l *Log) EpochAt(off int64) int32 { return l.epochs.at(off) }

// EndOfEpoch returns the largest epoch at or below the one asked for and the
// offset where it ends; -1, -1 when the epoch is above all known ones.
func (l *Log) EndOfEpoch(epoch int32) (foundEpoch int32, end int64) {
	return l.epochs.endOf(epoch, l.end.Load())
}

// AssignEpoch notes durably that epoch begins at start, as a new leader does.
func (l *Log) AssignEpoch(epoch int32, start int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	return l.diskError("leader epoch checkpoint", l.epochs.assign(epoch, start))
}

// writable reports why nothing may be written.
func (l *Log) writable() error {
	if l.closed != nil {
		return l.closed
	}
	if err := l.m.offlineError(); err != nil || l.leftover == nil {
		return err
	}
	return l.clearLeftover()
}

// giveUp removes a new segment that is not taken after all. While that cannot be made durable nothing is written: were the
// log to go on beyond the segment's base, the next start would take that for where the segment before it ends.
func (l *Log) giveUp(s *segment) {
	l.leftover = s
	_ = l.clearLeftover() // writable tries again
}

func (l *Log) clearLeftover() error {
	if err := l.dropFromEnd([]*segment{l.leftover}); err != nil {
		return l.diskError("removal of a segment that was not taken", err)
	}
	l.leftover = nil
	return nil
}

// diskError turns a failed disk operation into Kafka's error. Only a full disk
// leaves the directory online; after anything else nobody knows what stands on
// it.
func (l *Log) diskError(what string, err error) error {
	if err == nil {
		return nil
	}
	var invariant *protocol.InvariantError
	if errors.As(err, &invariant) {
		return err
	}
	if !isFull(err) {
		return l.m.goOffline(fmt.Errorf("%s of %s: %w", what, l.tp, err))
	}
	l.m.disk.full(what+" of "+l.tp.String(), err)
	return &NoRoomError{Level: DiskIsFull, What: fmt.Sprintf("%s: %v", what, err)}
}

// readError is diskError for reads: a broken segment is the partition's
// problem, a failed read the directory's.
func (l *Log) readError(err error) error {
	if err == nil {
		return nil
	}
	var corrupt *protocol.CorruptionError
	if errors.As(err, &corrupt) || errors.Is(err, protocol.OffsetOutOfRange) {
		return err
	}
	return protocol.Errorf(protocol.KafkaStorageError, "reading %s: %v", l.tp, err)
}

// openSegment makes a new, empty active segment at base; its log file is there
// on return, under the name of a spare if useSpare says so; no name is durable yet.
func (l *Log) openSegment(base int64, useSpare bool) (*segment, error) {
	s := newSegment(l.m.cache, l.dir, base)
	cfg := l.cfg.Load()
	s.createdMs = l.m.nowMs()
	if j := min(cfg.SegmentJitterMs, cfg.SegmentMs); j > 0 {
		s.jitterMs = rand.Int64N(j)
	}
	if useSpare && l.useSpare(s) {
		return s, nil
	}
	err := s.log.writeAt(nil, 0)
	if err == nil && cfg.Preallocate {
		// Only a full disk matters here: some file systems cannot do it.
		s.reservedBytes.Store(int64(cfg.SegmentBytes))
		if perr := s.log.preallocate(0, int64(cfg.SegmentBytes)); isFull(perr) {
			err = perr
		}
	}
	if err != nil {
		l.giveUp(s)
		return nil, err
	}
	return s, nil
}

func (l *Log) path(name string) string { return filepath.Join(l.dir, name) }

// close writes everything out for a clean shutdown.
func (l *Log) close() error {
	l.structure.Lock()
	defer l.structure.Unlock()
	l.mu.Lock()
	if l.closed != nil {
		l.mu.Unlock()
		return nil
	}
	l.closed = errClosed
	active := l.active()
	err := l.finishRoll()
	if err == nil && l.leftover != nil {
		err = l.clearLeftover()
	}
	if err == nil {
		err = active.seal()
	}
	if err == nil {
		err = l.takeSnapshot(l.end.Load())
	}
	if spare := l.takeSpare(); spare != nil {
		err = errors.Join(err, spare.file.remove())
	}
	l.mu.Unlock()
	if err == nil {
		err = active.sync(true)
	}
	if err == nil {
		_, err = l.flush(true)
	}
	for _, s := range l.segments() {
		s.abandon()
	}
	return l.diskError("close", err)
}

// shut stops all use of the log; its folder is about to go.
func (l *Log) shut(why error) {
	l.structure.Lock()
	defer l.structure.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finishing.Lock()
	defer l.finishing.Unlock()
	l.closed = why
	l.unfinished.Store(nil)
	for _, s := range l.segments() {
		s.abandon()
	}
	if l.spare != nil {
		l.spare.file.abandon()
	}
}

// Producers describes the idempotent producers known, by id.
func (l *Log) Producers() []ProducerInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.producers.infos()
}

func (m *Manager) nowMs() int64 { return m.opts.Now().UnixMilli() }

// MaybeRoll seals the active segment when it is not empty and its first batch
// was written more than segment.ms (less its jitter) or maxAgeMs ago by the
// wall clock; maxAgeMs at or below 0 is no bound. Appends roll by record time;
// this is what bounds the tier's lag when appends pause.
func (l *Log) MaybeRoll(now time.Time, maxAgeMs int64) (rolled bool, err error) {
	return l.rollIf(func(s *segment) bool {
		cfg := l.cfg.Load()
		bound := cfg.SegmentMs - s.jitterMs
		if maxAgeMs > 0 {
			bound = min(bound, maxAgeMs)
		}
		return now.UnixMilli()-s.createdMs > bound
	})
}

// Roll seals the active segment unless it is empty.
func (l *Log) Roll() error {
	_, err := l.rollIf(func(*segment) bool { return true })
	return err
}

// rollIf seals the active segment if it is not empty and due says so. Appends go on meanwhile.
func (l *Log) rollIf(due func(*segment) bool) (rolled bool, err error) {
	if wanted, err := l.rollDue(due); !wanted {
		return false, err
	}
	l.structure.Lock()
	defer l.structure.Unlock()
	if err := l.finishRoll(); err != nil {
		return false, l.diskError("closing a segment", err)
	}
	l.prepareSpare(0)
	l.mu.Lock()
	if rolled = l.active().size() > 0 && due(l.active()); rolled {
		if err = l.writable(); err == nil {
			err = l.roll(l.end.Load(), l.end.Load())
		}
	}
	l.mu.Unlock()
	if err == nil {
		err = l.diskError("closing a segment", l.finishRoll())
	}
	return rolled && err == nil, err
}

func (l *Log) rollDue(due func(*segment) bool) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.active().size() == 0 || !due(l.active()) {
		return false, nil
	}
	if err := l.writable(); err != nil {
		return false, err
	}
	return true, nil
}
