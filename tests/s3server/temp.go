package s3server

import (
	"os"

	"golang.org/x/sys/unix"
)

const (
	memoryDisk         = "/dev/shm" // where Linux keeps files in memory
	memoryDiskMinBytes = 4 << 30    // free; with less, the disk is used
)

// TempInMemory makes the temporary folders of this process's tests, and of what they start, files in memory, where there is such a
// disk: tests in which nothing is said about the disk do not wait for its syncs. A TestMain calls it first.
func TempInMemory() {
	var st unix.Statfs_t
	if unix.Statfs(memoryDisk, &st) != nil || int64(st.Bavail)*int64(st.Bsize) < memoryDiskMinBytes || unix.Access(memoryDisk, unix.W_OK) != nil {
		return
	}
	_ = os.Setenv("TMPDIR", memoryDisk) // a legal name: never fails
}
