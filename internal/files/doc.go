// Package files reads the files that a configuration names: itself, lists of endpoints,
// tokens, passwords, keys and certificates.
//
// A file that never ends (a named pipe, a device, a mount that hangs) costs its reader an
// error and not its life. Whatever is no regular file is refused before it is opened, no
// more than a limit is read, and what has not come within [Patience] is given up. A system
// call that hangs cannot be interrupted, so its goroutine is left behind: at most one for
// each file, because a later read of the same file waits for the first one.
//
// It keeps nothing and watches nothing. When a file is read again is its user's decision.
package files
