package commitlog

import "golang.org/x/sys/unix"

// dropAhead frees what is reserved behind the file's end, which is at sizeBytes; the file must be pinned. It goes by the
// descriptor: by now the name may be another file's.
func (d *diskFile) dropAhead(sizeBytes int64) {
	if fd := d.f.Fd(); fd != ^uintptr(0) {
		_ = unix.Ftruncate(int(fd), sizeBytes)
	}
}
