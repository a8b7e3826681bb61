package metastore

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// compactionsMax is how many compactions of a state folder run at once.
const compactionsMax = 1

// compactions lets Pebble compact. Pebble's own scheduler would do the same, but asks ten times a second whether more
// compactions have become allowed, which they never do here: this one acts when a compaction is wanted and when one ends,
// so that an idle node sleeps.
type compactions struct {
	db pebble.DBForCompaction // set once, before any other call

	mu      sync.Mutex
	running int
	closed  bool

	granting sync.Mutex // held while the next compaction is asked for; Unregister waits for it
}

var _ pebble.CompactionScheduler = (*compactions)(nil)

// Register implements pebble.CompactionScheduler.
func (c *compactions) Register(_ int, db pebble.DBForCompaction) { c.db = db }

// Unregister implements pebble.CompactionScheduler.
func (c *compactions) Unregister() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.granting.Lock()
	defer c.granting.Unlock()
}

// TrySchedule implements pebble.CompactionScheduler. Whoever is refused here waits for a compaction that runs, and whose
// Done looks for it.
func (c *compactions) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.running >= compactionsMax {
		return false, nil
	}
	c.running++
	return true, c
}

// UpdateGetAllowedWithoutPermission implements pebble.CompactionScheduler: what is allowed is a constant.
func (c *compactions) UpdateGetAllowedWithoutPermission() {}

// Started implements pebble.CompactionGrantHandle.
func (c *compactions) Started() {}

// MeasureCPU implements pebble.CompactionGrantHandle.
func (c *compactions) MeasureCPU(pebble.CompactionGoroutineKind) {}

// CumulativeStats implements pebble.CompactionGrantHandle.
func (c *compactions) CumulativeStats(pebble.CompactionGrantHandleStats) {}

// Done implements pebble.CompactionGrantHandle: the compaction's place goes to one that waits. The new one counts only once
// Pebble took it, as in Pebble's own scheduler: a refusal before that would leave somebody waiting for nobody.
func (c *compactions) Done() {
	c.granting.Lock()
	defer c.granting.Unlock()
	c.mu.Lock()
	c.running--
	full := c.closed || c.running >= compactionsMax
	c.mu.Unlock()
	if full {
		return
	}
	if waiting, _ := c.db.GetWaitingCompaction(); waiting && c.db.Schedule(c) {
		c.mu.Lock()
		c.running++
		c.mu.Unlock()
	}
}
