// Package liveness finds out whether the loops and locks of a process still move, for the
// probe that has it restarted when they do not.
//
// A loop tells a [Beat] when it begins a piece of work and when it has ended it. A [Monitor]
// looks at all beats once a second: one that is in the same piece of work at 30 looks in a row is
// stuck. A lock is watched by a loop that does nothing but take it ([Monitor.Probe]).
//
// # What is slow is not stuck
//
//   - Looks are counted and not seconds, so that time in which the whole process stood still (a
//     suspended machine, SIGSTOP, no CPU) makes nobody stuck: the Monitor stood still as well.
//   - Loops wait for each other at the locks that they share. Reloading a thousand clusters with
//     200 proxies that subscribe to each of them made single steps take 9 s (measured, on two cores that had
//     four times as much to do). So there is one more look for each ten that wait at a time: as
//     many as there are may hold a lock for 0.1 s each, one after the other.
//   - What waits for the network or a file is not watched: a restart would not help it.
//
// A beat is one atomic number, and the Monitor's own lock is held for moments, by nobody who
// waits for anything. So the Monitor answers whatever is stuck.
package liveness
