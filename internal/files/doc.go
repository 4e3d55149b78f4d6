// Package files reads the files that a configuration names: the configuration itself, lists of endpoints, tokens,
// passwords, keys and certificates.
//
// A file that never ends (a named pipe, a device, a mount that hangs) makes the read fail and never blocks its caller.
// A path that is not a regular file is refused before it is opened, a read has a limit of bytes, and it is given up
// after [Patience]. A system call that hangs cannot be interrupted, so its goroutine is left behind. Callers at the
// same time share one system call, and while earlier ones hang, further calls become less and less frequent: often
// enough that a file that replaces the one that hangs is read, and so rarely that a mount that hangs for days holds
// some dozens of goroutines for each file.
//
// The package caches nothing. Its callers decide when a file is read again; package watch tells them when that is due.
package files
