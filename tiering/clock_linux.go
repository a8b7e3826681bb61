package tiering

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime reads CLOCK_BOOTTIME: time since boot, sleep included.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // the guard then sees the wall clock run away and keeps retention off
	}
	return time.Duration(ts.Nano())
}
