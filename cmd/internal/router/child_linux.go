package router

import "syscall"

// diesWithUs has the kernel kill Envoy when the thread that started it ends: after kill -9 of the router it would keep
// the port. For hot restarts, Envoy replaces that by a SIGTERM, which one that hangs does not take.
func diesWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
