package tiering

import (
	"os"

	"golang.org/x/sys/unix"
)

// writePages starts to write a range to the disk, so that its pages are clean, and can
// be dropped, by the time that somebody asks. It is advice: errors do not matter.
func writePages(f *os.File, off, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}

// forgetPages drops a range from the page cache.
func forgetPages(f *os.File, off, n int64) {
	_ = unix.Fadvise(int(f.Fd()), off, n, unix.FADV_DONTNEED)
}

// punchHole gives a range's room on the disk back.
func punchHole(f *os.File, off, n int64) {
	_ = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
}
