package main

import (
	"os"

	"golang.org/x/sys/unix"
)

const (
	// usualPipe is the size in bytes of a pipe, unless it was resized.
	usualPipe = 64 << 10
	// crashRoom is the size in bytes that it gets, so that a crash (the stacks of all goroutines) fits into it.
	crashRoom = 1 << 20
)

// logFile returns standard error for the log, and gives the Go runtime another way to it, which does not wait for a
// reader. When a process crashes, the runtime writes to file descriptor 2; with a reader that has stalled, the process
// would serve nothing any more and not end either. A second opening of the same pipe does not wait, while the log and
// other processes with this pipe still do. Only pipes are opened again: terminals would show gaps, files do not wait,
// and sockets cannot be opened.
func logFile() *os.File {
	var info unix.Stat_t
	if err := unix.Fstat(unix.Stderr, &info); err != nil || info.Mode&unix.S_IFMT != unix.S_IFIFO {
		return os.Stderr
	}
	crashes, err := unix.Open("/proc/self/fd/2", unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil { // without /proc, without the right to, or without a reader
		return os.Stderr
	}
	defer func() { _ = unix.Close(crashes) }()
	own, err := unix.FcntlInt(uintptr(unix.Stderr), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return os.Stderr
	}
	if err := unix.Dup2(crashes, unix.Stderr); err != nil {
		_ = unix.Close(own)
		return os.Stderr
	}
	if size, err := unix.FcntlInt(uintptr(own), unix.F_GETPIPE_SZ, 0); err == nil && size == usualPipe {
		_, _ = unix.FcntlInt(uintptr(own), unix.F_SETPIPE_SZ, crashRoom) // a smaller one may lose the end of a crash
	}
	return os.NewFile(uintptr(own), os.Stderr.Name())
}
