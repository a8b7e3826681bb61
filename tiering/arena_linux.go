package tiering

import "golang.org/x/sys/unix"

// mapMemory returns memory that is not on the heap, of which only what is written to takes room.
func mapMemory(n int) (b []byte, mapped bool) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return make([]byte, n), false
	}
	return b, true
}

func unmapMemory(b []byte) { _ = unix.Munmap(b) }

// dropMemory gives the pages of b back; its bytes are then undefined.
func dropMemory(b []byte) { _ = unix.Madvise(b, unix.MADV_DONTNEED) }
