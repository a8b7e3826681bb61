package objstore

import "golang.org/x/sys/unix"

func sameFile(a, b uintptr) bool {
	var x, y unix.Stat_t
	return unix.Fstat(int(a), &x) == nil && unix.Fstat(int(b), &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}
