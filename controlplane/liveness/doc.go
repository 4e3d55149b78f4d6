// Package liveness detects loops and locks of a process that no longer make progress, so that a liveness probe can have
// the process restarted.
//
// A loop calls its [Activity] when it begins a piece of work and when it has finished it. A [Monitor] checks all
// activities once a second: one that is in the same piece of work at 30 checks in a row is stuck. A lock is watched by
// a loop that only takes and releases it ([Monitor.Probe]).
//
// # Slow is not stuck
//
//   - The Monitor counts checks, not seconds: while the whole process stands still (a suspended machine, SIGSTOP, no
//     CPU) the Monitor does too, and nothing becomes stuck.
//   - Loops wait for each other at the locks they share. Reloading a thousand clusters, each with 200 subscribed
//     proxies, made single steps take 9 s (measured on two cores that had four times as much to do). So the threshold
//     rises by one check for every ten loops that are waiting at the same time: each of them may hold a lock for 0.1 s.
//   - Work that waits for the network or for a file is not watched: a restart would not help.
//
// An activity is one atomic number. The Monitor holds its own lock only for moments, and never waits for anything while
// it does, so it answers whatever else is stuck.
package liveness
