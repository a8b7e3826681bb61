//go:build !linux

package tiering

import "time"

var processStart = time.Now()

// bootTime is time since the process started, by Go's monotonic clock. It may stand still while the machine sleeps: the
// guard then sees a jump and keeps retention off for an hour, which errs to the safe side.
func bootTime() time.Duration { return time.Since(processStart) + time.Nanosecond }

// bootID is that of no boot: the clock above begins with the process.
func bootID() string { return "" }
