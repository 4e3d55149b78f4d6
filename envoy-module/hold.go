package main

import (
	"sync"
	"time"

	"steelyard/picking/prefix"
	"steelyard/xds/loads/follow"
)

// A held is a request that waits in the queue, or that is in flight by a grant. The worker of the request arrives,
// looks at the result and ends; another goroutine settles.
type held struct {
	filter *filter
	size   int64
	prompt *prefix.Prompt // nil where its body is not looked at
	// wake has the worker look at the result, and free frees what that needs. Neither is called after free.
	wake, free func()

	id uint64

	mu      sync.Mutex
	gone    bool
	outcome follow.Outcome
}

// arrive has the request wait; false where it does not wait.
func (h *held) arrive(a follow.Arrival) (ok bool) {
	h.id, ok = h.filter.waiter.Arrive(time.Now(), a, h.settle)
	return ok
}

func (h *held) settle(o follow.Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.outcome = o; !h.gone {
		h.wake()
	}
}

// result is the outcome.
func (h *held) result() follow.Outcome {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.outcome
}

// end takes in the end of the request.
func (h *held) end() {
	h.mu.Lock()
	h.gone = true
	h.free()
	h.mu.Unlock()
	h.filter.waiter.End(h.id)
}
