package main

import (
	"sync"
	"time"

	"steelyard/xds/loads/follow"
)

// The reasons in the access log of requests that waited.
const (
	reasonGranted = "queue"
	reasonRefused = "queue_" // and the refusal
)

// A held is a request that waits in the queue, or that is in flight by a grant. The worker of the request arrives,
// looks at the result and ends; another goroutine settles.
type held struct {
	filter *filter
	size   int64
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

// result is the outcome, with its reason for the access log.
func (h *held) result() (o follow.Outcome, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.outcome.Refused != "" {
		return h.outcome, reasonRefused + h.outcome.Refused
	}
	return h.outcome, reasonGranted
}

// end takes in the end of the request.
func (h *held) end() {
	h.mu.Lock()
	h.gone = true
	h.free()
	h.mu.Unlock()
	h.filter.waiter.End(h.id)
}

// refusal is the body of the answer to a request that is refused.
func refusal(reason string) string {
	switch reason {
	case "full":
		return "all model servers are busy, and the queue is full\n"
	case "timeout":
		return "no model server was free within the time that a request may wait\n"
	}
	return "the queue does not take this request\n"
}
