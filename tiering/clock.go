package tiering

import (
	"fmt"
	"sync"
	"time"
)

// Bounds of the clock guard (DESIGN, invariant 13).
const (
	maxClockDrift  = 5 * time.Minute
	clockAgreement = time.Hour // of steady progress after a jump, before the new time is believed
)

// ClockGuard compares the wall clock with CLOCK_BOOTTIME, which no one can set.
// Deleting by age is allowed while both have advanced alike. After a jump it is
// forbidden until they have agreed for an hour, or the wall clock has come back.
type ClockGuard struct {
	mu       sync.Mutex
	started  bool
	base     time.Duration // wall - boot that is believed
	pending  time.Duration // wall - boot since the jump
	pendFrom time.Duration // boot time at which pending was first seen
	jumped   bool
}

// observe takes one reading of both clocks and says whether retention may act. The
// error names what is wrong.
func (c *ClockGuard) observe(wall time.Time, boot time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Duration(wall.UnixNano()) - boot
	if !c.started {
		c.started, c.base = true, now
		return nil
	}
	if (now - c.base).Abs() <= maxClockDrift {
		// The base is not moved: many small steps must not add up to a jump unseen.
		// (Slewing by NTP moves both clocks.)
		c.jumped = false
		return nil
	}
	if !c.jumped || (now-c.pending).Abs() > maxClockDrift {
		c.jumped, c.pending, c.pendFrom = true, now, boot
	}
	if boot-c.pendFrom >= clockAgreement {
		c.base, c.jumped = c.pending, false
		return nil
	}
	return fmt.Errorf("wall clock jumped by %v: deleting by age waits until it has been steady for %v",
		(now - c.base).Round(time.Second), clockAgreement)
}

// Agrees says whether retention may act now, by this machine's clocks.
func (c *ClockGuard) Agrees() bool { return c.observe(time.Now(), bootTime()) == nil }

// ClockAgrees says whether retention may act now, for partitions that do not settle.
func (m *Manager) ClockAgrees() bool { return m.readClock() == nil }
