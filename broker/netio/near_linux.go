package netio

import (
	"strings"

	"golang.org/x/sys/unix"
)

// keepNear frees replies to a peer that is a fraction of a millisecond away from BBR's pacing, where that is what the system
// has. BBR spreads segments over time by timers: at such a distance a timer, an interrupt and a softirq for each of them, and
// nothing to gain, for no queue on the way is worth sparing. Hot reads of 1 MiB per partition took twice the CPU and had half
// the throughput. Reno is what every kernel has and lets everybody choose; so near, a loss costs it some milliseconds. Where
// it is not allowed the send buffer is bounded instead, so that little is left to be paced: that costs a fifth more CPU than
// Reno. Peers farther away keep what the system has, and so does a system that has anything but BBR.
func (c *Conn) keepNear() {
	if c.raw == nil {
		return
	}
	_ = c.raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil || info.Rtt == 0 || info.Rtt > nearRTTMicros {
			return
		}
		has, err := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		if err != nil || !strings.HasPrefix(has, "bbr") {
			return
		}
		if unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno") != nil {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, nearSendBufferBytes)
		}
	})
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
