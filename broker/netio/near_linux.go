package netio

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// unpace takes a listener out of BBR, where that is what the system has, and returns what it was; "" when nothing was
// changed. BBR spreads segments over time by timers. For a peer a fraction of a millisecond away that is a timer and an
// interrupt for each of them with nothing to gain, for no queue on the way is worth sparing: hot reads of 1 MiB per partition
// took twice the CPU and had half the throughput. Reno is what every kernel has and lets everybody choose; so near, a loss
// costs it some milliseconds. It must be the listener that has it: a connection that began with BBR is paced whatever it
// changes to.
func unpace(rc syscall.RawConn) (was string) {
	_ = rc.Control(func(fd uintptr) {
		has, err := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		if err == nil && strings.HasPrefix(has, "bbr") && setCongestion(fd, "reno") == nil {
			was = has
		}
	})
	return was
}

// pace gives back what unpace took from the listener, unless the peer is near.
func (c *Conn) pace(was string) {
	if c.raw == nil || was == "" {
		return
	}
	_ = c.raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil || info.Rtt == 0 || info.Rtt > nearRTTMicros {
			_ = setCongestion(fd, was) // the system's own choice is always allowed
		}
	})
}

func setCongestion(fd uintptr, name string) error {
	return unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
}

// unread is how many bytes of the peer's have arrived and were not read.
func (c *Conn) unread() (n int64) {
	if c.raw == nil {
		return 0
	}
	_ = c.raw.Control(func(fd uintptr) {
		if got, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
			n = int64(got)
		}
	})
	return n
}
