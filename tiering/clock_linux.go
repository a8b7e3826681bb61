package tiering

import (
	"os"
	"strings"
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

// bootID differs after each boot; "" when it cannot be read, which counts as another boot.
func bootID() string {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}
