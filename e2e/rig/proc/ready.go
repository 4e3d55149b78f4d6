package proc

import (
	"context"
	"fmt"
	"time"
)

// readyTimeout is how long a program may take to serve when the caller's
// context sets no earlier end. Two cores under a whole test run are slow.
const readyTimeout = 60 * time.Second

// pollInterval is the pause between two tries of a readiness check.
const pollInterval = 20 * time.Millisecond

// WaitReady calls check until it returns nil. It gives up when ctx ends or the
// process does; the error then has the last check's error and the end of the
// log. Each call of check gets a context of at most a second, because a program
// that is starting may accept a connection and say nothing.
func (p *Process) WaitReady(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		last := try(ctx, check)
		if last == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended before it was ready (%s): %w\n%s", p.name, p.cmd.ProcessState, last, p.Tail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready (%w): %w\n%s", p.name, context.Cause(ctx), last, p.Tail())
		case <-tick.C:
		}
	}
}

func try(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return check(ctx)
}

// ReadyOrKill is WaitReady, except that it kills a process that does not get ready, so that a failed start leaves
// nothing behind.
func (p *Process) ReadyOrKill(ctx context.Context, check func(context.Context) error) error {
	err := p.WaitReady(ctx, check)
	if err != nil {
		_ = p.Kill()
	}
	return err
}

// StartReady runs spec and returns when check succeeds. ctx bounds the start only.
func StartReady(ctx context.Context, spec Spec, check func(context.Context) error) (*Process, error) {
	p, err := Start(spec)
	if err == nil {
		err = p.ReadyOrKill(ctx, check)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}
