// Package asynclog is the log of a process that must not wait for the reader of its log.
//
// A logger that writes in the goroutine of its caller stops the process when the reader of standard error stops: a
// pipe holds 64 KiB, and the next line waits, and with it everything that waits for its caller. Here a line is
// formatted and queued, and one goroutine writes the queue. A caller waits for a lock at most, and that lock is never
// held during a write.
//
//	slog.Logger ──> repeats ──> TextHandler or JSONHandler ──> queue ──> writer ──> standard error
//	                   │                                         │
//	                   └── count of lines left out               └── count of lines dropped
//
// # What is lost, and where that shows
//
//   - The queue holds 1 MiB of lines, and as much again is being written. While the queue is full, new lines are
//     dropped and counted. When the reader reads again, one line has the number of dropped lines; it stands between the
//     lines before and after them.
//   - Lines that cannot be written (a pipe without a reader, a full disk) are dropped and counted as well. Later lines
//     are tried again. A process that is to survive a pipe without a reader ignores SIGPIPE.
//   - Close writes the waiting lines, for as long as it is given. Lines that a process logs right before a crash may be
//     lost.
//
// # Repeated lines
//
// A client can connect, or refuse what it is sent, a thousand times a second. Of the lines with the same message
// about the same client, 20 are written in ten seconds, and then one with the number of lines left out. A client that
// goes on gets that one line in each ten seconds. Clients are distinguished by their IP address (the attribute host,
// or peer with a port), because a client chooses its own node id. Lines of a library (attribute library) are bounded
// in the same way, whatever their text. Beyond 4096 such counts at a time, the clients share one count for each
// message. Lines below level Info are never left out: they are for debugging, where each one matters.
//
// # Why no library
//
// zerolog's diode is the well-kept one that never blocks. It is bounded by a number of lines and not of bytes, drops
// the oldest lines, and its Close waits for the reader.
package asynclog
