package commitlog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"varve/protocol"
)

// Undefined stands for "no such epoch" and "no such offset".
const Undefined = -1

// epochCache knows where each leader epoch began (LeaderEpochFileCache.java).
// Epochs and starts rise strictly. Readers take no lock; each change is durable
// in leader-epoch-checkpoint before it is seen.
type epochCache struct {
	fs   FS
	path string
	mu   sync.Mutex // of changes
	cur  atomic.Pointer[[]EpochStart]
}

func newEpochCache(fsys FS, path string, entries []EpochStart) *epochCache {
	c := &epochCache{fs: fsys, path: path}
	c.cur.Store(&entries)
	return c
}

func (c *epochCache) entries() []EpochStart { return *c.cur.Load() }

func (c *epochCache) latest() int32 {
	e := c.entries()
	if len(e) == 0 {
		return Undefined
	}
	return e[len(e)-1].Epoch
}

// at returns the epoch that off was written in.
func (c *epochCache) at(off int64) int32 {
	e := c.entries()
	for i := len(e) - 1; i >= 0; i-- {
		if e[i].Start <= off {
			return e[i].Epoch
		}
	}
	return Undefined
}

// endOf answers OffsetForLeaderEpoch: the largest epoch at or below the one
// asked for and where it ends (LeaderEpochFileCache.endOffsetFor).
func (c *epochCache) endOf(epoch int32, logEnd int64) (int32, int64) {
	e := c.entries()
	if epoch < 0 || len(e) == 0 || epoch > e[len(e)-1].Epoch {
		return Undefined, Undefined
	}
	i, found := slices.BinarySearchFunc(e, epoch, func(s EpochStart, epoch int32) int { return int(s.Epoch) - int(epoch) })
	switch {
	case found && i == len(e)-1:
		return epoch, logEnd
	case found:
		return epoch, e[i+1].Start
	case i == 0:
		return epoch, e[0].Start
	default:
		return e[i-1].Epoch, e[i].Start
	}
}

// assign says that epoch begins at start. Entries that contradict it go; one
// that is there already changes nothing.
func (c *epochCache) assign(epoch int32, start int64) error {
	if epoch < 0 || start < 0 {
		return &protocol.InvariantError{What: fmt.Sprintf("leader epoch %d at offset %d", epoch, start)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries()
	if n := len(e); n > 0 && e[n-1].Epoch == epoch && e[n-1].Start <= start {
		return nil
	}
	keep := slices.Clone(e)
	for n := len(keep); n > 0 && (keep[n-1].Epoch >= epoch || keep[n-1].Start >= start); n = len(keep) {
		keep = keep[:n-1]
	}
	return c.replaceLocked(append(keep, EpochStart{Epoch: epoch, Start: start}))
}

// truncateEnd forgets epochs that begin at or after end.
func (c *epochCache) truncateEnd(end int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries()
	n := len(e)
	for n > 0 && e[n-1].Start >= end {
		n--
	}
	if n == len(e) {
		return nil
	}
	return c.replaceLocked(slices.Clone(e[:n]))
}

// truncateStart forgets epochs that ended at or before start; the one that
// holds start then begins there.
func (c *epochCache) truncateStart(start int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries()
	first := 0
	for first+1 < len(e) && e[first+1].Start <= start {
		first++
	}
	if len(e) == 0 || (first == 0 && e[0].Start >= start) {
		return nil
	}
	keep := slices.Clone(e[first:])
	keep[0].Start = max(keep[0].Start, start)
	return c.replaceLocked(keep)
}

// replace makes entries durable and then visible.
func (c *epochCache) replace(entries []EpochStart) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replaceLocked(entries)
}

func (c *epochCache) replaceLocked(entries []EpochStart) error {
	if err := writeFileAtomic(c.fs, c.path, encodeEpochs(entries)); err != nil {
		return err
	}
	c.cur.Store(&entries)
	return nil
}

// checkEpochs holds entries against the rule that both numbers rise.
func checkEpochs(entries []EpochStart, where string) error {
	for i, e := range entries {
		if e.Epoch < 0 || e.Start < 0 || (i > 0 && (e.Epoch <= entries[i-1].Epoch || e.Start <= entries[i-1].Start)) {
			return &protocol.CorruptionError{Where: where, What: fmt.Sprintf("leader epoch %d at %d is out of order", e.Epoch, e.Start)}
		}
	}
	return nil
}

func encodeEpochs(entries []EpochStart) []byte {
	lines := make([]string, len(entries))
	for i, e := range entries {
		lines[i] = fmt.Sprintf("%d %d", e.Epoch, e.Start)
	}
	return encodeCheckpoint(lines)
}

func decodeEpochs(data []byte, where string) ([]EpochStart, error) {
	lines, err := decodeCheckpoint(data, where)
	if err != nil {
		return nil, err
	}
	entries := make([]EpochStart, 0, len(lines))
	for _, line := range lines {
		epoch, start, _ := strings.Cut(line, " ")
		e, err1 := strconv.ParseInt(epoch, 10, 32)
		s, err2 := strconv.ParseInt(start, 10, 64)
		if err1 != nil || err2 != nil {
			return nil, &protocol.CorruptionError{Where: where, What: fmt.Sprintf("line %q is not an epoch and an offset", line)}
		}
		entries = append(entries, EpochStart{Epoch: int32(e), Start: s})
	}
	return entries, checkEpochs(entries, where)
}
