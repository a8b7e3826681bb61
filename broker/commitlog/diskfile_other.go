//go:build !linux

package commitlog

// dropAhead does nothing: files reserve nothing here.
func (d *diskFile) dropAhead(int64) {}
