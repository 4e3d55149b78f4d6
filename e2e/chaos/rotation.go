package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A rotation is the balancer in front of the Envoys: it sends requests to those in rotation, one after the other, and
// counts the requests that each has. It is a load.Picker.
type rotation struct {
	mu   sync.Mutex
	in   []bool
	out  []int // requests that each Envoy has
	next int
}

func newRotation(n int) *rotation {
	return &rotation{in: make([]bool, n), out: make([]int, n)}
}

// Pick implements load.Picker. When no Envoy is in rotation, requests go to all.
func (r *rotation) Pick() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range r.in {
		if r.next = (r.next + 1) % len(r.in); r.in[r.next] {
			break
		}
	}
	r.out[r.next]++
	return r.next
}

// Done implements load.Picker.
func (r *rotation) Done(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out[i]--
}

func (r *rotation) join(i int)  { r.set(i, true) }
func (r *rotation) leave(i int) { r.set(i, false) }

func (r *rotation) set(i int, in bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.in[i] = in
}

// drained waits until an Envoy that has left the rotation has no more requests.
func (r *rotation) drained(ctx context.Context, i int) error {
	return wait(ctx, patience, func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.out[i] > 0 {
			return fmt.Errorf("%s still has %d requests", envoyName(i), r.out[i])
		}
		return nil
	})
}

// patience bounds the wait for a condition that has no bound of its own.
const patience = time.Minute

// wait calls check until it returns nil, and returns its last error when that takes
// longer than limit.
func wait(ctx context.Context, limit time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %w", limit, err)
		case <-tick.C:
		}
	}
}

// rest returns after d, or with ctx.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
