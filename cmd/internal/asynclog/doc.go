// Package asynclog is the log of a process that must not wait for whoever reads it.
//
// A log that is written where it happens stops the process when the reader of
// standard error stops: a pipe holds 64 KiB, and then the next line waits, with all
// that waits for who wrote it. Here a line is formatted and queued, and one goroutine writes
// the queue. Nothing that logs waits for more than a lock that is never held during a write.
//
//	slog.Logger ──> repeats ──> TextHandler or JSONHandler ──> queue ──> writer ──> standard error
//	                   │                                         │
//	                   └── count of lines left out               └── count of lines dropped
//
// # What is lost, and how that is said
//
//   - The queue holds 1 MiB of lines, and as much again is being written. While it is full,
//     new lines are dropped and counted. When the reader reads again, one line says how many
//     were dropped, between those before and those after them.
//   - Lines that cannot be written (a pipe without a reader, a full disk) are dropped and
//     counted as well, and later lines are tried again. A process that is to survive a pipe
//     without a reader ignores SIGPIPE.
//   - Close writes what waits, for as long as it is given. What a process logs right before
//     a crash may be lost.
//
// # Repeated lines
//
// A client can connect, or refuse what it is sent, a thousand times a second. Of the lines
// with the same message about the same client, 20 are written in ten seconds, and then one
// that says how many were left out. A client that goes on gets that one line in each ten
// seconds. It is told apart by its IP address (the attribute host, or peer with a port), since
// its node id is of its own choosing. What a library logs (attribute library) is bounded in
// the same way, whatever its text. Beyond 4096 such counts at a time, the clients share one for
// each message. Lines below level Info are all written: whoever asks for them wants to see each.
//
// # Why no library
//
// zerolog's diode is the well-kept one that never blocks. It is bounded by a number of
// lines and not of bytes, drops the oldest, and its Close waits for the reader.
package asynclog
