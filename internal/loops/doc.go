// Package loops has what goroutines that loop until a context is done have in common: signals that wake them, pauses,
// and a way to stop them and wait for their end. It is a library of a few lines each, used by packages that run.
package loops
