package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A process is a program that runs, as package proc starts it.
type process interface {
	Kill() error
	Stop() error
	Pause() error
	Resume() error
	Done() <-chan struct{}
	Wait(context.Context) error
	Tail() string
}

// A unit is a part that is a process. Its methods are called by one goroutine.
type unit struct {
	name    string
	journal *journal
	start   func(context.Context) (process, error) // returns when it serves
	hooks

	process process
	ending  chan struct{} // closed before the process is ended on purpose
}

// hooks are called at changes of a unit; any may be nil.
type hooks struct {
	out    func()            // it is about to be ended
	paused func(paused bool) // it is about to be paused, or goes on
	// drain waits, after out, until the unit has no more requests. A unit with a
	// drain is given none between out and the next start.
	drain func(context.Context) error
	// endsWithin bounds the time between SIGTERM and the end; 0: as long as proc.Stop waits.
	endsWithin time.Duration
}

func (u *unit) up(ctx context.Context) error {
	p, err := u.start(ctx)
	if err != nil {
		return fmt.Errorf("starting %s: %w", u.name, err)
	}
	u.process, u.ending = p, make(chan struct{})
	go u.guard(p, u.ending)
	return nil
}

// guard complains when a process ends unexpectedly.
func (u *unit) guard(p process, ending <-chan struct{}) {
	select {
	case <-ending:
	case <-p.Done():
		select {
		case <-ending:
		default:
			u.journal.complain("%s ended by itself: %v\n%s", u.name, p.Wait(context.Background()), p.Tail())
			<-ending
		}
	}
}

// end prepares for the end of the process, in order or not.
func (u *unit) end() {
	if u.out != nil {
		u.out()
	}
	close(u.ending)
}

// kill ends the process with SIGKILL and starts it again after a while.
func (u *unit) kill(ctx context.Context, down time.Duration) error {
	from := time.Now()
	u.end()
	if err := u.process.Kill(); err != nil {
		return err
	}
	gone := time.Now()
	err := u.again(ctx, down)
	if u.drain != nil {
		// A request may be sent a moment after it was assigned to the unit, and one that is sent until now was assigned
		// before.
		gone = time.Now()
	}
	u.journal.died(u.name, from, gone)
	return err
}

// restart ends the process with SIGTERM and starts it again after a while.
func (u *unit) restart(ctx context.Context, down time.Duration) error {
	from := time.Now()
	u.end()
	if u.drain != nil {
		if err := u.drain(ctx); err != nil {
			return err
		}
	}
	u.stop(ctx)
	if u.drain == nil {
		u.journal.died(u.name, from, time.Now())
	}
	return u.again(ctx, down)
}

// stop ends the process with SIGTERM, and complains if it does not end in order.
func (u *unit) stop(ctx context.Context) {
	asked := time.Now()
	if err := u.process.Stop(); err != nil {
		u.journal.complain("%v", err)
		return
	}
	if took := time.Since(asked); u.endsWithin > 0 && took > u.endsWithin {
		u.journal.complain("%s took %v to end after SIGTERM, want %v at most; faults at the time:\n    %s",
			u.name, took, u.endsWithin, u.journal.around(asked, time.Now()))
	}
	if err := u.process.Wait(ctx); err != nil {
		u.journal.complain("%s ended with %v after SIGTERM, want exit status 0\n%s", u.name, err, u.process.Tail())
	}
}

// again starts the process after a while.
func (u *unit) again(ctx context.Context, down time.Duration) error {
	if err := rest(ctx, down); err != nil {
		return err
	}
	return u.up(ctx)
}

// pause stops the process for a while.
func (u *unit) pause(ctx context.Context, d time.Duration) error {
	if u.paused != nil {
		u.paused(true)
		defer u.paused(false)
	}
	if err := u.process.Pause(); err != nil {
		return err
	}
	from := time.Now()
	err := errors.Join(rest(ctx, d), u.process.Resume())
	u.journal.stopped(u.name, from, time.Now())
	return err
}

// close ends the process permanently.
func (u *unit) close() {
	if u.process == nil {
		return
	}
	select {
	case <-u.ending:
	default:
		u.end()
	}
	if err := u.process.Stop(); err != nil {
		u.journal.complain("at the end: %v", err)
	}
}
