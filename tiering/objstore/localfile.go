package objstore

import (
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// LocalFile is the file on this machine that a body is read from, each byte at the offset that it has in the object. It is for
// who sends bytes on without having them in memory: what he read and checked through the body, with all that wrappers do to it,
// is then in the file too. It is the body's, and closed with it, until Keep.
type LocalFile struct {
	vfs.File
	kept bool
}

// LocalFileOf returns the file behind a body of Get, nil when there is none: the store is a network one or keeps its objects in
// memory, or a wrapper between here and there gives other bytes than the file's.
func LocalFileOf(body io.Reader) *LocalFile {
	for {
		switch b := body.(type) {
		case *fileBody:
			if b.f.Fd() == vfs.InvalidFd {
				return nil
			}
			return b.f
		case interface{ under() io.Reader }:
			body = b.under()
		default:
			return nil
		}
	}
}

// Keep makes the file the caller's, who closes it; the body may be read on and is closed as ever. It is called by who reads
// the body.
func (f *LocalFile) Keep() { f.kept = true }

// Same reports whether both are known to be the same file, and not only files of one name.
func (f *LocalFile) Same(o *LocalFile) bool { return sameFile(f.Fd(), o.Fd()) }

// The wrappers that hand on what they read as it is.
func (b *exactBody) under() io.Reader     { return b.src }
func (b *countedBody) under() io.Reader   { return b.ReadCloser }
func (b *watchedBody) under() io.Reader   { return b.body }
func (b *throttledBody) under() io.Reader { return b.ReadCloser }
