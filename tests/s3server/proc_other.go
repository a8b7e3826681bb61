//go:build !linux

package s3server

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
