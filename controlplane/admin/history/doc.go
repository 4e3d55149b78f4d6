// Package history looks at the process once a second and keeps what one look does not show: shares that were served,
// the past hour of each endpoint, past decisions, events, Envoys that left, and incidents with their beginning.
//
// The [Recorder] is what the loops and the daemon use. Each look is a [Moment], which does not change any more; a [Hub]
// wakes the streams that show every one. The bounds in bytes are in history.go and workings.go.
package history
