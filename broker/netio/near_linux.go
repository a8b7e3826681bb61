package netio

import "golang.org/x/sys/unix"

// keepNear bounds what the kernel holds of replies to a peer that is a fraction of a millisecond away. The kernel would
// let the buffer grow to megabytes; of a peer so near that is never in flight, only queued: the bytes leave the processor's
// cache before they are sent, and sender and receiver take turns less often. Hot reads of 1 MiB per partition then took
// 1.7 times the CPU and had half the throughput. Peers farther away keep the kernel's own sizing, for they need the window:
// what the kernel makes of the bound, twice as much, is 2 GB/s at the distance where it ends.
func (c *Conn) keepNear() {
	if c.raw == nil {
		return
	}
	_ = c.raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil && info.Rtt > 0 && info.Rtt <= nearRTTMicros {
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
