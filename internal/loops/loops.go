package loops

import (
	"context"
	"time"
)

// A Signal wakes the goroutine that receives from it. It is set or not: it does not count. Make one with NewSignal.
type Signal chan struct{}

// NewSignal makes a signal that is not set.
func NewSignal() Signal { return make(Signal, 1) }

// Set sets the signal, and never blocks. What was changed before is seen by the goroutine that receives the signal.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default: // it is set already, and not yet received
	}
}

// Pause waits for d, or until ctx is done.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Every calls f once per interval until ctx is done, the first time after one interval.
func Every(ctx context.Context, interval time.Duration, f func(now time.Time)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil { // which select prefers no more than a tick that is due
		select {
		case <-ctx.Done():
		case now := <-ticker.C:
			f(now)
		}
	}
}

// A Task is a goroutine that can be stopped and waited for.
type Task struct {
	Cancel context.CancelFunc
	done   chan struct{}
}

// Start runs a function in a goroutine of its own.
func Start(ctx context.Context, run func(context.Context)) Task {
	ctx, cancel := context.WithCancel(ctx)
	t := Task{Cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		run(ctx)
	}()
	return t
}

// Stop cancels the context of the task, and waits for its end.
func (t Task) Stop() {
	t.Cancel()
	<-t.done
}
