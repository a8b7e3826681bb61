package netio

import (
	"golang.org/x/sys/unix"

	"varve/protocol"
)

// readResident reads b from off as far as that needs no disk, and reports whether that was all of it. known is false for
// files of which that cannot be asked.
func readResident(f protocol.SpanFile, b []byte, off int64) (all, known bool) {
	fd := f.Fd()
	if fd == ^uintptr(0) {
		return false, false
	}
	iov := [1][]byte{b}
	n, err := unix.Preadv2(int(fd), iov[:], off, unix.RWF_NOWAIT)
	switch err {
	case nil, unix.EAGAIN:
		return n == len(b), true
	}
	return false, false // no such thing here, or a failure that the read itself will meet again
}

// warm brings a file range into memory, so that sendfile does not sleep on the disk: at its end and in its middle it is
// asked whether it is there. A range that is there costs two short calls.
func (c *Conn) warm(f protocol.SpanFile, off, n int64) error {
	var b [1]byte
	for _, at := range [...]int64{off + n/2, off + n - 1} {
		if all, known := readResident(f, b[:], at); all || !known {
			continue
		}
		return c.onDisk(func() error {
			_ = unix.Fadvise(int(f.Fd()), off, n, unix.FADV_WILLNEED) // what it fails to read ahead is read by and by
			for at := off; at < off+n; at += coldStepBytes {
				if err := readFull(f, b[:], at); err != nil {
					return err
				}
			}
			return readFull(f, b[:], off+n-1)
		})
	}
	return nil
}
