//go:build !linux

package router

import "syscall"

// diesWithUs is without effect: only Linux ends a child with its parent.
func diesWithUs() *syscall.SysProcAttr { return nil }
