package commitlog

import (
	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS is the file system below a log directory: Pebble's vfs, which brings a
// crashable memory FS and fault injection, plus truncation.
type FS interface {
	vfs.FS
	// Truncate cuts the file to sizeBytes, also for those that have it open.
	Truncate(name string, sizeBytes int64) error
}
