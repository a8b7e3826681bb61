package tiering

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"varve/protocol/event"
)

// Bounds of the clock guard (DESIGN, invariant 13).
const (
	maxClockDrift  = 5 * time.Minute
	clockAgreement = time.Hour   // of steady progress after a jump, before the new time is believed
	clockKeepEvery = time.Minute // between two writes of the file, by CLOCK_BOOTTIME
)

// ClockOptions say which clocks a guard reads and where it keeps what it believed last. The zero value reads this machine's and
// keeps nothing.
type ClockOptions struct {
	Path     string // of the file; "" keeps nothing, so that a clock that is wrong at the start is believed
	Now      func() time.Time
	Boottime func() time.Duration // CLOCK_BOOTTIME
	BootID   string               // differs after each boot; "" is of no boot that can be known again
	Events   event.Sink
}

// ClockGuard compares the wall clock with CLOCK_BOOTTIME, which no one can set, and with the controller's wall clock. Deleting by
// age is allowed while they agree. After a jump it is forbidden until wall clock and CLOCK_BOOTTIME have agreed for an hour, or the
// wall clock has come back. What was believed last outlives the process: a clock that is wrong when the node starts is a
// jump too. A start later than that by more than the drift, and not by the time since this boot, cannot be told from one.
type ClockGuard struct {
	o ClockOptions

	mu       sync.Mutex
	started  bool
	base     time.Duration // wall - boot that is believed
	pending  time.Duration // wall - boot since the jump
	pendFrom time.Duration // boot time at which pending was first seen
	jumped   bool
	apart    time.Duration // from the controller's wall clock, when that is too far
	kept     time.Duration // boot time of the last write
	keepErr  error
	paused   bool
}

// clockFile is what outlives a process, version 1: JSON, so that a person can read it. Times are in milliseconds.
type clockFile struct {
	Version int    `json:"version"`
	WallMs  int64  `json:"wall_ms"`
	BootMs  int64  `json:"boot_ms"`
	BootID  string `json:"boot_id"`
}

const clockFileVersion = 1

// NewClockGuard returns a guard; nothing is read before the first Check.
func NewClockGuard(o ClockOptions) *ClockGuard {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Boottime == nil {
		o.Boottime, o.BootID = bootTime, bootID()
	}
	return &ClockGuard{o: o}
}

// Check takes one reading of both clocks and says whether retention may act now. The error names what is wrong.
func (c *ClockGuard) Check() error {
	wall, boot := c.o.Now(), c.o.Boottime()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started {
		c.started = true
		c.begin(wall, boot)
	}
	err := c.observe(wall, boot)
	if err == nil {
		c.keep(wall, boot)
	}
	if err == nil && c.apart != 0 {
		err = fmt.Errorf("wall clock is %v from the controller's: deleting by age waits until they agree to within %v", c.apart.Round(time.Second), maxClockDrift)
	}
	if (err != nil) != c.paused {
		c.paused = err != nil
		c.o.Events.Emit(ClockJudged{Err: err})
	}
	return err
}

// Agrees is Check without the reason.
func (c *ClockGuard) Agrees() bool { return c.Check() == nil }

// Compare takes the controller's wall clock as an answer brought it, to a question that was on its way for took.
func (c *ClockGuard) Compare(controller time.Time, took time.Duration) {
	now := c.o.Now()
	apart := controller.Sub(now)
	if apart < 0 {
		apart = min(apart+max(took, 0), 0) // it was read at some moment of the way
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.apart = 0
	if apart.Abs() > maxClockDrift {
		c.apart = apart
	}
}

// begin decides whether the time at the start is believed.
func (c *ClockGuard) begin(wall time.Time, boot time.Duration) {
	now := time.Duration(wall.UnixNano()) - boot
	c.base, c.kept = now, -clockKeepEvery
	was, err := c.load()
	if err == nil && was == nil {
		return // the first start of all
	}
	if err == nil {
		then, passed := time.Duration(was.BootMs)*time.Millisecond, wall.Sub(time.UnixMilli(was.WallMs))
		if was.BootID == c.o.BootID && c.o.BootID != "" && then <= boot {
			c.base = time.Duration(was.WallMs)*time.Millisecond - then
			return
		}
		if passed.Abs() <= maxClockDrift || (passed-boot).Abs() <= maxClockDrift {
			return
		}
		c.base = now - passed
	} else {
		c.base = now - 2*maxClockDrift // nothing is known: the present has to prove itself
	}
	c.jumped, c.pending, c.pendFrom = true, now, boot
}

// observe judges one reading.
func (c *ClockGuard) observe(wall time.Time, boot time.Duration) error {
	now := time.Duration(wall.UnixNano()) - boot
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
	return fmt.Errorf("wall clock jumped by %v, or stood elsewhere when the node was last up: deleting by age waits until it has been steady for %v",
		(now - c.base).Round(time.Second), clockAgreement)
}

// load reads the file; nil when there is none.
func (c *ClockGuard) load() (*clockFile, error) {
	if c.o.Path == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(c.o.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var f clockFile
	if err == nil {
		err = json.Unmarshal(raw, &f)
	}
	if err == nil && f.Version != clockFileVersion {
		err = &FormatError{fmt.Sprintf("version %d of the clock file %s", f.Version, c.o.Path)}
	}
	if err != nil {
		c.o.Events.Emit(ClockNotKept{Path: c.o.Path, Err: err})
	}
	return &f, err
}

// keep writes down what is believed now. A failure costs an hour without deletions after the next start at most; it is told once.
func (c *ClockGuard) keep(wall time.Time, boot time.Duration) {
	if c.o.Path == "" || boot-c.kept < clockKeepEvery {
		return
	}
	c.kept = boot
	raw, err := json.Marshal(clockFile{clockFileVersion, wall.UnixMilli(), boot.Milliseconds(), c.o.BootID})
	if err == nil {
		err = replaceFile(c.o.Path, raw)
	}
	if err != nil && c.keepErr == nil {
		c.o.Events.Emit(ClockNotKept{Path: c.o.Path, Err: err})
	}
	c.keepErr = err
}

// replaceFile writes a small file so that after a crash it is the old or the new one.
func replaceFile(path string, data []byte) error {
	temp := path + ".tmp"
	f, err := os.Create(temp)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// readClock says whether deleting by age is allowed now.
func (m *Manager) readClock() error {
	err := m.clock.Check()
	m.note(&m.clockErr, err)
	return err
}
