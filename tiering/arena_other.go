//go:build !linux

package tiering

func mapMemory(n int) (b []byte, mapped bool) { return make([]byte, n), false }
func unmapMemory([]byte)                      {}
func dropMemory([]byte)                       {}
